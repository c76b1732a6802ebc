"""An agent of a real machine with an API in memory: observations are reported soon, its CSINode, its pods, and its requests across restarts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_running import CLUSTER, TOKEN, KnownCluster, agent_of, joined, running
from agent_values import facts, pod
from fake_api import FakeAPI
from fake_controllers import START, Controllers

from kubewright.agent import csi_node
from kubewright.agent.certificates.store import PendingKey
from kubewright.agent.dependencies import Duties
from kubewright.agent.pods.lifecycle import SimulationRules
from kubewright.agent.status.setters import find, is_true
from kubewright.agent.status.snapshot import Snapshot
from kubewright.agent.view import NodePhase
from kubewright.base.errors import NotFound
from kubewright.base.records import replace
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, CSI_NODE, LEASE, NODE, POD

pytestmark = [pytest.mark.looptime]

MACHINE: dict[str, Any] = {
    "rules": SimulationRules(plays=False),
    "duties": Duties(csi_node=True),
}


class Source:
    """A machine that changes when a test says so."""

    def __init__(self, **changes: Any) -> None:
        self.snapshot = Snapshot(addresses=("10.0.0.1",), **changes)
        self._changed: Callable[[], None] = lambda: None

    async def begin(self) -> None:
        return

    def watch(self, changed: Callable[[], None], /) -> None:
        self._changed = changed

    def give_pod_range(self, cidrs: tuple[str, ...], /) -> None:
        self.given = cidrs

    async def stop(self) -> None:
        return

    def becomes(self, **changes: Any) -> None:
        self.snapshot = replace(self.snapshot, **changes)
        self._changed()


def made(api: FakeAPI, source: Source | None = None, **changes: Any) -> Any:
    return agent_of(api, store=joined(now=START), facts=facts(needs_pod_range=False), source=source or Source(), **{**MACHINE, **changes})


async def test_a_machine_is_ready_without_a_pod_range_and_has_its_csi_node():
    api = FakeAPI()
    async with running(made(api)) as agent:
        await agent.ready.wait()
        node, held = api.get(NODE, "node-1"), api.get(CSI_NODE, "node-1")
    assert is_true(node, "Ready")
    assert held["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": node["metadata"]["uid"]}]
    assert held["spec"] == {"drivers": []}
    [posted] = api.made("create", "nodes")
    assert find(posted.body["status"]["conditions"], "Ready")["message"] == csi_node.NOT_YET


async def test_a_new_node_is_ready_with_its_third_write():
    api = FakeAPI()
    async with running(made(api)) as agent:
        await agent.ready.wait()
        writes = [(call.verb, call.what) for call in api.calls if call.verb in {"create", "update", "patch"}]
    assert writes == [("create", "nodes"), ("create", "csinodes"), ("patch", "nodes/status")]
    assert api.made("get", "csinodes") == []


async def test_the_csi_node_of_an_earlier_node_is_replaced_and_the_own_one_kept():
    api = FakeAPI()
    old = csi_node.new_csi_node({"metadata": {"name": "node-1", "uid": "earlier"}})
    kept = api.put(old)["metadata"]["uid"]
    async with running(made(api)) as agent:
        await agent.ready.wait()
        first = api.get(CSI_NODE, "node-1")["metadata"]["uid"]
    assert first != kept
    async with running(made(api)) as agent:
        await agent.ready.wait()
    assert api.get(CSI_NODE, "node-1")["metadata"]["uid"] == first
    assert len(api.made("create", "csinodes")) == 2  # the first found one there


async def test_the_migrated_plug_ins_of_an_older_kubelet_are_corrected():
    api = FakeAPI()
    async with running(made(api)) as agent:
        await agent.ready.wait()
    right, old = api.get(CSI_NODE, "node-1"), api.get(CSI_NODE, "node-1")
    old["metadata"]["annotations"] = {csi_node.MIGRATED: "kubernetes.io/cinder", "theirs": "x"}
    old["spec"]["drivers"] = [{"name": "d", "nodeID": "n", "topologyKeys": None}]
    api.put(old)
    for _ in range(2):
        async with running(made(api)) as agent:
            await agent.ready.wait()
    found = api.get(CSI_NODE, "node-1")
    assert found["metadata"]["annotations"] == {**right["metadata"]["annotations"], "theirs": "x"}
    assert found["spec"] == old["spec"]
    assert len(api.made("update", "csinodes")) == 1


@pytest.mark.parametrize("left", [("CSINode",), ()], ids=["as it was left", "without its CSINode"])
async def test_a_ready_node_that_is_taken_over_stays_ready_and_only_heartbeats_change(left: tuple[str, ...]):
    api = FakeAPI()
    async with running(made(api)) as agent:
        await agent.ready.wait()
    before = api.get(NODE, "node-1")["status"]["conditions"]
    if not left:
        api.remove(CSI_NODE, "node-1")
    api.calls.clear()
    await asyncio.sleep(10)
    async with running(made(api)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(60)
        assert api.get(CSI_NODE, "node-1")["metadata"]["ownerReferences"][0]["uid"] == agent.node["metadata"]["uid"]
    [report] = api.made("patch", "nodes/status")
    assert list(report.body) == ["status"]
    assert [sorted(row) for row in report.body["status"]["conditions"]] == [["lastHeartbeatTime", "type"]] * 4
    after = api.get(NODE, "node-1")["status"]["conditions"]
    assert [{**row, "lastHeartbeatTime": ""} for row in after] == [{**row, "lastHeartbeatTime": ""} for row in before]


async def test_a_csi_node_that_cannot_be_created_is_reported_and_retried():
    api = FakeAPI()
    api.fail("create", "csinodes", times=9)
    async with running(made(api)) as agent:
        await asyncio.sleep(5)
        ready = find(api.get(NODE, "node-1")["status"]["conditions"], "Ready")
        assert (ready["status"], ready["message"]) == ("False", "failed to initialize CSINode: broken")
        await asyncio.wait_for(agent.ready.wait(), 60)


async def test_a_change_of_the_machine_is_reported_at_once_and_an_unchanged_one_is_not():
    api, source = FakeAPI(), Source()
    async with running(made(api, source)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(130)
        before = len(api.made("patch", "nodes/status"))
        await asyncio.sleep(15)
        assert len(api.made("patch", "nodes/status")) == before
        source.becomes(runtime_errors=("container runtime is down",))
        await asyncio.sleep(0.1)
        ready = find(api.get(NODE, "node-1")["status"]["conditions"], "Ready")
        assert (ready["status"], ready["message"]) == ("False", "container runtime is down")
        assert agent.view().phase is NodePhase.NOT_READY
        source.becomes(runtime_errors=(), pressures=frozenset({"MemoryPressure"}))
        await asyncio.sleep(0.1)
        assert is_true(api.get(NODE, "node-1"), "MemoryPressure")
        assert is_true(api.get(NODE, "node-1"), "Ready")


async def test_a_later_pod_range_is_passed_to_the_machine():
    api, source = FakeAPI(), Source()
    async with running(made(api, source)) as agent:
        await agent.ready.wait()
        node = api.get(NODE, "node-1")
        api.put({**node, "spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}})
        await asyncio.sleep(3)
    assert source.given == ("10.1.0.0/24",)


@pytest.mark.parametrize(
    ("ahead", "words"), [(0.0, ""), (59.0, ""), (125.0, "2 min behind the API server's"), (-7300.0, "2 h ahead of the API server's")]
)
async def test_a_wrong_clock_is_reported_until_it_is_set(ahead: float, words: str):
    api = FakeAPI(ahead=ahead)
    async with running(made(api, duties=Duties(events=True))) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1)
        assert words in agent.view().clock
        assert bool(agent.view().clock) is bool(words)
        api.ahead = 0.0
        await asyncio.sleep(601)
        assert agent.view().clock == ""


async def test_failed_setters_are_in_the_status():
    source = Source(address_trouble="no address")
    async with running(made(FakeAPI(), source)) as agent:
        await agent.ready.wait()
        assert agent.view().failures == {"addresses": "no address"}


async def test_a_node_that_others_register_is_waited_for():
    api = FakeAPI()
    async with running(made(api, duties=Duties(registers=False))) as agent:
        await asyncio.sleep(20)
        assert api.made("create", "nodes") == []
        api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "spec": {}, "status": {}})
        await asyncio.wait_for(agent.ready.wait(), 30)
        await asyncio.sleep(1)
    assert api.made("create", "nodes") == []
    assert len(api.made("create", "leases")) == 1


async def test_a_deleted_node_comes_back_once_with_lease_and_csi_node():
    api = FakeAPI()
    async with running(made(api, duties=Duties(csi_node=True, returns=True))) as agent:
        await agent.ready.wait()
        await asyncio.sleep(200)
        for resource, namespace in (
            (NODE, None),
            (CSI_NODE, None),
            (LEASE, "kube-node-lease"),
        ):  # owned objects are deleted with their owner
            api.remove(resource, "node-1", namespace)
        await asyncio.sleep(11)  # the next renewal notices it
        assert agent.view().phase is NodePhase.REGISTERING
        await asyncio.sleep(45)
        uid = api.get(NODE, "node-1")["metadata"]["uid"]
        assert is_true(api.get(NODE, "node-1"), "Ready")
        assert [api.get(CSI_NODE, "node-1")["metadata"]["ownerReferences"][0]["uid"]] == [uid]
        assert [api.get(LEASE, "node-1", "kube-node-lease")["metadata"]["ownerReferences"][0]["uid"]] == [uid]
        assert agent.view().phase is NodePhase.READY
    assert len(api.made("create", "nodes")) == 2


@pytest.mark.parametrize("collected", [True, False], ids=["the Lease went with it", "the Lease goes later"])
async def test_a_node_that_comes_back_has_its_lease_at_once(collected: bool):
    api = FakeAPI()
    async with running(made(api, duties=Duties(csi_node=True, returns=True))) as agent:
        await agent.ready.wait()
        await asyncio.sleep(200)
        api.remove(NODE, "node-1")
        api.remove(CSI_NODE, "node-1")
        if collected:
            api.remove(LEASE, "node-1", "kube-node-lease")
        before = len(api.made("create", "nodes"))
        async with asyncio.timeout(600):
            while agent.view().phase is not NodePhase.REGISTERING:
                await asyncio.sleep(0.1)
            if not collected:
                api.remove(LEASE, "node-1", "kube-node-lease")
            while len(api.made("create", "nodes")) == before:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        lease = api.get(LEASE, "node-1", "kube-node-lease")
        assert lease["metadata"]["ownerReferences"][0]["uid"] == api.get(NODE, "node-1")["metadata"]["uid"]


async def test_a_node_that_cannot_be_created_causes_no_storm():
    api = FakeAPI()
    async with running(made(api)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(200)
        api.remove(NODE, "node-1")
        api.remove(LEASE, "node-1", "kube-node-lease")
        before = len(api.calls)
        await asyncio.sleep(600)
    assert len(api.made("create", "nodes")) == 1
    assert len(api.calls) - before < 600


async def test_a_pod_that_never_ran_can_be_deleted_and_one_that_did_stays():
    api = FakeAPI()
    asked = {"deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 30}
    api.put(pod("waits"))
    api.put(pod("gone", **asked))
    api.put(pod("ran", status={"phase": "Running"}, **asked))
    async with running(made(api)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(5)
        assert len(agent.pods) == 2
    assert api.made("patch", "pods/status") == []
    with pytest.raises(NotFound):
        api.get(POD, "gone", "default")
    assert api.get(POD, "ran", "default")["status"]["phase"] == "Running"


def waiting(api: FakeAPI, place: Path, **named: str) -> Any:
    """An agent without a certificate, whose key is in a file."""
    profile = facts(needs_pod_range=False, **named)
    return agent_of(api, bootstrap=KnownCluster(TOKEN, connect=api.connect), pending=PendingKey(place), facts=profile, **MACHINE)


def sign(api: FakeAPI, name: str) -> None:
    Controllers(api)._sign(api.get(CERTIFICATE_SIGNING_REQUEST, name))


async def test_an_open_request_is_found_again_after_a_restart(tmp_path: Path):
    api = FakeAPI()
    for _ in range(3):
        async with running(waiting(api, tmp_path)) as agent:
            await asyncio.sleep(1000)  # longer than one request is waited for
            request = agent.view().certificate.waiting
    [name] = [name for kind, _, name in api.objects if kind == "certificatesigningrequests"]
    assert request is not None
    assert request.name == name
    assert name.startswith("node-csr-")
    assert (tmp_path / "kubelet-client.key.tmp").stat().st_mode & 0o777 == 0o600
    sign(api, name)
    async with running(waiting(api, tmp_path)) as agent:
        await asyncio.wait_for(agent.ready.wait(), 60)
        assert agent.view().certificate.waiting is None
    assert not PendingKey(tmp_path).exists


async def test_an_unsigned_request_does_not_block_another_name(tmp_path: Path):
    api = FakeAPI()
    async with running(waiting(api, tmp_path, name="taken")):
        await asyncio.sleep(5)
    async with running(waiting(api, tmp_path, name="another")) as agent:
        await asyncio.sleep(5)
        sign(api, agent.view().certificate.waiting.name)
        await asyncio.wait_for(agent.ready.wait(), 60)
    assert [name for kind, _, name in api.objects if kind == "nodes"] == ["another"]
    assert not PendingKey(tmp_path).exists


async def test_a_certificate_issued_while_the_agent_was_down_is_used(tmp_path: Path):
    api = FakeAPI()
    async with running(waiting(api, tmp_path)):
        await asyncio.sleep(5)
    [name] = [name for kind, _, name in api.objects if kind == "certificatesigningrequests"]
    sign(api, name)
    async with running(waiting(api, tmp_path)) as agent:
        await asyncio.wait_for(agent.ready.wait(), 60)
    assert len(api.made("create", "certificatesigningrequests")) == 2  # the second found the first


@pytest.mark.parametrize(("made", "requests"), [(0, 2), (5000, 1)], ids=["older than its validity", "by a clock that is ahead"])
async def test_a_certificate_that_expired_while_the_agent_was_down_is_requested_again_with_another_key(
    tmp_path: Path, made: int, requests: int
):
    api = FakeAPI()
    async with running(waiting(api, tmp_path)):
        await asyncio.sleep(5)
    [name] = [name for kind, _, name in api.objects if kind == "certificatesigningrequests"]
    controllers = Controllers(api)
    controllers.lifetime = 600
    controllers._sign(api.get(CERTIFICATE_SIGNING_REQUEST, name))
    controllers.lifetime = 86400
    os.utime(tmp_path / "kubelet-client.key.tmp", times=(START.timestamp() + made,) * 2)
    await asyncio.sleep(5000)
    async with running(waiting(api, tmp_path)) as agent:
        await asyncio.wait_for(agent.ready.wait(), 60)
    assert len([name for kind, _, name in api.objects if kind == "certificatesigningrequests"]) == requests
    assert not PendingKey(tmp_path).exists


async def test_after_a_denial_there_is_a_new_key_and_a_new_request(tmp_path: Path):
    api = FakeAPI()
    async with running(waiting(api, tmp_path)) as agent:
        await asyncio.sleep(5)
        [name] = [name for kind, _, name in api.objects if kind == "certificatesigningrequests"]
        denied = api.get(CERTIFICATE_SIGNING_REQUEST, name)
        denied["status"] = {"conditions": [{"type": "Denied", "status": "True", "reason": "No", "message": "not you"}]}
        api.put(denied)
        await asyncio.sleep(1)
        assert "No: not you" in agent.trouble
        await asyncio.sleep(10)
        assert agent.view().certificate.waiting.name != name
    assert len([name for kind, _, name in api.objects if kind == "certificatesigningrequests"]) == 2


async def test_a_request_of_another_user_with_that_name_is_not_waited_for(tmp_path: Path):
    api = FakeAPI()
    async with running(waiting(api, tmp_path)):
        await asyncio.sleep(5)
    [name] = [name for kind, _, name in api.objects if kind == "certificatesigningrequests"]
    forged = api.get(CERTIFICATE_SIGNING_REQUEST, name)
    forged["spec"]["signerName"] = "example.com/other"
    api.put(forged)
    async with running(waiting(api, tmp_path)) as agent:
        await asyncio.sleep(10)
        assert agent.view().certificate.waiting.name != name
    assert CLUSTER.server.startswith("https://")
