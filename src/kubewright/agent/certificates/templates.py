"""The contents of a node's certificates: the user for the API server, the names and addresses for callers of its kubelet API.

The rules are those of the kubelet (v1.36: pkg/kubelet/certificate/kubelet.go) and of client-go's certificate manager.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kubewright.apis import formats
from kubewright.base.records import dataclass
from kubewright.discovery import csr
from kubewright.discovery.csr import RequestedCertificate
from kubewright.pki.certificates import Certificate
from kubewright.pki.keys import PrivateKey
from kubewright.pki.names import NO_NAMES, Names
from kubewright.pki.requests import csr as pki_csr

_ADDRESSES: Final = ("InternalIP", "ExternalIP")
_NAMES: Final = ("InternalDNS", "ExternalDNS")
_HOST_NAME: Final = "Hostname"


@dataclass(frozen=True, kw_only=True)
class CertificateTemplate:
    """The subject, names and addresses to request.

    With `names` it is a serving certificate, otherwise the client certificate.
    """

    node_name: str
    names: Names = NO_NAMES

    def request(self, key: PrivateKey, *, named: bool, lifetime: int | None) -> RequestedCertificate:
        """Return the certificate request; see `discovery.csr.node_client` for the arguments."""
        if self.names:
            return csr.node_serving(self.node_name, key, names=self.names, named=named, lifetime=lifetime)
        return csr.node_client(self.node_name, key, named=named, lifetime=lifetime)

    def missing(self, certificate: Certificate) -> list[str]:
        """Return what a certificate lacks of the template; empty if it matches.

        Anything it has in addition is ignored.
        """
        user = pki_csr.node_user(self.node_name)
        return [
            *([f"the common name {user}"] if certificate.common_name != user else []),
            *([f"the organization {pki_csr.NODES}"] if pki_csr.NODES not in certificate.organizations else []),
            *(name for name in self.names.dns if name not in certificate.names.dns),
            *(address for address in self.names.ips if address not in certificate.names.ips),
        ]


def serving_names(addresses: Iterable[Mapping[str, str]]) -> Names | None:
    """Return the names of a serving certificate for the addresses of a Node's status, sorted as text.

    None while there is no IP address: a certificate for a name alone is not requested (since Kubernetes 1.31).
    """
    names, found = set(), set()
    for row in addresses:
        kind, text = row.get("type", ""), row.get("address", "")
        address = formats.address(text)
        if address is not None and kind in {*_ADDRESSES, _HOST_NAME}:
            found.add(str(address))
        elif text and kind in {*_NAMES, _HOST_NAME}:
            names.add(text)
    return Names(dns=tuple(sorted(names)), ips=tuple(sorted(found))) if found else None
