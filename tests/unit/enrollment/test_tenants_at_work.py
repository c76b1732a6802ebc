"""A working tenant: killed at every persistent step, flooded, refused by its cluster; its results are complete."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from hub_kit import JOIN_KEY, cluster
from old_peer import OldNode
from tenants_kit import Bench, FilePlace, Killer, SecretsPlace, proof_of

from kubewright.apis.join_records import State
from kubewright.apis.node_join_requests import LEAVE_ANSWER, LEAVE_PROOF, LEAVING_LABEL
from kubewright.base.errors import Flooded
from kubewright.enrollment.hub import tenants
from kubewright.enrollment.hub.request_handler import MOST_TIMES_TAKEN
from kubewright.enrollment.hub.tenants import WORKERS
from kubewright.enrollment.state.clusters import LoadedCluster
from kubewright.enrollment.state.store import HubStore, Taken
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.daemons import controller
from kubewright.kube.daemons.known_nodes import KnownNodes
from kubewright.pki import keys

ENDPOINT = "https://10.0.0.1:6443"


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


async def steps_of(bench, until) -> int:
    killer = Killer()
    assert not await bench.serve(until, killer=killer)
    return killer.steps


@pytest.mark.parametrize("place", [FilePlace, SecretsPlace], ids=["sqlite", "secrets"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_join_succeeds_if_the_hub_is_killed_at_any_step(tmp_path, after, place):
    kills = 0
    for number in range(30):
        directory = tmp_path / str(number)
        directory.mkdir()
        bench, node = Bench(directory, place=place), OldNode("worker", ENDPOINT, ("10.0.0.5",))
        bench.ask(node)
        if not await bench.serve(lambda bench=bench: bench.status("worker") == "True Issued", killer=Killer(number, after=after)):
            break
        kills += 1
        assert not await bench.serve(lambda bench=bench: bench.status("worker") == "True Issued" and bench.ready())
        assert node.results(bench.request("worker"))["kubernetesVersion"] == "1.36.3"
        store = bench.store()
        [record] = store.records()
        assert (record.node, record.state, record.names) == ("worker", State.ISSUED, ("10.0.0.5",))
        assert store.owners("a", ["10.0.0.5", "worker"]) == {"10.0.0.5": "worker", "worker": "worker"}
        store.close()
    assert kills >= 6  # some steps are not part of the join: it may be over before them


@pytest.mark.parametrize("place", [FilePlace, SecretsPlace], ids=["sqlite", "secrets"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_leaving_succeeds_if_the_hub_is_killed_at_any_step(tmp_path, after, place):
    kills = 0
    for number in range(30):
        directory = tmp_path / str(number)
        directory.mkdir()
        bench, node = Bench(directory, place=place), OldNode("worker", ENDPOINT)
        bench.ask(node)
        assert not await bench.serve(lambda bench=bench: bench.status("worker") == "True Issued" and bench.ready())
        bench.leaving(node)

        def gone(bench=bench):
            return ("nodes", "", "worker") not in bench.api.objects

        if not await bench.serve(gone, killer=Killer(number, after=after)):
            break
        kills += 1
        assert not await bench.serve(gone)
        store = bench.store()
        assert (store.record("a", "worker").state, store.owners("a", ["worker"]), bench.request("worker")) == (State.LEFT, {}, None)
        assert [one.event for one in store.journal()].count("left") == 1
        store.close()
    assert kills >= 2


def says_that_it_leaves(name: str, proof: str = "") -> dict:
    metadata = {"name": name, "uid": f"node-{name}", "labels": {LEAVING_LABEL: "true"}, "annotations": {LEAVE_PROOF: proof}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


async def test_only_the_node_itself_can_free_its_name(bench):
    victim, thief, again = OldNode("victim", ENDPOINT), OldNode("thief", ENDPOINT), OldNode("again", ENDPOINT)
    for one in (victim, thief, again):
        bench.ask(one)
    names = [one.name for one in (victim, thief, again)]
    assert not await bench.serve(lambda: {bench.status(name) for name in names} == {"True Issued"} and bench.ready())
    earlier = proof_of(again, bench.request("again"), uid="node-again")
    bench.ask(again, uid="asked-once-more")
    assert not await bench.serve(lambda: bench.status("again") == "True Issued")
    about = {"uid": "node-victim", "name": "victim"}
    good = proof_of(victim, bench.request("victim"), **about)
    unproven = {
        "none": "",
        "no proof": "x y",
        "the thief's own certificate": proof_of(thief, bench.request("thief"), **about).text,
        "signed with another key": proof_of(victim, bench.request("victim"), key=keys.load(JOIN_KEY.encode(), source="it"), **about).text,
        "the victim's, for another Node": proof_of(victim, bench.request("victim"), uid="node-of-before").text,
        "the victim's, for another name": proof_of(victim, bench.request("victim"), uid="node-victim", name="other").text,
        "the victim's serving certificate": proof_of(victim, bench.request("victim"), serving=True, **about).text,
    }

    def refused(name: str) -> bool:
        return "proof" in bench.api.objects["nodes", "", name]["metadata"]["annotations"].get(LEAVE_ANSWER, "")

    for proof in unproven.values():
        bench.api.put(says_that_it_leaves("victim", proof))
        assert not await bench.serve(lambda: refused("victim"))
    bench.api.put(says_that_it_leaves("again", earlier.text))
    bench.api.put(says_that_it_leaves("stranger", good.text))
    assert not await bench.serve(lambda: refused("again"))
    with closing(bench.store()) as store:
        assert [(one.node, one.state) for one in store.records()] == [(name, State.ISSUED) for name in sorted(names)]
        assert [line.event for line in store.journal()].count("left") == 0
    assert bench.api.made("delete", "nodes") == []
    bench.api.put(says_that_it_leaves("victim", good.text))
    assert not await bench.serve(lambda: ("nodes", "", "victim") not in bench.api.objects)
    with closing(bench.store()) as store:
        assert store.record("a", "victim").state is State.LEFT
    assert ("nodes", "", "stranger") in bench.api.objects
    deleted = [(call.what, call.name, call.body["uid"]) for call in bench.api.calls if call.verb == "delete"]
    assert deleted == [("nodejoinrequests", "victim", "uid-of-victim"), ("nodes", "victim", "node-victim")]


async def test_a_refusal_to_leave_is_reported_once_per_request(bench):
    victim = OldNode("victim", ENDPOINT)
    bench.ask(victim)
    assert not await bench.serve(lambda: bench.status("victim") == "True Issued" and bench.ready())
    bench.api.put(says_that_it_leaves("victim"))

    def told() -> int:
        return len(bench.api.made("patch", "nodes"))

    assert not await bench.serve(lambda: told() == 1)
    heartbeats = 0

    def beats() -> bool:
        nonlocal heartbeats
        heartbeats += 1
        found = bench.api.objects["nodes", "", "victim"]
        bench.api.put({**found, "status": {"beat": heartbeats}})
        return heartbeats == 20

    assert not await bench.serve(beats)
    assert told() == 1
    bench.api.put(says_that_it_leaves("victim"))
    assert not await bench.serve(lambda: told() == 2)


async def test_finished_requests_are_not_read_again(bench):
    for number in range(5):
        bench.ask(OldNode(f"worker-{number}", ENDPOINT))
    assert not await bench.serve(lambda: all(bench.status(f"worker-{number}") == "True Issued" for number in range(5)) and bench.ready())
    bench.api.calls.clear()
    bench.ask(OldNode("late", ENDPOINT))
    assert await steps_of(bench, lambda: bench.status("late") == "True Issued") == 2
    assert len(bench.api.made("update", "nodejoinrequests")) == 1


async def test_hundreds_of_malformed_requests_are_refused_once_and_good_ones_answered(bench):
    head = {"apiVersion": "node.oneinfra.ereslibre.es/v1alpha1", "kind": "NodeJoinRequest"}
    for number in range(300):
        bench.api.put({**head, "metadata": {"name": f"bad-{number}", "uid": f"u{number}"}, "spec": {"symmetricKey": "A" * (number % 400)}})
    bench.ask(OldNode("good", ENDPOINT))
    done = 0

    def all_answered() -> bool:
        nonlocal done
        done = sum(bench.status(f"bad-{number}") == "False Malformed" for number in range(300))
        return bench.status("good") == "True Issued" and done == 300

    assert not await bench.serve(all_answered)
    assert (done, len(bench.api.made("update", "nodejoinrequests"))) == (300, 301)


async def test_an_unknown_token_is_removed_and_no_other_object_of_its_name(bench):
    head = {"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token"}
    for name, labels in (("bootstrap-token-gone00", {"enrollment.kubewright/hub": "true"}), ("bootstrap-token-theirs", {})):
        metadata = {"name": name, "namespace": "kube-system", "uid": f"uid-of-{name}", "labels": labels}
        bench.api.put({**head, "metadata": metadata})
    assert not await bench.serve(lambda: ("secrets", "kube-system", "bootstrap-token-gone00") not in bench.api.objects)
    [call] = bench.api.made("delete", "secrets")
    assert (call.name, call.body["uid"]) == ("bootstrap-token-gone00", "uid-of-bootstrap-token-gone00")


async def test_many_refused_requests_are_deleted(bench):
    head = {"apiVersion": "node.oneinfra.ereslibre.es/v1alpha1", "kind": "NodeJoinRequest"}
    for number in range(60):
        bench.api.put({**head, "metadata": {"name": f"bad-{number}", "uid": f"u{number}"}, "spec": {}})
    bench.ask(OldNode("good", ENDPOINT))

    def left() -> int:
        return sum(kind == "nodejoinrequests" for kind, _, _ in bench.api.objects)

    assert not await bench.serve(lambda: bench.status("good") == "True Issued" and left() <= 21, crowd=20)
    assert 1 < left() <= 21


async def test_a_request_with_finalizers_is_deleted(bench):
    head = {"apiVersion": "node.oneinfra.ereslibre.es/v1alpha1", "kind": "NodeJoinRequest"}
    for number in range(40):
        bench.api.put(
            {**head, "metadata": {"name": f"bad-{number}", "uid": f"u{number}", "finalizers": ["a.example.com/keep"]}, "spec": {}}
        )
    deleted = {"finalizers": ["a.example.com/keep"], "deletionTimestamp": "2026-01-02T03:04:05Z"}
    bench.ask(OldNode("deleted", ENDPOINT))
    bench.api.put({**bench.request("deleted"), "metadata": {**bench.request("deleted")["metadata"], **deleted}})
    bench.ask(OldNode("good", ENDPOINT))

    def left() -> set[str]:
        return {name for kind, _, name in bench.api.objects if kind == "nodejoinrequests"}

    def gone() -> bool:
        return bench.status("good") == "True Issued" and len(left()) <= 21 and "deleted" not in left()

    assert not await bench.serve(gone, crowd=20)
    with closing(bench.store()) as store:
        assert [one.node for one in store.records()] == ["good"]


async def test_a_request_with_much_metadata_is_deleted_at_once(bench):
    head = {"apiVersion": "node.oneinfra.ereslibre.es/v1alpha1", "kind": "NodeJoinRequest"}
    labels = {f"k{number}.{'x' * 200}.example.com/y": "z" * 60 for number in range(200)}
    bench.api.put({**head, "metadata": {"name": "large", "uid": "u", "labels": labels}, "spec": {}})
    assert not await bench.serve(lambda: bench.request("large") is None and bench.ready())
    with closing(bench.store()) as store:
        [line] = store.journal()
    assert (line.event, line.node, line.details["reason"]) == ("refused", "large", "TooLarge")


@pytest.mark.parametrize("place", ["spec", "status", "annotations"])
async def test_a_request_of_more_than_160_kilobytes_is_deleted_at_once(bench, place):
    large = {"x": "y" * 200_000}
    head = {"apiVersion": "node.oneinfra.ereslibre.es/v1alpha1", "kind": "NodeJoinRequest"}
    metadata = {"name": "large", "uid": "u", "finalizers": ["a.example.com/keep"]}
    body = {place: large} if place != "annotations" else {}
    bench.api.put({**head, "metadata": metadata | ({} if body else {"annotations": large}), **body})
    assert not await bench.serve(lambda: bench.request("large") is None and bench.ready())
    with closing(bench.store()) as store:
        [line] = store.journal()
    assert (line.event, line.node, line.details["reason"]) == ("refused", "large", "TooLarge")
    assert "more than 163840" in line.details["message"]


async def test_a_cluster_with_more_objects_than_are_kept_in_memory_is_not_served(bench):
    for number in range(40):
        bench.api.put(node(f"n{number}", *(f"10.0.{number}.{last}" for last in range(200))))
    assert await bench.serve(lambda: False, memory=400_000)
    assert isinstance(bench.failure, ExceptionGroup)
    assert isinstance(controller.first_error(bench.failure), Flooded)


async def test_nodes_are_kept_without_what_the_hub_does_not_read(bench):
    images = [{"names": [f"registry.example/{number}:1"], "sizeBytes": number} for number in range(400)]
    for number in range(40):
        full = node(f"n{number}", f"10.0.0.{number}")
        full["status"]["images"] = images
        bench.api.put({**full, "metadata": {**full["metadata"], "managedFields": images}})
    bench.ask(OldNode("good", ENDPOINT))
    assert not await bench.serve(lambda: bench.status("good") == "True Issued", memory=400_000)


async def test_two_concurrent_requests_do_not_get_the_same_address(bench):
    for number in range(6):
        bench.ask(OldNode(f"w-{number}", ENDPOINT, ("10.0.0.5",)))
    states = [f"w-{number}" for number in range(6)]
    assert not await bench.serve(lambda: all(bench.status(name) for name in states))
    assert sorted(bench.status(name) for name in states) == ["False SanNotAllowed"] * 5 + ["True Issued"]


def node(name: str, *addresses: str, labels: dict | None = None, **others: str) -> dict:
    rows = [{"type": "InternalIP", "address": address} for address in addresses]
    rows += [{"type": kind, "address": address} for kind, address in others.items()]
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": f"host-of-{name}", **(labels or {})}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"addresses": rows}}


VICTIM = node(
    *("victim", "10.0.0.7", "fd00::7"),
    ExternalIP="192.0.2.7",
    InternalDNS="db.corp",
    ExternalDNS="Db.Example.Com.",
    Hostname="shop",
)
NAMES = ("db.corp", "db.example.com", "shop", "host-of-victim")
FOREIGN = (*NAMES, "10.0.0.7", "fd00:0::7", "192.0.2.7", "victim")


class Crowd:
    """Nodes that have joined, and request again, each something else."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._asked = 0

    async def ask(self, node: OldNode, *sans: str) -> str:
        """Request these names, and return the hub's answer, with the reason."""
        self._asked += 1
        uid = f"asked-{self._asked}"
        self.bench.ask(replace(node, sans=sans), uid=uid)
        assert not await self.bench.serve(lambda: bool(self.bench.status(node.name)))
        [condition] = self.bench.request(node.name)["status"]["conditions"]
        return f"{condition['reason']}: {condition['message']}"


async def test_no_node_gets_a_name_or_address_of_another_node(bench):
    bench.loaded = LoadedCluster(cluster(names=("*",)))
    thief, victim = OldNode("thief", ENDPOINT), OldNode("victim", ENDPOINT)
    crowd = Crowd(bench)
    claimed = {**VICTIM, "metadata": {"name": "thief", "labels": {"kubernetes.io/hostname": "host-of-victim"}}}
    for one in (victim, thief):
        assert await crowd.ask(one) == "Issued: "
    for order in ((claimed, VICTIM), (VICTIM, claimed), (claimed, VICTIM)):
        for changed in order:
            bench.api.put(changed)
        for name in FOREIGN:
            found = await crowd.ask(thief, name)
            assert found.startswith("SanNotAllowed: ForeignName"), (name, found)
            assert found.endswith("belongs to the node victim")
        assert (await crowd.ask(victim, "thief")).endswith("belongs to the node thief")
    for name in NAMES:
        found = await crowd.ask(OldNode(name, ENDPOINT))
        assert found.startswith("NameTaken: the node name "), (name, found)
    with closing(bench.store()) as store:
        assert {one.node: one.names for one in store.records()} == {"thief": (), "victim": ()}


async def test_claims_of_a_node_take_nothing_from_another_node(bench):
    crowd, victim, thief = Crowd(bench), OldNode("victim", ENDPOINT), OldNode("thief", ENDPOINT)
    assert await crowd.ask(victim, "10.0.0.7") == "Issued: "
    assert await crowd.ask(thief) == "Issued: "
    bench.api.put(node("thief", "10.0.0.7", "10.0.0.8", Hostname="victim", InternalDNS="victim"))
    assert await crowd.ask(victim, "10.0.0.7") == "Issued: "
    assert (await crowd.ask(victim, "10.0.0.8")).endswith("belongs to the node thief")
    assert (await crowd.ask(thief, "10.0.0.7")).endswith("belongs to the node victim")
    assert await crowd.ask(thief, "10.0.0.8") == "Issued: "


async def test_names_and_addresses_of_foreign_nodes_are_not_assigned(bench):
    crowd, worker = Crowd(bench), OldNode("worker", ENDPOINT)
    bench.api.put(node("other", "10.0.0.6"))
    assert await crowd.ask(worker, "10.0.0.7") == "Issued: "
    bench.api.put(node("control", "10.0.0.7", labels={"node-role.kubernetes.io/control-plane": ""}))
    subsets = [{"addresses": [{"ip": "10.0.0.8"}]}, {"notReadyAddresses": [{"ip": "fd00::8"}]}]
    bench.api.put({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "kubernetes", "namespace": "default"}, "subsets": subsets})
    told = {san: await crowd.ask(worker, san) for san in ("10.0.0.6", "10.0.0.7", "10.0.0.8", "fd00::8", "10.0.0.9")}
    assert told == {
        "10.0.0.6": 'SanNotAllowed: ForeignName: "10.0.0.6" belongs to the node other',
        "10.0.0.7": 'SanNotAllowed: ForeignName: "10.0.0.7" belongs to the node control',
        "10.0.0.8": 'SanNotAllowed: ReservedName: "10.0.0.8" belongs to the control plane',
        "fd00::8": 'SanNotAllowed: ReservedName: "fd00::8" belongs to the control plane',
        "10.0.0.9": "Issued: ",
    }
    assert (await crowd.ask(OldNode("control", ENDPOINT))).startswith("NameTaken: there is a Node")


def test_changed_and_deleted_nodes_release_their_addresses():
    known, asked = KnownNodes(), ["10.0.0.1", "10.0.0.2", "host-of-b", "b", "10.0.0.3"]
    known.changed(WatchEvent(EventType.ADDED, node("a", "10.0.0.1")))
    known.changed(WatchEvent(EventType.ADDED, node("b", "10.0.0.1", "10.0.0.2")))
    assert known.foreign(asked, "c") == {"10.0.0.1": "a", "10.0.0.2": "b", "host-of-b": "b", "b": "b"}
    assert known.foreign(asked, "b") == {"10.0.0.1": "a"}
    assert known.foreign(asked, "a", held=frozenset(asked)) == {"b": "b"}
    known.changed(WatchEvent(EventType.DELETED, node("a", "10.0.0.1")))
    assert known.foreign(["10.0.0.1"], "c") == {"10.0.0.1": "b"}
    known.changed(WatchEvent(EventType.MODIFIED, node("b", "10.0.0.4")))
    assert known.foreign(["10.0.0.1", "10.0.0.2", "10.0.0.4"], "a") == {"10.0.0.4": "b"}
    assert ("a" in known, "b" in known) == (False, True)
    many = [f"10.{high}.0.{low}" for high in range(100) for low in range(200)]
    known.changed(WatchEvent(EventType.MODIFIED, node("b", *many)))
    assert len(known.foreign(many, "a")) == 256


class Racing(FilePlace):
    """A state in which another writer always comes first. `kept` counts the tries."""

    kept = 0

    def open(self, killer: Killer | None = None) -> HubStore:
        store = super().open(killer)

        def keep(*_: object, **__: object) -> None:
            self.kept += 1
            raise Taken("10.0.0.5: another node has it")

        store.keep = keep
        return store


async def test_a_request_that_keeps_conflicting_is_refused_after_a_few_tries(tmp_path, monkeypatch):
    monkeypatch.setattr(tenants, "_FIRST_PAUSE", 0.01)
    bench = Bench(tmp_path, place=Racing)
    for number in range(4):
        bench.ask(OldNode(f"w-{number}", ENDPOINT, ("10.0.0.5",)))
    assert not await bench.serve(lambda: all(bench.status(f"w-{number}") for number in range(4)))
    assert {bench.status(f"w-{number}") for number in range(4)} == {"False NameTaken"}
    assert bench.place.kept == 4 * MOST_TIMES_TAKEN


async def test_requests_for_names_in_another_certificate_are_refused_at_once(bench):
    names = ("db.corp", "cache.corp", "queue.corp", "mail.corp")
    bench.loaded = LoadedCluster(cluster(names=("*.corp",)))
    bench.ask(OldNode("worker", ENDPOINT, names))
    assert not await bench.serve(lambda: bench.status("worker") == "True Issued")
    for name in names:
        bench.ask(OldNode(name, ENDPOINT))
    assert not await bench.serve(lambda: all(bench.status(name) for name in names))
    assert {bench.status(name) for name in names} == {"False NameTaken"}
    with closing(bench.store()) as store:
        assert [line.event for line in store.journal()] == ["issued"] + ["refused"] * 4


async def test_a_temporarily_refusing_cluster_is_retried(bench):
    bench.api.fail("update", "nodejoinrequests", times=2)
    bench.ask(OldNode("worker", ENDPOINT))
    assert not await bench.serve(lambda: bench.status("worker") == "True Issued")
    store = bench.store()
    assert len(store.records()) == 1
    store.close()


async def test_slow_refusals_do_not_delay_admissions(bench, monkeypatch):
    monkeypatch.setattr(controller, "GRACE", 0.1)
    head = {"apiVersion": "node.oneinfra.ereslibre.es/v1alpha1", "kind": "NodeJoinRequest"}
    names = [f"bad-{number}" for number in range(3 * WORKERS)]
    for name in names:
        bench.api.put({**head, "metadata": {"name": name, "uid": name}, "spec": {}})
    bench.hanging = frozenset(names)
    bench.ask(OldNode("good", ENDPOINT))
    assert not await bench.serve(lambda: bench.status("good") == "True Issued")
    assert {bench.status(name) for name in names} == {""}
