"""The storage of certificates and kubeconfigs, and the CAs in it.

The store is a protocol that `host` implements over files; one implementation keeps them in memory. A CA is a bundle of
certificates and, unless it is external, the key of one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from kubewright.base.change import Action, Change
from kubewright.base.errors import CertificateError, CertificateMismatch
from kubewright.base.records import dataclass
from kubewright.pki import certificates, keys
from kubewright.pki.certificates import Certificate
from kubewright.pki.keys import PrivateKey

KEY_MODE: Final = 0o600
CERTIFICATE_MODE: Final = 0o644
PUBLIC_KEY_MODE: Final = 0o600
"""The mode of sa.pub when it is created here; a downloaded one gets CERTIFICATE_MODE (kubeadm v1.36)."""
KUBECONFIG_MODE: Final = 0o600


class CertificateStore(Protocol):
    """Files below one directory, named relative to it: `ca.crt`, `etcd/server.key`; for kubeconfigs `admin.conf`."""

    def read(self, name: str, /) -> bytes | None:
        """Return the content, or None if the file does not exist. Raises HostError if it cannot be read."""
        ...

    def write(self, name: str, content: bytes, /, *, mode: int) -> Change:
        """Write the file atomically with this mode, creating directories (mode 0755). Raises HostError."""
        ...


class MemoryStore:
    """Keeps files in memory: for tests, and for certificates that must not be on a disk."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self._files: dict[str, bytes] = dict(files or {})
        self.modes: dict[str, int] = {}
        """The mode of each file that was written here."""
        self.written: list[str] = []
        """The names that were written, in order, with repetitions."""

    def read(self, name: str, /) -> bytes | None:
        return self._files.get(name)

    def write(self, name: str, content: bytes, /, *, mode: int) -> Change:
        action = Action.UPDATE if name in self._files else Action.CREATE
        self._files[name] = content
        self.modes[name] = mode
        self.written.append(name)
        return Change(target=f"file {name}", action=action)

    def remove(self, name: str) -> None:
        """Remove a file."""
        del self._files[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._files))

    def __getitem__(self, name: str) -> bytes:
        return self._files[name]


@dataclass(frozen=True, kw_only=True)
class LoadedAuthority:
    """A CA in a store.

    `pem` is the unchanged certificate file. `certificate` is the one that signs: that of the key, or the first if there
    is no key.
    """

    base: str
    pem: bytes
    bundle: tuple[Certificate, ...]
    certificate: Certificate
    key: PrivateKey | None

    def signing_key(self, *, wanted: str) -> PrivateKey:
        """Return the key. Raises CertificateError, naming what it is needed for, if the CA is external."""
        if self.key is None:
            raise CertificateError(
                f"{wanted} is missing and cannot be created: {self.base}.key is not here",
                detail=f"{self.base}.crt without a key means that the CA is external",
                remedy=f"sign {wanted} there and copy it here, or put {self.base}.key next to {self.base}.crt",
            )
        return self.key


def load_authority(store: CertificateStore, base: str) -> LoadedAuthority | None:
    """Load a CA, `ca` or `etcd/ca`; None if there is no certificate file.

    Raises CertificateError for files that cannot be read or are not a CA, CertificateMismatch for a key that belongs to
    none of the certificates.
    """
    text = store.read(f"{base}.crt")
    if text is None:
        return None
    bundle = certificates.parse(text, source=f"{base}.crt")
    if not bundle[0].is_authority:
        raise CertificateMismatch(
            f"{base}.crt is not a CA certificate",
            detail=f"the {bundle[0].describe()} may not sign others",
            remedy=f"put the CA's certificate into {base}.crt",
        )
    key_text = store.read(f"{base}.key")
    key = None if key_text is None else keys.load(key_text, source=f"{base}.key")
    return LoadedAuthority(base=base, pem=text, bundle=tuple(bundle), certificate=_signer(base, bundle, key), key=key)


def _signer(base: str, bundle: Sequence[Certificate], key: PrivateKey | None) -> Certificate:
    if key is None:
        return bundle[0]
    for certificate in bundle:
        if certificate.is_authority and certificates.fits(certificate, key):
            return certificate
    raise CertificateMismatch(
        f"{base}.crt and {base}.key do not match",
        detail=f"the key is not that of the {bundle[0].describe()}",
        remedy="restore both from the same copy",
    )


def require_authority(store: CertificateStore, base: str, *, wanted: str) -> LoadedAuthority:
    """Load a required CA. Raises CertificateError, naming what needs it, if there is none."""
    found = load_authority(store, base)
    if found is None:
        raise CertificateError(
            f"{wanted} cannot be checked or created: {base}.crt is missing",
            remedy=f"create the CA first (init phase certs), or restore {base}.crt and {base}.key",
        )
    return found


def is_external(store: CertificateStore, base: str = "ca") -> bool:
    """Whether a CA's key is kept elsewhere: its certificate exists here and its key does not.

    Raises as `load_authority` does in that case.
    """
    if store.read(f"{base}.crt") is None or store.read(f"{base}.key") is not None:
        return False  # without parsing them, which takes time
    return load_authority(store, base) is not None
