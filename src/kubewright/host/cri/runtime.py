"""A machine's container runtime behind its CRI socket, and the choice of that socket. gRPC is loaded at the first call.

Logs have the format of the CRI: a line per write, `TIME STREAM TAG TEXT`, where the tag P means that the next line
continues this one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.machine import CRI_SOCKET
from kubewright.base.change import Action, Change
from kubewright.base.errors import HostError, KubewrightError, RuntimeUnavailable
from kubewright.host.cri import failures
from kubewright.host.states import Container, ContainerState, Image, RuntimeStatus, Sandbox

if TYPE_CHECKING:
    from kubewright.host.cri.client import Client
    from kubewright.host.seam import RuntimeVersion

TAIL: Final = 64 * 1024
"""Bytes at the end of a log that are read."""

_PARTIAL: Final = "P"

_SCHEME: Final = "unix://"
_POD_NAMESPACE: Final = "io.kubernetes.pod.namespace"
_STATIC_PODS: Final = "kube-system"
_CONTAINER_NAME: Final = "io.kubernetes.container.name"
"""Labels that the kubelet gives every container (pkg/kubelet/types/labels.go)."""


def choose_socket(found: Sequence[str]) -> str:
    """Return the only socket that was found, or the default if there is none. Raises HostError that lists several."""
    if len(found) > 1:
        raise HostError(
            "there are several container runtimes on this machine",
            detail=", ".join(found),
            remedy="set the socket of the one to use with --cri-socket or nodeRegistration.criSocket",
        )
    return found[0] if found else CRI_SOCKET


def log_texts(content: bytes) -> list[str]:
    """Return the lines that a container wrote, in order.

    Lines that are cut off at the beginning or malformed are left out.
    """
    return list(_joined(content.decode("utf-8", errors="replace").splitlines()))


def _joined(lines: list[str]) -> Iterator[str]:
    """Join partial lines, separately for stdout and stderr."""
    begun: dict[str, str] = {}
    for line in lines:
        fields = line.split(" ", 3)
        if len(fields) < 3 or fields[1] not in {"stdout", "stderr"}:
            continue
        _, stream, tags, *rest = fields
        text = begun.pop(stream, "") + "".join(rest)
        if tags.split(":")[0] == _PARTIAL:
            begun[stream] = text
        else:
            yield text
    yield from begun.values()


class CRIRuntime:
    """The container runtime at `endpoint`: `unix://` and a path.

    It connects at the first verb; `close` closes the connection. `tail` reads the last bytes of a log file, `timeout`
    is the time limit of a call in seconds. Safe to use from several threads.
    """

    def __init__(self, endpoint: str, *, tail: Callable[[PurePosixPath], bytes] | None = None, timeout: float | None = None) -> None:
        self.endpoint = endpoint
        self._timeout = timeout
        self._tail = tail or _read_tail

    @cached_property
    def client(self) -> Client:
        """The connection.

        Raises HostError for an endpoint that is not a local socket, RuntimeUnavailable if nothing listens or gRPC is
        not installed.
        """
        path = self.endpoint.removeprefix(_SCHEME)
        if not self.endpoint.startswith(_SCHEME) or not path.startswith("/"):
            raise HostError(
                f"{self.endpoint} is not the address of a container runtime on this machine",
                remedy="set its socket as unix:///path/to/socket with --cri-socket or nodeRegistration.criSocket",
            )
        # loading gRPC takes longer than this check, and exits the process if there is no /dev
        if len(os.fsencode(path)) <= failures.LONGEST_PATH and _missing(path):
            raise failures.unreachable(self.endpoint, path, errno.ENOENT)
        try:
            from kubewright.host.cri.client import Client
        except ImportError as error:
            raise _not_installed(error) from error
        return Client(self.endpoint) if self._timeout is None else Client(self.endpoint, timeout=self._timeout)

    def close(self) -> None:
        """Close the connection; calls of other threads end with it."""
        if "client" in self.__dict__:
            self.client.close()
            del self.__dict__["client"]

    def version(self) -> RuntimeVersion:
        return self.client.version()

    def status(self) -> RuntimeStatus:
        return self.client.status()

    def sandbox_image(self) -> str:
        return self.client.sandbox_image()

    def give_pod_range(self, cidrs: str, /) -> None:
        """Pass the address ranges of pods, separated by commas, to the runtime. Repeating it changes nothing."""
        self.client.give_pod_range(cidrs)

    def image_directories(self) -> list[PurePosixPath]:
        """Return the directories that contain its images."""
        return [PurePosixPath(path) for path in self.client.image_directories()]

    def cgroup_driver(self) -> str | None:
        return self.client.cgroup_driver()

    def images(self) -> list[Image]:
        """Return all images."""
        return self.client.images()

    def has_image(self, image: str, /) -> bool:
        return self.client.image(image) is not None

    def sandboxes(self) -> list[Sandbox]:
        return self.client.sandboxes()

    def containers(self, *, namespace: str) -> list[Container]:
        found = self.client.containers({_POD_NAMESPACE: namespace})
        return [self._with_end(one) for one in found]

    def last_lines(self, pod: str, /, *, count: int, container: str = "") -> list[str]:
        """Never raises, because callers use it to explain another error.

        A container that has not written anything yet does not hide the previous one.
        """
        try:
            lives = self.client.containers({_POD_NAMESPACE: _STATIC_PODS, _CONTAINER_NAME: pod})
            chosen = [one.id for one in lives if container in ("", one.id)]
            paths = (path for identifier in chosen if (path := self.client.log_path(identifier)))
            said = (log_texts(self._tail(PurePosixPath(path))) for path in paths)
            return next((lines for lines in said if lines), [])[-count:]
        except (KubewrightError, OSError):
            return []

    def _with_end(self, container: Container) -> Container:
        """Request how a container ended, if it did. If it was removed in the meantime, return what is known."""
        if container.state is not ContainerState.EXITED:
            return container
        try:
            return self.client.ended(container)
        except RuntimeUnavailable:
            raise
        except HostError:
            return container

    def pull(self, image: str, /) -> Change:
        before = self.client.image(image)
        self.client.pull(image)
        after = self.client.image(image)
        target = f"image {image}"
        if before is None:
            return Change(target=target, action=Action.CREATE)
        changed = after is not None and after.id != before.id
        return Change(target=target, action=Action.UPDATE if changed else Action.NONE)

    def stop_sandbox(self, sandbox: Sandbox, /) -> Change:
        self.client.stop_sandbox(sandbox.id)
        return Change(target=sandbox.target, action=Action.UPDATE, reason="stopped")

    def remove_sandbox(self, sandbox: Sandbox, /) -> Change:
        self.client.stop_sandbox(sandbox.id)
        self.client.remove_sandbox(sandbox.id)
        return Change(target=sandbox.target, action=Action.DELETE)


def _read_tail(path: PurePosixPath) -> bytes:
    with Path(path).open("rb") as stream:
        stream.seek(0, 2)
        stream.seek(max(0, stream.tell() - TAIL))
        return stream.read()


def _missing(path: str) -> bool:
    """Return whether a path certainly does not exist: errors of looking at it are left to the client."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _not_installed(error: ImportError) -> HostError:
    return HostError(
        "cannot connect to container runtimes: gRPC is not installed",
        detail=str(error),
        remedy="install the extra `cri` of kubewright: pip install grpcio protobuf",
    )
