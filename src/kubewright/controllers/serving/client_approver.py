"""The approver of nodes' client certificates in clusters with `clients: strict`, and the alarm about a second approver.

The stock approver of kube-controller-manager approves what its own rules allow. It approves nothing if no one may
create `certificatesigningrequests/nodeclient` and `selfnodeclient`; the bindings that allow this may return, for
example with `kubeadm upgrade`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from typing import Any, Final

from kubewright.apis.node_approval import STRICT
from kubewright.base.clock import Clock
from kubewright.base.errors import APIError
from kubewright.base.records import replace
from kubewright.base.unexpected import keep_running
from kubewright.controllers import approving, requests
from kubewright.controllers.certificates import is_open
from kubewright.controllers.requests import CLIENT_KUBELET, Nothing, SigningRequest
from kubewright.controllers.serving import clients, journal
from kubewright.controllers.serving.client_history import ClientHistory, use_of
from kubewright.controllers.serving.deciding import Approve, Decision
from kubewright.controllers.serving.evidence import Answer, node_of
from kubewright.controllers.serving.history import RequestHistory
from kubewright.controllers.serving.policies import Policy
from kubewright.controllers.serving.policy_controller import FIRST_PAUSE, PolicyController
from kubewright.controllers.serving.used_tokens import Use, UsedTokens
from kubewright.controllers.telemetry import Telemetry
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.daemons.controller import NotNow, SharedInformer
from kubewright.manifests.rbac import APPROVAL_BINDINGS

_log = logging.getLogger(__name__)

LOOK_AGAIN: Final = 60.0
"""Seconds between two checks for a second approver."""
ALARM: Final = "SecondApprover"
_BOOTSTRAPPERS: Final = ("system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated")
_STOCK: Final = (
    ("nodeclient", "system:bootstrap:nobody", _BOOTSTRAPPERS, APPROVAL_BINDINGS[0]),
    ("selfnodeclient", "system:node:nobody", ("system:nodes", "system:authenticated"), APPROVAL_BINDINGS[1]),
)
"""A permission that makes the stock approver approve, a user who would have it, and kubeadm's binding that gives it."""


class ClientApprover(PolicyController):
    """Approves requests for client certificates of nodes by the policy; does nothing unless it says `clients: strict`."""

    name = "clientapproving"

    def __init__(
        self,
        api: AsyncKubeAPI,
        csrs: SharedInformer,
        *,
        nodes: SharedInformer,
        history: RequestHistory,
        policy: Policy,
        write: journal.Write,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        super().__init__(
            api,
            csrs,
            wanted=_is_ours,
            nodes=nodes,
            policy=policy,
            write=write,
            clock=clock,
            telemetry=telemetry,
            preferred=_renews,
        )
        self._known = ClientHistory(history)
        self._used = UsedTokens(api)
        self._has_used_tokens = False
        self._uses: asyncio.Queue[tuple[str, Use]] = asyncio.Queue()
        self._alarmed: set[str] = set()

    async def run(self) -> None:
        """Work until cancelled."""
        self._policy.subscribe(self._check_all)
        self._nodes.subscribe(self._known.node_changed)
        self._nodes.subscribe(self._node_changed)
        self._csrs.subscribe(self._known.changed)
        self._csrs.subscribe(self._approval_seen)
        await self._nodes.wait_synced()
        await self._wait_for_policy()
        async with asyncio.TaskGroup() as group:
            group.create_task(keep_running("second approver", self._watch_bindings), name="second approver")
            group.create_task(keep_running("used tokens", self._store_uses), name="used tokens")
            await super().run()

    async def _decision(self, csr: SigningRequest) -> Decision:
        policy = self._policy.current
        token = clients.token_of(csr) if policy.clients == STRICT else ""
        if token and not self._has_used_tokens:
            self._known.used(await self._used.load())
            self._has_used_tokens = True
        decision, records = self._by_policy(csr), None
        if clients.depends_on_records(decision):
            records = await self._policy.sources.records(self._known.question(csr))
            self._require_current(policy, csr)
            decision = self._by_policy(csr, records)
        if isinstance(decision, Approve):
            self._known.approved(csr)  # before the write: another worker may be checking a request of the same token
            if token and (use := use_of(csr, now=self._clock.now())) is not None:
                await self._used.record(token, use)
                self._require_current(policy, csr)
                return self._by_policy(csr, records)  # that took time, and Nodes may have changed
        return decision

    def _by_policy(self, csr: SigningRequest, records: Answer | None = None) -> Decision:
        policy = self._policy.current
        if policy.clients != STRICT:
            return Nothing(reason="the policy leaves it to the stock approver")
        now = self._clock.now()
        return clients.decide(csr, replace(self._known.evidence(csr, now=now), records=records), policy, now=now)

    def _approval_seen(self, event: WatchEvent) -> None:
        """Have the token of an approved request stored: a person may have approved it."""
        csr = requests.read(event.object)
        token = clients.token_of(csr)
        if event.type is not EventType.DELETED and token and csr.approved and (use := use_of(csr, now=self._clock.now())) is not None:
            self._uses.put_nowait((token, use))

    async def _store_uses(self) -> None:
        """Store the tokens of requests that were approved by others."""
        while True:
            token, use = await self._uses.get()
            await self._store(token, use)

    async def _store(self, token: str, use: Use) -> None:
        """Store the use of a token, and retry until that works or the policy is no longer strict."""
        while self._policy.current.clients == STRICT:
            try:
                if token not in await self._used.load():
                    await self._used.record(token, use)
            except NotNow as error:
                _log.warning("the use of a bootstrap token is not stored yet: %s", error)
                await asyncio.sleep(FIRST_PAUSE)
            else:
                return

    def _node_of(self, csr: SigningRequest) -> str:
        return node_of(csr.username)

    def _node_changed(self, event: WatchEvent) -> None:
        """Check the waiting requests again when a name may be free."""
        if event.type is EventType.DELETED:
            self._check_all()

    async def _watch_bindings(self) -> None:
        while True:
            if self._policy.current.clients == STRICT:
                for row in _STOCK:
                    await self._look(*row)
            await asyncio.sleep(LOOK_AGAIN)

    async def _look(self, subresource: str, user: str, groups: tuple[str, ...], binding: str) -> None:
        request = SigningRequest(name="", signer=CLIENT_KUBELET, request=b"", username=user, groups=groups)
        try:
            answer = await self._api.create(approving.review(request, subresource))
        except APIError as error:
            _log.warning("cannot check who else approves client certificates: %s", error)
            return
        if not (answer.get("status") or {}).get("allowed"):
            self._alarmed.discard(binding)
        elif binding not in self._alarmed:
            self._alarmed.add(binding)
            message = f"the stock approver approves requests too ({subresource}): delete the ClusterRoleBinding that allows it, {binding} in clusters of kubeadm"
            _log.error("%s", message)
            self._telemetry.outcome(self.name, "alarm")
            self._telemetry.warn(_binding(binding), reason=ALARM, message=message)


def _binding(name: str) -> dict[str, Any]:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name}}


def _renews(requester: Hashable) -> bool:
    """Whether a requester renews its certificate: a node that cannot leaves the cluster, whereas a machine that joins can wait."""
    return bool(node_of(str(requester)))


def _is_ours(csr: Object) -> bool:
    return (csr.get("spec") or {}).get("signerName") == CLIENT_KUBELET and is_open(csr)
