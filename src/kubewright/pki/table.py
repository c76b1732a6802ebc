"""The table of a control plane's certificates. Phases, help texts, renewal and expiry are derived from its rows.

The rows are kubeadm v1.36's (cmd/kubeadm/app/phases/certs/certlist.go, phases/kubeconfig), in the order in which `init`
creates them. Cheap to import, because help is generated from it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kubewright.base.records import dataclass
from kubewright.pki import names
from kubewright.pki.names import NO_NAMES, Names

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.types import Configuration
    from kubewright.apis.machine import Addresses


class Usage(enum.StrEnum):
    """Extended key usages."""

    SERVER = "serverAuth"
    CLIENT = "clientAuth"


class Owner(enum.Enum):
    """The part of the control plane that uses a certificate: etcd's are needed only with a local member."""

    KUBERNETES = "kubernetes"
    ETCD = "etcd"


SERVER: Final = (Usage.SERVER,)
CLIENT: Final = (Usage.CLIENT,)
BOTH: Final = (Usage.SERVER, Usage.CLIENT)


def no_names(_: Configuration, __: Addresses) -> Names:
    """Return no names, as for client certificates."""
    return NO_NAMES


@dataclass(frozen=True, kw_only=True)
class Authority:
    """A CA.

    `base` is the file name without extension, below the certificate directory; `summary` is the help of its phase.
    """

    name: str
    base: str
    common_name: str
    summary: str
    owner: Owner = Owner.KUBERNETES

    @property
    def files(self) -> tuple[str, str]:
        """Certificate and key, below the certificate directory."""
        return f"{self.base}.crt", f"{self.base}.key"


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """A certificate that a CA signs. `common_name` may contain `{node}`.

    `summary` is the help of its phase, `long_name` its name in `certs renew`.
    """

    name: str
    base: str
    signer: str
    common_name: str
    usages: tuple[Usage, ...]
    summary: str
    long_name: str
    organizations: tuple[str, ...] = ()
    names: Callable[[Configuration, Addresses], Names] = no_names
    owner: Owner = Owner.KUBERNETES

    @property
    def files(self) -> tuple[str, str]:
        """Certificate and key, below the certificate directory."""
        return f"{self.base}.crt", f"{self.base}.key"


@dataclass(frozen=True, kw_only=True)
class KeyPair:
    """A key without certificate: the private half in `base`.key, the public one in `base`.pub.

    `summary` is the help of its phase.
    """

    name: str
    base: str
    summary: str
    owner: Owner = Owner.KUBERNETES

    @property
    def files(self) -> tuple[str, str]:
        """Private and public key, below the certificate directory."""
        return f"{self.base}.key", f"{self.base}.pub"


CertificateRow = Authority | Leaf | KeyPair

CERTIFICATES: Final[tuple[CertificateRow, ...]] = (
    Authority(
        name="ca",
        base="ca",
        common_name="kubernetes",
        summary="Generate the cluster's CA",
    ),
    Leaf(
        name="apiserver",
        base="apiserver",
        signer="ca",
        common_name="kube-apiserver",
        usages=SERVER,
        names=names.api_server,
        summary="Generate the certificate that serves the Kubernetes API",
        long_name="certificate for serving the Kubernetes API",
    ),
    Leaf(
        name="apiserver-kubelet-client",
        base="apiserver-kubelet-client",
        signer="ca",
        common_name="kube-apiserver-kubelet-client",
        usages=CLIENT,
        summary="Generate the certificate with which the API server calls kubelets",
        long_name="certificate for the API server to connect to kubelet",
    ),
    Authority(
        name="front-proxy-ca",
        base="front-proxy-ca",
        common_name="front-proxy-ca",
        summary="Generate the CA of the front proxy",
    ),
    Leaf(
        name="front-proxy-client",
        base="front-proxy-client",
        signer="front-proxy-ca",
        common_name="front-proxy-client",
        usages=CLIENT,
        summary="Generate the front proxy's client certificate",
        long_name="certificate for the front proxy client",
    ),
    Authority(
        name="etcd-ca",
        base="etcd/ca",
        common_name="etcd-ca",
        summary="Generate etcd's CA",
        owner=Owner.ETCD,
    ),
    Leaf(
        name="etcd-server",
        base="etcd/server",
        signer="etcd-ca",
        common_name="{node}",
        usages=BOTH,
        names=names.etcd_server,
        summary="Generate the certificate that serves etcd",
        long_name="certificate for serving etcd",
        owner=Owner.ETCD,
    ),
    Leaf(
        name="etcd-peer",
        base="etcd/peer",
        signer="etcd-ca",
        common_name="{node}",
        usages=BOTH,
        names=names.etcd_peer,
        summary="Generate the certificate with which etcd members talk to each other",
        long_name="certificate for etcd nodes to communicate with each other",
        owner=Owner.ETCD,
    ),
    Leaf(
        name="etcd-healthcheck-client",
        base="etcd/healthcheck-client",
        signer="etcd-ca",
        common_name="kube-etcd-healthcheck-client",
        usages=CLIENT,
        summary="Generate the certificate of etcd's health checks",
        long_name="certificate for liveness probes to healthcheck etcd",
        owner=Owner.ETCD,
    ),
    Leaf(
        name="apiserver-etcd-client",
        base="apiserver-etcd-client",
        signer="etcd-ca",
        common_name="kube-apiserver-etcd-client",
        usages=CLIENT,
        summary="Generate the certificate with which the API server calls etcd",
        long_name="certificate the apiserver uses to access etcd",
        owner=Owner.ETCD,
    ),
    KeyPair(name="sa", base="sa", summary="Generate the key pair that signs service account tokens"),
)


class Endpoint(enum.Enum):
    """The server of a kubeconfig: that of the cluster, or this machine's own."""

    CONTROL_PLANE = "control plane"
    LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class Kubeconfig:
    """A kubeconfig with an embedded client certificate, signed by `ca`.

    `summary` is the help of its phase, `long_name` its name in `certs renew`; '' for one that is never renewed.
    """

    name: str
    common_name: str
    server: Endpoint
    summary: str
    long_name: str = ""
    organizations: tuple[str, ...] = ()
    on_join: bool = True

    @property
    def file(self) -> str:
        """The file name below the Kubernetes directory."""
        return f"{self.name}.conf"


KUBECONFIGS: Final[tuple[Kubeconfig, ...]] = (
    Kubeconfig(
        name="admin",
        common_name="kubernetes-admin",
        organizations=("kubeadm:cluster-admins",),
        server=Endpoint.CONTROL_PLANE,
        summary="Generate the administrator's kubeconfig",
        long_name="certificate embedded in the kubeconfig file for the admin to use and for kubeadm itself",
    ),
    Kubeconfig(
        name="super-admin",
        common_name="kubernetes-super-admin",
        organizations=("system:masters",),
        server=Endpoint.CONTROL_PLANE,
        summary="Generate the kubeconfig that no authorizer can refuse",
        long_name="certificate embedded in the kubeconfig file for the super-admin",
        on_join=False,
    ),
    Kubeconfig(
        name="kubelet",
        common_name="system:node:{node}",
        organizations=("system:nodes",),
        server=Endpoint.LOCAL,
        summary="Generate the kubelet's kubeconfig",
        on_join=False,
    ),
    Kubeconfig(
        name="controller-manager",
        common_name="system:kube-controller-manager",
        server=Endpoint.LOCAL,
        summary="Generate the controller manager's kubeconfig",
        long_name="certificate embedded in the kubeconfig file for the controller manager to use",
    ),
    Kubeconfig(
        name="scheduler",
        common_name="system:kube-scheduler",
        server=Endpoint.LOCAL,
        summary="Generate the scheduler's kubeconfig",
        long_name="certificate embedded in the kubeconfig file for the scheduler manager to use",
    ),
)


CONTROLLERS: Final = Kubeconfig(
    name="kubewright-controllers",
    common_name="kubewright-controllers",
    server=Endpoint.LOCAL,
    summary="Generate the kubeconfig of kubewright's controllers",
    long_name="certificate embedded in the kubeconfig file for kubewright's controllers to use",
)
"""Of the static pod of kubewright's controllers; kubeadm has none. Machines without that pod have no such file."""


def row(name: str) -> CertificateRow:
    """Return the row of a name. Raises KeyError."""
    return _BY_NAME[name]


def authority(name: str) -> Authority:
    """Return the row of a CA. Raises KeyError."""
    found = _BY_NAME[name]
    if not isinstance(found, Authority):
        raise KeyError(name)
    return found


def kubeconfig(name: str) -> Kubeconfig:
    """Return the row of a kubeconfig such as `admin`. Raises KeyError."""
    return _KUBECONFIG_BY_NAME[name]


def rows_for(configuration: Configuration) -> Iterator[CertificateRow]:
    """Yield the rows that a configuration needs: those of etcd only with a local member."""
    for one in CERTIFICATES:
        if one.owner is Owner.KUBERNETES or configuration.cluster.etcd.external is None:
            yield one


_BY_NAME: Final = {one.name: one for one in CERTIFICATES}
_KUBECONFIG_BY_NAME: Final = {one.name: one for one in KUBECONFIGS}
