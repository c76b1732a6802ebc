"""`down`: whatever state a cluster is in, nothing of it is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest
from local_kit import COMPONENTS, Bench, address_of, bench, config_map, eventually, leftovers

from kubewright.host.processes import Identity, RealProcesses
from kubewright.kube.resources import named
from kubewright.local.cluster.down import down


@pytest.fixture(scope="module")
def home() -> Iterator[Bench]:
    yield from bench()


def _stop_daemon(home: Bench) -> None:
    """Make the daemon hang: it does not answer, and continues only to be killed."""
    os.kill(home.daemon().pid, signal.SIGSTOP)


def _kill_daemon_and_a_component(home: Bench) -> None:
    scheduler = home.components()["kube-scheduler"]["pid"]
    home.kill_daemon()
    os.kill(scheduler, signal.SIGKILL)


def _lose_the_records(home: Bench) -> None:
    """Remove the files that `down` could use: it must find processes nevertheless."""
    for path in home.paths().root.glob("*.json"):
        path.unlink()


def _litter(home: Bench) -> None:
    """Leave links, read-only directories and odd names in the state directory."""
    machine = home.paths().machines / "one-control-plane"
    outside = home.root / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "precious").write_text("not ours")
    (machine / "link").symlink_to(outside)
    (machine / "loop").symlink_to(machine)
    (machine / "run" / "a b\nc").mkdir()
    (machine / "run" / "read-only").mkdir(mode=0o500)


@pytest.mark.parametrize(
    "disturb", [None, _kill_daemon_and_a_component, _lose_the_records, _litter], ids=lambda f: f.__name__ if f else "well"
)
def test_down_leaves_nothing(home: Bench, disturb: Callable[[Bench], None] | None) -> None:
    home.up(nodes=1)
    root, address = home.paths().root, address_of(home.paths())
    assert len(leftovers(root, address)) >= 50
    if disturb is not None:
        disturb(home)

    ran = home.run("down")

    assert (ran.code, leftovers(root, address)) == (0, []), ran.err
    assert "is gone" in ran.out
    if disturb is _litter:
        assert (home.root / "outside" / "precious").read_text() == "not ours"


def test_a_cluster_whose_files_were_removed_stops_by_itself(home: Bench) -> None:
    home.up(nodes=0)
    root, address = home.paths().root, address_of(home.paths())
    shutil.rmtree(root, ignore_errors=True)  # the daemon may be writing
    eventually(lambda: not leftovers(root, address), "the cluster to end without its files")


@pytest.mark.parametrize("then", ["down", "up"])
def test_processes_of_a_cluster_whose_files_were_removed_are_found(home: Bench, then: str) -> None:
    home.up(nodes=0)
    root = home.paths().root
    running = [Identity.of(row["pid"]) for row in home.components().values()]
    home.kill_daemon()  # otherwise it would notice itself

    def removed() -> bool:
        shutil.rmtree(root, ignore_errors=True)  # the components may be writing
        return not root.exists()

    eventually(removed, "the files to be gone")

    ran = home.run(then, *(["--nodes", "0"] if then == "up" else []))

    assert ran.code == 0, ran.err
    assert [one for one in running if one is None or RealProcesses().alive(one)] == []
    if then == "up":
        assert home.ready()
        down(home.paths())
    else:
        assert "is gone" in ran.out
    assert leftovers(root) == []


def test_a_daemon_whose_record_was_lost_is_replaced(home: Bench) -> None:
    home.up(nodes=1)
    pids, lost = {row["pid"] for row in home.components().values()}, home.daemon()
    for name in ("daemon.json", "daemon.lock", "control.sock"):
        (home.paths().root / name).unlink()

    assert home.up().changes == ()

    assert home.daemon() != lost
    assert not RealProcesses().alive(lost)
    assert {row["pid"] for row in home.components().values()} == pids
    down(home.paths())


def test_down_stops_a_hanging_daemon(home: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    home.up(nodes=1)
    root, address = home.paths().root, address_of(home.paths())
    _stop_daemon(home)
    assert home.status()["state"] == "NoAnswer"
    monkeypatch.setattr("kubewright.local.cluster.daemon_client.STOP_WITHIN", 1.0)

    down(home.paths())

    assert leftovers(root, address) == []


def test_down_of_a_missing_cluster_is_no_error(home: Bench) -> None:
    ran = home.run("down", "--name", "nobody")
    assert (ran.code, ran.out) == (0, "cluster nobody does not exist; nothing to do\n")


def test_leftovers_of_a_killed_down_are_no_part_of_the_next_cluster(home: Bench) -> None:
    home.up("half", nodes=0)
    with home.client("half") as api:
        api.create(config_map("old"))
    down(home.paths("half"), keep_data=True)
    home.paths("half").record.unlink()  # it goes first, and then the rest

    home.up("half", nodes=0)
    with home.client("half") as api:
        assert "old" not in {one["metadata"]["name"] for one in api.list(named("ConfigMap"), "default")}
    down(home.paths("half"))


OWNER = textwrap.dedent(
    """
    import os, sys, time
    from kubewright.host.processes import Identity
    from kubewright.local.cluster.cluster import LocalCluster

    LocalCluster("owned", nodes=0, state_dir=sys.argv[1], owner=str(Identity.of(os.getpid()))).up()
    print("up", flush=True)
    time.sleep(600)
    """
)


def test_a_cluster_is_removed_with_its_owner_however_that_ends(home: Bench) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(home.root)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "up\n"
    root, address = home.paths("owned").root, address_of(home.paths("owned"))
    assert len(home.components("owned")) == len(COMPONENTS)

    owner.kill()
    owner.communicate()

    eventually(lambda: not leftovers(root, address), "the cluster to go with its owner")


def test_a_cluster_whose_owner_ended_before_the_daemon_looked_is_removed_too(home: Bench) -> None:
    gone = subprocess.Popen(["sleep", "600"])
    owner = Identity.of(gone.pid)
    gone.kill()
    gone.wait()
    assert owner is not None
    assert not RealProcesses().alive(owner)
    with pytest.raises(Exception, match="ended"):
        home.up("owned", nodes=0, owner=str(owner))
    eventually(lambda: not [line for line in leftovers(home.root / "owned") if not line.startswith("file")], "everything to end")
    shutil.rmtree(home.root / "owned", ignore_errors=True)
