"""What the phases of join work with beside what every operation has: the cluster that is found, and clients of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from kubewright.apis.kubeadm.node_types import JoinConfiguration
from kubewright.apis.kubeadm.types import Configuration, Timeouts
from kubewright.apis.machine import Layout
from kubewright.base.records import dataclass, field, replace
from kubewright.kube.credentials import Anonymous, ClientCertificate
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.retrying import RetryingKube
from kubewright.lifecycle.context import MachineContext
from kubewright.lifecycle.steps import stand_ins

if TYPE_CHECKING:
    from kubewright.base.yaml import Document
    from kubewright.etcd.api import Etcd
    from kubewright.kube.api import KubeAPI
    from kubewright.kube.core import Object
    from kubewright.kube.credentials import Access
    from kubewright.lifecycle.stored_configuration import Row

WORKER = "this machine joins as a worker"
"""Why a phase of control planes is left out."""


@dataclass(frozen=True, kw_only=True)
class ClusterSources:
    """How a join gets to know its cluster, each asked once, at first use.

    - `discover` finds the cluster as the configuration says, and gives the identity that asks for the node's certificate.
    - `known` is the cluster as this machine knows it already, None if it does not.
    - `configuration` is the cluster's, and in `init` what the JoinConfiguration says of this machine.
    - `node` is the Node that has this machine's name before its kubelet is started, None if there is none.
    - `etcd` makes a client of the cluster's etcd.
    """

    discover: Callable[[JoinContext], Access]
    known: Callable[[JoinContext], Access | None]
    configuration: Callable[[JoinContext], Configuration]
    node: Callable[[JoinContext], Object | None]
    etcd: Callable[[JoinContext], Etcd]


@dataclass(frozen=True, kw_only=True)
class JoinContext(MachineContext):
    """One run of join. `read_ahead`: documents of the cluster that were read before they were asked for."""

    join: JoinConfiguration
    sources: ClusterSources
    read_ahead: dict[Row, Document] = field(default_factory=dict)

    def connect(self, access: Access) -> KubeAPI:
        """Make a client for an access. Administrators come after the kubelet: in a plan its Node is there for them."""
        late = isinstance(access.identity, ClientCertificate)
        node = stand_ins.node(self.join.node_registration.name)
        return self.bound.connections.kube(access, stand_ins=[node] if late else ())

    @property
    def timeouts(self) -> Timeouts:
        """How long each kind of wait may take; known before the cluster is."""
        return self.join.timeouts

    @property
    def resumed(self) -> bool:
        """Whether an earlier run of the same join began here, or something else joined this machine."""
        return self.bound.resumed

    @property
    def owns_node(self) -> bool:
        """Whether nobody else can have a Node of this name, because whoever runs this join gives the names."""
        return False

    @property
    def control_plane(self) -> bool:
        """Whether this machine becomes a further control plane."""
        return self.join.control_plane is not None

    @functools.cached_property
    def layout(self) -> Layout:
        """Where everything lies. For a control plane the cluster's configuration tells where certificates and etcd's data are."""
        if not self.control_plane:
            return self.host.layout
        cluster = self.configuration.cluster
        local = cluster.etcd.local
        return self.host.layout.at(pki=cluster.certificates_dir, etcd_data=local.data_dir if local else None)

    @functools.cached_property
    def introduced(self) -> Access:
        """The cluster, as the identity that asks for this node's certificate: never an administrator that this machine has."""
        return self.sources.discover(self)

    @functools.cached_property
    def found(self) -> Access:
        """The cluster, as the identity that may read its configuration: one that this machine has, or that it was introduced with."""
        return self.sources.known(self) or self.introduced

    @functools.cached_property
    def bootstrap(self) -> KubeAPI:
        """The client that goes with `found`. One try for each request."""
        return self.connect(self.found)

    @functools.cached_property
    def anonymous(self) -> KubeAPI:
        """A client of the same server as nobody: it may ask what `bootstrap` is not told whose token is refused."""
        return self.connect(replace(self.found, identity=Anonymous(), impersonation=None))

    @functools.cached_property
    def configuration(self) -> Configuration:
        """The cluster's configuration, and in `init` what the JoinConfiguration says of this machine."""
        return self.sources.configuration(self)

    @functools.cached_property
    def registered(self) -> Object | None:
        """The Node that has this machine's name before its kubelet is started; None if there is none."""
        return self.sources.node(self)

    @functools.cached_property
    def admin(self) -> KubeAPI:
        """The client of the admin.conf that `control-plane-prepare` makes, at the cluster's own endpoint. One try for each request."""
        return self.connect(self._administrator)

    @functools.cached_property
    def api(self) -> KubeAPI:
        """The client that join writes with: the administrator's, which tries again what time may mend."""
        within = self.timeouts.kubernetes_api_call.seconds
        return RetryingKube(self.admin, clock=self.clock, within=within, look=self.bound.machine.look)

    @functools.cached_property
    def probe(self) -> KubeAPI:
        """The administrator's client of the API server that comes up on this machine. One try for each request."""
        return self.connect(replace(self._administrator, server=self.addresses.api_server))

    @functools.cached_property
    def etcd(self) -> Etcd:
        """The cluster's etcd. One try for each request, at each member."""
        return self.bound.connections.etcd(lambda: self.sources.etcd(self))

    @property
    def _administrator(self) -> Access:
        return load_access(self.layout.kubeconfig("admin"), read=self.host.read)


def only_control_planes(ctx: JoinContext) -> str | None:
    """Leave a phase out where this machine joins as a worker."""
    return None if ctx.control_plane else WORKER
