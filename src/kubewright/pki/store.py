"""Where certificates and kubeconfigs lie: a protocol that `host` implements over files, and one that keeps them in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from kubewright.base.change import Action, Change

KEY_MODE: Final = 0o600
CERTIFICATE_MODE: Final = 0o644
PUBLIC_KEY_MODE: Final = 0o600
"""Of sa.pub when it is made here; a downloaded one gets CERTIFICATE_MODE (kubeadm v1.36)."""
KUBECONFIG_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o755


class CertificateStore(Protocol):
    """Files below one directory, named relative to it: `ca.crt`, `etcd/server.key`; for kubeconfigs `admin.conf`."""

    def read(self, name: str, /) -> bytes | None:
        """Return the content, or None where there is no such file. Raises HostError where it cannot be read."""
        ...

    def write(self, name: str, content: bytes, /, *, mode: int) -> Change:
        """Put the file there, whole and with this mode, directories (mode 0755) included. Raises HostError."""
        ...


class MemoryStore:
    """Keeps files in memory: for tests, and for certificates that are never to lie on a disk."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self._files: dict[str, bytes] = dict(files or {})
        self.modes: dict[str, int] = {}
        """The mode of each file that was written here."""
        self.written: list[str] = []
        """The names that were written, in order, repetitions included."""

    def read(self, name: str, /) -> bytes | None:
        return self._files.get(name)

    def write(self, name: str, content: bytes, /, *, mode: int) -> Change:
        action = Action.UPDATE if name in self._files else Action.CREATE
        self._files[name] = content
        self.modes[name] = mode
        self.written.append(name)
        return Change(target=f"file {name}", action=action)

    def remove(self, name: str) -> None:
        """Forget a file."""
        del self._files[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._files))

    def __getitem__(self, name: str) -> bytes:
        return self._files[name]
