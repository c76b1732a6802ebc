"""A machine that has joined through a hub, and its cluster as its kubelet sees it: the base of all operations after a join."""

from __future__ import annotations

import functools
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass
from kubewright.kube.credentials import Access, ClientCertificate
from kubewright.kube.kubeconfigs import load_access
from kubewright.lifecycle.operation import RunContext
from kubewright.pki import certificates
from kubewright.pki.certificates import Pair

if TYPE_CHECKING:
    from kubewright.host.seam import Host
    from kubewright.kube.api import KubeAPI

_USER: Final = "system:node:"
_BY_HAND: Final = "join this machine again; to leave, `kubewright node leave --skip-phases depart`, and delete the Node manually"


@dataclass(frozen=True, kw_only=True)
class JoinedMachine(RunContext):
    """The common part of the contexts of these operations."""

    @property
    def kubeconfig(self) -> PurePosixPath:
        """The kubelet's kubeconfig, which the hub issued."""
        return self.bound.host.layout.oneinfra / "kubelet.conf"

    @functools.cached_property
    def access(self) -> Access:
        """The access of this machine's kubelet, with the certificate that the hub issued, or its replacement."""
        return renewed(self._given, self.bound.base)

    @functools.cached_property
    def _given(self) -> Access:
        """The access that the hub issued."""
        return load_access(self.kubeconfig, read=self.bound.base.read)

    @functools.cached_property
    def given_pair(self) -> Pair:
        """The client certificate that the hub issued and has on record, with its key. Raises CertificateError if the kubeconfig has none."""
        identity = self._given.identity
        if not isinstance(identity, ClientCertificate):
            raise CertificateError(f"{self.kubeconfig} contains no certificate", remedy=_BY_HAND)
        return certificates.pair_of(identity.cert_pem, identity.key_pem, source=str(self.kubeconfig))

    @functools.cached_property
    def api(self) -> KubeAPI:
        """The cluster, as this machine's kubelet."""
        return self.bound.connections.kube(self.access)

    @functools.cached_property
    def node(self) -> str:
        """The name of the Node, from the certificate.

        Raises CertificateError if the kubeconfig is not a kubelet's.
        """
        identity = self.access.identity
        name = ""
        if isinstance(identity, ClientCertificate):
            name = certificates.first(identity.cert_pem, source=str(self.kubeconfig)).common_name
        if not name.startswith(_USER):
            raise CertificateError(f"{self.kubeconfig} is not the kubeconfig of a kubelet", remedy=_BY_HAND)
        return name.removeprefix(_USER)


def renewed(access: Access, host: Host) -> Access:
    """Return the access with the certificate that a kubelet with `rotateCertificates` has obtained, if that expires later.

    An unreadable file is ignored.
    """
    path, given = host.layout.kubelet_client_current, access.identity
    found = host.read(path)
    if found is None or not isinstance(given, ClientCertificate):
        return access
    try:
        pair = certificates.pair_of(found, found, source=str(path))
        before = certificates.first(given.cert_pem, source="the kubeconfig")
    except CertificateError:
        return access
    if pair.leaf.common_name != before.common_name or pair.leaf.not_after <= before.not_after:
        return access
    return access.as_identity(ClientCertificate(cert_pem=found, key_pem=found))
