"""Writers of a hub's state that were paused: a daemon, or a command. What others have written since survives, in a file and in Secrets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import pytest
from hub_kit import cluster, drop, event, generation, keep, put
from test_hub_store import RECORD, TOKEN
from test_hub_stores import SecretsPlace, SQLitePlace

from kubewright.base.records import replace
from kubewright.enrollment.state.secret_rows import CHUNK
from kubewright.enrollment.state.store import HubStore, Overtaken, Retention
from kubewright.http.messages import Request, Response
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Call, Object
from kubewright.kube.resources import SECRET
from kubewright.tokens.strings import BootstrapTokenString

RECREATED = cluster(join_key="another key", kubernetes_version="v1.37.0")
OTHER_TOKEN = replace(TOKEN, token=BootstrapTokenString("abcdef", "f" * 16))
SECOND_TOKEN = replace(TOKEN, token=BootstrapTokenString("second", "f" * 16))
OTHER_MACHINE = replace(RECORD, request="u9", key="other", names=("10.0.0.9",))
LEFT = replace(RECORD, names=(), request="u0")

Write = Callable[[HubStore], object]


def begin(store: HubStore) -> None:
    """Add a cluster to a state, with a token and a node."""
    store.save_cluster(cluster(), event())
    store.save_token(TOKEN, event(), generation=generation(store))
    keep(store, RECORD, digest="d1")


def create_again(store: HubStore) -> None:
    """Add another cluster of that name, with its own token and machine."""
    put(store, RECREATED)
    store.save_token(OTHER_TOKEN, event(), generation=generation(store))
    keep(store, OTHER_MACHINE, digest="d9")


def remove_and_create_again(store: HubStore) -> None:
    drop(store)
    create_again(store)


def everything(store: HubStore) -> tuple[Any, ...]:
    store.version()
    lines = [(line.number, line.event) for line in store.journal(most=10_000)]
    owners = store.owners("a", ["worker", "10.0.0.5", "10.0.0.9"])
    return store.clusters(), store.tokens(), store.records(), owners, [store.first_request("a", one) for one in ("d1", "d9")], lines


def forget_and_join(store: HubStore) -> None:
    store.forget(RECORD, event())
    keep(store, OTHER_MACHINE)


def exchange_token(store: HubStore) -> None:
    store.remove_token(TOKEN, event())
    store.save_token(OTHER_TOKEN, event(), generation=generation(store))


def removing(store: HubStore) -> Write:
    contents = store.contents("a")
    return lambda found: found.remove_cluster("a", event(), contents=contents)


def changing(store: HubStore) -> Write:
    [found] = store.clusters()
    return lambda store: store.save_cluster(replace(found, approval="human"), event())


def making_a_token(store: HubStore) -> Write:
    now = generation(store)
    return lambda found: found.save_token(SECOND_TOKEN, event(), generation=now)


def answering(store: HubStore) -> Write:
    before, now = store.record("a", "worker"), generation(store)
    return lambda found: found.keep(replace(RECORD, request="u2"), event("issued"), before=before, digest="d2", generation=now)


def revoking(_: HubStore) -> Write:
    return lambda store: store.remove_token(TOKEN, event())


def approving(store: HubStore) -> Write:
    now = generation(store)
    return lambda found: found.save_verdict("a", "u7", approved=True, event=event(), generation=now)


def forgetting(_: HubStore) -> Write:
    return lambda store: store.forget(RECORD, event())


def adding(_: HubStore) -> Write:
    return lambda store: store.save_cluster(cluster("b"), event(cluster="b"))


MEANWHILE: dict[str, tuple[Callable[[HubStore], Write], Write]] = {
    "a cluster is removed that was created again": (removing, remove_and_create_again),
    "a cluster is removed that has another token": (removing, lambda store: making_a_token(store)(store)),
    "a cluster is removed that has another node": (removing, lambda store: keep(store, replace(RECORD, node="new", names=()))),
    "a cluster is removed that was changed": (removing, lambda store: put(store, cluster(approval="human"))),
    "a cluster is removed that was written again unchanged": (removing, lambda store: put(store, cluster())),
    "a cluster is changed that was changed": (changing, lambda store: put(store, cluster(vpn_key="another key"))),
    "a cluster is changed that was created again": (changing, remove_and_create_again),
    "a cluster is changed that was removed": (changing, drop),
    "a cluster is added that was added": (adding, lambda store: put(store, cluster("b", approval="human"))),
    "a token is made for a cluster that was created again": (making_a_token, remove_and_create_again),
    "a token is made for a cluster that was removed": (making_a_token, drop),
    "a request is approved to a cluster that was created again": (approving, remove_and_create_again),
    "a request is approved to a cluster that was removed": (approving, drop),
    "a token is revoked that was exchanged": (revoking, exchange_token),
    "a node is answered that was answered": (answering, lambda store: keep(store, replace(RECORD, request="u3"))),
    "a node is answered in a cluster that was created again": (answering, remove_and_create_again),
    "a node is answered in a cluster that was removed": (answering, drop),
    "a node is answered in a cluster that asks for a person by now": (answering, lambda store: put(store, cluster(approval="human"))),
    "a node is forgotten whose name another machine has": (forgetting, forget_and_join),
}


@pytest.fixture(params=[SQLitePlace, SecretsPlace], ids=["sqlite", "secrets"])
def place(request, tmp_path):
    return request.param(tmp_path)


@pytest.mark.parametrize("what", MEANWHILE)
def test_outdated_decisions_are_not_written(place, what):
    decided, meanwhile = MEANWHILE[what]
    with closing(place.open()) as paused, closing(place.open()) as other:
        begin(paused)
        write = decided(paused)
        other.version()
        meanwhile(other)
        after = everything(other)
        with pytest.raises(Overtaken, match="has changed in the meantime, and nothing was written") as told:
            write(paused)
        assert (told.value.exit_code, told.value.remedy) == (75, "check it, and run the command again")
        assert everything(paused) == everything(other) == after
    with closing(place.open()) as again:
        assert everything(again) == after


@pytest.mark.parametrize("decided", [removing, changing, making_a_token, answering, approving, revoking, forgetting])
def test_undisturbed_decisions_are_written(place, decided):
    with closing(place.open()) as store:
        begin(store)
        before = store.contents("a")
        decided(store)(store)
        assert store.contents("a") != before


class Seam(KubeAPI):
    """A cluster to which something happens before the call with a number, counted from `begin`."""

    def __init__(self, api: KubeAPI) -> None:
        self._api = api
        self.calls = 0
        self.at: int | None = None
        self.happens: Callable[[], None] = lambda: None

    def send(self, call: Call, /) -> Object:
        mine, self.calls = self.calls == self.at, self.calls + 1
        if mine:
            self.happens()
        return self._api.send(call)

    def close(self) -> None:
        self._api.close()

    def exchange(self, request: Request, /) -> Response:
        raise NotImplementedError


def delete_everything(api: KubeAPI, *, namespace: str = "hubs", name: str = "one") -> None:
    with closing(api):
        for one in api.list(SECRET, namespace, label_selector=f"enrollment.kubewright/state={name}"):
            api.delete(SECRET, one["metadata"]["name"], namespace)


def lines(count: int) -> Write:
    def write(store: HubStore) -> None:
        for number in range(count):
            store.add_event(event(f"line {number}"))

    return write


SHORT = Retention(lines=CHUNK)
PAUSED: dict[str, tuple[Write, Callable[[HubStore], Write]]] = {
    "remove": (begin, removing),
    "change": (begin, changing),
    "token": (begin, making_a_token),
    "answer": (begin, answering),
    "forget": (begin, forgetting),
    "leave": (begin, lambda _: lambda store: keep(store, LEFT)),
    "journal": (lambda store: (begin(store), lines(2 * CHUNK - 3)(store)), lambda _: lines(1)),
}


def paused_before(place: Any, what: str, number: int, *, gone: bool) -> bool:
    """Pause a writer before its call with a number, and let others write; require that their data survives.

    Returns whether there was such a call.
    """
    prepare, decided = PAUSED[what]
    seam, after = Seam(place.api), []

    def others() -> None:
        if gone:
            delete_everything(place.api, name=place.name)
        with closing(place.open()) as other:
            if other.contents("a"):
                drop(other)
            create_again(other)
            lines(2 * CHUNK if what == "journal" else 1)(other)
            after.append(everything(other))

    with closing(place.over(seam, retention=SHORT if what == "journal" else None)) as paused:
        prepare(paused)
        write = decided(paused)
        seam.calls, seam.at, seam.happens = 0, number, others
        with suppress(Overtaken):
            write(paused)
        for newer in after:
            with closing(place.open()) as again:
                for store in (paused, again):
                    found = everything(store)
                    assert found[:5] == newer[:5], (what, number)
                    assert {line for line in newer[5] if line[0] > newer[5][-1][0] - CHUNK} <= set(found[5]), (what, number)
            with closing(place.open()) as third:
                third.add_event(event())  # the next writer removes invalid parts
                assert third._rows._stale == []
                assert everything(third)[:5] == newer[:5]
    return bool(after)


@pytest.mark.parametrize("gone", [False, True], ids=["the cluster is created again", "the state is deleted and started again"])
@pytest.mark.parametrize("what", PAUSED)
def test_a_writer_paused_before_any_call_does_not_overwrite_newer_data(tmp_path, what, gone):
    paused_at = 0
    while paused_before(SecretsPlace(tmp_path), what, paused_at, gone=gone):
        paused_at += 1
    assert paused_at >= 2, what
