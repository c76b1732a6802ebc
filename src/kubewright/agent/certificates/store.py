"""The files that a node keeps between two runs: its cluster's location, and its certificate and key.

Source: client-go v0.36: util/certificate.

The files are those of a kubelet: `kubelet.conf`, and one file per certificate below `pki` with a link to the current
one.
"""

from __future__ import annotations

import functools
import os
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

from kubewright.apis.kubeconfig import CertificateFiles, Resolved, User, kubeconfig_document, parse, require_usable
from kubewright.base import yaml
from kubewright.base.clock import Clock
from kubewright.base.errors import CertificateError
from kubewright.base.records import replace
from kubewright.host.desired import File
from kubewright.host.failures import explaining
from kubewright.host.filesystem.files import Files
from kubewright.kube.credentials import Access, Anonymous
from kubewright.kube.kubeconfigs import access_of
from kubewright.pki import certificates, keys
from kubewright.pki.certificates import Pair
from kubewright.pki.keys import Algorithm, PrivateKey
from kubewright.pki.requests import csr

CLIENT: Final = "kubelet-client"
SERVING: Final = "kubelet-server"
"""Prefixes of file names: of the client certificate, and of the serving certificate of the kubelet API."""
OWN_FILES: Final = ("kubelet.crt", "kubelet.key")
"""The pair that a kubelet generates if it is given no serving certificate."""
_PATH: Final = "PATH-OF-THE-CERTIFICATE"


class PairStore(Protocol):
    """One certificate of a node with its key, and its predecessors."""

    def pair(self) -> Pair | None:
        """Return the current certificate and key; None if there are none.

        Raises CertificateError if they are unusable.
        """
        ...

    def keep_pair(self, pair: Pair) -> None:
        """Make a pair the current one. Earlier pairs stay."""
        ...


class CredentialStore(PairStore, Protocol):
    """The credentials of one node: its client certificate, and the location of its cluster.

    A pair in the kubeconfig, as kubeadm init writes it, becomes the first certificate.
    """

    def cluster(self) -> Access | None:
        """Return the location of the cluster, without an identity; None if the node never joined one. Raises CertificateError or DocumentError."""
        ...

    def keep_cluster(self, access: Access) -> None:
        """Store the location of the cluster."""
        ...

    def given(self) -> Access | None:
        """Return the unchanged kubeconfig, including its user; None if there is none.

        Raises the errors of `cluster`, and UsageError for credentials of an unsupported kind.
        """
        ...


class PendingKey:
    """The key of a certificate request that is still open: a file, where a kubelet keeps it.

    Source: pkg/kubelet/certificate/bootstrap.

    It identifies the open request after a restart, so that there are never two.
    """

    def __init__(self, pki: Path, prefix: str = CLIENT) -> None:
        self._path = PurePosixPath(pki / f"{prefix}.key.tmp")
        self._directory = PurePosixPath(pki)
        self._files = Files()

    @property
    def exists(self) -> bool:
        """Whether a request is open."""
        return self._files.state(self._path) is not None

    @property
    def made(self) -> float | None:
        """When the key was made, in seconds since 1970 by the clock of the machine; None if no request is open."""
        found = self._files.state(self._path)
        return None if found is None else found.modified

    def take(self) -> PrivateKey:
        """Return the key; make and store a new one if there is none that can be read."""
        content = self._files.read(self._path)
        if content is not None:
            with suppress(CertificateError):
                return keys.load(content, source=str(self._path))
        key = keys.generate(Algorithm.ECDSA_P256)
        self._files.write(File(path=self._path, content=key.pem(), mode=0o600))
        return key

    def forget(self) -> None:
        """Remove the key: its certificate has been issued, or never will be. Idempotent."""
        if self.exists:
            self._files.remove(self._path, below=[self._directory])


class FilePairStore:
    """Keeps pairs in a directory as the kubelet does: one file for each, and a link to the current one.

    Implements `PairStore`. Pairs are written once, read back, and become current by renaming a link, so a reader always
    finds a complete pair. If there is no link, the files that `given` names are used, then `PREFIX.crt` and
    `PREFIX.key`. With `durable` off nothing is synced: for simulated nodes, which join again after a power failure. Old
    files stay, as with the kubelet of v1.36.
    """

    def __init__(
        self, pki: Path, prefix: str, *, clock: Clock, durable: bool = True, given: tuple[PurePosixPath, PurePosixPath] | None = None
    ) -> None:
        """Keep the arguments. `given` are the files of a certificate and of its key."""
        self._pki = pki
        self._prefix = prefix
        self._clock = clock
        self._files = Files(durable=durable)
        self._durable = durable
        self._given = given

    @property
    def current(self) -> Path:
        """The link to the current certificate and key."""
        return self._pki / f"{self._prefix}-current.pem"

    @property
    def _updated(self) -> Path:
        return self._pki / f"{self._prefix}-updated.pem"

    def pair(self) -> Pair | None:
        if not self.current.exists() and self._updated.is_symlink():
            self._promote()  # left by an interrupted switch
        content = self._files.read(PurePosixPath(self.current))
        return self._separate_files() if content is None else certificates.parse_pair(content, source=str(self.current))

    def keep_pair(self, pair: Pair) -> None:
        self._require_link()
        path, content = self._new_path(), pair.pem()
        self._files.write(File(path=PurePosixPath(path), content=content, mode=0o600))
        if self._files.read(PurePosixPath(path)) != content:
            raise CertificateError(f"{path} does not contain what was written to it", remedy="check the disk, then try again")
        with explaining("link to", path):
            self._updated.unlink(missing_ok=True)
            self._updated.symlink_to(path.absolute())
        self._promote()

    def _separate_files(self) -> Pair | None:
        """Return the pair of a certificate file and a key file."""
        own = (PurePosixPath(self._pki / f"{self._prefix}.crt"), PurePosixPath(self._pki / f"{self._prefix}.key"))
        for path, key_path in filter(None, (self._given, own)):
            certificate, key = self._files.read(path), self._files.read(key_path)
            if certificate is not None and key is not None:
                return certificates.pair_of(certificate, key, source=f"{path} and {key_path}")
        return None

    def _promote(self) -> None:
        with explaining("replace", self.current):
            self._updated.replace(self.current)
            if self._durable:
                opened = os.open(self._pki, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    os.fsync(opened)
                finally:
                    os.close(opened)

    def _require_link(self) -> None:
        if self.current.exists() and not self.current.is_symlink():
            raise CertificateError(
                f"{self.current} is not a link",
                detail="it points to the current certificate, which is a separate file",
                remedy=f"move it away; if it holds the certificate, to {self._pki / f'{self._prefix}-old.pem'}, and link to that",
            )

    def _new_path(self) -> Path:
        """Return a new file name from the local time, as the kubelet does; if that name is taken, with a counter."""
        stem = f"{self._prefix}-{self._clock.now().astimezone():%Y-%m-%d-%H-%M-%S}"
        path, number = self._pki / f"{stem}.pem", 1
        while path.exists():
            number += 1
            path = self._pki / f"{stem}-{number}.pem"
        return path


class FileCredentialStore:
    """Keeps a node's state in two places: a directory for its certificates and a kubeconfig that points at the current one.

    Implements `CredentialStore`.
    """

    def __init__(self, pki: Path, kubeconfig: Path, *, clock: Clock, durable: bool = True) -> None:
        """Keep the arguments; `durable` is that of `FilePairStore`."""
        self._pairs = FilePairStore(pki, CLIENT, clock=clock, durable=durable)
        self._kubeconfig = kubeconfig
        self._files = Files(durable=durable)

    @classmethod
    def below(cls, directory: Path, *, clock: Clock, durable: bool = True) -> FileCredentialStore:
        """Return the store of a node that has its own subdirectory."""
        return cls(directory / "pki", directory / "kubelet.conf", clock=clock, durable=durable)

    def cluster(self) -> Access | None:
        found = self._resolved()
        if found is None:
            return None
        nobody = replace(found, user=User())
        return access_of(nobody, read=self._files.read, base=PurePosixPath(self._kubeconfig.parent), source=str(self._kubeconfig))

    def given(self) -> Access | None:
        found = self._resolved()
        if found is None:
            return None
        return access_of(found, read=self._files.read, base=PurePosixPath(self._kubeconfig.parent), source=str(self._kubeconfig))

    def keep_cluster(self, access: Access) -> None:
        content = (
            _document(replace(access, identity=Anonymous(), impersonation=None))
            .replace(_PATH, yaml.dump(str(self._pairs.current)).strip())
            .encode()
        )
        self._files.write(File(path=PurePosixPath(self._kubeconfig), content=content, mode=0o600))

    def pair(self) -> Pair | None:
        return self._pairs.pair() or self._handed()

    def keep_pair(self, pair: Pair) -> None:
        self._pairs.keep_pair(pair)

    def _handed(self) -> Pair | None:
        """Adopt the pair that the kubeconfig contains or names, if it is a node's."""
        found = self._resolved()
        if found is None:
            return None
        certificate = found.user.client_certificate_data or self._named(found.user.client_certificate)
        key = found.user.client_key_data or self._named(found.user.client_key)
        if not certificate or not key:
            return None
        pair = certificates.pair_of(certificate, key, source=str(self._kubeconfig))
        if not pair.leaf.common_name.startswith(csr.node_user("")):
            return None
        self.keep_pair(pair)
        return pair

    def _named(self, path: str) -> bytes:
        """Read a file that the kubeconfig names.

        A missing file counts as empty, because the current pair may never have been written.
        """
        return (self._files.read(PurePosixPath(self._kubeconfig.parent) / path) or b"") if path else b""

    def _resolved(self) -> Resolved | None:
        content = self._files.read(PurePosixPath(self._kubeconfig))
        if content is None:
            return None
        return require_usable(parse(yaml.load_one(content, source=str(self._kubeconfig))))


@functools.lru_cache(maxsize=4)
def _document(access: Access) -> str:
    """Render the kubeconfig that a kubelet writes for itself; `_PATH` stands for the certificate.

    Rendered once for all nodes of a cluster. Unlike a kubelet's, it keeps the TLS server name and the proxy, without
    which the API server could not be reached again.
    """
    more = {
        "insecure-skip-tls-verify": not access.verify,
        "tls-server-name": access.tls_server_name,
        "proxy-url": access.proxy.secret_url() if access.proxy is not None else "",
    }
    document = kubeconfig_document(
        server=access.server,
        cluster_name="default-cluster",
        user="default-auth",
        credentials=CertificateFiles(certificate=_PATH, key=_PATH),
        ca_pem=access.ca_pem,
        context="default-context",
        namespace="default",
        more={name: value for name, value in more.items() if value},
    )
    return yaml.dump(document)
