"""Maintain a node's Node object: register it, wait for its pod range, report its status.

Source: kubelet v1.36: kubelet_node_status.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from kubewright.agent import registration
from kubewright.agent.dependencies import Seams, Timings
from kubewright.agent.status.events import NodeEvent, events_between, is_cordoned, scheduling_event
from kubewright.agent.status.facts import NodeFacts
from kubewright.agent.status.report import ReportSchedule, metadata_changed, status_changed
from kubewright.agent.status.setters import READY, compute, find, is_true, pod_cidrs
from kubewright.agent.status.snapshot import Snapshot, SnapshotSource, Unchanging
from kubewright.base.clock import rfc3339
from kubewright.base.errors import AlreadyExists, APIError, Conflict, Forbidden, NotFound, Unauthorized
from kubewright.base.records import replace
from kubewright.http.messages import REQUEST_TIMEOUT
from kubewright.kube.answers import asked_to_wait
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.patches import node_status_patch
from kubewright.kube.resources import NODE

_log = logging.getLogger(__name__)

_QUICK_READS = 25
"""The number of quick reads of the Node for its pod range.

After that, each status round reads it once, and rounds come sooner at first.
"""

_DOUBT = 120.0
"""For this many seconds after trouble with the API, the Node is read before the known state is trusted.

kube-controller-manager may see leases again up to 60 s after we renew them (the 30 s back-off of its reflector,
doubled by jitter), and marks a node if it has seen no renewal of its lease for 50 s.
"""

_ANSWERS = 2
"""The number of attempts in one round whose answers differ from what we wrote.

After that, something else is writing to the Node too, and the next round is soon enough.
"""


_PARTS = ("metadata", "spec", "status")


class NodeStatusManager:
    """One Node as its agent sees it. `node` is the API's last answer; there is no watch, and every write updates it.

    `changed` is called after each answer. `trouble` is why the last attempt failed, '' if it succeeded.
    """

    def __init__(
        self,
        api: Callable[[], AsyncKubeAPI],
        facts: NodeFacts,
        *,
        timings: Timings,
        seams: Seams,
        changed: Callable[[], None],
        source: SnapshotSource | None = None,
        registers: bool = True,
        absent: Callable[[], None] = lambda: None,
        notify: Callable[[NodeEvent], None] = lambda _: None,
        known: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Store the arguments; nothing happens yet.

        `source` provides snapshots of the machine; without it, the machine is as the facts say. If `registers` is
        false, no Node is created, because something else creates it. `absent` is called when the Node no longer
        exists, `notify` with each event to send, and `known` after each answer to a heartbeat, with whether the API
        knows the Node.
        """
        self._api = api
        self._facts = facts
        self._timings = timings
        self._seams = seams
        self._changed = changed
        self._source = source or Unchanging(Snapshot(addresses=facts.addresses))
        self._registers = registers
        self._absent = absent
        self._notify = notify
        self._known = known
        self._computed_from: Snapshot | None = None
        self._report = ReportSchedule()
        self._fresh = False
        self._heartbeat_at = 0.0
        self._registered_at = 0.0
        self._doubted_until = 0.0
        self.node: Object | None = None
        self.is_new = False
        """Whether registration created the Node instead of finding it."""
        self.trouble = ""
        self._cordoned = self._shutting_down = False
        self._storage = ""
        self.failures: dict[str, str] = {}
        """The setters that failed in the last computation of the status, and why."""
        self.reported_at: datetime | None = None
        """When the API last accepted a status."""

    @property
    def is_ready(self) -> bool:
        """Whether the Node is Ready because this agent reported it.

        A status from before the first report does not count.
        """
        return self.node is not None and self._report.sent_at is not None and is_true(self.node, READY)

    @property
    def not_ready(self) -> str:
        """Why the Node is not ready; '' if it is ready or has no such condition."""
        row = find(self.node["status"].get("conditions") or (), READY) if self.node is not None else None
        return row.get("message", "") if row is not None and row["status"] != "True" else ""

    @property
    def pod_cidrs(self) -> tuple[str, ...]:
        """The node's pod ranges; none until the controller manager has assigned them."""
        return pod_cidrs(self.node) if self.node is not None else ()

    @property
    def storage(self) -> str:
        """Why the node's storage is not ready, '' if it is."""
        return self._storage

    @storage.setter
    def storage(self, trouble: str) -> None:
        self._fresh = self._fresh and trouble == self._storage
        self._storage = trouble

    def shut_down(self) -> None:
        """Record that the machine is shutting down: from now on its Node is not ready."""
        self._shutting_down, self._fresh = True, False

    async def register(self) -> None:
        """Create the Node or correct an existing one, and retry until that works.

        Without `registers`, wait until it exists.
        """
        attempt = 0
        while True:
            attempt += 1
            await asyncio.sleep(self._timings.registration_wait(attempt))
            try:
                answer = await self._register_once()
                self._heartbeat_at = self._registered_at = self._loop_time()
                self._accept_answer(answer)
            except APIError as error:
                self._failed(error)
            else:
                return

    async def find_pod_range(self) -> None:
        """Look for the Node's pod range, quickly at first.

        If it takes long, return without it: status rounds keep looking.
        """
        pause = self._timings.pod_cidr_first
        for _ in range(_QUICK_READS):
            if self.pod_cidrs:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._timings.pod_cidr_most)
            try:
                self._accept_answer(await self._read())
            except APIError as error:
                self._failed(error)

    def heartbeat_accepted(self) -> None:
        """Record that the API accepted a heartbeat: a lease or a status."""
        if self._is_silent():
            self.heartbeat_missed()
        self._heartbeat_at = self._loop_time()
        self._known(True)

    def heartbeat_missed(self, error: APIError | None = None) -> None:
        """Record that a heartbeat failed.

        For some time a controller may mark the node as unreachable, so the Node is read before the known state is
        trusted.
        """
        if isinstance(error, Unauthorized):
            self._known(False)
        self._doubted_until = self._loop_time() + _DOUBT

    def is_idle(self) -> bool:
        """Whether a status round has nothing to do: nothing that we report can have changed, and no report is due."""
        return self._fresh and self._source.snapshot is self._computed_from and self._is_known() and not self._is_due()

    def wait(self) -> float:
        """Return the wait before the next status round.

        It is short for a new node without a pod range, because a controller may be slow to start.
        """
        pause = self._timings.pod_cidr_wait if self._may_get_pod_range() else self._timings.status_wait
        return pause(self._seams.random)

    async def round(self) -> None:
        """Send status if it changed or is due: first based on the known Node, then in up to four attempts on the Node as the API has it.

        An answer that differs from what we would write justifies another attempt: a pod range was assigned in
        between, or a controller marked the node.
        """
        answers = 0
        for attempt in range(self._timings.status_attempts):
            try:
                await self._attempt(cached=attempt == 0)
                answers += 1
            except APIError as error:
                self._failed(error)
                await asyncio.sleep(asked_to_wait(error, most=REQUEST_TIMEOUT))
            if self._fresh or answers == _ANSWERS:
                return

    async def _register_once(self) -> Object:
        if not self._registers:
            return await self._read()
        self.failures = {}
        first = registration.first_node(
            self._facts, now=self._now(), snapshot=self._source.snapshot, storage=self._storage, failed=self._setter_failed
        )
        try:
            created = _complete(await self._api().create(first))
        except (AlreadyExists, Conflict, Forbidden):
            existing = await self._read()
        else:
            self.is_new = True
            self._notify_changes(None, created)
            return created
        self._notify_changes(None, first)  # like a kubelet, which computes the first status of an existing Node too
        corrected = registration.reconcile(existing, first, self._facts)
        return existing if corrected is None else await self._send(existing, corrected)

    async def _attempt(self, *, cached: bool) -> None:
        known = self.node if cached and self._is_known() else None
        self._fresh = False
        old = known or await self._read()
        new, changed = self._computed(old)
        if changed or self._is_due():
            self._report = self._report.attempted(changed=changed, timings=self._timings, random=self._seams.random)
            answer = await self._send(old, new)
            self._notify_changes(old, answer)
            old = answer
            self._report = self._report.sent(self._loop_time())
            self.reported_at = self._seams.clock.now()
            self.heartbeat_accepted()
            _, changed = self._computed(old)
        self._accept_answer(old)
        self._fresh = not changed

    def _computed(self, old: Object) -> tuple[Object, bool]:
        """Return the Node as it should be now, and whether it differs from the known one in more than heartbeats."""
        self._computed_from, self.failures = self._source.snapshot, {}
        new = compute(old, self._facts, now=self._now(), snapshot=self._seen(), storage=self._storage, failed=self._setter_failed)
        return new, metadata_changed(old, new) or status_changed(old["status"], new["status"])

    def _seen(self) -> Snapshot:
        return replace(self._source.snapshot, shutting_down=True) if self._shutting_down else self._source.snapshot

    async def _read(self) -> Object:
        return _complete(await self._api().get(NODE, self._facts.name))

    async def _send(self, old: Object, new: Object) -> Object:
        return _complete(await self._api().patch(NODE, self._facts.name, node_status_patch(old, new), subresource="status"))

    def _accept_answer(self, answer: Object) -> None:
        self.node = answer
        self._fresh = False
        self.trouble = ""
        event = scheduling_event(answer, was=self._cordoned)
        if event is not None:
            self._cordoned = is_cordoned(answer)
            self._notify(event)
        self._changed()

    def _notify_changes(self, old: Object | None, new: Object) -> None:
        for event in events_between(old, new):
            self._notify(event)

    def _setter_failed(self, setter: str, reason: str) -> None:
        self.failures[setter] = reason
        _log.info("node %s: the setter of %s failed: %s", self._facts.name, setter, reason)

    def _failed(self, error: APIError) -> None:
        self.trouble = str(error)
        if not isinstance(error, NotFound):  # a Node that does not exist cannot be marked
            self.heartbeat_missed(error)
        elif self.node is not None:
            self._absent()
        _log.info("node %s: %s", self._facts.name, error)

    def _is_due(self) -> bool:
        return self._report.is_due(self._loop_time(), self._timings)

    def _is_known(self) -> bool:
        """Whether the Node is as we know it: it has its pod range, and no controller can have marked it."""
        complete = bool(self.pod_cidrs) or not (self._facts.needs_pod_range or self._may_get_pod_range())
        return complete and self._loop_time() >= self._doubted_until and not self._is_silent()

    def _may_get_pod_range(self) -> bool:
        """Whether the Node is so new that a controller may soon assign it a pod range."""
        return not self.pod_cidrs and self._loop_time() - self._registered_at < self._timings.pod_cidr_patience

    def _is_silent(self) -> bool:
        """Whether the API has had no heartbeat for so long that a controller may mark the node at any moment."""
        return self._loop_time() - self._heartbeat_at > self._timings.lease_duration

    def _loop_time(self) -> float:
        return asyncio.get_running_loop().time()

    def _now(self) -> str:
        return rfc3339(self._seams.clock.now())


def _complete(node: Object) -> Object:
    """Return a Node of the API with all its parts, and without fields that are null."""
    return {**node, **{part: {key: value for key, value in (node.get(part) or {}).items() if value is not None} for part in _PARTS}}
