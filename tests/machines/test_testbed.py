"""The testbed itself: machines come up completely, survive a power failure, and leave nothing behind, however they end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine_kit import printed
from testbed.bed import Bed, sweep
from testbed.places import beds
from whole_kit import disk_place

from kubewright.base.errors import HostError
from kubewright.base.events import SilentReporter
from kubewright.machines import base, cgroups, running
from kubewright.machines.group import bridge_of
from kubewright.machines.network import bridges, namespaces
from kubewright.machines.parts import Parts

ROOT = Path(__file__).parents[2]


def left(bed: str, *, bridge: str) -> list[str]:
    """Name what a bed has on the host. Other beds may be up at the same time."""
    found = [one.name for one in cgroups.named(bed)]
    found += [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if f"/{bed}/" in line]
    found += [name for name in namespaces() if name.startswith(f"{bridge}-")]
    found += [name for name in bridges() if name == bridge]
    return found + [str(path) for path in (beds() / bed).glob("*/*")]


def test_machines_come_up_completely_and_reach_each_other(parts: Parts) -> None:
    with Bed("one", "two", bed="whole", parts=parts) as bed:
        one, two = bed["one"], bed["two"]
        assert bed.network is not None
        bridge = bed.network.bridge
        assert left(bed.name, bridge=bridge) != []
        assert one.run("systemctl", "is-system-running", "--wait", check=False).out.strip() in {"running", "degraded"}
        assert one.run("systemctl", "is-active", "containerd").out.strip() == "active"
        # the kubelet would exit without the container runtime, and start again only after ten seconds
        assert "containerd.service" in one.run("systemctl", "show", "--property=After", "--value", "kubelet").out.split()
        assert one.run("hostname").out.strip() == "one"
        assert one.run("ping", "-c1", "-W5", "two").code == 0
        assert two.run("ping", "-c1", "-W5", one.address).code == 0
        images = one.run("ctr", "-n", "k8s.io", "images", "list", "-q").out.split()
        assert {image.rpartition(":")[0].rpartition("/")[2] for image in images if "/" in image} == {
            *("busybox", "coredns", "etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "pause"),
        }
        # each machine sees only its own cgroups, and may write them
        for machine in (one, two):
            machine.run("mkdir", "/sys/fs/cgroup/memory/kubepods" if Path("/sys/fs/cgroup/memory").exists() else "/sys/fs/cgroup/kubepods")
    assert left(bed.name, bridge=bridge) == []


def test_a_power_cut_keeps_only_the_disk(parts: Parts) -> None:
    with Bed("one", bed="cut", parts=parts) as bed:
        one = bed["one"]
        one.run("sh", "-c", "echo kept > /root/file; sync; echo gone > /run/file")
        one.cut_power()
        assert one.cgroups.processes() == set()
        one.boot()
        one.ready()
        assert one.run("cat", "/root/file").out == "kept\n"
        assert one.run("cat", "/run/file", check=False).code == 1


def test_a_container_runs_in_a_machine(parts: Parts) -> None:
    with Bed("one", bed="runs", parts=parts) as bed:
        assert printed(bed["one"], "docker.io/library/busybox:test", "/bin/sh", "-c", "echo hello") == "hello\n"


def test_beds_of_the_same_name_do_not_disturb_each_other(parts: Parts) -> None:
    with Bed("one", bed="same", parts=parts) as first:
        with Bed("one", bed="same", parts=parts) as second:
            assert first.name != second.name
            assert first["one"].address != second["one"].address
            assert not {first.name, second.name} & set(sweep())
            assert second["one"].run("hostname").out == "one\n"
        assert first["one"].run("hostname").out == "one\n"
        assert left(first.name, bridge=first.network.bridge) != []
        assert left(second.name, bridge="none") == []


@pytest.fixture
def aside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another directory for beds, which no other process sweeps; next to the usual one, because stores are copied with hard links."""
    beds().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="testbed-", dir=beds().parent) as place:
        monkeypatch.setenv("XDG_STATE_HOME", place)
        try:
            yield
        finally:
            sweep()  # a failed test has mounts there


_SWEPT = "swept"
_UP = f"from testbed import __main__ as hand; hand._BED = '{_SWEPT}'; hand.main(['up', 'one'])"
"""`python -m testbed up one` with another name of the bed: a bed of `make machines` that starts meanwhile would sweep the leftovers."""


@pytest.mark.usefixtures("aside")
def test_leftovers_of_a_killed_bed_are_swept() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    process = subprocess.Popen([sys.executable, "-c", _UP], stdout=subprocess.PIPE, cwd=ROOT, env=environment, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert sweep() == []
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(600)
        process.stdout.close()
    told = re.fullmatch(r"one  [0-9.]+  make enter MACHINE=(?:(\S+)/)?one\n", line)
    assert told is not None, line
    name = told[1] or _SWEPT
    bridge = bridge_of(name)
    assert len(left(name, bridge=bridge)) >= 4

    assert sweep() == [name]

    assert left(name, bridge=bridge) == []
    assert sweep() == []


_FIRST = """
import subprocess
from pathlib import Path
from kubewright.machines import host

def mounted():
    return any(line.split()[4] == "/run/netns" for line in Path("/proc/self/mountinfo").read_text().splitlines())

Path("/run/kubewright-machines").mkdir()
host.remember_mount()
for verb in ("add", "delete"):
    subprocess.run(["ip", "netns", verb, "one"], check=True)
print(mounted())
host.end_mount()
print(mounted(), *Path("/run/kubewright-machines").iterdir(), Path("/run/netns").exists())
"""


def test_the_directory_of_namespaces_is_restored(parts: Parts) -> None:
    fresh = 'umount -l -R /run/netns 2>/dev/null; mount -t tmpfs tmpfs /run; exec "$@"'
    argv = ["unshare", "--mount", "sh", "-c", fresh, "sh", sys.executable, "-c", _FIRST]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "True\nFalse False\n"


_KILLED = """#!/bin/sh
for tree; do case "$tree" in *.partial) break; esac; done
mkdir -p "$tree/proc"
mount -t tmpfs tmpfs "$tree/proc" && touch "${0%/*}/mounted"
kill -9 $$
"""
"""A debootstrap that mounts something in the tree, as the real one does, and is killed then."""


def test_a_killed_debootstrap_leaves_no_mount(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    with disk_place() as place:
        (place / "debootstrap").write_text(_KILLED)
        (place / "debootstrap").chmod(0o755)
        monkeypatch.setattr(running, "PATH", f"{place}:{running.PATH}")
        monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        with pytest.raises(HostError, match=r"debootstrap .* failed with exit code -9"):
            base.ensure_base(SilentReporter())
        left = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if str(place) in line]
        for path in left:
            subprocess.run(["umount", path], check=True)
        assert ((place / "mounted").exists(), left) == (True, [])
