"""Mirror pods: what is planned, and a machine with static pods and an API in memory."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest
from agent_values import pod
from fake_api import FakeAPI
from fake_controllers import Controllers
from test_node_agent import agent_of, joined, running

from kubewright.agent.pods import mirrors as mirror_pods
from kubewright.agent.pods.mirrors import Create, Remove, Show, StaticPodState
from kubewright.base.records import replace
from kubewright.kube.resources import NODE, POD

pytestmark = [pytest.mark.looptime]

NODE_1 = {"metadata": {"name": "node-1", "uid": "uid-of-node"}}
NOW = "2026-01-02T03:04:05Z"
MANIFEST = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "etcd", "namespace": "kube-system", "labels": {"component": "etcd"}, "annotations": {"note": "x"}},
    "spec": {"containers": [{"name": "etcd", "image": "etcd:1"}], "hostNetwork": True, "priorityClassName": "system-node-critical"},
}


def status_of(*, ready: bool = True) -> dict[str, Any]:
    state = {"running": {"startedAt": NOW}}
    return {"name": "etcd", "image": "etcd:1", "imageID": "", "ready": ready, "restartCount": 0, "state": state, "lastState": {}}


ETCD = StaticPodState(manifest=MANIFEST, hash="hash-1", containers=[status_of()])


def planned(static: list[StaticPodState], mirrors: list[dict[str, Any]]):
    return mirror_pods.plan_mirrors(static, mirrors, node=NODE_1, host=["127.0.0.11"], now=NOW)


def existing(**metadata: Any) -> dict[str, Any]:
    found = mirror_pods.mirror_pod(ETCD, node=NODE_1, now=NOW)
    found["metadata"].update(uid="uid-of-mirror", resourceVersion="5", **metadata)
    return {**found, "status": {"phase": "Pending"}}


def test_a_mirror_pod_is_accepted_by_node_restriction():
    (action,) = planned([ETCD], [])
    assert isinstance(action, Create)
    assert action.pod["metadata"] == {
        "name": "etcd-node-1",
        "namespace": "kube-system",
        "labels": {"component": "etcd"},
        "annotations": {
            "note": "x",
            "kubernetes.io/config.hash": "hash-1",
            "kubernetes.io/config.mirror": "hash-1",
            "kubernetes.io/config.seen": NOW,
            "kubernetes.io/config.source": "file",
        },
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-of-node", "controller": True}],
    }
    assert action.pod["spec"]["nodeName"] == "node-1"
    assert action.pod["spec"]["tolerations"] == [{"effect": "NoExecute", "operator": "Exists"}]
    assert "nodeName" not in MANIFEST["spec"]


def test_its_status_is_that_of_the_containers():
    (action,) = planned([ETCD], [existing()])
    assert isinstance(action, Show)
    assert action.status["phase"] == "Running"
    assert action.status["podIP"] == "127.0.0.11"
    assert {row["type"]: row["status"] for row in action.status["conditions"]} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
        "PodScheduled": "True",
    }
    shown = {**existing(), "status": action.status}
    assert planned([ETCD], [shown]) == []
    (broken,) = planned([replace(ETCD, containers=[status_of(ready=False)])], [shown])
    ready = next(row for row in broken.status["conditions"] if row["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ContainersNotReady")
    assert ready["message"] == "containers with unready status: [etcd]"


@pytest.mark.parametrize(
    ("static", "found"),
    [
        ([], existing()),
        ([replace(ETCD, hash="hash-2")], existing()),
        ([ETCD], existing(deletionTimestamp=NOW)),
    ],
    ids=["no static pod", "another manifest", "deleted by a user"],
)
def test_a_mirror_pod_that_does_not_belong_is_removed(static: list[StaticPodState], found: dict[str, Any]):
    assert planned(static, [found]) == [Remove(found)]


class Provider:
    def __init__(self, *pods: StaticPodState) -> None:
        self.pods = list(pods)
        self.changed = asyncio.Event()

    def list(self) -> list[StaticPodState]:
        return self.pods


@asynccontextmanager
async def machine(api: FakeAPI, provider: Provider):
    Controllers(api)
    async with running(agent_of(api, store=joined(), static_pods=provider)) as agent:
        await agent.ready.wait()
        await asyncio.sleep(1)
        yield agent


async def test_static_pods_appear_once_the_node_is_there():
    api = FakeAPI()
    async with machine(api, Provider(ETCD)):
        found = api.get(POD, "etcd-node-1", "kube-system")
    assert found["metadata"]["ownerReferences"][0]["uid"] == api.get(NODE, "node-1")["metadata"]["uid"]
    assert found["status"]["phase"] == "Running"
    assert len(api.made("create", "pods")) == 1
    assert len(api.made("patch", "pods/status")) == 1


async def test_a_changed_manifest_replaces_the_mirror_pod():
    api, provider = FakeAPI(), Provider(ETCD)
    async with machine(api, provider):
        first = api.get(POD, "etcd-node-1", "kube-system")["metadata"]["uid"]
        provider.pods = [replace(ETCD, hash="hash-2")]
        provider.changed.set()
        await asyncio.sleep(1)
        found = api.get(POD, "etcd-node-1", "kube-system")
    assert found["metadata"]["uid"] != first
    assert found["metadata"]["annotations"]["kubernetes.io/config.mirror"] == "hash-2"
    assert [call.body["uid"] for call in api.made("delete", "pods")] == [first]


async def test_a_removed_mirror_pod_comes_back():
    api = FakeAPI()
    async with machine(api, Provider(ETCD)):
        api.remove(POD, "etcd-node-1", "kube-system")
        await asyncio.sleep(1)
        assert api.get(POD, "etcd-node-1", "kube-system")["status"]["phase"] == "Running"


async def test_a_static_pod_that_ends_is_no_longer_shown():
    api, provider = FakeAPI(), Provider(ETCD)
    async with machine(api, provider):
        provider.pods = []
        provider.changed.set()
        await asyncio.sleep(1)
        assert ("pods", "kube-system", "etcd-node-1") not in api.objects


async def test_refused_writes_are_retried():
    api = FakeAPI()
    api.fail("create", "pods", times=3)
    async with machine(api, Provider(ETCD)):
        await asyncio.sleep(5)
        assert api.get(POD, "etcd-node-1", "kube-system")["status"]["phase"] == "Running"
    assert len(api.made("create", "pods")) == 4


async def test_ordinary_pods_are_simulated_in_addition():
    api = FakeAPI()
    async with machine(api, Provider(ETCD)) as agent:
        api.put(pod("web"))
        await asyncio.sleep(1)
        assert api.get(POD, "web", "default")["status"]["phase"] == "Running"
        assert agent.view().pods == 2
