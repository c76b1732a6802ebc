"""`up` repeated: it changes nothing if nothing is wrong, repairs what is, and uses data that `down --keep-data` has kept."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_kit import COMPONENTS, Bench, address_of, bench, config_map, eventually, fingerprint, leftovers

from kubewright.base.change import Action
from kubewright.base.errors import NotFound, WaitTimeout
from kubewright.kube.client import KubeClient
from kubewright.kube.resources import Resource, named
from kubewright.local import daemon_process
from kubewright.local.supervisor.termination import WELL_AFTER_READY


@pytest.fixture(scope="module")
def home() -> Iterator[Bench]:
    yield from bench()


@pytest.fixture(scope="module")
def made(home: Bench) -> Bench:
    outcome = home.up()
    assert outcome.created
    assert outcome.changes
    with home.client() as api:
        api.create(config_map("before"))
    return home


@pytest.fixture
def one(made: Bench) -> Iterator[Bench]:
    """The cluster, healthy before each test; its data still exists after each."""
    if not made.ready():
        made.up()
    yield made
    with made.client() as api:
        assert api.get(named("ConfigMap"), "before", "default")["data"] == {"text": "kept"}


def _processes(home: Bench) -> dict[str, tuple[int, int]]:
    return {name: (row["pid"], row["restarts"]) for name, row in home.components().items()}


def _manifest(home: Bench, component: str) -> Path:
    return Path(home.paths().layout("one-control-plane").manifests) / f"{component}.yaml"


def test_a_second_up_changes_nothing(one: Bench) -> None:
    before = (_processes(one), one.daemon(), fingerprint(one.root))
    assert len(before[0]) == len(COMPONENTS)
    assert len(before[2]) >= 30

    assert one.up().changes == ()
    assert one.up(nodes=1).changes == ()

    assert (_processes(one), one.daemon(), fingerprint(one.root)) == before


def test_a_second_up_reports_that_nothing_changed(one: Bench) -> None:
    ran = one.run("up")
    assert (ran.code, ran.out.count("nothing changed")) == (0, 1), ran.err
    ran = one.run("up", "-o", "json")
    assert (ran.code, ran.json["changes"], ran.json["state"]) == (0, [], "Ready")


def test_an_edited_manifest_is_restored_and_only_its_component_is_restarted(one: Bench) -> None:
    before, path = _processes(one), _manifest(one, "kube-scheduler")
    written = path.read_bytes()
    edited = path.with_name(".edited")
    edited.write_bytes(written.replace(b"--leader-elect=false", b"--leader-elect=false\n    - --v=1"))
    edited.replace(path)
    eventually(lambda: _processes(one)["kube-scheduler"][0] not in {None, before["kube-scheduler"][0]}, "the edited scheduler")

    outcome = one.up()

    assert [(change.target, change.action) for change in outcome.changes] == [(f"file {path}", Action.UPDATE)]
    assert path.read_bytes() == written
    after = _processes(one)
    assert one.ready()
    assert {name for name in COMPONENTS if after[name][0] != before[name][0]} == {"kube-scheduler"}


def test_a_removed_manifest_is_written_again(one: Bench) -> None:
    before, path = _processes(one), _manifest(one, "kube-controller-manager")
    path.unlink()
    eventually(lambda: "kube-controller-manager" not in one.components(), "the supervisor to stop it")

    outcome = one.up()

    assert [(change.target, change.action) for change in outcome.changes] == [(f"file {path}", Action.CREATE)]
    assert one.ready()
    assert {name for name in COMPONENTS if _processes(one)[name][0] != before[name][0]} == {"kube-controller-manager"}


@pytest.mark.parametrize("component", COMPONENTS)
def test_up_waits_until_a_killed_component_is_healthy_again(one: Bench, component: str) -> None:
    stable = time.monotonic() + WELL_AFTER_READY  # a component that ends sooner a second time counts as one that crashes in a loop
    eventually(lambda: time.monotonic() > stable and one.ready(), "the components to be stable")
    before = _processes(one)
    os.kill(before[component][0], signal.SIGKILL)

    one.up()

    after = _processes(one)
    assert one.ready()
    assert after[component][1] == before[component][1] + 1
    assert after[component][0] != before[component][0]
    if component not in {"etcd", "kube-apiserver"}:  # otherwise the others may give up, on a slow machine
        assert {name for name in COMPONENTS if after[name][0] != before[name][0]} == {component}


def test_killed_components_are_restarted_automatically(one: Bench) -> None:
    before = _processes(one)
    for pid, _ in before.values():
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: all(row["restarts"] > before[name][1] for name, row in one.components().items()), "all to be started again")
    eventually(one.ready, "the cluster to be well again")
    after = _processes(one)
    assert {name for name, (pid, _) in after.items() if pid != before[name][0]} == set(COMPONENTS)


OBJECTS = [
    ("clusterrolebindings.rbac.authorization.k8s.io", "kubeadm:kubelet-bootstrap", None),
    ("roles.rbac.authorization.k8s.io", "kubeadm:nodes-kubeadm-config", "kube-system"),
    ("configmaps", "kubeadm-config", "kube-system"),
    ("configmaps", "kubelet-config", "kube-system"),
    ("configmaps", "coredns", "kube-system"),
    ("configmaps", "cluster-info", "kube-public"),
    ("daemonsets.apps", "kube-proxy", "kube-system"),
    ("services", "kube-dns", "kube-system"),
]
KINDS = {
    "clusterrolebindings.rbac.authorization.k8s.io": "ClusterRoleBinding",
    "roles.rbac.authorization.k8s.io": "Role",
    "configmaps": "ConfigMap",
    "daemonsets.apps": "DaemonSet",
    "services": "Service",
}


def test_deleted_objects_are_created_again_and_nothing_else_changes(one: Bench) -> None:
    with one.client() as api:
        for resource, name, namespace in OBJECTS:
            api.delete(_resource(resource), name, namespace)
        outcome = one.up()
        assert [change.action for change in outcome.changes] == [Action.CREATE] * len(OBJECTS)
        for resource, name, namespace in OBJECTS:
            assert api.get(_resource(resource), name, namespace)["metadata"]["name"] == name
    assert one.up().changes == ()


def _resource(name: str) -> Resource:
    return named(KINDS[name])


@pytest.mark.parametrize("node", ["one-control-plane", "one-worker-1"])
def test_a_deleted_node_is_created_again(one: Bench, node: str) -> None:
    with one.client() as api:
        uid = api.get(named("Node"), node)["metadata"]["uid"]
        api.delete(named("Node"), node)

        one.up()

        found = api.get(named("Node"), node)
        assert found["metadata"]["uid"] != uid
        assert _is_ready(api, node)
        if node == "one-control-plane":
            assert "node-role.kubernetes.io/control-plane" in found["metadata"]["labels"]
            assert "node-role.kubernetes.io/control-plane" in {taint["key"] for taint in found["spec"]["taints"]}
    assert one.ready()
    assert one.up().changes == ()


def _is_ready(api: KubeClient, node: str) -> bool:
    conditions = api.get(named("Node"), node)["status"]["conditions"]
    return [row["status"] for row in conditions if row["type"] == "Ready"] == ["True"]


def test_a_removed_certificate_is_issued_again_by_the_same_ca(one: Bench) -> None:
    pki = Path(one.paths().layout("one-control-plane").pki)
    authority = (pki / "ca.crt").read_bytes()
    (pki / "front-proxy-client.crt").unlink()

    outcome = one.up()

    assert len(outcome.changes) == 1
    assert "front-proxy-client" in outcome.changes[0].target
    assert (pki / "ca.crt").read_bytes() == authority


def test_a_cluster_whose_daemon_died_is_adopted_without_a_restart(one: Bench) -> None:
    before, files = _processes(one), fingerprint(one.root)
    dead = one.kill_daemon()
    assert one.status()["state"] == "NoDaemon"
    assert daemon_process.identity(one.paths()) is None

    outcome = one.up()

    assert outcome.changes == ()
    assert one.daemon() != dead
    assert _processes(one) == before
    assert fingerprint(one.root) == files


def test_a_cluster_recovers_when_all_processes_were_killed_at_once(one: Bench) -> None:
    """As after a power failure: the daemon and every component, in no order."""
    files = fingerprint(one.root)
    pids = {pid for pid, _ in _processes(one).values()}
    for pid in (one.daemon().pid, *pids):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: one.status()["state"] == "Stopped", "all of it to be dead")

    assert one.up().changes == ()

    assert one.ready()
    assert pids.isdisjoint(pid for pid, _ in _processes(one).values())
    assert fingerprint(one.root).keys() == files.keys()


def test_a_hanging_daemon_is_reported(one: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubewright.local.cluster.daemon_client.LISTENS_WITHIN", 1.0)
    daemon = one.daemon()
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        with pytest.raises(WaitTimeout, match="the cluster's daemon") as caught:
            one.up()
        assert f"kill -9 {daemon.pid}" in caught.value.remedy
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    eventually(one.ready, "the daemon to go on")


def test_nodes_are_added_and_removed_by_scaling(one: Bench) -> None:
    try:
        one.up(nodes=3)
        with one.client() as api:
            assert _nodes(api) == ["one-control-plane", "one-worker-1", "one-worker-2", "one-worker-3"]
            outcome = one.up(nodes=0)
            assert _nodes(api) == ["one-control-plane"]
            assert sorted(change.target for change in outcome.changes if change.action is Action.DELETE) == [
                "node one-worker-1",
                "node one-worker-2",
                "node one-worker-3",
            ]
            assert list((one.root / "one" / "nodes").iterdir()) == []
            assert one.status()["nodes"]["total"] == 1
            assert one.up(nodes=0).changes == ()
    finally:
        one.up(nodes=1)
    with one.client() as api, pytest.raises(NotFound):
        api.get(named("Node"), "one-worker-2")


def _nodes(api: KubeClient) -> list[str]:
    return sorted(node["metadata"]["name"] for node in api.list(named("Node")))


def test_kept_data_exists_after_the_next_up(one: Bench) -> None:
    root, address, authority = one.paths().root, address_of(one.paths()), _authority(one)

    ran = one.run("down", "--keep-data")

    assert ran.code == 0, ran.err
    assert [line for line in leftovers(root, address) if not line.startswith("file")] == []
    kept = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    machine = "machines/one-control-plane/"
    assert {path for path in kept if not path.startswith((f"{machine}etcd/", f"{machine}kubernetes/pki/"))} == {"cluster.json", "lock"}
    assert one.status()["state"] == "Stopped"

    one.up()

    assert (address_of(one.paths()), _authority(one)) == (address, authority)
    assert one.ready()
    with one.client() as api:
        assert _nodes(api) == ["one-control-plane", "one-worker-1"]
    assert one.up().changes == ()


def _authority(home: Bench) -> bytes:
    return Path(home.paths().layout("one-control-plane").certificate("ca")).read_bytes()
