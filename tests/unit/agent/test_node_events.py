"""Events about a Node: which changes are reported, and which are not."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from agent_running import agent_of, joined, running
from agent_values import NOW, facts, stored
from fake_api import FakeAPI
from fake_controllers import START

from kubewright.agent import registration
from kubewright.agent.dependencies import Duties
from kubewright.agent.status.events import NodeEvent, events_between, scheduling_event
from kubewright.agent.status.setters import find
from kubewright.kube.resources import NODE

SUBJECT = facts(needs_pod_range=False)


def node(**statuses: str) -> dict[str, Any]:
    """A stored Node whose conditions have these statuses."""
    found = copy.deepcopy(stored(registration.first_node(SUBJECT, now=NOW)))
    for kind, status in statuses.items():
        find(found["status"]["conditions"], kind)["status"] = status
    return found


def reasons(old: dict[str, Any] | None, new: dict[str, Any]) -> list[str]:
    return [event.reason for event in events_between(old, new)]


@pytest.mark.parametrize(
    ("kind", "bad", "good"),
    [
        ("MemoryPressure", "NodeHasInsufficientMemory", "NodeHasSufficientMemory"),
        ("DiskPressure", "NodeHasDiskPressure", "NodeHasNoDiskPressure"),
        ("PIDPressure", "NodeHasInsufficientPID", "NodeHasSufficientPID"),
        ("Ready", "NodeReady", "NodeNotReady"),
    ],
)
def test_a_changed_condition_is_reported(kind, bad, good):
    true, false = node(**{kind: "True"}), node(**{kind: "False"})
    assert reasons(false, true) == [bad]
    assert reasons(true, false) == [good]
    assert reasons(true, true) == []
    assert reasons(node(**{kind: "Unknown"}), true) == [bad]


def test_initial_pressure_is_reported_and_initial_readiness_is_not():
    assert reasons(None, node()) == ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]


def test_another_boot_is_a_warning():
    new = node()
    new["status"]["nodeInfo"]["bootID"] = "other"
    [event] = events_between(node(), new)
    assert event == NodeEvent("Rebooted", "Node node-1 has been rebooted, boot id: other", "Warning")
    old = node()
    old["status"]["nodeInfo"]["bootID"] = ""
    assert reasons(old, new) == []


@pytest.mark.looptime
async def test_an_agent_reports_its_start_and_changes_and_simulated_nodes_do_not():
    for events, count in ((True, 5), (False, 0)):
        api = FakeAPI()
        subject = agent_of(api, store=joined(now=START), facts=SUBJECT, duties=Duties(csi_node=True, events=events))
        async with running(subject) as agent:
            await agent.ready.wait()
            await asyncio.sleep(1)
        sent = [call.body for call in api.made("create", "events")]
        assert len(sent) == count
        assert [one["involvedObject"] for one in sent] == [{"apiVersion": "v1", "kind": "Node", "name": "node-1"}] * count
        assert [one["source"] for one in sent] == [{"component": "kubelet", "host": "node-1"}] * count


@pytest.mark.looptime
async def test_an_agent_that_starts_again_reports_the_pressures_it_finds_and_only_a_changed_readiness():
    api, store = FakeAPI(), joined(now=START)
    for _ in range(2):
        subject = agent_of(api, store=store, facts=SUBJECT, duties=Duties(csi_node=True, events=True))
        api.calls.clear()
        async with running(subject) as agent:
            await agent.ready.wait()
            await asyncio.sleep(1)
    assert [call.body["reason"] for call in api.made("create", "events")] == [
        *("Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"),
    ]


def test_cordoning_and_uncordoning_are_reported_once_each():
    node, cordoned = {"metadata": {"name": "n"}, "spec": {}}, {"metadata": {"name": "n"}, "spec": {"unschedulable": True}}
    assert scheduling_event(node, was=False) is None
    assert scheduling_event(cordoned, was=True) is None
    assert scheduling_event(cordoned, was=False) == NodeEvent("NodeNotSchedulable", "Node n status is now: NodeNotSchedulable")
    assert scheduling_event(node, was=True) == NodeEvent("NodeSchedulable", "Node n status is now: NodeSchedulable")


@pytest.mark.looptime
async def test_a_machine_that_shuts_down_is_not_ready_and_says_why():
    api = FakeAPI()
    async with running(agent_of(api, store=joined(now=START), facts=SUBJECT, duties=Duties(events=True))) as agent:
        await agent.tell_shutdown(within=5.0)  # nothing yet: it is no node
        await agent.ready.wait()
        await asyncio.sleep(1)
        await agent.tell_shutdown(within=5.0)
        found = find(api.get(NODE, "node-1")["status"]["conditions"], "Ready")
        assert (found["status"], found["message"]) == ("False", "node is shutting down")
        told = [call.body["reason"] for call in api.made("create", "events")]
        assert (told.count("Shutdown"), told.count("NodeNotReady")) == (1, 1)
        api.fail("patch", "nodes/status")
        api.fail("create", "events")
        await asyncio.wait_for(agent.tell_shutdown(within=5.0), 6)
