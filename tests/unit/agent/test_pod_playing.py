"""The simulated pods of one node with an API in memory, in virtual time."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any

import pytest
from agent_values import pod
from fake_api import FakeAPI, gone
from fake_controllers import LoopClock

from kubewright.agent.dependencies import Seams
from kubewright.agent.pods.lifecycle import SimulationRules
from kubewright.agent.pods.manager import PodManager
from kubewright.agent.pods.simulated import SimulatedPods
from kubewright.base.errors import Unreachable
from kubewright.base.randomness import SeededRandom
from kubewright.kube.credentials import Access
from kubewright.kube.resources import POD

pytestmark = [pytest.mark.looptime]


@asynccontextmanager
async def playing(api: FakeAPI, *, ranges: tuple[str, ...] = ("10.128.1.0/29",), **changes: Any):
    client = api.connect(Access(server="https://10.0.0.9:6443"))
    pods = PodManager(
        lambda: client,
        "node-1",
        life=SimulatedPods(host=("127.0.0.21",), rules=changes.pop("rules", SimulationRules()), clock=LoopClock()),
        seams=Seams(connect=api.connect, clock=LoopClock(), random=SeededRandom(1)),
        **changes,
    )
    pods.give_ranges(ranges)
    task = asyncio.create_task(pods.run())
    await asyncio.sleep(0.01)
    try:
        yield pods
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await pods.stop()
        await client.close()


def new(api: FakeAPI, name: str = "web", **changes: Any) -> dict[str, Any]:
    return api.put(pod(name, **changes))


def delete(api: FakeAPI, name: str, *, grace: int = 30) -> None:
    subject = api.get(POD, name, "default")
    subject["metadata"].update(deletionTimestamp="2026-01-02T03:04:35Z", deletionGracePeriodSeconds=grace)
    api.put(subject)


def phase(api: FakeAPI, name: str = "web") -> str:
    return api.get(POD, name, "default")["status"]["phase"]


async def test_a_new_pod_is_running_after_one_write():
    api = FakeAPI()
    async with playing(api):
        new(api)
        await asyncio.sleep(1)
        assert phase(api) == "Running"
        writes = api.made("patch", "pods/status")
        assert len(writes) == 1
        assert writes[0].body["metadata"] == {"uid": "uid-of-web"}
        assert api.made("delete", "pods") == []
        await asyncio.sleep(3600)
        assert len(api.made("patch", "pods/status")) == 1


async def test_only_the_pods_of_the_node_are_requested():
    api = FakeAPI()
    new(api, "other", spec={"nodeName": "node-2"})
    async with playing(api) as pods:
        await asyncio.sleep(1)
        assert pods.all() == []
    assert [call.name for call in api.calls] == ["spec.nodeName=node-1"] * 2


async def test_addresses_of_existing_pods_are_not_assigned_again():
    api = FakeAPI()
    new(api, "fresh")
    new(api, "old", status={"phase": "Running", "podIP": "10.128.1.2", "podIPs": [{"ip": "10.128.1.2"}]})
    async with playing(api):
        await asyncio.sleep(1)
        assert api.get(POD, "old", "default")["status"]["podIP"] == "10.128.1.2"
        assert api.get(POD, "fresh", "default")["status"]["podIP"] == "10.128.1.3"


async def test_pods_wait_for_the_nodes_range():
    api = FakeAPI()
    new(api)
    async with playing(api, ranges=()) as pods:
        await asyncio.sleep(1)
        assert phase(api) == "Pending"
        pods.give_ranges(["10.128.1.0/24"])
        await asyncio.sleep(1)
        assert phase(api) == "Running"


async def test_a_pod_without_an_address_gets_one_when_another_ends():
    api = FakeAPI()
    async with playing(api):
        for number in range(6):
            new(api, f"pod-{number}")
        await asyncio.sleep(1)
        assert [phase(api, f"pod-{number}") for number in range(6)] == ["Running"] * 5 + ["Pending"]
        delete(api, "pod-0")
        await asyncio.sleep(1)
        assert phase(api, "pod-5") == "Running"
        assert api.get(POD, "pod-5", "default")["status"]["podIP"] == "10.128.1.2"


async def test_a_pod_on_the_host_network_takes_no_address():
    api = FakeAPI()
    async with playing(api):
        new(api, "host", spec={"hostNetwork": True})
        new(api, "own")
        await asyncio.sleep(1)
        assert [api.get(POD, name, "default")["status"]["podIP"] for name in ("host", "own")] == ["127.0.0.21", "10.128.1.2"]


async def test_a_deleted_pod_ends_and_is_removed_with_its_uid():
    api = FakeAPI()
    async with playing(api) as pods:
        new(api)
        await asyncio.sleep(1)
        delete(api, "web")
        await asyncio.sleep(1)
        assert pods.all() == []
    assert [call.body for call in api.made("delete", "pods")] == [{"grace": 0, "uid": "uid-of-web"}]
    assert [call.body["status"]["phase"] for call in api.made("patch", "pods/status")] == ["Running", "Succeeded"]


async def test_a_pod_that_a_finalizer_holds_is_deleted_once():
    api = FakeAPI()
    async with playing(api):
        new(api, finalizers=["example.org/hold"])
        await asyncio.sleep(1)
        delete(api, "web")
        await asyncio.sleep(60)
        assert phase(api) == "Succeeded"
        assert len(api.made("delete", "pods")) == 1
        api.put({**api.get(POD, "web", "default"), "spec": {**pod()["spec"], "touched": True}})
        await asyncio.sleep(60)
    assert len(api.made("delete", "pods")) == 1


async def test_a_removal_that_the_api_server_has_cut_off_is_repeated():
    """It takes away the grace period first, in a write of its own, and a slow request may end between the two."""
    api = FakeAPI()

    def half_done(call):
        if call.verb != "delete" or len(api.made("delete", "pods")) > 1:
            return None
        delete(api, "web", grace=0)
        return Unreachable("timed out", remedy="")

    api.faults.append(half_done)
    async with playing(api) as pods:
        new(api)
        await asyncio.sleep(1)
        delete(api, "web")
        await asyncio.sleep(60)
        assert pods.all() == []
    assert len(api.made("delete", "pods")) == 2


async def test_a_slow_stop_is_waited_for():
    api = FakeAPI()
    async with playing(api, rules=SimulationRules(stop_within=10)):
        new(api)
        await asyncio.sleep(1)
        delete(api, "web", grace=30)
        await asyncio.sleep(8)
        assert phase(api) == "Running"
        await asyncio.sleep(2)
        assert api.made("delete", "pods")


async def test_a_pod_of_a_job_succeeds_after_its_time_and_frees_its_address():
    api = FakeAPI()
    async with playing(api, ranges=("10.128.1.0/30",)):
        new(api, "job", spec={"restartPolicy": "Never"})
        await asyncio.sleep(0.5)
        new(api, "next")
        await asyncio.sleep(0.1)
        assert (phase(api, "job"), phase(api, "next")) == ("Running", "Pending")
        await asyncio.sleep(1.5)
        assert (phase(api, "job"), phase(api, "next")) == ("Succeeded", "Running")


async def test_a_refused_write_is_tried_again():
    api = FakeAPI()
    api.fail("patch", "pods/status", times=2)
    async with playing(api):
        new(api)
        await asyncio.sleep(3)
        assert phase(api) == "Pending"
        await asyncio.sleep(2)
        assert phase(api) == "Running"
    assert len(api.made("patch", "pods/status")) == 3


async def test_a_pod_that_vanished_in_the_meantime_is_forgotten():
    api = FakeAPI()
    async with playing(api) as pods:
        new(api)
        api.objects.clear()
        await asyncio.sleep(1)
        assert pods.all() == []
    assert len(api.made("patch", "pods/status")) == 1


@pytest.mark.parametrize("error", [None, gone()], ids=["ended", "too old"])
async def test_a_watch_that_ends_is_opened_again_and_nothing_is_missed(error: Any):
    api = FakeAPI()
    async with playing(api):
        new(api, "before")
        await asyncio.sleep(5)
        api.break_watches(error)
        await asyncio.sleep(0)
        new(api, "meanwhile")
        await asyncio.sleep(5)
        assert phase(api, "meanwhile") == "Running"
    assert len(api.made("list", "pods")) == (1 if error is None else 2)


async def test_an_api_that_alters_writes_is_not_written_to_for_ever():
    api = FakeAPI()

    def stubborn(_: Any, obj: dict[str, Any]) -> None:
        stored = api.objects[("pods", "default", "web")]["status"]
        stored["observedGeneration"] = 77

    api.reactors.append(stubborn)
    async with playing(api):
        new(api)
        for _ in range(20):
            await asyncio.sleep(1)
            api.objects[("pods", "default", "web")]["status"]["observedGeneration"] = 77
    assert len(api.made("patch", "pods/status")) <= 3


async def test_mirror_pods_are_reported_and_not_changed():
    told: list[int] = []
    api = FakeAPI()
    async with playing(api, mirrors_changed=lambda: told.append(1)) as pods:
        new(api, "static", annotations={"kubernetes.io/config.mirror": "hash"})
        await asyncio.sleep(1)
        assert len(told) == 1
        api.remove(POD, "static", "default")
        await asyncio.sleep(1)
        assert len(told) == 2
        assert pods.all() == []
    assert api.made("patch", "pods/status") == []


async def test_a_pod_is_found_by_its_name_without_its_managed_fields():
    api = FakeAPI()
    async with playing(api) as pods:
        new(api, managedFields=[{"manager": "kubectl"}])
        await asyncio.sleep(1)
        found = pods.find("default", "web")
        assert found is not None
        assert "managedFields" not in json.dumps(found)
        assert pods.find("default", "other") is None
