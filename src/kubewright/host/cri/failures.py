"""Refusals of a container runtime, as errors that name the socket and the remedy. Pure except for `probe`."""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from pathlib import Path
from typing import Final

from kubewright.base.errors import DiskFull, HostError, RuntimeSilent, RuntimeUnavailable
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass

ANOTHER_SOCKET: Final = "set another socket with --cri-socket or nodeRegistration.criSocket"
LONGEST_PATH: Final = 107
"""In bytes (unix(7))."""
_NOT_ACCEPTED: Final = frozenset({errno.ETIMEDOUT, errno.EAGAIN})
"""Errors of connecting to a listener that does not accept connections."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A call that failed: its purpose (`report its version`), gRPC's name of the code, and the runtime's message."""

    doing: str
    code: str
    said: str = ""
    seconds: float | None = None


def probe(path: str) -> int | None:
    """Connect to a socket and close the connection. Returns the error number, None if something listens."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        try:
            connection.connect(path)
        except TimeoutError:
            return errno.ETIMEDOUT
        except OSError as error:
            return error.errno
    return None


def unreachable(endpoint: str, path: str, number: int) -> RuntimeUnavailable:
    """Return the error for a socket that cannot be connected to. `number` is the result of `probe`."""
    what = f"no container runtime answers at {endpoint}"
    if number in {errno.ENOENT, errno.ENOTDIR}:
        return RuntimeUnavailable(
            what,
            detail=f"there is no {path}",
            remedy=f"install a container runtime and start it (for example `systemctl enable --now containerd`), or {ANOTHER_SOCKET}",
        )
    if number in {errno.EACCES, errno.EPERM}:
        return RuntimeUnavailable(
            what, detail=f"user {os.geteuid()} may not connect to it", remedy=f"run the command as root (`namei -l {path}` shows the modes)"
        )
    if number == errno.ECONNREFUSED and not _is_socket(path):
        return RuntimeUnavailable(what, detail=f"{path} is no socket", remedy=ANOTHER_SOCKET)
    if number == errno.ECONNREFUSED:
        return RuntimeUnavailable(
            what,
            detail=f"nothing listens at {path}: the runtime is not running",
            remedy=f"start it (`systemctl status containerd` or `crio` shows why it stopped), or {ANOTHER_SOCKET}",
        )
    kind = RuntimeSilent if number in _NOT_ACCEPTED else RuntimeUnavailable
    return kind(what, detail=os.strerror(number), remedy=ANOTHER_SOCKET)


def refused(refusal: Refusal, *, endpoint: str) -> HostError:
    """Return the error for a runtime that answers but does not do what was requested."""
    what = f"the container runtime at {endpoint} cannot {refusal.doing}"
    match refusal.code:
        case "DEADLINE_EXCEEDED":
            return RuntimeSilent(
                what,
                detail=f"no answer within {refusal.seconds:.3g} s" if refusal.seconds else "no answer in time",
                remedy="see the runtime's log (for example `journalctl -u containerd`); restart it if it hangs",
            )
        case "UNIMPLEMENTED":
            return RuntimeUnavailable(
                what,
                detail=refusal.said,
                remedy="use a runtime with version 1 of the CRI (containerd 1.6, CRI-O 1.20 or later);"
                " containerd: `cri` must not be in disabled_plugins of /etc/containerd/config.toml",
            )
        case "UNAVAILABLE" | "CANCELLED" | "INTERNAL" if not refusal.said or _BROKEN.search(refusal.said):
            kind = RuntimeUnavailable if refusal.code == "CANCELLED" else RuntimeSilent  # we cancelled the call ourselves
            return kind(
                what,
                detail=refusal.said or "the connection was closed",
                remedy=f"check that it is a running container runtime; if not, {ANOTHER_SOCKET}",
            )
    return HostError(what, detail=refusal.said or refusal.code, remedy="see the runtime's log (for example `journalctl -u containerd`)")


def not_pulled(image: str, said: str) -> HostError:
    """Return the error for an image that the runtime could not pull.

    `said` is the runtime's message, which contains the registry's answer.
    """
    what = f"the image {image} cannot be pulled"
    if _FULL.search(said):
        return DiskFull(what, detail=said, remedy="free space where the runtime keeps its images (`crictl rmi --prune`), then try again")
    remedy = next((remedy for pattern, remedy in _REMEDIES if pattern.search(said)), _OTHERWISE)
    return HostError(what, detail=said, remedy=remedy)


_BROKEN: Final = Pattern(
    r"^(Socket closed|Stream removed|Channel closed|failed to connect|recvmsg|sendmsg|GOAWAY|Received RST_STREAM|Trying)", re.IGNORECASE
)
"""Messages of gRPC itself; all others are the runtime's."""

_FULL: Final = Pattern(r"no space left|disk quota exceeded", re.IGNORECASE)
_OTHERWISE: Final = "see the runtime's log (for example `journalctl -u containerd`), then try again"

_REMEDIES: Final = (
    (re.compile(r"server gave HTTP response to HTTPS client", re.IGNORECASE),
     "the registry does not use TLS: allow http for it in the runtime's registry settings (containerd: certs.d/HOST/hosts.toml)"),
    (re.compile(r"x509|certificate", re.IGNORECASE),
     "make the runtime trust the registry's CA (containerd: certs.d/HOST/hosts.toml)"),
    (re.compile(r"unauthorized|denied|forbidden|\b40[13]\b", re.IGNORECASE),
     "configure credentials for the registry in the runtime, or pull the image beforehand; some registries answer this for unknown names too"),
    (re.compile(r"invalid reference|parse image", re.IGNORECASE),
     "correct the name: check imageRepository and kubernetesVersion, and `config images list`"),
    (re.compile(r"not ?found|manifest unknown|no match for platform", re.IGNORECASE),
     "check that the registry has this name and tag (imageRepository, kubernetesVersion), or import the image into the runtime"),
    (re.compile(r"dial tcp|no such host|connection refused|i/o timeout|timeout|deadline exceeded|proxyconnect|unreachable|EOF", re.IGNORECASE),
     "let the runtime reach the registry (its proxy is a setting of its service), or import the image; --image-repository names a mirror"),
)  # fmt: skip
"""The meaning of a runtime's message, and the remedy; the first row that matches."""


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:
        return False
