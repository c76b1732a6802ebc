"""Several clusters, and several commands on one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from local_kit import Bench, address_of, bench, config_map, eventually, leftovers

from kubewright.base.errors import ConfigurationChanged
from kubewright.host.network.interfaces import RealNetwork
from kubewright.host.network.listeners import Listener
from kubewright.kube.resources import named
from kubewright.local import record
from kubewright.local.cluster.down import down

RETAIN = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
apiServer:
  extraArgs:
  - {name: event-ttl, value: 2h0m0s}
"""
OTHER = RETAIN.replace("2h0m0s", "3h0m0s")
SAME = "# a comment\nkind: ClusterConfiguration\n" + RETAIN.replace("kind: ClusterConfiguration\n", "")


@pytest.fixture(scope="module")
def home() -> Iterator[Bench]:
    yield from bench()


def test_clusters_that_start_at_the_same_time_do_not_affect_each_other(home: Bench) -> None:
    for other in bench():  # another state directory: its clusters are not known, only their addresses collide
        benches = {"left": home, "right": home, "far": other}
        beside = [benches[name].spawn("up", "--name", name, "--nodes", "0") for name in benches]
        ended = [home.ended(process) for process in beside]
        assert [ran.code for ran in ended] == [0, 0, 0], ended

        addresses = {name: address_of(place.paths(name)) for name, place in benches.items()}
        assert len(set(addresses.values())) == 3
        with home.client("left") as left, home.client("right") as right:
            left.create(config_map("only-left"))

            def maps() -> list[str]:
                return [one["metadata"]["name"] for one in right.list(named("ConfigMap"), "default")]

            eventually(maps, "the first ConfigMap, of kube-controller-manager")
            assert maps() == ["kube-root-ca.crt"]
        pids = {row["pid"] for row in home.components("right").values()}

        down(home.paths("left"))

        assert leftovers(home.paths("left").root, addresses["left"]) == []
        assert {row["pid"] for row in home.components("right").values()} == pids
        rows = home.run("local", "list", "-o", "json").json["clusters"]
        assert [(row["name"], row["state"]) for row in rows] == [("right", "Ready")]
        assert other.ready("far")
    down(home.paths("right"))


def test_a_second_up_of_the_same_name_is_refused_while_the_first_runs(home: Bench) -> None:
    first = home.spawn("up", "--nodes", "0")
    eventually(lambda: _text(home.paths().lock).endswith("up of cluster one\n"), "the first up to begin")
    with _stopped(first):
        said = home.run("up", "--nodes", "0")
    ended = home.ended(first)

    assert (said.code, ended.code) == (75, 0), (said, ended)
    assert f"held by pid {first.pid}" in said.err
    assert "up of cluster one" in said.err
    assert "run the same command again" in said.err
    assert home.ready()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@contextmanager
def _stopped(process: subprocess.Popen[str]) -> Iterator[None]:
    """Stop a command meanwhile, so that it does not end."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def test_down_during_an_up_names_the_running_command(home: Bench) -> None:
    working = home.spawn("up", "--name", "busy", "--nodes", "0")
    eventually(home.paths("busy").record.exists, "the other up to begin")
    with _stopped(working):
        ran = home.run("down", "--name", "busy")
    assert (ran.code, f"held by pid {working.pid}" in ran.err) == (75, True), ran.err
    assert home.ended(working).code == 0
    assert home.run("down", "--name", "busy").code == 0


def test_another_configuration_is_refused_with_the_difference(home: Bench) -> None:
    home.up("configured", nodes=0, config=RETAIN)
    pids = {row["pid"] for row in home.components("configured").values()}

    assert home.up("configured", config=SAME).changes == ()
    assert home.up("configured").changes == ()
    with pytest.raises(ConfigurationChanged) as caught:
        home.up("configured", config=OTHER)
    assert "-  - {name: event-ttl, value: 2h0m0s}" in caught.value.detail
    assert "+  - {name: event-ttl, value: 3h0m0s}" in caught.value.detail
    assert "kubewright down --name configured" in caught.value.remedy

    (home.root / "other.yaml").write_text(OTHER)
    ran = home.run("up", "--name", "configured", "--config", str(home.root / "other.yaml"))
    assert (ran.code, "event-ttl" in ran.err) == (1, True), ran.err
    ran = home.run("up", "--name", "configured", "--kubernetes-version", "v1.35.4")
    assert (ran.code, "runs Kubernetes v1.36.3, not v1.35.4" in ran.err) == (1, True), ran.err
    assert {row["pid"] for row in home.components("configured").values()} == pids
    down(home.paths("configured"))


def test_the_configuration_may_change_until_the_cluster_has_been_up_once(home: Bench) -> None:
    killed = home.spawn("up", "--name", "early", "--nodes", "0")
    eventually((home.root / "early" / "machines").exists, "the first up to begin")
    killed.kill()
    home.ended(killed)

    home.up("early", config=RETAIN)

    assert home.ready("early")
    manifest = Path(home.paths("early").layout("early-control-plane").manifest("kube-apiserver"))
    assert "--event-ttl=2h0m0s" in manifest.read_text()
    down(home.paths("early"))


MOMENTS = {
    "record": (signal.SIGINT, "cluster.json"),
    "manifests": (signal.SIGTERM, "machines/*/kubernetes/manifests/kube-apiserver.yaml"),
    "server": (signal.SIGINT, "machines/*/logs/kube-apiserver.log"),
}
"""How far an `up` has come when it is interrupted, by the file that exists then, and the signal."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupted_up_leaves_nothing_running_and_the_next_one_succeeds(home: Bench, moment: str) -> None:
    place, (number, file) = home.paths("stopped"), MOMENTS[moment]
    working = home.spawn("up", "--name", "stopped", "--nodes", "0")
    eventually(lambda: list(place.root.glob(file)), f"the up to create {file}")
    working.send_signal(number)
    ran = home.ended(working)

    assert ran.code == 128 + number, ran.err
    assert "interrupted" in ran.err
    assert "Traceback" not in ran.err
    assert [line for line in leftovers(place.root, address_of(place)) if not line.startswith("file")] == []
    assert [path for path in place.root.rglob("*") if ".kubewright-" in path.name] == []
    if moment == "server":
        home.up("stopped")
        assert home.ready("stopped")
    down(place)


def test_an_interrupted_repair_leaves_the_cluster_running(home: Bench) -> None:
    if not home.paths().record.exists():
        home.up(nodes=0)
    server = home.components()["kube-apiserver"]["pid"]
    os.kill(server, signal.SIGKILL)
    working = home.spawn("up")
    eventually(lambda: "up of cluster one" in _text(home.paths().lock), "the up to begin")
    working.send_signal(signal.SIGINT)
    ran = home.ended(working)
    assert ran.code == 130, ran.err
    home.up()
    assert home.ready()


def test_a_listener_on_all_addresses_makes_a_new_cluster_take_other_ports(home: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listeners are simulated: another cluster on this machine, on its own address, keeps others from using its ports on all addresses."""
    real = RealNetwork.listeners
    everywhere = [Listener(address="0.0.0.0", port=port, user=0, inode=1) for port in (6443, 2379, 10257)]
    monkeypatch.setattr(RealNetwork, "listeners", lambda network: [*real(network), *everywhere])

    home.up("crowded", nodes=1)

    found = record.load(home.paths("crowded").record)
    assert found is not None
    ports = found.control_plane.ports
    assert not {listener.port for listener in everywhere} & set(ports.values())
    assert len(set(ports.values())) == len(ports)
    with home.client("crowded") as api:
        assert api.access.server == f"https://{found.control_plane.address}:{ports['api_server']}"
    assert home.up("crowded").changes == ()
    assert home.ready("crowded")
    listening = {one.port for one in real(RealNetwork()) if one.address == found.control_plane.address}
    assert listening == set(ports.values())
    down(home.paths("crowded"))


def test_a_port_taken_while_the_cluster_was_down_is_reported(home: Bench) -> None:
    home.up("resting", nodes=0)
    address = address_of(home.paths("resting"))
    down(home.paths("resting"), keep_data=True)
    with socket.create_server((address, 2379)):
        ran = home.run("up", "--name", "resting")
        assert ran.code == 4
        assert f"port 2379 at {address}, for etcd, is held by" in ran.err
        assert f"(pid {os.getpid()})" in ran.err
        assert f"`kill {os.getpid()}`" in ran.err
        assert [line for line in leftovers(home.paths("resting").root) if line.startswith("process")] == []
    home.up("resting")
    assert home.ready("resting")
    down(home.paths("resting"))
