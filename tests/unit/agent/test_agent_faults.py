"""Faults while an agent runs, for as long as they may last in practice: the same agent recovers, and sends no more requests than necessary."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from agent_running import CLUSTER, agent_of, joined, running
from agent_values import facts
from fake_api import Call, FakeAPI
from fake_controllers import START, Controllers, LoopClock
from test_machine_agent import Source

from kubewright.agent.certificates.bootstrap import Issuer, SharedIssuer
from kubewright.agent.certificates.store import PendingKey
from kubewright.agent.dependencies import Duties
from kubewright.agent.pods.lifecycle import SimulationRules
from kubewright.agent.status.setters import is_true
from kubewright.agent.view import NodePhase
from kubewright.base.errors import KubewrightError, Unauthorized
from kubewright.http.failures import NoAnswer, Reason
from kubewright.kube.answers import EventType
from kubewright.kube.credentials import Access, Anonymous, BearerToken, ClientCertificate
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, CSI_NODE, LEASE, NODE
from kubewright.pki import certificates

pytestmark = [pytest.mark.looptime]

REQUESTS = "certificatesigningrequests"
FIRST, SECOND = "abcdef.0123456789abcdef", "fedcba.fedcba9876543210"
MINUTE, HOUR = 60.0, 3600.0
RETURNING = Duties(csi_node=True, returns=True)


class WrongClock(LoopClock):
    """The clock of a machine, which tests set; the cluster's is right."""

    wrong = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.wrong


class Cluster:
    """An API in memory that authenticates valid certificates and known tokens, and that can be unavailable."""

    def __init__(self, **controllers: Any) -> None:
        self.api = FakeAPI()
        self.controllers = Controllers(self.api, **controllers)
        self.tokens = {FIRST}
        self.written = FIRST
        """The content of the file of bootstrap credentials."""
        self.away = False
        self._renewed_at = 0.0
        self.api.faults.append(self._answer)
        self.api.reactors.append(self._watch)

    def _answer(self, call: Call) -> KubewrightError | None:
        if self.away:
            return NoAnswer("connection refused", reason=Reason.REFUSED)
        who = call.identity
        if isinstance(who, BearerToken) and who.token in self.tokens:
            return None
        if isinstance(who, ClientCertificate) and _leaf(who.cert_pem).not_after > LoopClock().now():
            return None
        return Unauthorized("Unauthorized", code=401)

    async def admit(self) -> tuple[Access, Issuer]:
        return CLUSTER.as_identity(Anonymous()), SharedIssuer(self.api.connect(CLUSTER.as_identity(BearerToken(self.written))))

    @property
    def requests(self) -> list[str]:
        """The names of all stored requests."""
        return [name for kind, _, name in self.api.objects if kind == REQUESTS]

    def agent(self, **changes: Any) -> Any:
        return agent_of(
            self.api,
            bootstrap=self,
            facts=facts(needs_pod_range=False),
            source=changes.pop("source", None) or Source(),
            **{"rules": SimulationRules(plays=False), "duties": RETURNING, **changes},
        )

    def since_renewal(self) -> float:
        """Return the seconds since the lease was last changed."""
        return asyncio.get_running_loop().time() - self._renewed_at

    def lease_renewed(self) -> str:
        return str(self.api.get(LEASE, "node-1", "kube-node-lease")["spec"]["renewTime"])

    def _watch(self, _: EventType, obj: dict[str, Any]) -> None:
        if obj["kind"] == "Lease":
            self._renewed_at = asyncio.get_running_loop().time()


@functools.cache
def _leaf(cert_pem: bytes) -> certificates.Certificate:
    return certificates.parse(cert_pem, source="test")[0]


async def until(condition: Callable[[], bool], within: float) -> None:
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.5)


async def test_ten_minutes_without_the_cluster_change_nothing():
    cluster = Cluster()
    async with running(cluster.agent()) as agent:
        await agent.ready.wait()
        await asyncio.sleep(150)
        cluster.away = True
        before = len(cluster.api.calls)
        await asyncio.sleep(10 * MINUTE)
        assert "connection refused" in agent.trouble
        assert len(cluster.api.calls) - before < 10 * 60
        node = cluster.api.get(NODE, "node-1")
        for row in node["status"]["conditions"]:
            row.update(status="Unknown", reason="NodeStatusUnknown")
        cluster.api.put(node)
        cluster.away = False
        await until(lambda: is_true(cluster.api.get(NODE, "node-1"), "Ready") and cluster.since_renewal() < 15, 25)
        assert agent.trouble == ""
    assert len(cluster.requests) == 1


async def test_a_certificate_that_expires_while_the_cluster_is_down_is_replaced_afterwards():
    cluster = Cluster(lifetime=HOUR)
    async with running(cluster.agent()) as agent:
        await agent.ready.wait()
        cluster.away = True
        await asyncio.sleep(2 * HOUR)
        cluster.away = False
        await until(lambda: agent.trouble == "" and agent.is_ready and cluster.since_renewal() < 15, 60)
    assert len(cluster.requests) == 2


async def test_a_certificate_that_expires_before_registration_is_replaced():
    cluster = Cluster()
    cluster.away = True
    async with running(cluster.agent(store=joined(lifetime=HOUR, now=START))) as agent:
        await asyncio.sleep(2 * HOUR)
        assert agent.view().phase is NodePhase.REGISTERING
        cluster.away = False
        await asyncio.wait_for(agent.ready.wait(), MINUTE)
    assert len(cluster.requests) == 1


@pytest.mark.parametrize("hours", [2, -2])
async def test_a_clock_jump_of_two_hours_keeps_a_short_certificate_in_use_without_a_storm(hours: int):
    cluster, clock = Cluster(lifetime=HOUR / 3), WrongClock()
    async with running(cluster.agent(clock=clock)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(10 * MINUTE)
        clock.wrong = timedelta(hours=hours)
        for _ in range(80):
            await asyncio.sleep(MINUTE)
            assert len(cluster.requests) < 20
            assert cluster.since_renewal() < 2 * MINUTE
        assert agent.is_ready
        assert "clock" in agent.trouble
        made = len(cluster.requests)
        assert 4 <= made <= 9  # 20 min each, of which 60 to 90 % are used
        clock.wrong = timedelta(0)
        await asyncio.sleep(40 * MINUTE)
        assert agent.trouble == ""
        assert len(cluster.requests) <= made + 4


async def test_a_clock_that_is_ahead_does_not_require_an_expired_token():
    cluster, clock = Cluster(lifetime=HOUR), WrongClock()
    async with running(cluster.agent(clock=clock)) as agent:
        await agent.ready.wait()
        cluster.tokens.clear()
        clock.wrong = timedelta(hours=2)
        await until(lambda: len(cluster.requests) == 2, 5 * MINUTE)
        await asyncio.sleep(MINUTE)
        assert agent.is_ready


async def test_the_lease_is_renewed_after_the_clock_was_set_back():
    cluster, clock = Cluster(), WrongClock()
    async with running(cluster.agent(clock=clock)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(MINUTE)
        moments = [cluster.lease_renewed()]
        clock.wrong = timedelta(hours=-2)
        for _ in range(12):
            await asyncio.sleep(11)
            moments.append(cluster.lease_renewed())
    assert moments == sorted(set(moments))
    assert {len(moment) for moment in moments} == {len("2026-01-02T03:04:05.000000Z")}


async def test_a_machine_that_boots_with_a_wrong_clock_uses_its_certificate_once_it_is_set():
    cluster, clock = Cluster(), WrongClock()
    cluster.tokens.clear()
    clock.wrong = timedelta(days=400)
    async with running(cluster.agent(clock=clock, store=joined(now=START))) as agent:
        await asyncio.sleep(5 * MINUTE)
        assert "Unauthorized" in agent.trouble
        clock.wrong = timedelta(0)
        await asyncio.wait_for(agent.ready.wait(), MINUTE)
    assert cluster.requests == []


async def test_a_rejected_certificate_is_replaced():
    cluster = Cluster()
    async with running(cluster.agent()) as agent:
        await agent.ready.wait()
        first = agent.client.access.identity
        cluster.api.faults.append(lambda call: Unauthorized("Unauthorized", code=401) if call.identity == first else None)
        await asyncio.sleep(2 * MINUTE)
        assert agent.trouble == ""
        assert agent.client.access.identity != first
    assert len(cluster.requests) == 2


async def test_a_single_rejection_does_not_replace_the_certificate():
    cluster = Cluster()
    async with running(cluster.agent()) as agent:
        await agent.ready.wait()
        await asyncio.sleep(MINUTE)
        cluster.api.fail("update", "leases", times=3, error=Unauthorized("Unauthorized", code=401))
        await asyncio.sleep(5 * MINUTE)
    assert len(cluster.requests) == 1


@pytest.mark.parametrize("gone", ["token", "token and request"])
async def test_a_token_lost_while_waiting_is_reported_and_another_one_continues_the_request(tmp_path: Path, gone: str):
    cluster = Cluster()
    cluster.controllers.sign_after = None
    async with running(cluster.agent(pending=PendingKey(tmp_path))) as agent:
        await asyncio.sleep(10)
        [name] = cluster.requests
        since = agent.view().certificate.waiting.since
        cluster.tokens = {SECOND}
        if gone == "token":
            cluster.api.break_watches()  # as the server ends each after some minutes
        else:
            cluster.api.remove(CERTIFICATE_SIGNING_REQUEST, name)
        await asyncio.sleep(MINUTE)
        assert "Unauthorized" in agent.trouble
        cluster.written = SECOND
        await asyncio.sleep(MINUTE)
        [request] = cluster.requests
        assert (request == name) == (gone == "token")
        assert agent.view().certificate.waiting.name == request
        assert (agent.view().certificate.waiting.since == since) == (gone == "token")
        assert agent.trouble == ""
        cluster.controllers._sign(cluster.api.get(CERTIFICATE_SIGNING_REQUEST, request))
        await asyncio.wait_for(agent.ready.wait(), MINUTE)


async def test_a_request_is_shown_as_pending_only_after_it_was_created_and_during_outages(tmp_path: Path):
    cluster = Cluster()
    cluster.controllers.sign_after = None
    cluster.tokens.clear()
    async with running(cluster.agent(pending=PendingKey(tmp_path))) as agent:
        await asyncio.sleep(10)
        assert agent.view().certificate.waiting is None
        cluster.tokens.add(FIRST)
        await asyncio.sleep(MINUTE)
        request = agent.view().certificate.waiting
        assert [request.name] == cluster.requests
        cluster.away = True
        cluster.api.break_watches()
        await asyncio.sleep(20 * MINUTE)
        assert agent.view().certificate.waiting == request
        assert "connection refused" in agent.trouble


@pytest.mark.parametrize(
    ("approves", "by_policy", "said"),
    [
        (True, False, "is Pending: kube-controller-manager may approve it and has not"),
        (False, True, "is Pending: the policy of this cluster does not allow it yet, or a person has to approve it"),
        (False, False, "is Pending, and nobody approves it: this machine is not bound to ClusterRole system:certificates.k8s.io:"),
    ],
)
async def test_a_pending_request_is_reported_with_its_possible_approver(tmp_path: Path, approves: bool, by_policy: bool, said: str):
    cluster = Cluster()
    cluster.controllers.sign_after = None
    cluster.api.approves, cluster.api.decides_by_policy = approves, by_policy
    async with running(cluster.agent(pending=PendingKey(tmp_path))) as agent:
        await asyncio.sleep(MINUTE)
        [name] = cluster.requests
        assert agent.view().certificate.waiting.explanation.startswith(f"certificate request {name} {said}")
        assert len(cluster.api.made("create", "selfsubjectaccessreviews")) == (1 if approves else 2)
        cluster.api.approves = not approves
        await asyncio.sleep(MINUTE)
        assert not agent.view().certificate.waiting.explanation.startswith(f"certificate request {name} {said}")


async def test_denied_requests_are_repeated_a_few_times_a_day(tmp_path: Path):
    cluster = Cluster()
    cluster.controllers.sign_after = None

    def deny(_: Any, obj: dict[str, Any]) -> None:
        if obj["kind"] == "CertificateSigningRequest" and "status" not in obj:
            cluster.api.put({**obj, "status": {"conditions": [{"type": "Denied", "status": "True", "reason": "No"}]}})

    cluster.api.reactors.append(deny)
    async with running(cluster.agent(pending=PendingKey(tmp_path))) as agent:
        await asyncio.sleep(24 * HOUR)
        assert "was denied: No" in agent.trouble
        assert 40 <= len(cluster.requests) <= 70
        cluster.api.reactors.remove(deny)
        cluster.controllers.sign_after = 0.0
        await asyncio.wait_for(agent.ready.wait(), 40 * MINUTE)


async def test_a_deleted_node_whose_runtime_is_down_comes_back_as_not_ready():
    cluster, source = Cluster(), Source()
    async with running(cluster.agent(source=source)) as agent:
        await agent.ready.wait()
        source.becomes(runtime_errors=("container runtime is down",))
        await asyncio.sleep(1)
        cluster.api.remove(NODE, "node-1")
        cluster.api.remove(LEASE, "node-1", "kube-node-lease")
        await asyncio.sleep(MINUTE)
        assert not is_true(cluster.api.get(NODE, "node-1"), "Ready")
        assert agent.view().phase is NodePhase.NOT_READY
        source.becomes(runtime_errors=())
        await asyncio.sleep(1)
        assert agent.view().phase is NodePhase.READY


async def test_a_node_deleted_before_it_had_a_csi_node_gets_its_own():
    cluster = Cluster()
    cluster.api.fail("create", "csinodes", times=11)
    async with running(cluster.agent()) as agent:
        await asyncio.sleep(3)
        cluster.api.remove(NODE, "node-1")
        cluster.api.remove(LEASE, "node-1", "kube-node-lease")
        await asyncio.sleep(3 * MINUTE)
        uid = cluster.api.get(NODE, "node-1")["metadata"]["uid"]
        assert cluster.api.get(CSI_NODE, "node-1")["metadata"]["ownerReferences"][0]["uid"] == uid
        assert is_true(cluster.api.get(NODE, "node-1"), "Ready")
        assert len(cluster.api.made("delete", "csinodes")) == 0
        assert agent.is_ready


async def test_a_status_round_tries_five_times_first_with_the_known_node():
    cluster, source = Cluster(), Source()
    async with running(cluster.agent(source=source)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(200)
        cluster.api.fail("patch", "nodes/status", times=7)
        before = len(cluster.api.calls)
        source.becomes(pressures=frozenset({"MemoryPressure"}))
        await asyncio.sleep(5)
        tried = [call.verb for call in cluster.api.calls[before:] if call.what.startswith("nodes")]
        assert tried == ["patch", *["get", "patch"] * 4]
        await asyncio.sleep(10)
        tried = [call.verb for call in cluster.api.calls[before:] if call.what.startswith("nodes")][len(tried) :]
        assert tried[:6] == ["get", "patch"] * 3
        assert is_true(cluster.api.get(NODE, "node-1"), "MemoryPressure")
