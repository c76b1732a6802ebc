"""Several control planes on this machine: they join as real machines do, continue without each other, and are removed again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from local_kit import COMPONENTS, LIMIT, Bench, bench, config_map, eventually, fingerprint, leftovers, program

from kubewright.base.clock import SystemClock
from kubewright.base.errors import AlreadyExists, APIError, NotFound
from kubewright.base.wait import retry
from kubewright.etcd.api import Member
from kubewright.etcd.client import EtcdClient
from kubewright.host.filesystem.files import Files
from kubewright.host.network.interfaces import RealNetwork
from kubewright.kube.answers import PAUSES, worth_retrying
from kubewright.kube.client import KubeClient
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.resources import named
from kubewright.lifecycle import stacked_etcd
from kubewright.local import record
from kubewright.local.cluster.down import down
from kubewright.local.record import ClusterRecord

FIRST, SECOND, THIRD = NAMES = ("one-control-plane", "one-control-plane-2", "one-control-plane-3")
TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def home() -> Iterator[Bench]:
    yield from bench()


@pytest.fixture
def three(home: Bench) -> Bench:
    """A cluster with three control planes and a worker, healthy before each test."""
    home.up(control_planes=3, nodes=1)
    return home


def _cluster(home: Bench) -> ClusterRecord:
    found = record.load(home.paths().record)
    assert found is not None
    return found


def _rows(home: Bench) -> dict[tuple[str, str], dict[str, Any]]:
    return {(machine["name"], row["name"]): row for machine in home.status()["machines"] for row in machine["components"]}


def _processes(home: Bench) -> dict[tuple[str, str], tuple[int, int]]:
    return {key: (row["pid"], row["restarts"]) for key, row in _rows(home).items()}


def _etcd(home: Bench, machine: str = FIRST) -> closing[EtcdClient]:
    layout, urls = home.paths().layout(machine), [one.etcd_client_url for one in _cluster(home).machines]
    return closing(stacked_etcd.client(urls, pki=layout.pki, files=Files(), clock=SystemClock()))


def _members(home: Bench) -> list[Member]:
    with _etcd(home) as etcd:
        return etcd.members()


def _kubeconfig(home: Bench, machine: str) -> Path:
    return Path(home.paths().layout(machine).kubeconfig("admin"))


def _client(home: Bench, machine: str) -> closing[KubeClient]:
    return closing(KubeClient(load_access(PurePosixPath(_kubeconfig(home, machine)), read=Files().read), timeout=LIMIT))


def _require_three(home: Bench) -> None:
    """Require three members that vote, and components that are ready; on a busy machine etcd may be electing a leader just now."""

    def members() -> list[tuple[str, bool]]:
        with suppress(APIError):
            return sorted((member.name, member.learner) for member in _members(home))
        return []

    eventually(lambda: members() == [(name, False) for name in NAMES], "three members that vote")
    ready = {(name, one) for name in NAMES for one in COMPONENTS}
    eventually(lambda: {key for key, row in _rows(home).items() if row["state"] == "Ready"} == ready, "all components to be ready")
    eventually(home.ready, "all nodes to be ready")


# -- the cluster


def test_components_of_further_machines_start_when_their_requirements_exist(three: Bench) -> None:
    """Etcd may have to wait for its turn to join, and an API server that finds no etcd exits after 20 s."""
    for name in (SECOND, THIRD):
        layout = three.paths().layout(name)
        written = {component: Path(layout.manifest(component)).stat().st_mtime_ns for component in COMPONENTS}
        assert written["etcd"] < written["kube-apiserver"] < min(written["kube-controller-manager"], written["kube-scheduler"]), name


def test_three_control_planes_are_three_voting_members_and_three_marked_nodes(three: Bench) -> None:
    _require_three(three)

    def found() -> dict[str, Any]:
        with three.client() as api:
            return {node["metadata"]["name"]: node for node in api.list(named("Node"))}

    def pods() -> set[str]:
        with three.client() as api:
            return {pod["metadata"]["name"] for pod in api.list(named("Pod"), "kube-system") if "etcd" in pod["metadata"]["name"]}

    eventually(lambda: "taints" not in found()["one-worker-1"]["spec"], "the taint of a young Node to be taken away")
    eventually(lambda: pods() == {f"etcd-{name}" for name in NAMES}, "etcd's mirror pods")
    nodes = found()
    assert sorted(nodes) == [*NAMES, "one-worker-1"]
    for name in NAMES:
        assert nodes[name]["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] == ""
        assert TAINT in nodes[name]["spec"]["taints"]
        assert {row["type"]: row["status"] for row in nodes[name]["status"]["conditions"]}["Ready"] == "True"


def test_each_control_plane_serves_with_its_own_kubeconfig_and_address(three: Bench) -> None:
    addresses = [machine.address for machine in _cluster(three).machines]
    assert len(set(addresses)) == 3
    for name, address in zip(NAMES, addresses, strict=True):
        with _client(three, name) as api:
            assert api.access.server == f"https://{address}:6443"
            eventually(lambda api=api: api.raw("GET", "/readyz").status == 200, f"{name} to be ready")
        assert f"server: https://{address}:6443" in Path(three.paths().layout(name).kubeconfig("kubelet")).read_text()


def test_every_lease_has_one_holder_and_no_join_secret_is_left(three: Bench) -> None:
    with three.client() as api:

        def held() -> set[str]:
            return {one["metadata"]["name"] for one in api.list(named("Lease"), "kube-system") if one["spec"].get("holderIdentity")}

        eventually(lambda: held() >= set(COMPONENTS[2:]), "the leases to be held")
        secrets = [secret["metadata"]["name"] for secret in api.list(named("Secret"), "kube-system")]
    assert secrets == []
    for name in NAMES:
        for component in COMPONENTS[2:]:
            assert "--leader-elect=true" in Path(three.paths().layout(name).manifest(component)).read_text()
    left = {path.name for name in NAMES[1:] for path in three.paths().machine(name).rglob("*bootstrap*")}
    assert left == set()


def test_commands_know_all_machines(three: Bench) -> None:
    def with_etcd() -> list[str]:
        ran = three.run("local", "status")
        assert ran.code == 0, ran.err
        return [line.split()[0] for line in ran.out.splitlines() if line.split()[2:4] == ["etcd", "Ready"]]

    eventually(lambda: with_etcd() == list(NAMES), "all members to be shown as ready")
    assert three.run("local", "list", "-o", "json").json["clusters"][0]["nodes"] == "4/4"
    for name in NAMES:
        ran = three.run("local", "logs", "etcd", "--machine", name, "--tail", "-1")
        assert (ran.code, f'"name":"{name}"' in ran.out) == (0, True), ran.err
    ran = three.run("local", "logs", "etcd", "--machine", "one-worker-1")
    assert (ran.code, ", ".join(NAMES) in ran.err) == (2, True)
    assert str(_kubeconfig(three, FIRST)) in three.run("local", "env").out


# -- run again


def test_a_second_up_changes_nothing_with_three_control_planes(three: Bench) -> None:
    before = (_processes(three), three.daemon(), fingerprint(three.root))
    assert len(before[0]) == 3 * len(COMPONENTS)
    assert three.up().changes == ()
    assert three.up(control_planes=3, nodes=1).changes == ()
    assert (_processes(three), three.daemon(), fingerprint(three.root)) == before


def test_a_new_daemon_adopts_the_components_of_all_machines(three: Bench) -> None:
    before, killed = _processes(three), three.kill_daemon()
    assert {row["state"] for row in _rows(three).values()} == {"Running"}, "they go on without a daemon"
    assert three.up().changes == ()
    assert three.daemon() != killed
    assert _processes(three) == before
    _require_three(three)


def _though_a_leader_is_elected(call: Callable[[], object], *, done: type[APIError]) -> None:
    """Repeat until it succeeds, or is refused because it has already been done."""
    with suppress(done):
        retry(call, clock=SystemClock(), within=600, backoff=PAUSES, on=lambda error: worth_retrying(error) and not isinstance(error, done))


def test_damage_to_a_further_control_plane_is_repaired(three: Bench) -> None:
    layout = three.paths().layout(SECOND)
    os.kill(_rows(three)[SECOND, "etcd"]["pid"], signal.SIGKILL)
    Path(layout.manifest("kube-scheduler")).unlink()
    Path(layout.certificate("front-proxy-client")).unlink()
    with three.client() as api:
        _though_a_leader_is_elected(lambda: api.delete(named("Node"), THIRD), done=NotFound)
        _though_a_leader_is_elected(lambda: api.create(config_map("while-it-is-gone")), done=AlreadyExists)

    changed = {change.target for change in three.up().changes}

    assert f"node {THIRD}" in changed
    assert f"file {layout.manifest('kube-scheduler')}" in changed
    _require_three(three)
    with _client(three, SECOND) as api:
        assert api.get(named("ConfigMap"), "while-it-is-gone", "default")["data"] == {"text": "kept"}
        assert TAINT in api.get(named("Node"), THIRD)["spec"]["taints"]
        api.delete(named("ConfigMap"), "while-it-is-gone", "default")


def test_a_deleted_kubelet_conf_of_a_further_control_plane_is_restored_even_if_its_node_is_ready(three: Bench) -> None:
    layouts, before = {name: three.paths().layout(name) for name in (SECOND, THIRD)}, _processes(three)
    files = {name: Path(layout.kubeconfig("kubelet")) for name, layout in layouts.items()}
    content = {name: path.read_bytes() for name, path in files.items()}
    for path in files.values():
        path.unlink()
    shutil.rmtree(layouts[THIRD].kubelet / "pki")  # and the certificate that it named

    assert three.up().changes != ()

    assert {name: path.read_bytes() for name, path in files.items()} == content
    assert Path(layouts[THIRD].kubelet / "pki/kubelet-client-current.pem").is_file()
    assert {key: row for key, row in _processes(three).items() if key in before} == before
    _require_three(three)
    assert three.up().changes == ()


def test_the_other_control_planes_continue_without_the_first_api_server(three: Bench) -> None:
    manifest = Path(three.paths().layout(FIRST).manifest("kube-apiserver"))
    manifest.unlink()
    eventually(lambda: RealNetwork().owner_of_port(_cluster(three).control_plane.address, 6443) is None, "the first API server to end")

    kubectl = subprocess.run(
        [program("kubectl"), "--kubeconfig", str(_kubeconfig(three, SECOND)), "create", "namespace", "later"],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (kubectl.returncode, kubectl.stderr) == (0, "")
    with _etcd(three, THIRD) as etcd:
        eventually(lambda: all(status.serves for status in etcd.statuses()), "all members to serve")
    with _client(three, FIRST) as api, pytest.raises(APIError):
        api.raw("GET", "/readyz")

    three.up()

    _require_three(three)
    with three.client() as api:
        api.delete(named("Namespace"), "later")


def test_kept_data_is_used_again_with_all_members(three: Bench) -> None:
    with three.client() as api:
        api.create(config_map("kept"))
    down(three.paths(), keep_data=True)
    three.up()
    _require_three(three)
    with _client(three, THIRD) as api:
        assert api.get(named("ConfigMap"), "kept", "default")["data"] == {"text": "kept"}
        api.delete(named("ConfigMap"), "kept", "default")


# -- another number


def test_control_planes_are_removed_and_added_even_if_up_is_killed(three: Bench) -> None:
    gone = [machine.address for machine in _cluster(three).further]

    _killed(three, lambda event: _removes(event, THIRD), "--control-planes", "1")
    three.up()

    assert [member.name for member in _members(three)] == [FIRST]
    assert [path.name for path in three.paths().machines.iterdir()] == [FIRST]
    assert [one for one in RealNetwork().listeners() if one.address in gone] == []
    with three.client() as api:
        assert sorted(node["metadata"]["name"] for node in api.list(named("Node"))) == [FIRST, "one-worker-1"]
        for name in COMPONENTS[2:]:
            with pytest.raises(NotFound):
                api.get(named("Lease"), name, "kube-system")
    assert three.up().changes == ()

    _killed(
        three, lambda event: _begins(event, f"{THIRD}/control-plane-prepare/control-plane"), "--control-planes", "3"
    )  # with its admin.conf
    _killed(three, lambda event: _begins(event, f"{SECOND}/etcd-join"))
    _killed(three, lambda event: _begins(event, f"{THIRD}/wait-control-plane"))
    three.up()
    _require_three(three)
    assert three.up().changes == ()


def _removes(event: dict[str, Any], machine: str) -> bool:
    """Whether an event is the removal of a machine's etcd member."""
    return event["event"] == "Changed" and event["target"].startswith(f"member {machine} ") and event["action"] == "delete"


def _begins(event: dict[str, Any], phase: str) -> bool:
    return (event["event"], event.get("phase")) == ("PhaseStarted", phase)


def _killed(home: Bench, at: Callable[[dict[str, Any]], bool], *words: str) -> None:
    """Run `up` and kill it at an event."""
    process = home.spawn("up", "-o", "json", *words)
    assert process.stderr is not None
    for line in process.stderr:
        if at(json.loads(line)):
            process.kill()
            break
    assert home.ended(process).code == -signal.SIGKILL


def test_nothing_is_left_of_several_control_planes(three: Bench) -> None:
    addresses = [machine.address for machine in _cluster(three).machines]
    ran = three.run("down")
    assert ran.code == 0, ran.err
    assert [left for address in addresses for left in leftovers(three.root / "one", address)] == []
