"""A hub with several clusters: each is served separately, and changes by commands take effect at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import closing

import pytest
from hub_kit import SERVING_CA, cluster, decide, drop, event, put, sqlite
from old_peer import OldNode
from tenants_kit import LOADED, FakeAPI, TenantClient
from test_hub_stores import SecretsPlace

from busy import HANGS
from kubewright.apis import node_join_requests
from kubewright.base import unexpected
from kubewright.base.clock import SystemClock
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.enrollment.hub.hub import Hub
from kubewright.enrollment.protocol import decisions
from kubewright.enrollment.state.store_thread import StoreThread
from kubewright.kube.credentials import Access
from kubewright.kube.daemons import controller
from kubewright.kube.daemons.electing import LeadershipLost
from kubewright.kube.resources import NODE_JOIN_REQUEST

ENDPOINT = "https://10.0.0.1:6443"
QUICK = {"key_algorithm": "ECDSA-P256"}


class Hanging(TenantClient):
    """A cluster that accepts every request and never answers."""

    async def send(self, call):
        await asyncio.Event().wait()


class Clusters:
    """Clusters in memory by name, and the hub that serves them."""

    def __init__(self, directory) -> None:
        self.directory = directory
        self.apis: dict[str, FakeAPI] = {}
        self.hanging: set[str] = set()

    def connect(self, found):
        api = self.apis.setdefault(found.name, FakeAPI())
        return (Hanging if found.name in self.hanging else TenantClient)(api, Access(server="https://api"))

    def state(self, work: Callable) -> None:
        store = sqlite(self.directory)
        work(store)
        store.close()

    def ask(self, name: str, node: str) -> None:
        request = OldNode(node, ENDPOINT).request(LOADED.public_key)
        request["metadata"] |= {"uid": f"{name}-{node}"}
        self.apis.setdefault(name, FakeAPI()).put(request)

    def request(self, name: str, node: str) -> dict:
        return self.apis[name].objects[(NODE_JOIN_REQUEST.plural, "", node)]

    def subject(self, name: str, node: str) -> str:
        return decisions.look(self.request(name, node)).subject

    def answered(self, name: str, node: str) -> str:
        found = self.apis[name].objects.get((NODE_JOIN_REQUEST.plural, "", node)) if name in self.apis else None
        condition = node_join_requests.condition_of(found) if found is not None else None
        return condition.reason if condition is not None else ""


@pytest.fixture
async def clusters(tmp_path, monkeypatch):
    monkeypatch.setattr(controller, "GRACE", 0.1)
    made = Clusters(tmp_path)
    made.state(lambda store: store.save_cluster(cluster(**QUICK), event()))
    store = StoreThread(sqlite(tmp_path))
    hub = Hub(store, connect=made.connect, clock=SystemClock(), random=SeededRandom(1))
    task = asyncio.create_task(hub.run())
    made.hub = hub
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    store.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(HANGS):
        while not condition():
            await asyncio.sleep(0.01)


async def test_hanging_and_broken_clusters_do_not_delay_others(clusters, caplog):
    caplog.set_level(logging.INFO, logger="kubewright.enrollment")
    clusters.hanging.add("hangs")
    clusters.state(lambda store: store.save_cluster(cluster("hangs", **QUICK), event(cluster="hangs")))
    clusters.state(lambda store: store.save_cluster(cluster("broken", client_key=SERVING_CA[1]), event(cluster="broken")))
    await until(lambda: any("broken cannot be served" in record.getMessage() for record in caplog.records))
    clusters.ask("a", "worker")
    await until(lambda: clusters.answered("a", "worker") == "Issued")
    [told] = {record.getMessage() for record in caplog.records if "cannot be served" in record.getMessage()}
    assert "broken/client-ca.crt and broken/client-ca.key do not match" in told


async def test_clusters_are_added_changed_and_removed_at_runtime(clusters):
    await until(lambda: not clusters.hub.unready)
    clusters.state(lambda store: store.save_cluster(cluster("b", **QUICK), event(cluster="b")))
    clusters.ask("b", "one")
    await until(lambda: clusters.answered("b", "one") == "Issued")
    clusters.state(lambda store: put(store, replace(cluster("b", **QUICK), approval="human")))
    await until(lambda: any(one.cluster.approval == "human" for one in clusters.hub._served.values()))
    clusters.ask("b", "two")
    await until(lambda: clusters.answered("b", "two") == "AwaitingApproval")
    clusters.state(lambda store: decide(store, "b", clusters.subject("b", "two"), approved=True))
    await until(lambda: clusters.answered("b", "two") == "Issued")
    clusters.state(lambda store: drop(store, "b"))
    await until(lambda: "b" not in clusters.hub._served)
    assert list(clusters.hub._served) == ["a"]


async def test_an_approval_applies_only_to_the_request_as_it_was(clusters):
    clusters.state(lambda store: store.save_cluster(cluster("b", approval="human", **QUICK), event(cluster="b")))
    for node in ("one", "two"):
        clusters.ask("b", node)
        await until(lambda node=node: clusters.answered("b", node) == "AwaitingApproval")
    seen = [clusters.subject("b", node) for node in ("one", "two")]
    theirs = OldNode("one", ENDPOINT).request(LOADED.public_key)["spec"]
    clusters.apis["b"].put({**clusters.request("b", "one"), "spec": theirs})
    for subject in seen:
        clusters.state(lambda store, subject=subject: decide(store, "b", subject, approved=True))
    await until(lambda: clusters.answered("b", "two") == "Issued")
    assert clusters.answered("b", "one") == "AwaitingApproval"
    mine = clusters.subject("b", "one")
    clusters.state(lambda store: decide(store, "b", mine, approved=True))
    await until(lambda: clusters.answered("b", "one") == "Issued")


async def test_an_outage_of_the_management_cluster_ends_nothing(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="kubewright.enrollment")
    place, clusters = SecretsPlace(tmp_path), Clusters(tmp_path)
    with closing(place.open()) as store:
        store.save_cluster(cluster(**QUICK), event())
    thread = StoreThread(place.open())
    hub = Hub(thread, connect=clusters.connect, clock=SystemClock(), random=SeededRandom(1))
    task = asyncio.create_task(hub.run())
    try:
        await until(lambda: not hub.unready)
        place.api.down = True
        await until(lambda: any("the state cannot be read" in record.getMessage() for record in caplog.records))
        clusters.ask("a", "worker")
        await until(lambda: any("request/worker is tried again" in record.getMessage() for record in caplog.records))
        place.api.down = False
        await until(lambda: clusters.answered("a", "worker") == "Issued")
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        thread.close()


async def test_a_hub_that_lost_its_lease_does_not_use_the_state(tmp_path):
    leads = True

    def require() -> None:
        if not leads:
            raise LeadershipLost("the lease was not renewed in time")

    store = StoreThread(sqlite(tmp_path), require=require)
    await store.ask(lambda one: one.add_event(event("first")))
    leads = False
    with pytest.raises(LeadershipLost):
        await store.ask(lambda one: one.add_event(event("second")))
    store.close()
    with closing(sqlite(tmp_path)) as found:
        assert [line.event for line in found.journal()] == ["first"]


async def test_unexpected_errors_are_logged_and_the_hub_continues(clusters, monkeypatch):
    await until(lambda: not clusters.hub.unready)
    kinds = [("list", NODE_JOIN_REQUEST.plural), ("watch", "nodes"), ("get", "configmaps"), ("patch", f"{NODE_JOIN_REQUEST.plural}/status")]
    left, before = list(kinds), sum(unexpected.counts().values())
    api = clusters.apis["b"] = FakeAPI()

    def fault(call):
        if (call.verb, call.what) in left:
            left.remove((call.verb, call.what))
            return RuntimeError("File descriptor 34 is used by transport")
        return None

    def connect(found, real=clusters.connect):
        monkeypatch.setattr(clusters.hub, "_connect", real)
        raise RuntimeError("odd")

    async def follow(real=clusters.hub._follow):
        monkeypatch.setattr(clusters.hub, "_follow", real)
        raise RuntimeError("odder")

    api.faults.append(fault)
    monkeypatch.setattr(clusters.hub, "_connect", connect)
    monkeypatch.setattr(clusters.hub, "_follow", follow)
    clusters.state(lambda store: store.save_cluster(cluster("b", **QUICK), event(cluster="b")))
    clusters.ask("b", "one")
    await until(lambda: clusters.answered("b", "one") == "Issued")
    await until(lambda: sum(unexpected.counts().values()) - before == len(kinds) - len(left) + 2)
    assert len(left) <= 1
