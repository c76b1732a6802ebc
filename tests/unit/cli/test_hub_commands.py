"""Commands of the hub that were paused in the middle: what others have written since stays, and they report it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "enrollment"))

from hub_kit import drop, event, generation, keep
from test_hub_vpn import RECORD, VPN, Commands

from kubewright.base.records import replace
from kubewright.cli.handlers import machine
from kubewright.cli.handlers.hub import requests, state, tokens
from kubewright.cli.handlers.hub import vpn as hub_vpn
from kubewright.enrollment.state.store import HubStore
from kubewright.kube.recording import RecordingKube
from kubewright.kube.resources import NODE_JOIN_REQUEST

OTHER = replace(RECORD, request="u9", key="other")


def request(uid: str) -> dict:
    head = {"apiVersion": "node.oneinfra.ereslibre.es/v1alpha1", "kind": "NodeJoinRequest"}
    return {**head, "metadata": {"name": "worker", "uid": uid}, "spec": {}}


class Tenant(RecordingKube):
    """A cluster with a request that may be replaced by another one."""

    def __init__(self) -> None:
        super().__init__()
        self.create(request("u1"))

    def replace_request(self) -> None:
        self.delete(NODE_JOIN_REQUEST, "worker")
        self.create(request("u9"))

    @property
    def asked(self) -> list[str]:
        return [one["metadata"]["uid"] for one in self.list(NODE_JOIN_REQUEST)]


@pytest.fixture
def commands(tmp_path, capsys, monkeypatch):
    made = Commands(tmp_path, capsys)
    made.tenant = Tenant()
    monkeypatch.setattr(machine, "host", lambda *_, **__: made.host)
    monkeypatch.setattr(state, "client", lambda _: made.tenant)
    made.add(*VPN)
    with closing(made.store()) as store:
        keep(store, RECORD)
    return made


def removed(store: HubStore) -> None:
    drop(store)


def rejoined(store: HubStore) -> None:
    store.forget(store.record("a", "worker"), event())
    keep(store, OTHER)


def changed(store: HubStore) -> None:
    [found] = store.clusters()
    store.save_cluster(replace(found, approval="human"), event())


PAUSED: dict[str, tuple[tuple[str, ...], tuple[object, str], Callable[[HubStore], None]]] = {
    "remove, changed": (("cluster", "remove", "a"), (state, "cluster"), changed),
    "remove, another node": (("cluster", "remove", "a"), (state, "cluster"), rejoined),
    "rotate the key, changed": (("cluster", "rotate-vpn-key", "a"), (hub_vpn, "key"), changed),
    "rotate the key, removed": (("cluster", "rotate-vpn-key", "a"), (hub_vpn, "key"), removed),
    "change, changed": (("add",), (hub_vpn, "key"), changed),
    "change, removed": (("add",), (hub_vpn, "key"), removed),
    "make a token, removed": (("token", "create", "a"), (tokens.strings, "generate"), removed),
    "forget, another machine": (("requests", "forget", "a", "worker"), (state, "client"), rejoined),
    "approve, changed": (("requests", "approve", "a", "worker"), (requests.decisions, "look"), changed),
}


@pytest.mark.parametrize("what", PAUSED)
def test_a_paused_command_does_not_overwrite_newer_data(commands, monkeypatch, what):
    words, (place, name), others = PAUSED[what]
    work, after = getattr(place, name), []

    def paused(*positional: object, **named: object) -> object:
        monkeypatch.setattr(place, name, work)
        found = work(*positional, **named)
        with closing(commands.store()) as store:
            others(store)
            after.append((store.clusters(), [generation(store)], store.tokens(), store.records(), len(store.journal())))
        if others is rejoined:
            commands.tenant.replace_request()
        return found

    monkeypatch.setattr(place, name, paused)
    told = commands.add(*VPN, code=75) if words == ("add",) else commands.run(*words, code=75)
    assert "has changed in the meantime, and nothing was written" in told
    assert "check it, and run the command again" in told
    with closing(commands.store()) as store:
        assert after == [(store.clusters(), [generation(store)], store.tokens(), store.records(), len(store.journal()))]
    assert commands.tenant.asked == (["u9"] if others is rejoined else ["u1"])


def test_forgetting_a_node_deletes_its_request_and_no_later_one(commands, monkeypatch):
    delete = commands.tenant.delete

    def overtaken(*positional: object, **named: object) -> object:
        commands.tenant.delete = delete
        commands.tenant.replace_request()
        return delete(*positional, **named)

    commands.tenant.delete = overtaken
    commands.run("requests", "forget", "a", "worker")
    assert commands.tenant.asked == ["u9"]
    with closing(commands.store()) as store:
        assert store.record("a", "worker") is None


def test_an_interface_stays_if_its_cluster_was_added_again_during_the_removal(commands, monkeypatch):
    removals = []
    monkeypatch.setattr(hub_vpn.hub_tunnels, "remove", lambda _, vpn: removals.append(vpn.interface))
    with closing(commands.store()) as store:
        [before] = store.clusters()
    assert before.vpn is not None
    work = type(store).remove_cluster

    def paused(self, name, done, *, contents):
        work(self, name, done, contents=contents)
        self.save_cluster(replace(before, generation=""), event())

    monkeypatch.setattr(type(store), "remove_cluster", paused)
    commands.run("cluster", "remove", "a")
    assert removals == []
    monkeypatch.setattr(type(store), "remove_cluster", work)
    commands.run("cluster", "remove", "a")
    assert removals == [before.vpn.interface]
