"""Requests that wait for a source: when they are checked again, what may change meanwhile, and how people learn about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from controllers_cluster import Cluster
from controllers_kit import request
from serving_kit import DNS, IP, serving_csr

from kubewright.apis.join_records import JoinRecord, State
from kubewright.base.errors import KubewrightError
from kubewright.controllers import options
from kubewright.controllers.serving.sources.interface import Look, Tools
from kubewright.controllers.telemetry import ControllerMetrics
from kubewright.http.metrics import Registry
from kubewright.kube.resources import NODE

pytestmark = pytest.mark.looptime
HEAD = "apiVersion: controllers.kubewright/v1alpha1\nkind: NodeApprovalPolicy\n"
POLICY = f"{HEAD}sources: [{{joinRecords: {{state: /hub.db, keyFile: /hub.key, cluster: c}}}}]\n"
RECORD = JoinRecord(cluster="c", node="a", state=State.ISSUED, protocol="p", request="r", key="k", lease="10.1.0.7")
REPORTED = [{"type": "InternalIP", "address": "10.1.0.7"}, {"type": "Hostname", "address": "a"}]
MINUTE = 60.0


class Hub:
    """Join records that may be unavailable, and what happens while they are read."""

    def __init__(self) -> None:
        self.available = True
        self.asked: list[float] = []
        self.opened = self.closed = self.at = self.looked = 0
        self.record: JoinRecord | None = RECORD
        self.meanwhile: Callable[[], None] = lambda: None

    def open(self, _: object) -> Hub:
        self.opened += 1
        return self

    async def version(self):
        self.looked += 1
        self._require_available()
        return self.at

    async def look_up(self, node, names):
        self.asked.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1)
        self.meanwhile()
        self._require_available()
        return Look(version=self.at, record=self.record, owners={})

    def change(self, record: JoinRecord | None) -> None:
        """Write a record, as the hub does."""
        self.record, self.at = record, self.at + 1

    def _require_available(self) -> None:
        if not self.available:
            raise KubewrightError("the file is locked")

    async def close(self):
        self.closed += 1


def node() -> dict:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "spec": {}, "status": {"addresses": REPORTED}}


def running(hub: Hub, *objects: dict, metrics: ControllerMetrics | None = None) -> Cluster:
    found = objects or (serving_csr(),)
    tools = Tools(read=lambda _: None, records=hub.open)
    return Cluster(node(), *found, wanted=options.selected(["servingapproving"]), policy=POLICY, tools=tools, metrics=metrics)


def conditions(cluster: Cluster) -> list[tuple[str, str]]:
    return [(one["type"], one["reason"]) for one in cluster.csr()["status"].get("conditions", [])]


async def test_pauses_between_checks_double_from_five_seconds_to_five_minutes():
    hub = Hub()
    hub.available = False
    async with running(hub).running(22 * MINUTE):
        pauses = [round(later - sooner - 1) for sooner, later in zip(hub.asked, hub.asked[1:], strict=False)]
        assert pauses[:8] == [5, 10, 20, 40, 80, 160, 300, 300]


async def test_a_request_is_checked_within_seconds_after_its_join_record_has_changed():
    hub = Hub()
    hub.record = None
    async with running(hub).running(9 * MINUTE) as cluster:
        assert conditions(cluster) == []
        before = len(hub.asked)
        hub.change(None)  # a record of somebody else
        await asyncio.sleep(3)
        assert (len(hub.asked), conditions(cluster)) == (before + 1, [])
        hub.change(RECORD)
        await asyncio.sleep(3)
        assert (len(hub.asked), conditions(cluster)) == (before + 2, [("Approved", "NodeJoinPolicy")])
        looked = hub.looked
        await asyncio.sleep(MINUTE)
        assert hub.looked == looked, "while no request waits, the records are left alone"


async def test_a_request_is_checked_within_seconds_after_its_source_answers_again():
    hub = Hub()
    hub.available = False
    async with running(hub).running(20 * MINUTE) as cluster:
        hub.available = True
        await asyncio.sleep(3)
        assert conditions(cluster) == [("Approved", "NodeJoinPolicy")]


async def test_an_event_is_sent_once_after_a_quarter_of_an_hour():
    hub, registry = Hub(), Registry()
    hub.available = False

    def waits() -> list[str]:
        lines = [line for line in registry.read().body.decode().splitlines() if 'outcome="waits' in line]
        return [line.partition("outcome=")[2] for line in lines]

    async with running(hub, metrics=ControllerMetrics(registry)).running(14 * MINUTE) as cluster:
        assert waits() == ['"waits RecordUnavailable"} 1.0']
        assert cluster.events() == []
        await asyncio.sleep(14 * MINUTE)
        [told] = cluster.events()
        assert (told["reason"], told["involvedObject"]["kind"]) == ("RecordUnavailable", "Node")
        assert "the file is locked" in told["message"]
        assert sorted(waits()) == ['"waits RecordUnavailable"} 1.0', '"waits for long RecordUnavailable"} 1.0']
        assert conditions(cluster) == []


async def test_a_request_that_has_waited_for_a_day_is_stale():
    hub = Hub()
    hub.available = False
    async with running(hub, serving_csr(created="2026-01-01T03:10:05Z")).running(MINUTE) as cluster:
        assert conditions(cluster) == []
        await asyncio.sleep(12 * MINUTE)
        assert conditions(cluster) == [("Denied", "Stale")]


async def test_a_node_that_is_deleted_while_its_sources_are_asked_gets_nothing():
    hub = Hub()
    cluster = running(hub)
    hub.meanwhile = lambda: cluster.api.remove(NODE, "a")
    async with cluster.running(0.5):
        await asyncio.sleep(0.8)
        hub.meanwhile = lambda: None
        await asyncio.sleep(MINUTE)
        assert conditions(cluster) == []


async def test_a_policy_that_changes_while_sources_are_asked_decides():
    hub = Hub()
    cluster = running(hub)

    def change() -> None:
        cluster.set_policy(f"{HEAD}sources: [{{file: {{nodes: [{{node: a}}]}}}}]\nreserved: [10.1.0.7]\n")

    hub.meanwhile = change
    async with cluster.running(0.5):
        change()
        await asyncio.sleep(10)
        assert conditions(cluster) == [("Denied", "ReservedName")]
        assert (hub.opened, hub.closed) == (1, 1)


async def test_a_policy_with_a_source_that_cannot_be_opened_changes_nothing():
    hub = Hub()
    async with running(hub).running(10) as cluster:
        assert conditions(cluster) == [("Approved", "NodeJoinPolicy")]
        cluster.set_policy(f"{HEAD}sources: [{{machines: {{kubeconfig: /missing, namespace: a, cluster: c}}}}]\n")
        await asyncio.sleep(10)
        cluster.api.put(serving_csr(name="csr-2", created="2026-01-02T03:05:05Z"))
        await asyncio.sleep(10)
        assert cluster.kinds("csr-2") == ["Approved"]
        assert (hub.opened, hub.closed) == (1, 0)
    assert hub.closed == 1


async def test_sources_are_not_asked_about_requests_that_are_denied_anyway():
    hub = Hub()
    for asked in (request(names=(("dns", "localhost"), IP)), request(names=(DNS,)), b"junk"):
        async with running(hub, serving_csr(asked)).running(10) as cluster:
            assert cluster.kinds() == ["Denied"]
    assert hub.asked == []
