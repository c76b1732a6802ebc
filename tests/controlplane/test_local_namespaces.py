"""Clusters with the same path in two mount namespaces, as on a host and in a container: neither takes the other's processes for its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest
from local_kit import COMPONENTS, Bench, Ran, bench, eventually, leftovers

from kubewright.host.processes import Identity, RealProcesses
from kubewright.local import daemon_process
from kubewright.local.cluster.down import down

_NEW = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--mount")
_HOLD = 'mount -t tmpfs -o mode=0700 none "$0" && echo ready && exec sleep 1000'


class Inside:
    """A mount namespace in which another directory is at the path of the state directory. Only its mounts are separate."""

    def __init__(self, home: Bench) -> None:
        self._home = home
        self._holder = subprocess.Popen([*_NEW, "sh", "-c", _HOLD, str(home.root)], stdout=subprocess.PIPE, text=True)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n"
        users = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
        self._enter = ["nsenter", "--target", str(self._holder.pid), *users, "--mount"]

    def run(self, *words: str) -> Ran:
        done = subprocess.run([*self._enter, *self._home.argv(*words)], capture_output=True, text=True, timeout=900, check=False)
        return Ran(done.returncode, done.stdout, done.stderr)

    def components(self) -> dict[str, int]:
        return _pids(self.run("local", "status", "-o", "json"))

    def kill_daemon(self) -> None:
        text = subprocess.run([*self._enter, "cat", str(self._home.paths().daemon_record)], capture_output=True, text=True, check=True)
        _kill(Identity.parse(text.stdout))

    def close(self) -> None:
        self.run("down")
        self._holder.kill()
        self._holder.communicate()


def _pids(ran: Ran) -> dict[str, int]:
    assert ran.code == 0, ran.err
    return {row["name"]: row["pid"] for row in ran.json["machines"][0]["components"]}


def _kill(daemon: Identity) -> None:
    os.kill(daemon.pid, 9)
    eventually(lambda: not RealProcesses().alive(daemon), "the daemon to die")


def _alive(pids: dict[str, int]) -> list[str]:
    return [name for name, pid in pids.items() if Identity.of(pid) is not None]


@pytest.fixture
def home() -> Iterator[Bench]:
    yield from bench()


@pytest.fixture
def inside(home: Bench) -> Iterator[Inside]:
    made = Inside(home)
    yield made
    made.close()


def test_a_cluster_with_the_same_path_in_another_mount_namespace_is_not_affected(home: Bench, inside: Inside) -> None:
    home.up(nodes=0)
    ran = inside.run("up", "--nodes", "0")
    assert ran.code == 0, ran.err
    outer, inner = {name: row["pid"] for name, row in home.components().items()}, inside.components()
    assert sorted(outer) == sorted(inner) == sorted(COMPONENTS)
    assert set(outer.values()) & set(inner.values()) == set()
    assert len(daemon_process.marked_processes(home.paths())) == len(outer) + 1

    home.kill_daemon()
    inside.kill_daemon()
    assert {name: row["pid"] for name, row in home.components().items()} == outer
    assert inside.components() == inner
    listed = [home.run("local", "list", "-o", "json").json["clusters"], inside.run("local", "list", "-o", "json").json["clusters"]]
    assert [[row["state"] for row in rows] for rows in listed] == [["NoDaemon"], ["NoDaemon"]]

    ran = inside.run("up")  # it adopts its own components, and ends no others
    assert ran.code == 0, ran.err
    assert inside.components() == inner
    assert sorted(_alive(outer)) == sorted(COMPONENTS)

    home.paths().record.unlink()  # not even if its id is lost
    ran = home.run("down")
    assert (ran.code, _alive(outer), [line for line in leftovers(home.root / "one") if "marked" in line]) == (0, [], []), ran.err
    assert "Ready" in inside.run("local", "status").out
    assert inside.components() == inner

    home.up(nodes=0)
    outer = {name: row["pid"] for name, row in home.components().items()}
    inside.kill_daemon()
    ran = inside.run("down")
    assert (ran.code, _alive(inner)) == (0, []), ran.err
    assert home.ready()
    assert {name: row["pid"] for name, row in home.components().items()} == outer
    down(home.paths())
