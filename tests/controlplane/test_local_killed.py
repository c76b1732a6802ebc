"""`up` or the daemon killed with -9, at every boundary of a phase and at random moments: the next `up` finishes, and nothing is lost.

Killed in sequence on one cluster: run N does the N-th step for the first time, is killed, and run N + 1 continues
from there.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from local_killer import COMMAND, DAEMON, Killer, Order
from local_kit import COMPONENTS, Bench, bench, config_map, eventually, leftovers

from kubewright.base.errors import APIError
from kubewright.kube.client import KubeClient
from kubewright.kube.resources import named
from kubewright.local.cluster.down import down

MOMENTS = 10
START, REPAIR = 4.0, 1.0
"""Seconds within which the random moments lie: about the duration of a start and a repair."""


@dataclass(frozen=True)
class EndState:
    """The result of an undisturbed `up`: names of files and of objects, without the parts of names that are random or a time."""

    files: frozenset[str]
    objects: frozenset[str]


def _end_state(home: Bench) -> EndState:
    with home.client() as api:
        return EndState(files=frozenset(_files(home.root / "one")), objects=frozenset(_objects(api)))


def _files(root: Path) -> Iterator[str]:
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if "/etcd/member/" not in name:
            yield re.sub(r"kubelet-client-\d{4}-.*\.pem", "kubelet-client-TIME.pem", name)


_PASSING = frozenset({"events", "certificatesigningrequests"})


def _objects(api: KubeClient) -> Iterator[str]:
    for path in ("/api/v1", *_groups(api)):
        for row in json.loads(api.raw("GET", path).body)["resources"]:
            if "list" in row["verbs"] and row["name"] not in _PASSING:
                for item in json.loads(api.raw("GET", f"{path}/{row['name']}").body)["items"]:
                    meta = item["metadata"]
                    name = f"{meta['generateName']}*" if meta.get("generateName") else meta["name"]
                    yield f"{row['name']} {meta.get('namespace', '')}/{name}"


def _groups(api: KubeClient) -> Iterator[str]:
    for group in json.loads(api.raw("GET", "/apis").body)["groups"]:
        yield f"/apis/{group['preferredVersion']['groupVersion']}"


def _settled(home: Bench) -> EndState:
    """Return the state when all pods of the add-ons run and controllers have nothing left to do: another one is equal a second later."""
    eventually(lambda: _add_ons_run(home), "the pods of the add-ons")
    before, state = None, _end_state(home)
    while state != before:
        time.sleep(1)
        before, state = state, _end_state(home)
    return state


def _add_ons_run(home: Bench) -> bool:
    with home.client() as api:
        dns = api.get(named("Deployment"), "coredns", "kube-system").get("status", {})
        proxy = api.get(named("DaemonSet"), "kube-proxy", "kube-system").get("status", {})
    return (dns.get("availableReplicas"), proxy.get("numberReady")) == (2, 2)


@pytest.fixture(scope="module")
def undisturbed() -> Iterator[Bench]:
    """A cluster that was not disturbed, to compare with."""
    for home in bench():
        home.up()
        state = _settled(home)
        assert len(state.files) >= 50
        assert len(state.objects) >= 100
        yield home


@pytest.fixture(scope="module")
def home() -> Iterator[Bench]:
    yield from bench()


@pytest.fixture
def made(home: Bench) -> None:
    """The cluster that the previous tests have created; a test that runs alone creates it."""
    if not (home.root / "one").exists():
        home.up()
        eventually(lambda: _remember(home), "the right to write")


@pytest.fixture(scope="module")
def killer(home: Bench) -> Iterator[Killer]:
    with Killer() as made:
        yield made


@pytest.fixture(scope="module")
def where(home: Bench) -> str:
    return str(home.root / "one")


def _is_whole(home: Bench, undisturbed: Bench) -> None:
    """Require that the cluster equals an undisturbed one, except for the object that the test has created.

    Both are read again until they are equal: on a busy machine controllers of either may still have something to do.
    """
    assert home.ready()
    mine = {"configmaps default/before"}
    found = wanted = EndState(files=frozenset(), objects=frozenset())

    def same() -> bool:
        nonlocal found, wanted
        found, wanted = _end_state(home), _end_state(undisturbed)
        return found.files == wanted.files and found.objects - mine == wanted.objects

    with suppress(AssertionError):
        eventually(same, "the cluster to settle")
    assert sorted(found.files ^ wanted.files) == []
    assert sorted(found.objects ^ wanted.objects) == sorted(mine)


def _remember(home: Bench) -> bool:
    with home.client() as api, suppress(APIError):
        api.create(config_map("before"))
        return True
    return False


def _remembers(home: Bench) -> bool:
    with home.client() as api:
        return bool(api.get(named("ConfigMap"), "before", "default")["data"] == {"text": "kept"})


def test_up_killed_at_every_boundary_of_a_phase(home: Bench, killer: Killer, where: str, undisturbed: Bench) -> None:
    boundary, ends = 1, []
    while (report := killer.run(Order(root=where, boundary=boundary))).ended == "killed":
        assert report.boundaries == boundary
        ends.append(report.last)
        if report.last == "upload-config/kubelet":
            eventually(lambda: _remember(home), "the right to write")
        boundary += 1
    assert report.ended == "finished", report.error
    assert len(ends) == len(set(ends)) >= 35
    assert _remembers(home)
    _is_whole(home, undisturbed)


@pytest.mark.usefixtures("made")
def test_up_killed_while_it_resumes_kept_data(home: Bench, killer: Killer, where: str, undisturbed: Bench) -> None:
    down(home.paths(), keep_data=True)
    boundary = 1
    while (report := killer.run(Order(root=where, boundary=boundary, groups=True))).ended == "killed":
        boundary += 1
    assert report.ended == "finished", report.error
    assert boundary >= 12
    assert _remembers(home)
    _is_whole(home, undisturbed)


@pytest.mark.usefixtures("made")
def test_the_daemon_killed_at_every_group_of_phases(home: Bench, killer: Killer, where: str, undisturbed: Bench) -> None:
    boundary, ends = 1, []
    while (report := killer.run(Order(root=where, boundary=boundary, groups=True, victim=DAEMON))).boundaries >= boundary:
        ends.append(report.ended)
        boundary += 1
    assert report.ended == "finished", report.error
    assert len(ends) >= 12
    assert _remembers(home)
    _is_whole(home, undisturbed)


@pytest.mark.parametrize("victim", [COMMAND, DAEMON])
@pytest.mark.usefixtures("made")
def test_killed_at_random_moments(home: Bench, killer: Killer, where: str, undisturbed: Bench, victim: str) -> None:
    """Alternately while a cluster starts from its kept data, and while it is repaired."""
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    moments = random.Random(seed)
    for number in range(MOMENTS):
        if number % 2:
            _damage(home, moments)
        else:
            down(home.paths(), keep_data=True)
        after = moments.uniform(0.01, REPAIR if number % 2 else START)
        report = killer.run(Order(root=where, victim=victim, after=after))
        print(f"{victim} killed after {after:.2f} s: {report}")  # noqa: T201
        report = killer.run(Order(root=where))
        assert report.ended == "finished", report.error
        assert _remembers(home)
    _is_whole(home, undisturbed)


def _damage(home: Bench, moments: random.Random) -> None:
    """Kill a component and remove its manifest or a certificate."""
    component = moments.choice(COMPONENTS)
    layout = home.paths().layout("one-control-plane")
    os.kill(home.components()[component]["pid"], signal.SIGKILL)
    Path(moments.choice([layout.manifest(component), layout.certificate("front-proxy-client"), layout.kubeconfig("scheduler")])).unlink()


@pytest.mark.parametrize("phase", ["wait-control-plane", "join-nodes", "nodes-ready"])
def test_a_new_cluster_whose_daemon_is_killed_is_made_by_the_next_up(killer: Killer, phase: str) -> None:
    for home in bench():
        where = str(home.root / "one")
        report = killer.run(Order(root=where, victim=DAEMON, phase=phase))

        assert report.ended == "failed"
        assert report.error.startswith('the daemon of cluster "one" ended, killed by SIGKILL')
        assert [line for line in leftovers(home.root / "one") if not line.startswith("file")] == []
        again = killer.run(Order(root=where))
        assert (again.ended, again.error) == ("finished", "")
        assert home.ready()
