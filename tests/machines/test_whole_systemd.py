"""A cluster of machines on a host whose PID 1 is systemd: a machine of the testbed is the host. It has only what a user would install there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from archive_kit import archive
from machine_kit import eventually
from testbed.bed import Bed
from whole_kit import disk_place

from kubewright.host.programs.commands import Ended
from kubewright.machines.machine import Bind, Machine
from kubewright.machines.parts import Parts
from kubewright.machines.places import cache

PLACE: Final = "/kubewright"
"""A directory on the file system of this host: the disks of machines must not be on an overlay."""
ENVIRONMENT: Final = {"XDG_CACHE_HOME": f"{PLACE}/cache", "XDG_STATE_HOME": f"{PLACE}/state", "KUBEWRIGHT_NO_BUILD": "1"}
SERVE: Final = "mkdir /www; echo real > /www/index.html; exec httpd -f -p 8080 -h /www"
TASKS: Final = "ctr -n k8s.io tasks ls | sort; systemctl show --property=MainPID,NRestarts kubelet containerd"
LEFT: Final = """\
grep -e kubewright-kw -e netns /proc/mounts
ip -o link | grep kw
find /sys/fs/cgroup -name 'kubewright*'
ls /run | grep kubewright
ls /run/netns 2>/dev/null
nft list ruleset
find /kubewright/state -mindepth 1
pgrep -a 'kubewright|nspawn|python'
"""
"""Names all that a cluster has on its host."""


class SystemdHost:
    """A host with the archive of `make bundle`, and the programs and images that this one has."""

    def __init__(self, machine: Machine, place: Path) -> None:
        self._machine = machine
        self._place = place

    def install(self) -> None:
        for name in ("cache", "state", "program"):
            (self._place / name).mkdir()
        subprocess.run(["cp", "-al", str(cache().parent), str(self._place / "cache" / "kubewright")], check=True)
        subprocess.run(["tar", "xzf", str(archive()), "-C", str(self._place / "program"), "--strip-components", "1"], check=True)
        self._machine.bind(Bind(source=self._place, target=PLACE, read_only=False))
        shutil.copy(Path("/usr/bin/systemd-nspawn"), self._machine.root / "usr" / "bin")
        self.run("systemctl", "stop", "kubelet", "containerd")  # a host has none

    def run(self, *command: str, check: bool = True) -> Ended:
        return self._machine.run(*command, env=ENVIRONMENT, check=check)

    def kubewright(self, *words: str) -> str:
        return self.run(f"{PLACE}/program/bin/kubewright", *words).out

    def inside(self, machine: str, *words: str) -> str:
        return self.kubewright("local", "shell", machine, "--", *words)

    def kubectl(self, *words: str) -> str:
        return self.inside("dev-control-plane", "kubectl", *words)

    def fetched(self, url: str) -> str:
        return self.run("curl", "-s", "--max-time", "5", url, check=False).out

    def left(self) -> str:
        return self.run("sh", "-c", LEFT, check=False).out


@pytest.fixture
def host(parts: Parts) -> Iterator[SystemdHost]:
    with disk_place() as place, Bed("host", bed="systemd", parts=parts) as bed:
        found = SystemdHost(bed["host"], place)
        found.install()
        yield found


def test_a_cluster_is_left_alone_when_its_hosts_systemd_reloads(host: SystemdHost) -> None:
    before = host.left()
    assert "this machine is ready" in host.kubewright("preflight", "machines")
    host.kubewright("up", "--machines", "--name", "dev", "--nodes", "1", "--wait", "20m", "--publish", "8080:30080")
    machines = ("dev-control-plane", "dev-worker-1")
    host.kubectl("create", "deployment", "web", "--image=docker.io/library/busybox:test", "--", "sh", "-c", SERVE)
    host.kubectl("create", "service", "nodeport", "web", "--tcp=80:8080", "--node-port=30080")
    host.kubectl("rollout", "status", "deployment/web", "--timeout", "10m")
    eventually(lambda: host.fetched("http://localhost:8080") == "real\n", "the published port")

    tasks = [host.inside(name, "sh", "-c", TASKS) for name in machines]
    for verb in ("daemon-reload", "daemon-reexec", "daemon-reload"):
        host.run("systemctl", verb)
        eventually(lambda: host.fetched("http://localhost:8080") == "real\n", f"the published port after {verb}")
    assert [host.inside(name, "sh", "-c", TASKS) for name in machines] == tasks

    host.kubewright("local", "machine", "kill", "dev-worker-1")
    host.run("systemctl", "daemon-reload")
    assert "2 of 2 nodes ready" in host.kubewright("up", "--name", "dev", "--wait", "20m")
    eventually(lambda: host.fetched("http://localhost:8080") == "real\n", "the published port after the machine has come back")

    host.kubewright("down", "--name", "dev")
    assert host.left() == before
