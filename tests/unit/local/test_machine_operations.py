"""What commands do in machines: operations that fail or are interrupted, and clusters that have no machines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from busy import HANGS
from kubewright.base.errors import PreflightFailed
from kubewright.base.events import Event, SilentReporter
from kubewright.base.records import replace
from kubewright.binaries import BinarySources
from kubewright.cli.handlers import machines as commands
from kubewright.cli.main import main
from kubewright.cli.printers.failure import write_error
from kubewright.host.programs.commands import Ended
from kubewright.local import record
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.whole import machines, members, operations, status
from kubewright.machines import parts
from kubewright.machines.cgroups import Cgroups
from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts
from kubewright.machines.places import MachinePlaces

PROCESSES = ClusterRecord(name="dev", id="0" * 32, machines=(LocalMachineRecord(name="dev-control-plane", address="127.0.0.11"),))
WHOLE = replace(PROCESSES, kind=record.MACHINES, machines=(LocalMachineRecord(name="dev-control-plane", address="172.30.4.11"),))
HANGING = """\
import sys, time
print('{"event": "PhaseStarted", "phase": "certs"}', file=sys.stderr, flush=True)
time.sleep(1000)
"""


def test_commands_that_start_machines_find_programs_as_up_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list[BinarySources]()
    (tmp_path / "dev").mkdir()
    record.save(WHOLE, tmp_path / "dev" / "cluster.json")
    monkeypatch.setattr(machines, "require_root", lambda _, **__: None)
    monkeypatch.setattr(machines, "start", lambda *_, sources, **__: found.append(sources))
    monkeypatch.setattr(commands, "bring_up", lambda *_, sources, **__: found.append(sources))
    where = ("--name", "dev", "--state-dir", str(tmp_path), "--binaries-dir", "/programs")
    for words in (("start", "dev-control-plane"), ("add",)):
        assert main(["local", "machine", *words, *where]) == 0
    assert [(one.directory, one.directory_setting) for one in found] == [
        (Path("/programs"), "--binaries-dir or KUBEWRIGHT_BINARIES_DIR")
    ] * 2
    assert not any("kubernetes-version" in one.flags for one in found)


@pytest.mark.parametrize(("chosen", "kept", "taken"), [(False, True, "of the last up"), (True, True, "chosen"), (False, False, "chosen")])
def test_a_machine_starts_with_the_parts_of_the_last_up_while_they_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, chosen: bool, kept: bool, taken: str
) -> None:
    paths = ClusterPaths(tmp_path / "dev")
    paths.root.mkdir(mode=0o700)
    record.save(WHOLE, paths.record)
    monkeypatch.setattr(members, "directory", lambda _: tmp_path / "disks")
    monkeypatch.setattr(parts, "place", lambda: tmp_path / "base")
    former, others = (parts_in(tmp_path / place) for place in ("of the last up", "chosen"))
    former.remember(tmp_path / "disks")
    if not kept:
        former.kit.rmdir()
    asked, started = list[Path](), list[Parts]()
    monkeypatch.setattr(machines, "ensure_parts", lambda *, sources, **_: asked.append(sources.cache) or others)
    monkeypatch.setattr(members, "claim_network", lambda *_: None)
    monkeypatch.setattr(members, "group_of", lambda *_, parts, **__: Starting(parts, started))
    sources = BinarySources(cache=tmp_path / "cache")
    assert machines.start(paths, "dev-control-plane", sources=sources, chosen=chosen, reporter=SilentReporter())
    assert started == [former if taken == "of the last up" else others]
    assert asked == ([tmp_path / "cache"] if taken == "chosen" else [])


class Starting:
    """A group of machines that notes its parts when machines are started."""

    def __init__(self, parts: Parts, started: list[Parts]) -> None:
        self._parts = parts
        self._started = started

    def up(self, only: list[str]) -> list[str]:
        self._started.append(self._parts)
        return only


def parts_in(directory: Path) -> Parts:
    found = Parts(directory.parent / "base", directory / "kit", directory / "store")
    for path in (found.base, found.kit, found.store):
        path.mkdir(parents=True, exist_ok=True)
    return found


def test_only_root_chooses_the_programs_of_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["local", "machine", "start", "dev-worker-1", "--binaries-dir", "/my programs", "--state-dir", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: only root can choose the programs of machines\nhint: run `sudo ")
    assert said.endswith(" local machine start dev-worker-1 --binaries-dir '/my programs'`\n")


@pytest.mark.parametrize("machine", [[], ["dev-control-plane-2"]])
def test_the_hint_for_adding_a_machine_adds_the_same_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], machine: list[str]
) -> None:
    (tmp_path / "dev").mkdir()
    record.save(WHOLE, tmp_path / "dev" / "cluster.json")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["local", "machine", "add", *machine, "--name", "dev", "--state-dir", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: only root can add and remove machines\nhint: run `sudo ")
    assert said.endswith(f" {' '.join(['local machine add', *machine])} --name dev`\n")


@pytest.mark.parametrize("has_kubectl", [True, False])
def test_env_says_where_to_get_kubectl_if_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, has_kubectl: bool
) -> None:
    for name in ("home/dev", "bin", "cache"):
        (tmp_path / name).mkdir(parents=True)
    record.save(WHOLE, tmp_path / "home" / "dev" / "cluster.json")
    if has_kubectl:
        (tmp_path / "bin" / "kubectl").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("KUBEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEWRIGHT_BINARIES_DIR", raising=False)
    assert main(["local", "env", "dev", "--state-dir", str(tmp_path / "home")]) == 0
    printed = capsys.readouterr()
    assert [line.partition("=")[0] for line in printed.out.splitlines()] == ["export KUBECONFIG"]
    fetch = f"binaries fetch kubectl --kubernetes-version {WHOLE.kubernetes_version}` gets one"
    assert ("kubectl is not on PATH" in printed.err, fetch in printed.err) == (not has_kubectl, not has_kubectl)


@pytest.mark.parametrize(
    ("stopped", "has_daemon", "hint"),
    [
        (["dev-worker-1"], True, "dev-worker-1 is paused; `kubewright local machine start dev-worker-1` lets it run again"),
        (["dev-worker-1"], False, "its daemon, which forwards ports, is not running; `sudo kubewright up --name dev` starts one"),
        (
            ["dev-worker-1", "dev-worker-2"],
            True,
            "dev-worker-1 is paused, dev-worker-2 is paused; `sudo kubewright up --name dev` starts them",
        ),
    ],
)
def test_the_status_names_the_command_that_starts_stopped_machines(stopped: list[str], has_daemon: bool, hint: str) -> None:
    found = dict.fromkeys(("dev-control-plane", "dev-worker-1", "dev-worker-2"), status.RUNNING) | dict.fromkeys(stopped, status.PAUSED)
    assert status._problem(WHOLE, found, {}, unread="", has_daemon=has_daemon) == hint


def test_an_operations_error_is_reported_with_its_hint() -> None:
    said = ["noise", "error: [preflight] checks failed", "  a detail", "hint: fix it", "hint: then again"]
    error = operations._failure("init", members.machine_of_group(ClusterPaths(Path("/c/dev")), "one"), said)
    assert (error.what, error.remedy) == ("init failed on one", "fix it then again")
    assert error.detail == "[preflight] checks failed\n  a detail"


def test_the_failed_checks_of_an_operation_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    failed = PreflightFailed("preflight checks failed", detail="[ERROR NumCPU]: 1 processor\n2 are needed\n[ERROR Mem]: 1 MB")
    write_error(failed, verbosity=0, kubeadm=True, phases=True)
    said = ["noise", *capsys.readouterr().err.splitlines()]
    error = operations._failure("init", members.machine_of_group(ClusterPaths(Path("/c/dev")), "one"), said)
    assert error.detail.splitlines()[:4] == ["\t[ERROR NumCPU]: 1 processor", "\t2 are needed", "\t[ERROR Mem]: 1 MB", failed.what]


class Hanging(Machine):
    """A machine in which any operation reports a phase and then hangs. Its programs run on the host."""

    def __init__(self, directory: Path) -> None:
        super().__init__("one", group="kw-0", places=MachinePlaces(directory), lower=(), namespace="", address="")
        self.cgroups = cast("Cgroups", self)
        self.running: list[subprocess.Popen[bytes]] = []

    def processes(self) -> set[int]:
        return {process.pid for process in self.running}

    def run(self, *command: str, **_: object) -> Ended:
        return Ended(code=0, out="", err="")

    def start(self, *command: str, env: Mapping[str, str] | None = None, **how: int) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = subprocess.Popen([sys.executable, "-c", HANGING, *command], **how)  # type: ignore[call-overload]
        self.running.append(process)
        return process


class Impatient:
    """A user who presses Ctrl-C as soon as something is reported."""

    def emit(self, event: Event) -> None:
        raise KeyboardInterrupt


def test_an_interrupted_operation_ends_in_its_machine(tmp_path: Path) -> None:
    machine = Hanging(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        operations.operate(machine, ("init",), "{}\n", reporter=Impatient())
    assert [process.wait(HANGS) for process in machine.running] == [-signal.SIGKILL]


@pytest.mark.parametrize("words", [["machine", "add"], ["publish"], ["publish", "80:30080"], ["load", "app.tar"]])
def test_a_cluster_of_processes_has_no_machines_ports_and_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    paths = ClusterPaths(tmp_path / "dev")
    paths.root.mkdir(mode=0o700)
    record.save(PROCESSES, paths.record)
    before = paths.record.read_bytes()
    assert main(["local", *words, "--name", "dev", "--state-dir", str(tmp_path)]) == 2
    assert 'cluster "dev" consists of processes, not of machines' in capsys.readouterr().err
    assert paths.record.read_bytes() == before


@pytest.mark.parametrize("words", [["machine", "add"], ["publish"], ["load", "app.tar"]])
def test_a_missing_cluster_of_machines_is_made_by_another_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    paths = ClusterPaths(tmp_path / "dev")
    paths.root.mkdir(mode=0o700)
    record.save(WHOLE, paths.record)
    assert main(["local", *words, "--state-dir", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert ('there is no cluster "default"' in said, said.endswith(" up --machines --name default`; there are: dev\n")) == (True, True), (
        said
    )


def test_a_machine_is_found_next_to_a_cluster_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken, paths = ClusterPaths(tmp_path / "a"), ClusterPaths(tmp_path / "dev")
    for one in (broken, paths):
        one.root.mkdir(mode=0o700)
    broken.record.write_text("{}")
    record.save(replace(PROCESSES, kind=record.MACHINES, nodes=1), paths.record)
    said = {}
    for machine in ("dev-worker-1", "dev-worker-2"):
        assert main(["local", "shell", machine, "--state-dir", str(tmp_path)]) == 1
        said[machine] = "does not describe a cluster" in capsys.readouterr().err
    assert said == {"dev-worker-1": False, "dev-worker-2": True}


def test_a_machine_is_added_to_the_cluster_that_its_name_begins_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("dev", "dev-worker"):
        paths = ClusterPaths(tmp_path / name)
        paths.root.mkdir(mode=0o700)
        first = LocalMachineRecord(name=f"{name}-control-plane", address="172.30.4.11")
        record.save(replace(PROCESSES, name=name, machines=(first,), kind=record.MACHINES, nodes=1), paths.record)
    said = {}
    for machine in ("dev-worker-1", "dev-worker-worker-3", "dev-control-plane-3", "other-worker-1", "dev"):
        assert main(["local", "machine", "add", machine, "--state-dir", str(tmp_path)]) == 2
        said[machine] = capsys.readouterr().err.splitlines()[0].removeprefix("error: ")
    assert said == {
        "dev-worker-1": 'cluster "dev" has a machine "dev-worker-1"',
        "dev-worker-worker-3": 'cluster "dev-worker" cannot add a machine "dev-worker-worker-3"',
        "dev-control-plane-3": 'cluster "dev" cannot add a machine "dev-control-plane-3"',
        "other-worker-1": 'there is no cluster for a machine "other-worker-1"',
        "dev": 'there is no cluster for a machine "dev"',
    }
