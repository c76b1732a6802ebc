"""What every store of a hub's state does, in a file or in Secrets: data is read back, all or nothing, and writers do not overwrite each other."""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hub_kit import JOIN_KEY, STATE_KEY, cluster, decide, drop, event, generation, keep
from test_hub_store import RECORD, TOKEN

from kubewright.base.errors import ServerError, TrustError
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import replace
from kubewright.enrollment.state.secret_rows import CHUNK
from kubewright.enrollment.state.secret_store import SecretStore
from kubewright.enrollment.state.sqlite_store import SQLiteStore
from kubewright.enrollment.state.store import HubStore, Retention, Taken
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Call, Object
from kubewright.kube.recording import RecordingKube
from kubewright.kube.resources import SECRET


class SQLitePlace:
    """A file."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "state.db"

    def open(self, *, key: bytes = STATE_KEY, retention: Retention | None = None) -> HubStore:
        return SQLiteStore(self.path, key=key, random=SystemRandom(), retention=retention)


class SecretsPlace:
    """Secrets of a cluster in memory."""

    name = "one"

    def __init__(self, _: Path) -> None:
        self.api = Cluster()

    def open(self, *, key: bytes = STATE_KEY, retention: Retention | None = None) -> SecretStore:
        return self.over(self.api, key=key, retention=retention)

    def over(self, api: KubeAPI, *, key: bytes = STATE_KEY, retention: Retention | None = None) -> SecretStore:
        """Open it through something that is put in front of the cluster."""
        return SecretStore(api, namespace="hubs", name=self.name, key=key, random=SystemRandom(), retention=retention)


class Killed(BaseException):
    """The process has been killed."""


class Cluster(RecordingKube):
    """A cluster in memory that may be down, or do something before or after a write."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.made = 0
        self.before: Callable[[Call], None] = lambda _: None
        self.after: Callable[[Call], None] = lambda _: None

    def send(self, call: Call, /) -> Object:
        if self.down:
            raise ServerError("the API server is not there", code=503)
        if call.verb in {"get", "list"}:
            return super().send(call)
        if call.verb == "create":  # as an API server does
            self.made += 1
            metadata = {**call.body["metadata"], "uid": f"uid-{self.made}"}
            call = Call(
                verb="create", resource=call.resource, namespace=call.namespace, name=call.name, body={**call.body, "metadata": metadata}
            )
        self.before(call)
        found = super().send(call)
        self.after(call)
        return found

    def secrets(self) -> dict[str, Object]:
        return {one["metadata"]["name"]: one for one in self.list(SECRET, "hubs")}


@pytest.fixture(params=[SQLitePlace, SecretsPlace], ids=["sqlite", "secrets"])
def place(request, tmp_path):
    return request.param(tmp_path)


@pytest.fixture
def store(place):
    with closing(place.open()) as made:
        yield made


def test_clusters_and_tokens_are_read_back_unchanged(store, place):
    wanted = cluster(pod_subnets=("10.1.0.0/16",), kubelet_config={"failCgroupV1": False})
    store.save_cluster(wanted, event())
    store.save_token(TOKEN, event(), generation=generation(store))
    store.save_token(replace(TOKEN, cluster="b"), event(cluster="b"))
    store.close()
    again = place.open()
    assert again.clusters() == [wanted]
    assert [token.token.text for token in again.tokens("a")] == ["abcdef.0123456789abcdef"]
    assert [token.cluster for token in again.tokens()] == ["a", "b"]
    assert again.remove_token(TOKEN, event())
    assert not again.remove_token(TOKEN, event())
    again.close()


def test_a_record_its_names_and_the_journal_are_written_together(store):
    store.keep(RECORD, event("issued", node="worker"), digest="d1")
    assert store.record("a", "worker") == RECORD
    assert store.owners("a", ["10.0.0.5", "worker", "10.0.0.6"]) == {"10.0.0.5": "worker", "worker": "worker"}
    assert (store.first_request("a", "d1"), store.first_request("a", "d2"), store.first_request("b", "d1")) == ("u1", "", "")
    second = replace(RECORD, request="u2", names=())
    store.keep(second, event("issued", node="worker"), before=RECORD, digest="d2")
    assert (store.first_request("a", "d1"), store.first_request("a", "d2"), store.owners("a", ["10.0.0.5"])) == ("u1", "u2", {})
    assert [(one.number, one.event, one.node) for one in store.journal()] == [(1, "issued", "worker"), (2, "issued", "worker")]
    assert store.forget(second, event("forgotten"))
    assert (store.record("a", "worker"), store.owners("a", ["worker"]), store.forget(second, event())) == (None, {}, False)


@pytest.mark.parametrize(
    ("second", "digest", "message"),
    [
        (replace(RECORD, node="other", request="u2", key="g"), "d2", "10.0.0.5: another node has it"),
        (replace(RECORD, node="10.0.0.5", request="u2", key="g", names=()), "d2", "10.0.0.5: another node has it"),
        (replace(RECORD, node="other", request="u2", names=()), "d1", "a copy of an earlier one"),
        (replace(RECORD, request="u2", key="g", names=()), "d2", "worker: another machine has that name"),
        (replace(RECORD, node="other", request="u2", key="g", names=(), lease="10.64.0.3,fd00::2"), "d2", "fd00::2: another node has it"),
        (replace(RECORD, node="other", request="u2", key="g", names=("10.64.0.2",)), "d2", "10.64.0.2: another node has it"),
        (replace(RECORD, node="other", request="u2", key="g", names=(), tunnel_key="K"), "d2", "wireguard:K: another node has it"),
    ],
    ids=["address", "name", "copy", "machine", "lease", "lease as an address", "key of a tunnel"],
)
def test_the_first_of_two_concurrent_decisions_wins(store, second, digest, message):
    first = replace(RECORD, lease="10.64.0.2,fd00::2", tunnel_key="K")
    store.keep(first, event(), digest="d1")
    with pytest.raises(Taken, match=message):
        store.keep(second, event(), digest=digest)
    assert store.records("a") == [first]
    assert store.owners("a", ["10.0.0.5", "other"]) == {"10.0.0.5": "worker"}
    assert (store.first_request("a", "d2"), len(store.journal())) == ("", 1)


def test_a_failed_write_leaves_nothing(store):
    with pytest.raises(TypeError):
        store.keep(RECORD, event(details={"x": object()}))
    assert (store.record("a", "worker"), store.journal()) == (None, [])
    store.keep(RECORD, event())
    assert len(store.records("a")) == 1


def test_a_removed_cluster_leaves_nothing_but_the_journal(store):
    store.save_cluster(cluster(), event())
    store.save_token(TOKEN, event(), generation=generation(store))
    keep(store, RECORD, digest="d")
    decide(store, "a", "u1", approved=True)
    assert store.verdict("a", "u1") is True
    drop(store)
    assert store.contents("a") == ""
    found = (store.clusters(), store.tokens(), store.records(), store.verdict("a", "u1"), store.first_request("a", "d"))
    assert found == ([], [], [], None, "")
    assert len(store.journal()) == 5


def test_another_process_is_detected(store, place):
    before, other = store.version(), place.open()
    store.add_event(event())
    assert store.version() == before
    other.add_event(event())
    assert store.version() != before
    other.close()


def test_another_key_opens_nothing(store, place):
    store.save_cluster(cluster(), event())
    with closing(place.open(key=b"x" * 32)) as other, pytest.raises(TrustError, match=r"cluster a in .* cannot be decrypted"):
        other.clusters()


def test_processes_see_and_keep_the_writes_of_each_other(store, place):
    store.save_cluster(cluster(), event())
    with closing(place.open()) as other:
        for number in range(3):
            keep(store, replace(RECORD, node=f"mine-{number}", names=()))
            keep(other, replace(RECORD, node=f"other-{number}", names=()))
        other.save_token(TOKEN, event(), generation=generation(other))
        with pytest.raises(Taken, match="another node has it"):
            keep(other, replace(RECORD, node="thief", names=("mine-1",)))
        store.version()
        for one in (store, other):
            assert [record.node for record in one.records("a")] == [
                *(f"mine-{number}" for number in range(3)),
                *(f"other-{number}" for number in range(3)),
            ]
            assert len(one.tokens("a")) == 1
            assert [line.number for line in one.journal()] == list(range(1, 9))
    with closing(place.open()) as again:
        assert again.records("a") == store.records("a")
        assert again.journal() == store.journal()


def test_lines_beyond_the_limit_are_removed(place):
    with closing(place.open(retention=Retention(lines=3 * CHUNK))) as store:
        for number in range(8 * CHUNK):
            store.add_event(event(str(number)))
        found = [line.number for line in store.journal(most=10_000)]
    assert 3 * CHUNK <= len(found) <= 5 * CHUNK
    assert found == list(range(8 * CHUNK - len(found) + 1, 8 * CHUNK + 1))
    with closing(place.open()) as again:
        assert [line.number for line in again.journal(most=10_000)] == found


def test_secrets_contain_no_plain_key_and_stay_few(tmp_path):
    place = SecretsPlace(tmp_path)
    with closing(place.open()) as store:
        store.save_cluster(cluster(), event())
        store.save_token(TOKEN, event(), generation=generation(store))
        for _ in range(5):
            keep(store, RECORD, digest="d1")
    found = place.api.secrets()
    assert len(found) == 3
    text = b"".join(base64.b64decode(one["data"]["content"]) for one in found.values())
    assert b"10.0.0.1:6443" in text
    for secret in (JOIN_KEY.splitlines()[1], TOKEN.token.secret):
        assert secret.encode() not in text


@pytest.mark.parametrize("at", range(2))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_writer_has_written_everything_or_nothing(tmp_path, at, moment):
    """A join is two writes: the head commits, the record follows."""
    place, count = SecretsPlace(tmp_path), 0

    def die(_: Call) -> None:
        nonlocal count
        count += 1
        if count == at + 1:
            raise Killed

    with closing(place.open()) as store:
        store.keep(replace(RECORD, node="first", names=()), event())
        setattr(place.api, moment, die)
        with pytest.raises(Killed):
            store.keep(RECORD, event("issued"), digest="d1")
    place.api.before = place.api.after = lambda _: None
    committed = (at, moment) != (0, "before")
    with closing(place.open()) as again:
        for _ in range(2):  # as read, and after the next write has repaired it
            assert again.record("a", "worker") == (RECORD if committed else None)
            assert again.owners("a", ["10.0.0.5"]) == ({"10.0.0.5": "worker"} if committed else {})
            assert again.first_request("a", "d1") == ("u1" if committed else "")
            assert [line.event for line in again.journal()].count("issued") == int(committed)
            again.add_event(event())
    with closing(place.open()) as third:
        assert third.record("a", "worker") == (RECORD if committed else None)


def test_a_paused_writer_does_not_revert_later_changes(tmp_path):
    place = SecretsPlace(tmp_path)
    first, second = place.open(), place.open()
    writes = 0

    def overtaken(_: Call) -> None:
        nonlocal writes
        writes += 1
        if writes == 2:  # the head is written, the record is not
            place.api.before = lambda _: None
            second.version()
            second.forget(RECORD, event("forgotten"))
            second.keep(replace(RECORD, node="other"), event())

    place.api.before = overtaken
    first.keep(RECORD, event("issued"))
    for store in (first, second, place.open()):
        store.version()
        assert [record.node for record in store.records("a")] == ["other"]
        assert store.owners("a", ["10.0.0.5", "worker"]) == {"10.0.0.5": "other"}
        store.close()
