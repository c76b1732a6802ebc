"""What one certificate, key pair or kubeconfig has to be: a row of the table with a machine's configuration filled in. Pure and cheap."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from kubewright.base.durations import SECOND, Duration
from kubewright.base.records import dataclass
from kubewright.pki import table
from kubewright.pki.keys import Algorithm
from kubewright.pki.names import NO_NAMES, Names

if TYPE_CHECKING:
    from kubewright.apis.addresses import Addresses
    from kubewright.apis.kubeadm.types import ClusterConfiguration, Configuration


@dataclass(frozen=True, kw_only=True)
class CertificateSpec:
    """One certificate. `base` and `signer` are file names without ending; `signer` is '' for an authority, which signs itself."""

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
        """Whether it signs others."""
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
    """A key pair without certificate: `base`.key and `base`.pub."""

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
    """One kubeconfig with an embedded client certificate. `certificate` is signed by the cluster's CA and written nowhere else."""

    name: str
    server: str
    cluster_name: str
    certificate: CertificateSpec

    @property
    def file(self) -> str:
        """The file, below the Kubernetes directory."""
        return f"{self.name}.conf"


def of(row: table.Row, configuration: Configuration, addresses: Addresses) -> CertificateSpec | KeyPairSpec:
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
    """Fill in the row of an authority. It names itself as a DNS name, as kubeadm's do."""
    return CertificateSpec(
        name=row.name,
        base=row.base,
        common_name=row.common_name,
        names=Names(dns=(row.common_name,)),
        lifetime=_length(cluster.ca_certificate_validity_period),
        algorithm=_algorithm(cluster),
    )


def certificates_for(configuration: Configuration, addresses: Addresses) -> list[CertificateSpec | KeyPairSpec]:
    """Fill in every row that a configuration needs, authorities before what they sign."""
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
    """Specify a kubeconfig for any user, as `kubeconfig user` makes them. Without `lifetime` it is the configured period."""
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
    """Return the URL that a kubeconfig names; the cluster's is this machine's own where no endpoint is configured."""
    shared = configuration.cluster.control_plane_endpoint
    if endpoint is table.Endpoint.LOCAL or not shared:
        return addresses.api_server
    return f"https://{shared}"


def _algorithm(cluster: ClusterConfiguration) -> Algorithm:
    """Return the algorithm of a cluster's keys: the one that its feature gates leave in force."""
    from kubewright.apis.kubeadm import features  # with all types of the configuration: not for whoever only looks at the tables

    return Algorithm(features.key_algorithm(cluster))


def _length(period: Duration) -> timedelta:
    return timedelta(seconds=period // SECOND)
