"""Running a command and reading what it used; taking the script's commands from manifests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.bench import accounting, by_hand
from tests.bench.running import BenchmarkFailed, Running, timed

from kubewright.base import yaml


def test_a_command_is_timed_with_its_cpu_and_its_peak(tmp_path):
    source = "x = bytearray(30_000_000)\nfor _ in range(1_500_000): pass"
    ended = timed([sys.executable, "-S", "-c", source], env=os.environ, log=tmp_path / "log")
    assert 0 < ended.cpu_seconds < 10
    assert ended.seconds < 10
    assert ended.peak_bytes > 30_000_000


def test_a_failing_command_is_reported_with_its_last_output(tmp_path):
    running = Running([sys.executable, "-S", "-c", "raise SystemExit('no such thing')"], env=os.environ, log=tmp_path / "log")
    with pytest.raises(BenchmarkFailed, match=r"exit code 1\nno such thing"):
        running.wait()


def test_checking_whether_a_command_has_ended_does_not_reap_it(tmp_path):
    running = Running([sys.executable, "-S", "-c", "pass"], env=os.environ, log=tmp_path / "log")
    while not running.has_ended():
        pass
    assert running.has_ended()
    assert running.wait().seconds > 0


def test_a_process_is_read_from_proc():
    me = accounting.used_by(os.getpid())
    assert (me.pid, me.parent) == (os.getpid(), os.getppid())
    assert me.cpu_seconds > 0
    assert me.peak_bytes > 1_000_000


def a_machine(directory: Path, *names: str) -> Path:
    manifests = directory / "kubernetes" / "manifests"
    manifests.mkdir(parents=True)
    for name in names:
        container = {"command": [name, f"--data-dir={directory}/etcd", "--v=2"]}
        pod = {"metadata": {"name": name}, "spec": {"containers": [container]}}
        (manifests / f"{name}.yaml").write_text(yaml.dump(pod))
    return directory


def test_the_script_takes_its_commands_from_the_manifests_and_their_paths_to_its_own_directory(tmp_path):
    names = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
    machine = a_machine(tmp_path / "machine", *names)
    prepared = by_hand.prepare(machine, tmp_path / "hand", programs={name: Path("/opt") / name for name in names})
    assert sorted(prepared.commands) == sorted(names)
    etcd = prepared.commands["etcd"]
    assert etcd.argv == ("/opt/etcd", f"--data-dir={tmp_path}/hand/etcd", "--v=2")
    assert etcd.flag("data-dir") == f"{tmp_path}/hand/etcd"
    with pytest.raises(BenchmarkFailed, match="etcd has no --name"):
        etcd.flag("name")


def test_a_machine_without_all_four_components_is_refused(tmp_path):
    machine = a_machine(tmp_path / "machine", "etcd")
    with pytest.raises(BenchmarkFailed, match="unexpected static pods"):
        by_hand.prepare(machine, tmp_path / "hand", programs={"etcd": Path("/opt/etcd")})
