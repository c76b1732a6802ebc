"""One node: its identity, its Node, its Lease and its pods, which are maintained while `run` runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial

from kubewright.agent import csi_node
from kubewright.agent.certificates.bootstrap import Bootstrap
from kubewright.agent.certificates.identity import NodeIdentity
from kubewright.agent.certificates.serving import ServingCertificate, ServingRequests
from kubewright.agent.certificates.store import CredentialStore, PendingKey
from kubewright.agent.clocks import ClockWatch
from kubewright.agent.dependencies import Duties, Seams, Timings
from kubewright.agent.leases import LeaseController
from kubewright.agent.node_status import NodeStatusManager
from kubewright.agent.periodic import Periodic, Tasks
from kubewright.agent.pods.lifecycle import SimulationRules
from kubewright.agent.pods.manager import PodManager
from kubewright.agent.pods.mirrors import MirrorPods, StaticPods
from kubewright.agent.pods.provider import PodLife, PodProvider, ProvidedPods
from kubewright.agent.pods.simulated import SimulatedPods
from kubewright.agent.status.events import NodeEvent, shutting_down, starting
from kubewright.agent.status.facts import NodeFacts
from kubewright.agent.status.snapshot import Snapshot, SnapshotSource, Unchanging
from kubewright.agent.view import NodePhase, NodeView
from kubewright.base import unexpected
from kubewright.base.events import State
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.daemons.recorder import EventRecorder


class NodeAgent:
    """Joins one machine to its cluster and keeps it a node.

        New ── run() ──> Joining ──> Registering ──> WaitingForPodRange ──> Ready ⇄ NotReady ── (run is cancelled) ──> Stopped

    An idle node has one task, `run` itself, which follows the watch of its pods; lease, status and rotation wait in the loop's heap of
    timers. `gate` bounds how many nodes join at once: it is held until the node is ready, or slow.
    """

    def __init__(
        self,
        facts: NodeFacts,
        *,
        store: CredentialStore,
        seams: Seams,
        bootstrap: Bootstrap | None = None,
        static_pods: StaticPods | None = None,
        timings: Timings | None = None,
        rules: SimulationRules | None = None,
        pods: PodProvider | None = None,
        gate: AbstractAsyncContextManager[object] | None = None,
        source: SnapshotSource | None = None,
        duties: Duties | None = None,
        pending: PendingKey | None = None,
        serving: ServingRequests | None = None,
        closing: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Keep the arguments; nothing happens before `run`.

        A node without a usable certificate in its store gets one through `bootstrap`; with `pending` it finds a
        request that was open when the process ended. `static_pods` runs the static pods of this machine, if there are
        any; `pods` runs the others, and without it they are simulated by `rules`. `source` observes the machine;
        without it the machine is as the facts say. With `serving` the agent requests a certificate for its kubelet
        API too. `closing` closes, at its end, what belongs to it alone.
        """
        self.facts = facts
        self._timings = timings or Timings()
        self._seams = seams
        self._gate = gate or nullcontext()
        self._source = source or Unchanging(Snapshot(addresses=facts.addresses))
        self._duties = duties or Duties()
        self._closing = closing
        self._tasks = Tasks()
        self._invited = bootstrap is not None
        self._phase = NodePhase.NEW
        self._started_at = 0.0
        self._renewed = self._returning = False
        self._recorder: EventRecorder | None = None
        self._reached: dict[str, float] = {}
        self.ready = asyncio.Event()
        """Set once the Node has been ready for the first time."""
        self._certificates = NodeIdentity(
            facts.name,
            store=store,
            bootstrap=bootstrap,
            timings=self._timings,
            seams=seams,
            pending=pending,
            at_once=self._duties.kubeconfig_at_once,
        )
        self._serving = ServingCertificate(facts.name, serving, api=self._api, timings=self._timings, seams=seams) if serving else None
        self._node_status = self._status_manager()
        self._lease = self._lease_controller()
        played = SimulatedPods(host=facts.addresses, rules=rules or SimulationRules(), clock=seams.clock)
        self.pods = self._pod_manager(played if pods is None else ProvidedPods(pods), static_pods)
        self._mirrors = MirrorPods(self._api, static_pods, self.pods, host=facts.addresses, clock=seams.clock) if static_pods else None
        self._clock = ClockWatch(self._api, facts.name, clock=seams.clock)
        self._lease_task = Periodic("node lease", self._lease.round, wait=self._lease_wait)
        self._status_task = Periodic("node status", self._node_status.round, wait=self._node_status.wait, idle=self._node_status.is_idle)

    def _status_manager(self) -> NodeStatusManager:
        return NodeStatusManager(
            self._api,
            self.facts,
            timings=self._timings,
            seams=self._seams,
            changed=self._node_changed,
            source=self._source,
            registers=self._duties.registers,
            absent=self._node_absent,
            notify=self._send_event,
            known=self._certificates.answered,
        )

    def _lease_controller(self) -> LeaseController:
        return LeaseController(
            self._api,
            self.facts.name,
            timings=self._timings,
            clock=self._seams.clock,
            accepted=self._node_status.heartbeat_accepted,
            missed=self._node_status.heartbeat_missed,
            absent=self._node_absent,
        )

    def _pod_manager(self, life: PodLife, static_pods: StaticPods | None) -> PodManager:
        return PodManager(
            self._api,
            self.facts.name,
            life=life,
            seams=self._seams,
            mirrors_changed=static_pods.changed.set if static_pods is not None else lambda: None,
        )

    @property
    def name(self) -> str:
        """The node's name."""
        return self.facts.name

    @property
    def client(self) -> AsyncKubeAPI | None:
        """The client with the node's own certificate; None until there is one. It stays the same through rotations."""
        return self._certificates.client

    @property
    def node(self) -> Object | None:
        """The Node as the API last answered it."""
        return self._node_status.node

    @property
    def is_outside(self) -> bool:
        """Whether the cluster has not admitted the node: it has no certificate.

        False for a node that waits to be started.
        """
        return self.client is None and (self._invited or self._phase is not NodePhase.NEW)

    @property
    def is_ready(self) -> bool:
        """Whether its Node is Ready because this agent reported it."""
        return self._node_status.is_ready and self._phase is not NodePhase.STOPPED

    @property
    def trouble(self) -> str:
        """What prevents progress; '' if nothing does."""
        return self._node_status.trouble or self._certificates.trouble

    @property
    def waits_for(self) -> str:
        """What the node does next if nothing prevents it."""
        if self._phase in {NodePhase.CONNECTING, NodePhase.NOT_READY} and self.facts.needs_pod_range and not self._node_status.pod_cidrs:
            return "waits for kube-controller-manager to assign a range of pod addresses"
        return f"is in the phase {self._phase.value}"

    async def tell_shutdown(self, *, within: float) -> None:
        """Report that the machine is shutting down, in the Ready condition and in an event.

        Gives up after `within` seconds. Does nothing before the machine is a node.
        """
        if self._node_status.node is None:
            return
        self._send_event(shutting_down())
        self._node_status.shut_down()
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._node_status.round()
                if self._recorder is not None:
                    await self._recorder.settled()

    async def require_certificate(self, *, within: float) -> None:
        """Check repeatedly that there is a client certificate; see `NodeIdentity.require_certificate`."""
        await self._certificates.require_certificate(within=within)

    def view(self) -> NodeView:
        """Return the current state of the node."""
        return NodeView(
            name=self.name,
            phase=self._phase,
            ready=self.is_ready,
            certificate=self._certificates.view,
            pods=len(self.pods),
            reached=dict(self._reached),
            trouble=self.trouble,
            serving=self._serving.view if self._serving is not None else None,
            reported_at=self._node_status.reported_at,
            renewed_at=self._lease.renewed_at,
            failures=dict(self._node_status.failures),
            not_ready=self._node_status.not_ready,
            clock=self._clock.trouble,
        )

    async def run(self) -> None:
        """Be a node until cancelled. No failure in the cluster ends it: everything is retried."""
        self._started_at = self._time()
        try:
            async with self._gate:
                await self._join()
            await unexpected.keep_running("the pods of a node", self.pods.run)
        finally:
            await self._stop()

    async def _join(self) -> None:
        self._enter(NodePhase.JOINING)
        if self._serving is not None:
            self._serving.begin()
        await self._certificates.establish()
        if self._duties.rotates:
            self._certificates.keep_renewed()  # before it registers: joining may take longer than the certificate lasts
        if self._duties.events:
            self._begin_events()
            self._clock.start()
        await self._source.begin()
        self._node_status.storage = csi_node.NOT_YET if self._duties.csi_node else ""
        self._enter(NodePhase.REGISTERING)
        await self._node_status.register()
        self._registered()
        # One after the other: concurrent requests need separate connections, and opening those takes longer than it
        # saves. The lease comes before the pod range, which takes a moment to be assigned, and otherwise after
        # everything that makes the node ready. The CSINode comes before the first status, which would otherwise
        # report a Ready node that is taken over as not ready.
        is_new = self._node_status.is_new
        published = self._duties.csi_node and await csi_node.publish_once(self._api(), self._present_node(), is_new=is_new)
        if published:
            self._node_status.storage = ""
        if self.facts.needs_pod_range:
            await self._begin_lease()
            await self._node_status.find_pod_range()
        await self._node_status.round()
        await self._begin_lease()
        self._status_task.start(self._node_status.wait())
        self._lease_task.start(self._lease_wait() if self._lease.is_held else 0.0)
        if self._mirrors is not None:
            self._tasks.start("mirror pods", partial(self._mirrors.run, self._present_node))
        if self._duties.csi_node and not published:
            self._tasks.start("the CSINode", self._publish_csi_node)
        self._source.watch(self._status_task.soon)

    async def _begin_lease(self) -> None:
        if self._node_status.is_new and not self._lease.is_held:
            await self._lease.begin(self._present_node())

    def _registered(self) -> None:
        self._enter(NodePhase.CONNECTING if self.facts.needs_pod_range else NodePhase.NOT_READY)

    def _begin_events(self) -> None:
        seams = self._seams
        who = {"component": "kubelet", "instance": self.name, "host": self.name}
        self._recorder = EventRecorder(self._api(), **who, clock=seams.clock, random=seams.random)
        self._tasks.start("events of a node", self._recorder.run)
        self._send_event(starting())

    def _send_event(self, event: NodeEvent) -> None:
        """Send an event, if events are enabled.

        Like a kubelet's events, it names the Node without its UID, because it may be sent before the Node exists.
        """
        if self._recorder is not None:
            about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}}
            self._recorder.event(about, kind=event.kind, reason=event.reason, message=event.message)

    def _node_absent(self) -> None:
        if self._duties.returns and self._duties.registers and not self._returning:
            self._returning = True
            self._tasks.start("registering a node again", self._come_back)

    async def _come_back(self) -> None:
        """Register again after a while, and create the objects of the new Node; status rounds correct its status."""
        self._enter(NodePhase.REGISTERING)
        await asyncio.sleep(self._timings.absence_wait(self._seams.random))
        await self._node_status.register()
        self._returning = False
        self._lease_task.soon()
        if not self.is_ready:
            self._registered()
        if self._duties.csi_node:
            await self._publish_csi_node()

    async def _publish_csi_node(self) -> None:
        await csi_node.ensure_csi_node(self._api, self._present_node, failed=self._storage)
        self._storage("")

    def _storage(self, trouble: str) -> None:
        if trouble != self._node_status.storage:
            self._node_status.storage = trouble
            self._status_task.soon()

    def _lease_wait(self) -> float:
        """Return the wait before the next renewal. If configured, the first one is anywhere in the period: see `Timings.spread_start`."""
        wait, first = self._timings.lease_wait(self._seams.random), not self._renewed
        self._renewed = True
        return wait * self._seams.random.uniform() if first and self._timings.spread_start else wait

    def _present_node(self) -> Object:
        assert self._node_status.node is not None
        return self._node_status.node

    async def _stop(self) -> None:
        await asyncio.gather(self._tasks.stop(), self._clock.stop(), self._lease_task.stop(), self._status_task.stop(), self.pods.stop())
        await self._source.stop()
        if self._serving is not None:
            await self._serving.stop()
        await self._certificates.stop()
        if self._closing is not None:
            await self._closing()
        self._enter(NodePhase.STOPPED)

    def _node_changed(self) -> None:
        """Process what the API says about the Node."""
        if self._serving is not None and self._node_status.node is not None:
            self._serving.node_changed(self._node_status.node)
        if self._node_status.pod_cidrs:
            self.pods.give_ranges(self._node_status.pod_cidrs)
            self._source.give_pod_range(self._node_status.pod_cidrs)
        if self._node_status.is_ready:
            self._enter(NodePhase.READY)
            self.ready.set()
        elif self._phase is NodePhase.READY:
            self._enter(NodePhase.NOT_READY)

    def _enter(self, phase: NodePhase) -> None:
        if phase is self._phase:
            return
        self._phase = phase
        elapsed = self._time() - self._started_at
        self._reached.setdefault(phase.value, round(elapsed, 3))
        self._seams.reporter.emit(State(subject=f"node {self.name}", state=phase.value, elapsed=elapsed))

    def _api(self) -> AsyncKubeAPI:
        return self._certificates.api()

    def _time(self) -> float:
        return asyncio.get_running_loop().time()
