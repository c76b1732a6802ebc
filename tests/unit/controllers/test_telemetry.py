"""Telemetry of the controllers: counts and times by outcome, the work queues' metrics, one event for each refusal or failure."""

from __future__ import annotations

import pytest
from controllers_cluster import Cluster, cluster_info, token
from controllers_kit import condition, csr, request

from kubewright.base.errors import ServerError
from kubewright.controllers.telemetry import ControllerMetrics
from kubewright.http.metrics import Registry
from kubewright.kube.daemons.electing import Election

pytestmark = pytest.mark.looptime
APPROVED = [condition("Approved")]


def broken(name: str = "broken") -> dict:
    return csr(request(names=[("dns", "a")]), name=name, conditions=APPROVED)


def series(registry: Registry) -> dict[str, float]:
    lines = registry.read().body.decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


def told(cluster: Cluster) -> list[tuple[str, str, str]]:
    return [
        (call.body["involvedObject"]["name"], call.body["reason"], call.body["message"]) for call in cluster.api.made("create", "events")
    ]


async def test_outcomes_are_counted_by_controller():
    registry = Registry()
    objects = [csr(name="good"), broken(), cluster_info(), token()]
    async with Cluster(*objects, metrics=ControllerMetrics(registry)).running(1):
        found = series(registry)
    counts = {name: value for name, value in found.items() if name.startswith("kubewright_controllers_outcomes_total")}
    assert counts == {
        'kubewright_controllers_outcomes_total{controller="csrapproving",outcome="approved"}': 1,
        'kubewright_controllers_outcomes_total{controller="csrsigning-kubelet-client",outcome="signed"}': 1,
        'kubewright_controllers_outcomes_total{controller="csrsigning-kubelet-client",outcome="failed"}': 1,
        'kubewright_controllers_outcomes_total{controller="bootstrapsigner",outcome="updated"}': 1,
    }


async def test_the_time_to_an_outcome_includes_retries():
    registry = Registry()
    cluster = Cluster(csr(), metrics=ControllerMetrics(registry))
    cluster.api.fail("update", "certificatesigningrequests", times=2, error=ServerError("no", code=500))
    async with cluster.running(5):
        found = series(registry)
    labels = 'controller="csrapproving",outcome="approved"'
    assert found[f"kubewright_controllers_latency_seconds_count{{{labels}}}"] == 1
    assert 0.5 < found[f"kubewright_controllers_latency_seconds_sum{{{labels}}}"] < 0.8
    assert found['kubewright_controllers_outcomes_total{controller="csrapproving",outcome="error"}'] == 2
    assert found['workqueue_retries_total{name="certificate"}'] == 2


async def test_the_queues_have_the_names_of_kube_controller_manager():
    registry = Registry()
    async with Cluster(csr(), cluster_info(), token(), metrics=ControllerMetrics(registry)).running(1):
        found = series(registry)
    assert {name for name in found if name.startswith("workqueue_depth")} == {
        f'workqueue_depth{{name="{name}"}}' for name in ("certificate", "bootstrap_signer_queue", "token_cleaner")
    }
    assert found['workqueue_depth{name="certificate"}'] == 0
    assert found['workqueue_adds_total{name="certificate"}'] == 2
    assert found['workqueue_queue_duration_seconds_count{name="certificate"}'] == 2
    assert found['workqueue_work_duration_seconds_count{name="certificate"}'] == 2
    assert 'workqueue_work_duration_seconds_bucket{le="1e-08",name="certificate"}' in found
    assert not [name for name in found if "_created" in name]


async def test_leadership_is_a_metric():
    registry = Registry()
    async with Cluster(election=Election(name="controllers"), metrics=ControllerMetrics(registry)).running(1):
        assert series(registry)['leader_election_master_status{name="controllers"}'] == 1


async def test_a_request_that_breaks_a_rule_has_an_event():
    async with Cluster(broken()).running(60) as cluster:
        assert told(cluster) == [("broken", "SignerValidationFailure", "DNS subjectAltNames are not allowed")]
        [call] = cluster.api.made("create", "events")
        assert (call.body["type"], call.body["metadata"]["namespace"]) == ("Warning", "default")
        assert call.body["metadata"]["name"].startswith("broken.")
        assert call.body["involvedObject"]["uid"] == "uid-1"


async def test_a_request_without_permission_has_one_event_despite_retries():
    async with Cluster(csr(), allowed=()).running(60) as cluster:
        assert len(cluster.api.made("create", "subjectaccessreviews")) > 5
        [(name, reason, message)] = told(cluster)
        assert (name, reason) == ("csr-1", "AccessReviewDenied")
        assert "may not create certificatesigningrequests/[nodeclient]" in message


async def test_good_requests_have_no_events():
    async with Cluster(csr()).running(5) as cluster:
        assert told(cluster) == []


async def test_a_name_that_is_invalid_for_events_is_left_out_of_their_names():
    async with Cluster(broken("Odd:name")).running(5) as cluster:
        [call] = cluster.api.made("create", "events")
        assert (":" in call.body["metadata"]["name"], call.body["involvedObject"]["name"]) == (False, "Odd:name")


async def test_events_that_cannot_be_sent_block_nothing():
    cluster = Cluster(*(broken(f"broken-{number:04d}") for number in range(300)), csr(name="good"))
    cluster.api.fail("create", "events")
    async with cluster.running(5):
        assert cluster.csr("good")["status"]["certificate"]
        assert cluster.kinds("broken-0299") == ["Approved", "Failed"]


async def test_a_flood_of_failures_sends_few_events():
    async with Cluster(*(broken(f"broken-{number:04d}") for number in range(400))).running(5) as cluster:
        assert sum(cluster.kinds(f"broken-{number:04d}") == ["Approved", "Failed"] for number in range(400)) == 400
        assert 100 <= len(told(cluster)) <= 160
