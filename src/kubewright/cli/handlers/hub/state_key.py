"""The key of a hub's state: the service's credential (systemd: LoadCredential=), else a file.

The first line is the key. The second one says that it opens sealed rows only: whoever can write the state could otherwise put one of an earlier
format in its place, in which not everything is authenticated. A key that has no such line, from an earlier kubewright, takes an old state over
once; the line is added then. A credential cannot be changed, and takes over none: a person does so with `hub migrate`.
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
    """A key, and what its second line says; `path` is None for a credential."""

    content: bytes = field(repr=False)
    note: str = ""
    path: PurePosixPath | None = None

    def noted(self, note: str) -> File:
        """Return its file with another second line."""
        return _file(self.path or PurePosixPath(), self.content, note)


def read(host: Host, path: PurePosixPath, environment: Mapping[str, str], *, fresh: bool) -> HubKey:
    """Read the key; make one for a new state. Raises HostError where it is missing, or can be read by others."""
    directory = environment.get("CREDENTIALS_DIRECTORY", "")
    credential = host.read(PurePosixPath(directory) / _CREDENTIAL) if directory.startswith("/") else None
    if credential is not None:
        return _parsed(credential)
    found = host.state(path)
    if found is None and not fresh:
        raise HostError(
            f"{path} does not exist, and the state of the hub is sealed with it",
            remedy="restore it from a backup, or name it with --key-file; for a new state in Secrets make it: kubewright certs certificate-key",
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
    """Require that the key may open a state of an earlier format, and that this can be ended later. Raises the error, or HostError."""
    if key.path is None or key.note == SEALED_ONLY:
        raise error
    try:
        host.ensure(key.noted(TAKING_OVER))
    except HostError as unwritable:
        raise error from unwritable


def end_old(host: Host, key: HubKey) -> None:
    """Have the key open no state of an earlier format from now on; one that cannot be written opened none."""
    if key.path is not None and key.note != SEALED_ONLY:
        with suppress(HostError):
            host.ensure(key.noted(SEALED_ONLY))
