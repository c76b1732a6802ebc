"""The context of join's phases, in addition to the common one: the cluster that was found, and clients of it."""

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
    from kubewright.lifecycle.stored_configuration import StoredDocument

WORKER = "this machine joins as a worker"
"""Why a phase of control planes is skipped."""


@dataclass(frozen=True, kw_only=True)
class ClusterSources:
    """The sources of information about the cluster, each called once, at first use.

    - `discover` finds the cluster as configured, and returns the identity that requests the node's certificate.
    - `known` returns the cluster as this machine already knows it, None if it does not.
    - `configuration` returns the cluster's, and in `init` the JoinConfiguration's settings of this machine.
    - `node` returns the Node with this machine's name before its kubelet is started, None if there is none.
    - `etcd` returns a client of the cluster's etcd.
    """

    discover: Callable[[JoinContext], Access]
    known: Callable[[JoinContext], Access | None]
    configuration: Callable[[JoinContext], Configuration]
    node: Callable[[JoinContext], Object | None]
    etcd: Callable[[JoinContext], Etcd]


@dataclass(frozen=True, kw_only=True)
class JoinContext(MachineContext):
    """One run of join. `read_ahead`: documents of the cluster that were read in advance."""

    join: JoinConfiguration
    sources: ClusterSources
    read_ahead: dict[StoredDocument, Document] = field(default_factory=dict)

    def connect(self, access: Access) -> KubeAPI:
        """Return a client for an access.

        Administrators are used after the kubelet has started: in a plan, they see its Node.
        """
        late = isinstance(access.identity, ClientCertificate)
        node = stand_ins.node(self.join.node_registration.name)
        return self.bound.connections.kube(access, stand_ins=[node] if late else ())

    @property
    def timeouts(self) -> Timeouts:
        """The time limit of each kind of wait; known before the cluster is."""
        return self.join.timeouts

    @property
    def resumed(self) -> bool:
        """Whether an earlier run of the same join began here, or another tool joined this machine."""
        return self.bound.resumed

    @property
    def owns_node(self) -> bool:
        """Whether no other machine can have a Node of this name, because the caller of this join assigns the names."""
        return False

    @property
    def control_plane(self) -> bool:
        """Whether this machine becomes a further control plane."""
        return self.join.control_plane is not None

    @functools.cached_property
    def layout(self) -> Layout:
        """The paths of this machine.

        For a control plane, the cluster's configuration sets those of certificates and etcd's data.
        """
        if not self.control_plane:
            return self.host.layout
        cluster = self.configuration.cluster
        local = cluster.etcd.local
        return self.host.layout.at(pki=cluster.certificates_dir, etcd_data=local.data_dir if local else None)

    @functools.cached_property
    def introduced(self) -> Access:
        """Access with the identity that requests this node's certificate: never an administrator's on this machine."""
        return self.sources.discover(self)

    @functools.cached_property
    def found(self) -> Access:
        """Access with the identity that may read the configuration: one on this machine, or the one from discovery."""
        return self.sources.known(self) or self.introduced

    @functools.cached_property
    def bootstrap(self) -> KubeAPI:
        """The client of `found`. Requests are not retried."""
        return self.connect(self.found)

    @functools.cached_property
    def anonymous(self) -> KubeAPI:
        """An unauthenticated client of the same server, for requests that `bootstrap` cannot make if its token is refused."""
        return self.connect(replace(self.found, identity=Anonymous(), impersonation=None))

    @functools.cached_property
    def configuration(self) -> Configuration:
        """The cluster's configuration, and in `init` the JoinConfiguration's settings of this machine."""
        return self.sources.configuration(self)

    @functools.cached_property
    def registered(self) -> Object | None:
        """The Node with this machine's name before its kubelet is started; None if there is none."""
        return self.sources.node(self)

    @functools.cached_property
    def admin(self) -> KubeAPI:
        """The client of the admin.conf that `control-plane-prepare` creates, at the cluster's own endpoint.

        Requests are not retried.
        """
        return self.connect(self._administrator)

    @functools.cached_property
    def api(self) -> KubeAPI:
        """The client for writing: the administrator's, which retries after temporary errors."""
        within = self.timeouts.kubernetes_api_call.seconds
        return RetryingKube(self.admin, clock=self.clock, within=within, look=self.bound.machine.look)

    @functools.cached_property
    def probe(self) -> KubeAPI:
        """The administrator's client of the new API server on this machine. Requests are not retried."""
        return self.connect(replace(self._administrator, server=self.addresses.api_server))

    @functools.cached_property
    def etcd(self) -> Etcd:
        """The cluster's etcd. Requests are not retried at the same member."""
        return self.bound.connections.etcd(lambda: self.sources.etcd(self))

    @property
    def _administrator(self) -> Access:
        return load_access(self.layout.kubeconfig("admin"), read=self.host.read)


def only_control_planes(ctx: JoinContext) -> str | None:
    """Return why a phase of control planes is skipped on a worker."""
    return None if ctx.control_plane else WORKER
