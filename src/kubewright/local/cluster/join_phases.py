"""The tree of a further control plane's join, and its context: the phases of join on a local machine."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Final

from kubewright.base.change import Change
from kubewright.base.errors import HostError
from kubewright.base.records import dataclass, replace
from kubewright.base.wait import Condition
from kubewright.etcd.api import by_peer_url
from kubewright.host.desired import Service
from kubewright.kube.api import KubeAPI
from kubewright.lifecycle import stacked_etcd
from kubewright.lifecycle.join import kubelet, phases
from kubewright.lifecycle.join.context import JoinContext
from kubewright.lifecycle.steps.kubelet import SERVICE
from kubewright.local.cluster.context import UpRun, component_checks
from kubewright.local.record import LocalMachineRecord
from kubewright.workflow.phases import Phase, Phases


@dataclass(frozen=True, kw_only=True)
class LocalJoinContext(JoinContext):
    """The join of one machine in a run of `up`. `joined_before` says that an earlier run was completed."""

    run: UpRun
    machine: LocalMachineRecord
    joined_before: bool

    @functools.cached_property
    def health_checks(self) -> Mapping[str, Condition]:
        """The readiness conditions of the components by name."""
        return component_checks(self.run, self.machine.name)

    @property
    def resumed(self) -> bool:
        """Whether the run is resumed: always, because everything on the machine was created by an `up`."""
        return True

    @property
    def owns_node(self) -> bool:
        """Whether the Node belongs to this machine: always, because `up` assigns the names."""
        return True

    @functools.cached_property
    def admin(self) -> KubeAPI:
        """The administrator's client of the first machine: without a common endpoint, a machine's admin.conf names its own API server."""
        server = self.run.cluster.control_plane.addresses.api_server
        return self.connect(replace(self._administrator, server=server))


def no_checks(_: JoinContext) -> Iterable[Change]:
    """Check nothing: `up` has checked this machine, and all programs exist."""
    return ()


def require_known_member(ctx: LocalJoinContext) -> Iterable[Change]:
    """Refuse to continue if etcd no longer knows a former member: join would add it as a new one, and its data may be the only copy.

    Raises HostError.
    """
    data = ctx.layout.etcd_data / "member"
    if ctx.joined_before and ctx.host.entries(data) and by_peer_url(ctx.etcd.members(), stacked_etcd.peer_url(ctx.addresses)) is None:
        raise HostError(
            f"etcd does not know the member on {ctx.node_name}, which has the data of one",
            detail="the first control plane's etcd may have lost its data, and started empty",
            remedy=f"save the contents of {data} if you need them, then remove the cluster with `kubewright down`",
        )
    return ()


def restart_node(ctx: JoinContext) -> Iterable[Change]:
    """Stop a node that still runs without its lost files: only a starting node requests a certificate."""
    found = ctx.host.service(SERVICE)
    if found is not None and found.running and not kubelet.is_bootstrapped(ctx):
        yield ctx.host.ensure(Service(name=SERVICE, running=False))


JOIN_PHASES: Final[Phases[LocalJoinContext]] = Phases(
    Phase("preflight", "Nothing: `up` has checked this machine", run=no_checks, hidden=True),
    phases.PREPARE,
    Phase("keep-data", "Require that etcd knows all former members", run=require_known_member, hidden=True),
    phases.CHECK_ETCD,
    Phase("stop-node-without-kubeconfig", "Stop a node that has lost its kubelet.conf", run=restart_node, hidden=True),
    phases.KUBELET_START,
    phases.ETCD_JOIN,
    phases.WAIT_BOOTSTRAP,
    phases.CONTROL_PLANE_JOIN,
    phases.WAIT,
)
