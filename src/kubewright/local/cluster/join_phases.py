"""The tree of a further control plane's join, and its context: join's phases on a local machine. One join, many machines."""

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
    """The join of one machine in a run of `up`. `joined_before` says that an earlier run has come to its end."""

    run: UpRun
    machine: LocalMachineRecord
    joined_before: bool

    @functools.cached_property
    def health_checks(self) -> Mapping[str, Condition]:
        """How to see that a component is ready, by its name."""
        return component_checks(self.run, self.machine.name)

    @property
    def resumed(self) -> bool:
        """Whatever is on the machine, an `up` has put it there."""
        return True

    @property
    def owns_node(self) -> bool:
        """`up` gives the names."""
        return True

    @functools.cached_property
    def admin(self) -> KubeAPI:
        """The administrator's client of the first machine: without an endpoint for all, a machine's admin.conf names its own API server."""
        server = self.run.cluster.control_plane.addresses.api_server
        return self.connect(replace(self._administrator, server=server))


def no_checks(_: JoinContext) -> Iterable[Change]:
    """Check nothing: `up` has checked this machine, and every program is there."""
    return ()


def require_known_member(ctx: LocalJoinContext) -> Iterable[Change]:
    """Refuse to go on where etcd has forgotten a member that once was one: join would make it anew, and its data may be the only copy.

    Raises HostError.
    """
    data = ctx.layout.etcd_data / "member"
    if ctx.joined_before and ctx.host.entries(data) and by_peer_url(ctx.etcd.members(), stacked_etcd.peer_url(ctx.addresses)) is None:
        raise HostError(
            f"etcd does not know the member on {ctx.node_name}, which has the data of one",
            detail="the first control plane's etcd may have lost its data, and begun with none",
            remedy=f"save the contents of {data} if you need them, then remove the cluster with `kubewright down`",
        )
    return ()


def restart_node(ctx: JoinContext) -> Iterable[Change]:
    """End a node that goes on with what its files have lost: only one that begins asks for a certificate."""
    found = ctx.host.service(SERVICE)
    if found is not None and found.running and not kubelet.is_bootstrapped(ctx):
        yield ctx.host.ensure(Service(name=SERVICE, running=False))


JOIN_PHASES: Final[Phases[LocalJoinContext]] = Phases(
    Phase("preflight", "Nothing: `up` has checked this machine", run=no_checks, hidden=True),
    phases.PREPARE,
    Phase("keep-data", "Require that etcd knows the members that once were", run=require_known_member, hidden=True),
    phases.CHECK_ETCD,
    Phase("begin-anew", "End a node that has lost its kubelet.conf", run=restart_node, hidden=True),
    phases.KUBELET_START,
    phases.ETCD_JOIN,
    phases.WAIT_BOOTSTRAP,
    phases.CONTROL_PLANE_JOIN,
    phases.WAIT,
)
