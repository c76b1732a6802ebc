"""Draining a node: which pods must go, budgets that delay them, and what is reported if they do not go."""

from __future__ import annotations

import pytest

from kubewright.base.clock import FakeClock
from kubewright.base.errors import TooManyRequests, WaitTimeout
from kubewright.base.events import SilentReporter
from kubewright.base.wait import PollingWaiter
from kubewright.kube.recording import RecordingKube
from kubewright.kube.resources import NODE, POD
from kubewright.lifecycle.steps import draining


def pod(name: str, *, phase: str = "Running", **metadata: object) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"nodeName": "two"},
        "status": {"phase": phase},
    }


DAEMON = [{"kind": "DaemonSet", "name": "d", "controller": True}]
OWNED = [{"kind": "ReplicaSet", "name": "r", "controller": True}]


class Cluster(RecordingKube):
    """Evicts a pod when its budget allows it: after this many attempts."""

    def __init__(self, *pods: dict, held: int = 0) -> None:
        super().__init__()
        self.pods = {one["metadata"]["name"]: one for one in pods}
        self.held = held
        self.evicted: list[str] = []
        super().create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "two"}, "spec": {}})

    def list(self, resource, namespace=None, **selectors: str):
        assert (resource, selectors["field_selector"]) == (POD, "spec.nodeName=two")
        return list(self.pods.values())

    def create(self, obj, *, resource=None, subresource=""):
        name = obj["metadata"]["name"]
        if self.held > 0:
            self.held -= 1
            raise TooManyRequests("the budget is used up", code=429)
        self.evicted.append(name)
        del self.pods[name]
        return obj


def drain(cluster: Cluster, *, within: float = 60.0):
    waiter = PollingWaiter(clock=FakeClock(), reporter=SilentReporter())
    return [step for step in draining.drain(cluster, "two", waiter=waiter, within=within) if hasattr(step, "target")]


def test_static_daemon_set_and_finished_pods_stay():
    pods = [
        pod("owned", ownerReferences=OWNED),
        pod("alone"),
        pod("daemon", ownerReferences=DAEMON),
        pod("static", annotations={"kubernetes.io/config.mirror": "x"}),
        pod("done", phase="Succeeded"),
        pod("failed", phase="Failed"),
    ]
    cluster = Cluster(*pods)
    steps = drain(cluster)
    assert [step.target for step in steps] == ["node two", "pod default/owned", "pod default/alone"]
    assert cluster.evicted == ["owned", "alone"]
    assert cluster.get(NODE, "two")["spec"]["unschedulable"] is True


def test_a_budget_is_waited_for_and_a_second_drain_has_nothing_to_do():
    cluster = Cluster(pod("one"), pod("two"), held=5)
    drain(cluster)
    assert sorted(cluster.evicted) == ["one", "two"]
    [node] = drain(cluster)
    assert (node.target, bool(node)) == ("node two", False)


def test_pods_that_do_not_terminate_are_reported():
    with pytest.raises(WaitTimeout) as told:
        drain(Cluster(pod("one"), held=1000), within=10.0)
    assert "default/one cannot be evicted yet: the budget is used up" in told.value.detail
    assert "poddisruptionbudget" in told.value.remedy


def test_an_evicted_pod_that_has_ended_is_waited_for_until_it_is_gone():
    cluster = Cluster(pod("one", phase="Failed", deletionTimestamp="2026-01-02T03:04:05Z"))
    with pytest.raises(WaitTimeout) as told:
        drain(cluster, within=10.0)
    assert "default/one is terminating" in told.value.detail
    assert cluster.evicted == []
