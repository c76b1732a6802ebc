"""Specifications of certificates, key pairs and kubeconfigs, and the checks whether a found one matches. Pure.

A specification is a row of the table with a machine's configuration filled in. A table of checks, each of which returns
the first difference, decides whether a certificate matches. kubeadm's `init` checks only the chain, so that a leaf
without key or without a name fails much later, in a component's log. Here all checks apply. Expiry
is not a mismatch: renewal handles it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeadm import features
from kubewright.base.durations import SECOND, Duration
from kubewright.base.errors import CertificateMismatch
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.pki import names, table
from kubewright.pki.certificates import Certificate, chains_to, fits
from kubewright.pki.keys import Algorithm, PrivateKey
from kubewright.pki.names import NO_NAMES, Names
from kubewright.pki.store import LoadedAuthority
from kubewright.pki.table import Usage

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.types import ClusterConfiguration, Configuration
    from kubewright.apis.machine import Addresses

_AGAIN: Final = "remove {crt} and {key} to have both created again"


@dataclass(frozen=True, kw_only=True)
class CertificateSpec:
    """The spec of a certificate.

    `base` and `signer` are file names without extension; `signer` is '' for a CA, which signs itself.
    """

    name: str
    base: str
    common_name: str
    lifetime: timedelta
    algorithm: Algorithm
    signer: str = ""
    organizations: tuple[str, ...] = ()
    usages: tuple[str, ...] = ()
    """Names of extended key usages: those of `table.Usage`, others that the X.509 library knows, or dotted identifiers."""
    names: Names = NO_NAMES

    @property
    def is_authority(self) -> bool:
        """Whether it is a CA."""
        return not self.signer

    @property
    def certificate_file(self) -> str:
        """The certificate, below the certificate directory."""
        return f"{self.base}.crt"

    @property
    def key_file(self) -> str:
        """The key, below the certificate directory."""
        return f"{self.base}.key"


@dataclass(frozen=True, kw_only=True)
class KeyPairSpec:
    """The spec of a key pair without certificate: `base`.key and `base`.pub."""

    name: str
    base: str
    algorithm: Algorithm

    @property
    def key_file(self) -> str:
        """The private key, below the certificate directory."""
        return f"{self.base}.key"

    @property
    def public_file(self) -> str:
        """The public key, below the certificate directory."""
        return f"{self.base}.pub"


@dataclass(frozen=True, kw_only=True)
class KubeconfigSpec:
    """The spec of a kubeconfig with an embedded client certificate.

    `certificate` is signed by the cluster's CA and written nowhere else.
    """

    name: str
    server: str
    cluster_name: str
    certificate: CertificateSpec

    @property
    def file(self) -> str:
        """The file, below the Kubernetes directory."""
        return f"{self.name}.conf"


def of(row: table.CertificateRow, configuration: Configuration, addresses: Addresses) -> CertificateSpec | KeyPairSpec:
    """Fill in a row of the certificate table."""
    if isinstance(row, table.KeyPair):
        return KeyPairSpec(name=row.name, base=row.base, algorithm=_algorithm(configuration.cluster))
    if isinstance(row, table.Authority):
        return of_authority(row, configuration.cluster)
    return CertificateSpec(
        name=row.name,
        base=row.base,
        signer=table.authority(row.signer).base,
        common_name=row.common_name.format(node=configuration.init.node_registration.name),
        organizations=row.organizations,
        usages=row.usages,
        names=row.names(configuration, addresses),
        lifetime=_length(configuration.cluster.certificate_validity_period),
        algorithm=_algorithm(configuration.cluster),
    )


def of_authority(row: table.Authority, cluster: ClusterConfiguration) -> CertificateSpec:
    """Fill in the row of a CA. Its own name is a DNS name in it, as in kubeadm's."""
    return CertificateSpec(
        name=row.name,
        base=row.base,
        common_name=row.common_name,
        names=Names(dns=(row.common_name,)),
        lifetime=_length(cluster.ca_certificate_validity_period),
        algorithm=_algorithm(cluster),
    )


def certificates_for(configuration: Configuration, addresses: Addresses) -> list[CertificateSpec | KeyPairSpec]:
    """Fill in every row that a configuration needs, CAs before the certificates that they sign."""
    return [of(row, configuration, addresses) for row in table.rows_for(configuration)]


def of_kubeconfig(row: table.Kubeconfig, configuration: Configuration, addresses: Addresses) -> KubeconfigSpec:
    """Fill in a row of the kubeconfig table."""
    return client_kubeconfig(
        name=row.name,
        common_name=row.common_name.format(node=configuration.init.node_registration.name),
        organizations=row.organizations,
        server=server(row.server, configuration, addresses),
        cluster=configuration.cluster,
    )


def client_kubeconfig(
    *,
    name: str,
    common_name: str,
    server: str,
    cluster: ClusterConfiguration,
    organizations: tuple[str, ...] = (),
    lifetime: timedelta | None = None,
) -> KubeconfigSpec:
    """Return the spec of a kubeconfig for any user, as in `kubeconfig user`.

    Without `lifetime`, the configured period is used.
    """
    certificate = CertificateSpec(
        name=f"{name}.conf",
        base=name,
        signer=table.authority("ca").base,
        common_name=common_name,
        organizations=organizations,
        usages=table.CLIENT,
        lifetime=lifetime or _length(cluster.certificate_validity_period),
        algorithm=_algorithm(cluster),
    )
    return KubeconfigSpec(name=name, server=server, cluster_name=cluster.cluster_name, certificate=certificate)


def kubeconfigs_for(configuration: Configuration, addresses: Addresses) -> list[KubeconfigSpec]:
    """Fill in every row of the kubeconfig table."""
    return [of_kubeconfig(row, configuration, addresses) for row in table.KUBECONFIGS]


def server(endpoint: table.Endpoint, configuration: Configuration, addresses: Addresses) -> str:
    """Return the server URL of a kubeconfig; the cluster's is this machine's own if no endpoint is configured."""
    shared = configuration.cluster.control_plane_endpoint
    if endpoint is table.Endpoint.LOCAL or not shared:
        return addresses.api_server
    return f"https://{shared}"


def _algorithm(cluster: ClusterConfiguration) -> Algorithm:
    """Return the algorithm of a cluster's keys, taking its feature gates into account."""
    return Algorithm(features.key_algorithm(cluster))


def _length(period: Duration) -> timedelta:
    return timedelta(seconds=period // SECOND)


@dataclass(frozen=True, kw_only=True)
class Found:
    """The stored objects of one leaf: certificates (the leaf first, then intermediates), key, CA."""

    certificates: tuple[Certificate, ...]
    key: PrivateKey | None
    authority: LoadedAuthority

    @property
    def leaf(self) -> Certificate:
        """The certificate itself."""
        return self.certificates[0]


@dataclass(frozen=True, kw_only=True)
class CertificateCheck:
    """A check. `differs` returns '' if it matches, else what is wrong, without secrets."""

    name: str
    differs: Callable[[CertificateSpec, Found], str]
    remedy: str


def _chain(spec: CertificateSpec, found: Found) -> str:
    if chains_to(found.leaf, roots=found.authority.bundle, intermediates=found.certificates[1:]):
        return ""
    return f"it is not signed by {spec.signer}.crt"


def _key_there(spec: CertificateSpec, found: Found) -> str:
    return "" if found.key else f"{spec.key_file} is missing"


def _key_fits(spec: CertificateSpec, found: Found) -> str:
    return "" if found.key and fits(found.leaf, found.key) else f"{spec.key_file} is the key of another certificate"


def _subject(spec: CertificateSpec, found: Found) -> str:
    """Compare the subject of a client certificate.

    Clients of a server check its alternative names, never its subject.
    """
    if Usage.CLIENT not in spec.usages:
        return ""
    if found.leaf.common_name != spec.common_name:
        return f"its common name is {quoted(found.leaf.common_name)} instead of {quoted(spec.common_name)}"
    lacking = [name for name in spec.organizations if name not in found.leaf.organizations]
    return f"it lacks the organisation {quoted(lacking[0])}" if lacking else ""


def _usages(spec: CertificateSpec, found: Found) -> str:
    """Compare extended usages; a certificate without any is valid for all (RFC 5280, section 4.2.1.12)."""
    if not found.leaf.usages or "anyExtendedKeyUsage" in found.leaf.usages:
        return ""
    lacking = [str(usage) for usage in spec.usages if usage not in found.leaf.usages]
    return f"it lacks the usage {lacking[0]}" if lacking else ""


def _names(spec: CertificateSpec, found: Found) -> str:
    lacking = names.missing(spec.names, dns=found.leaf.names.dns, ips=found.leaf.names.ips)
    return f"it is not for {', '.join(lacking)}" if lacking else ""


CHECKS: Final[tuple[CertificateCheck, ...]] = (
    CertificateCheck(name="chain", differs=_chain, remedy="restore the CA that signed it, or " + _AGAIN),
    CertificateCheck(name="key there", differs=_key_there, remedy="put {key} back, or remove {crt} to have both created again"),
    CertificateCheck(name="key fits", differs=_key_fits, remedy="restore both from the same copy, or " + _AGAIN),
    CertificateCheck(name="subject", differs=_subject, remedy=_AGAIN),
    CertificateCheck(name="usages", differs=_usages, remedy=_AGAIN),
    CertificateCheck(name="names", differs=_names, remedy=_AGAIN + ", or remove the name from the configuration"),
)
_CONTENT: Final = frozenset({"subject", "usages", "names"})


def content_differences(spec: CertificateSpec, found: Found) -> list[str]:
    """Return how the subject, the usages and the names of a certificate differ from a spec; empty if they do not."""
    return [difference for check in CHECKS if check.name in _CONTENT and (difference := check.differs(spec, found))]


def require_fit(spec: CertificateSpec, found: Found) -> None:
    """Require that a found certificate may be kept. Raises CertificateMismatch with the first difference."""
    for check in CHECKS:
        difference = check.differs(spec, found)
        if difference:
            raise CertificateMismatch(
                f"{spec.certificate_file} is not the {spec.name} certificate that is wanted",
                detail=difference,
                remedy=check.remedy.format(crt=spec.certificate_file, key=spec.key_file),
            )
