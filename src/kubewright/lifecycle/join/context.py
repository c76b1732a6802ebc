"""What the phases of join work with beside what every workflow has: the cluster that is found, and clients of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kubewright.apis.kubeadm.node_types import JoinConfiguration
from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.layout import Layout
from kubewright.base.records import dataclass, field, replace
from kubewright.base.waiting import Condition
from kubewright.lifecycle.context import MachineContext
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.base.yaml import Document
    from kubewright.etcd.api import Etcd
    from kubewright.kube.api import KubeAPI
    from kubewright.kube.core import Object
    from kubewright.kube.credentials import Access
    from kubewright.lifecycle.stored import Row

WORKER = "this machine joins as a worker"
"""Why a phase of control planes is left out."""


def of_cluster(found: Configuration) -> Configuration:
    """Take the configuration as the cluster has it."""
    return found


def name_checks(ctx: JoinContext) -> Iterable[Step]:
    """Do the phase `preflight` as plans do."""
    from kubewright.lifecycle.join import checks

    return checks.named(ctx)


def discover(ctx: JoinContext) -> Access:
    """Find the cluster as the configuration says."""
    from kubewright.lifecycle.join import discovering

    return discovering.find(ctx)


def reach_etcd(ctx: JoinContext) -> Etcd:
    """Find the cluster's etcd through its pods."""
    from kubewright.lifecycle import etcd_access

    timeouts = ctx.join.timeouts
    return etcd_access.connect(
        ctx.admin,
        pki=ctx.layout.pki,
        files=ctx.host,
        clock=ctx.clock,
        api_within=timeouts.kubernetes_api_call.seconds,
        within=timeouts.etcd_api_call.seconds,
    )


def components(ctx: JoinContext) -> Mapping[str, Condition]:
    """Ask the components of a real machine how they are."""
    from kubewright.lifecycle.init import health

    return health.checks(ctx.configuration, layout=ctx.layout, addresses=ctx.addresses, detected=ctx.detected)


@dataclass(frozen=True, kw_only=True)
class JoinContext(MachineContext):
    """One run of join. What has to be asked of the cluster is asked at first use, once.

    - `connect` makes a client for an access.
    - `discover` finds the cluster and gives the identity that asks for the node's certificate.
    - `adapt` puts this machine's places into the cluster's configuration, where they are not those that it names.
    - `resumed`: an earlier run of the same join began to make this machine what it is.
    - `reach_etcd` makes a client of the cluster's etcd; plans put one over it that changes no member.
    - `health_checks` gives the conditions of components other than the API server, by name.
    - `owns_node`: nobody else can have a Node of this name, because whoever runs this join gives the names.
    - `read_ahead`: documents of the cluster that were read before they were asked for.
    - `preflight` is what the phase of that name does: plans name what would be checked, a run that changes the machine checks it.
    """

    join: JoinConfiguration
    connect: Callable[[Access], KubeAPI]
    discover: Callable[[JoinContext], Access] = discover
    adapt: Callable[[Configuration], Configuration] = of_cluster
    reach_etcd: Callable[[JoinContext], Etcd] = reach_etcd
    health_checks: Callable[[JoinContext], Mapping[str, Condition]] = components
    preflight: Callable[[JoinContext], Iterable[Step]] = name_checks
    resumed: bool = False
    owns_node: bool = False
    read_ahead: dict[Row, Document] = field(default_factory=dict)

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
    def found(self) -> Access:
        """The cluster, as the identity that may read its configuration and ask for this node's certificate."""
        return self.discover(self)

    @functools.cached_property
    def bootstrap(self) -> KubeAPI:
        """The client that goes with `found`. One try for each request."""
        return self.connect(self.found)

    @functools.cached_property
    def anonymous(self) -> KubeAPI:
        """A client of the same server as nobody: it may ask what `bootstrap` is not told whose token is refused."""
        from kubewright.kube.credentials import Anonymous

        return self.connect(replace(self.found, identity=Anonymous(), impersonation=None))

    @functools.cached_property
    def configuration(self) -> Configuration:
        """The cluster's configuration, and in `init` what the JoinConfiguration says of this machine."""
        from kubewright.lifecycle.join import reading

        return self.adapt(reading.configuration(self))

    @functools.cached_property
    def registered(self) -> Object | None:
        """The Node that has this machine's name before its kubelet is started; None if there is none."""
        from kubewright.lifecycle.join import registration

        return registration.find(self)

    @functools.cached_property
    def admin(self) -> KubeAPI:
        """The client of the admin.conf that `control-plane-prepare` makes, at the cluster's own endpoint. One try for each request."""
        return self.connect(self._administrator)

    @functools.cached_property
    def api(self) -> KubeAPI:
        """The client that join writes with: the administrator's, which tries again what time may mend."""
        from kubewright.lifecycle.settling import SettlingKube

        return SettlingKube(self.admin, clock=self.clock, within=self.join.timeouts.kubernetes_api_call.seconds)

    @functools.cached_property
    def probe(self) -> KubeAPI:
        """The administrator's client of the API server that comes up on this machine. One try for each request."""
        return self.connect(replace(self._administrator, server=self.addresses.api_server))

    @functools.cached_property
    def etcd(self) -> Etcd:
        """The cluster's etcd. One try for each request, at each member."""
        return self.reach_etcd(self)

    @property
    def _administrator(self) -> Access:
        from kubewright.kube.kubeconfigs import load_access

        return load_access(self.layout.kubeconfig("admin"), read=self.host.read)


def only_control_planes(ctx: JoinContext) -> str | None:
    """Leave a phase out where this machine joins as a worker."""
    return None if ctx.control_plane else WORKER
