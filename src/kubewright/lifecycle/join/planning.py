"""`join --plan`: the phases against an overlay of the machine, and clients that keep what would be written (DESIGN principle 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kubewright.base.waiting import InstantWaiter
from kubewright.etcd.recording import RecordingEtcd
from kubewright.host.overlay import OverlayHost
from kubewright.kube.credentials import ClientCertificate
from kubewright.kube.recording import RecordingKube
from kubewright.lifecycle import administrators, adopting
from kubewright.lifecycle.init import stand_ins
from kubewright.lifecycle.init.planning import settled
from kubewright.lifecycle.join import acting, calls
from kubewright.lifecycle.join.calls import Call
from kubewright.lifecycle.join.context import reach_etcd
from kubewright.workflow.plan import Plan

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI
    from kubewright.kube.credentials import Access

    Connecting = Callable[[Call], Callable[[Access], KubeAPI]]
    """Gives what makes clients for a call."""


class Observed(RecordingKube):
    """Reads of a cluster, and writes that only are remembered. Closes the client that reads.

    Administrators come after the kubelet: for them its Node is there.
    """

    def __init__(self, base: KubeAPI, access: Access, *, node: str) -> None:
        late = isinstance(access.identity, ClientCertificate)
        super().__init__(base, stand_ins=[stand_ins.node(node)] if late else ())
        self._client = base

    def close(self) -> None:
        self._client.close()


def really(call: Call) -> Callable[[Access], KubeAPI]:
    """Make clients of real clusters."""
    return acting.connecting(call.means)


def plan(call: Call, *, connecting: Connecting = really) -> Plan:
    """Return what a run would change; nothing is written anywhere. The cluster is found and asked as in a run.

    Raises what finding it and reading its configuration raises, and as `administrators.load` does for a control plane that something else made.
    """
    layout = call.host.layout
    if adopting.traces(call.host) and call.host.state(layout.manifest("kube-apiserver")) is not None:
        administrators.load(call.host, layout.kubeconfig("admin"), now=call.means.clock.now())
    connect = connecting(call)
    with calls.context(
        call,
        OverlayHost(call.host),
        waiter=InstantWaiter(),
        connect=lambda access: Observed(connect(access), access, node=call.configuration.node_registration.name),
        reaching=lambda ctx: RecordingEtcd(reach_etcd(ctx)),
        kubelet_makes=stand_ins.kubelet_files(call.host.layout),
    ) as ctx:
        return settled(Plan.of(calls.run(ctx, call).changes))
