"""The key of a hub's state: the service's credential (systemd: LoadCredential=), otherwise a file.

The first line is the key. The second line says that the key opens sealed rows only. Otherwise anyone with write
access to the state could replace it with one of an earlier format, in which not everything is authenticated. A key
without this line, from an earlier kubewright, migrates an old state once; then the line is added. A credential cannot
be changed and therefore migrates no state; an administrator does that with `hub migrate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import HostError
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import dataclass, field
from kubewright.cli.parsing import inputs
from kubewright.enrollment.state.seal import OldState
from kubewright.host.desired import File, Show
from kubewright.pki.encryption import sealing

if TYPE_CHECKING:
    from kubewright.host.seam import Host

SEALED_ONLY: Final = "opens sealed rows only"
TAKING_OVER: Final = "is taking over an earlier state"
_CREDENTIAL: Final = "hub.key"
_PRIVATE: Final = 0o700


@dataclass(frozen=True, kw_only=True)
class HubKey:
    """A key, and the meaning of its second line; `path` is None for a credential."""

    content: bytes = field(repr=False)
    note: str = ""
    path: PurePosixPath | None = None

    def noted(self, note: str) -> File:
        """Return the content of its file with another second line."""
        return _file(self.path or PurePosixPath(), self.content, note)


def read(host: Host, path: PurePosixPath, environment: Mapping[str, str], *, fresh: bool) -> HubKey:
    """Read the key; create one for a new state. Raises HostError if it is missing, or if other users can read it."""
    directory = environment.get("CREDENTIALS_DIRECTORY", "")
    credential = host.read(PurePosixPath(directory) / _CREDENTIAL) if directory.startswith("/") else None
    if credential is not None:
        return _parsed(credential)
    found = host.state(path)
    if found is None and not fresh:
        raise HostError(
            f"{path} does not exist, and the state of the hub is sealed with it",
            remedy="restore it from a backup, or set --key-file; for a new state in Secrets create one: kubewright certs certificate-key",
        )
    if found is None:
        host.ensure(_file(path, sealing.parse_key(sealing.new_key(SystemRandom())), SEALED_ONLY))
        inputs.warn([f"made {path}, which seals the new state of this hub; keep a copy of it in a different place"])
    elif found.mode & 0o077:
        raise HostError(f"{path} can be read by others", remedy=f"chmod 600 {path}, and consider who may have read it")
    return _parsed(host.read(path) or b"", path)


def _parsed(content: bytes, path: PurePosixPath | None = None) -> HubKey:
    first, _, rest = content.decode(errors="replace").strip().partition("\n")
    return HubKey(content=sealing.parse_key(first.strip()), note=rest.strip(), path=path)


def _file(path: PurePosixPath, key: bytes, note: str) -> File:
    return File(path=path, content=f"{key.hex()}\n{note}\n".encode(), show=Show.SIZE, directory_mode=_PRIVATE)


def allow_old(host: Host, key: HubKey, error: OldState) -> None:
    """Require that the key may open a state of an earlier format, and that this can be disabled afterwards. Raises the error, or HostError."""
    if key.path is None or key.note == SEALED_ONLY:
        raise error
    try:
        host.ensure(key.noted(TAKING_OVER))
    except HostError as unwritable:
        raise error from unwritable


def end_old(host: Host, key: HubKey) -> None:
    """Record that from now on the key opens no state of an earlier format.

    Nothing to do for a credential: it cannot be changed, and never opened such a state.
    """
    if key.path is not None and key.note != SEALED_ONLY:
        with suppress(HostError):
            host.ensure(key.noted(SEALED_ONLY))
