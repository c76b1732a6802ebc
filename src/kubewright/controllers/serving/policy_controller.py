"""Carries out decisions by a policy: one write with the observed resourceVersion, a line in the journal, an event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from datetime import datetime, timedelta
from typing import Final

from kubewright.apis.node_approval import NodeApprovalPolicy
from kubewright.base.clock import Clock
from kubewright.base.logs import verbose
from kubewright.base.messages import short
from kubewright.base.unexpected import keep_running
from kubewright.controllers import requests
from kubewright.controllers.certificates import EACH, REREAD, RequestController
from kubewright.controllers.requests import Nothing, SigningRequest
from kubewright.controllers.serving import journal
from kubewright.controllers.serving.deciding import Approve, Ask, Decision, Deny, Wait
from kubewright.controllers.serving.policies import Policy
from kubewright.controllers.telemetry import Telemetry
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object, identity_of
from kubewright.kube.daemons.controller import NotNow, SharedInformer
from kubewright.kube.daemons.queueing import ItemBackoff

_log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
"""Seconds between two checks of a request that waits; it is checked at once when its Node, its join record or the policy changes."""
LONG_WAIT: Final = timedelta(minutes=15)
"""After this a request that waits gets an event, so that people learn about it."""


class PolicyController(RequestController):
    """Decides about requests by a policy. Subclasses make the decisions."""

    def __init__(
        self,
        api: AsyncKubeAPI,
        csrs: SharedInformer,
        *,
        wanted: Callable[[Object], bool],
        nodes: SharedInformer,
        policy: Policy,
        write: journal.Write,
        clock: Clock,
        telemetry: Telemetry,
        preferred: Callable[[Hashable], bool] = lambda _: False,
    ) -> None:
        limiter: ItemBackoff[str] = ItemBackoff(first=FIRST_PAUSE, limit=LONGEST_PAUSE)
        super().__init__(api, csrs, wanted=wanted, telemetry=telemetry, limiter=limiter, preferred=preferred)
        self._nodes = nodes
        self._policy = policy
        self._journal = write
        self._clock = clock
        self._reported: set[str] = set()
        self._waits: dict[str, str] = {}

    async def run(self) -> None:
        """Work until cancelled. There must be a policy."""
        async with asyncio.TaskGroup() as group:
            group.create_task(keep_running("changed sources", self._follow_sources), name="changed sources")
            await super().run()

    async def _follow_sources(self) -> None:
        """Check waiting requests again when a source has changed. While no request waits, no source is checked."""
        seen = (self._policy.sources, 0)
        while True:
            await asyncio.sleep(REREAD)
            if self._waits:
                sources = self._policy.sources
                found = (sources, await sources.changes())
                if found != seen:
                    seen = found
                    self._check_all()

    async def _wait_for_policy(self) -> None:
        if not self._policy.is_known:
            known = asyncio.Event()
            self._policy.subscribe(known.set)
            await known.wait()

    def _require_current(self, policy: NodeApprovalPolicy, csr: SigningRequest) -> None:
        """Require that a policy is still in force after something that took time.

        Raises NotNow, and has the request checked again at once.
        """
        if self._policy.current is not policy:
            self._queue.add(csr.name, owner=csr.username)
            raise NotNow("the policy has changed", quiet=True)

    async def _decision(self, csr: SigningRequest) -> Decision:
        """Return the decision about a request. Raises NotNow to have it retried."""
        raise NotImplementedError

    def _node_of(self, csr: SigningRequest) -> str:
        """Return the name of the Node that events are about."""
        raise NotImplementedError

    async def _dealt_with(self, name: str, found: Object) -> str:
        csr = requests.read(found)
        policy, now = self._policy.current, self._clock.now()
        shown, requester = short(name), short(csr.username)
        decision = await self._decision(csr)
        match decision:
            case Approve():
                await self._api.update(requests.with_condition(found, decision.condition), subresource="approval")
                verbose(_log, EACH, "%s of %s is approved by policy version %s", shown, requester, policy.version)
                self._decided(csr, found, decision, now)
                return "approved"
            case Deny(check=check, reason=reason, message=message):
                await self._api.update(requests.with_condition(found, decision.condition), subresource="approval")
                _log.info("%s is denied (%s): %s: %s", shown, check, reason, message)
                self._telemetry.warn(self._event_object(csr, found), reason=reason, message=f"{shown} is denied: {message}")
                self._decided(csr, found, decision, now)
                return f"denied {reason}"
            case Wait(check=check, reason=reason, message=message):
                if csr.created is not None and now - csr.created >= LONG_WAIT and name not in self._reported:
                    self._reported.add(name)
                    self._telemetry.outcome(self.name, f"waits for long {reason}")
                    self._telemetry.warn(self._event_object(csr, found), reason=reason, message=f"{shown} waits: {message}")
                if self._waits.get(name) != check:  # not each time it is checked again
                    self._record(csr, found, decision, now)
                    self._waits[name] = check
                    self._telemetry.outcome(self.name, f"waits {reason}")
                verbose(_log, EACH, "%s of %s waits (%s): %s", shown, requester, reason, message)
                raise NotNow(f"{reason}: {message}", quiet=True)
            case Nothing() | Ask():
                return ""

    def _decided(self, csr: SigningRequest, found: Object, decision: Decision, now: datetime) -> None:
        self._record(csr, found, decision, now)
        self._reported.discard(csr.name)
        self._waits.pop(csr.name, None)

    def _record(self, csr: SigningRequest, found: Object, decision: Decision, now: datetime) -> None:
        verdict = journal.verdict(decision, by=self.name, policy=self._policy.current.version)
        if verdict is not None:
            self._journal(journal.line(csr, found, verdict, now=now))

    def _check_all(self) -> None:
        for csr in self._csrs.objects.values():
            if self._wanted(csr):
                name, _ = identity_of(csr)
                self._queue.add(name, owner=self._owner(name))

    def _event_object(self, csr: SigningRequest, found: Object) -> Mapping[str, object]:
        """Return the object that an event is about: the Node, or the request if there is none."""
        return self._nodes.get(self._node_of(csr)) or found

    def _on_deleted(self, name: str) -> None:
        super()._on_deleted(name)
        self._reported.discard(name)
        self._waits.pop(name, None)
