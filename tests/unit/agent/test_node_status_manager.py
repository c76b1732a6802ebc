"""A node whose API is unavailable, slow, or contains what the agent did not write, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from agent_running import agent_of, joined, running
from fake_api import Call, FakeAPI
from fake_controllers import Controllers

from kubewright.base.errors import ServerError
from kubewright.kube.resources import NODE

pytestmark = [pytest.mark.looptime]


def fail_until(api: FakeAPI, moment: float) -> None:
    """Let every call fail until a moment of the loop's time."""
    api.faults.append(lambda _: ServerError("away", code=503) if asyncio.get_running_loop().time() < moment else None)


def mark_unknown(api: FakeAPI) -> None:
    """Do what kube-controller-manager does with an unreachable node."""
    node = api.get(NODE, "node-1")
    for row in node["status"]["conditions"]:
        row.update(status="Unknown", reason="NodeStatusUnknown")
    api.put(node)


def conditions_of(api: FakeAPI) -> set[str]:
    return {row["status"] for row in api.get(NODE, "node-1")["status"]["conditions"]}


@pytest.mark.parametrize("away_until", [36.0, 42.0], ids=["shorter than a lease lasts", "and the node was read since"])
async def test_conditions_set_by_a_controller_after_an_outage_are_restored(away_until: float):
    api = FakeAPI()
    Controllers(api)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
        await asyncio.sleep(0.5)
        fail_until(api, away_until)
        await asyncio.sleep(52)
        mark_unknown(api)
        await asyncio.sleep(15)
        assert conditions_of(api) == {"False", "True"}
        assert agent.is_ready


async def test_a_node_is_read_for_two_minutes_after_an_outage():
    api = FakeAPI()
    Controllers(api)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
        await asyncio.sleep(0.5)
        fail_until(api, 36.0)
        await asyncio.sleep(600)
    answered = [call.at for call in api.made("get", "nodes") if call.at >= 36]
    assert 10 <= len(answered) <= 14
    assert max(answered) < 160


async def test_unnoticed_conditions_of_a_controller_are_restored_with_the_next_report():
    api = FakeAPI()
    Controllers(api)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
        await asyncio.sleep(60)
        mark_unknown(api)
        await asyncio.sleep(410)
        assert conditions_of(api) == {"False", "True"}
        assert agent.is_ready


async def test_a_node_with_empty_fields_is_read_like_one_without_them():
    """A server that is not written in Go may answer so."""
    api = FakeAPI()
    Controllers(api)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
    stored = api.objects["nodes", "", "node-1"]
    stored["metadata"].update(annotations=None, labels=None)
    stored["spec"].update(taints=None)
    stored["status"] = None
    async with running(agent_of(api, store=joined())) as agent:
        await asyncio.wait_for(agent.ready.wait(), 30)
    assert conditions_of(api) == {"False", "True"}


async def test_a_status_that_others_keep_changing_causes_no_storm():
    def spoil(call: Call) -> None:
        if (call.verb, call.what) == ("patch", "nodes/status"):
            mark_unknown(api)

    api = FakeAPI()
    Controllers(api)
    api.faults.append(spoil)
    async with running(agent_of(api, store=joined())):
        await asyncio.sleep(100)
    assert 10 <= len(api.made("patch", "nodes/status")) <= 24


async def test_a_late_pod_range_makes_the_node_ready_soon(looptime):
    api = FakeAPI()
    Controllers(api, range_after=6)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
        assert looptime < 7.5


async def test_a_missing_pod_range_is_checked_each_second_for_two_minutes():
    api = FakeAPI()
    Controllers(api).range_after = None
    async with running(agent_of(api, store=joined())):
        await asyncio.sleep(600)
    looks = [call.at for call in api.made("get", "nodes")]
    assert 105 <= sum(10 <= at < 120 for at in looks) <= 110
    assert 44 <= sum(140 <= at < 600 for at in looks) <= 46
    assert len(api.made("patch", "nodes/status")) <= 5


async def test_a_node_with_a_pod_range_is_no_longer_checked():
    api = FakeAPI()
    Controllers(api, range_after=6)
    async with running(agent_of(api, store=joined())) as agent:
        await agent.ready.wait()
        before = len(api.made("get", "nodes"))
        await asyncio.sleep(100)
    assert len(api.made("get", "nodes")) == before
