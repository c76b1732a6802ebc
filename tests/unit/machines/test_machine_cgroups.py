"""The cgroups of machines, in directories that are none: of either version, and as a scope of systemd."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kubewright.base.errors import HostError, WaitTimeout
from kubewright.machines import cgroups, scopes
from kubewright.machines.cgroups import Cgroups
from kubewright.machines.scopes import Scope


def cgroups_at(*directories: Path, scope: Scope | None = None) -> Cgroups:
    found = Cgroups("group_one")
    found.scope, found.own = scope, [*directories]
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
    return found


def scope_at(root: Path, name: str = "group_one") -> Scope:
    (root / "transient").mkdir(exist_ok=True)
    return Scope(name, mount=root / "cgroup", transient=root / "transient", known=root / "known")


@pytest.mark.parametrize(
    ("name", "states"),
    [
        ("freezer.state", ("THAWED", "FREEZING", "FROZEN")),
        ("cgroup.freeze", ("0", "1", "1")),
        ("payload/cgroup.freeze", ("0", "1", "1")),
    ],
)
def test_processes_are_frozen_by_the_file_of_either_version(tmp_path: Path, name: str, states: tuple[str, str, str]) -> None:
    machine, file = cgroups_at(tmp_path / "cpu", tmp_path / "freezer"), tmp_path / "freezer" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{states[0]}\n")
    assert not machine.frozen
    machine.freeze()
    assert (machine.frozen, file.read_text()) == (True, states[2])
    file.write_text(f"{states[1]}\n")
    assert machine.frozen
    machine.thaw()
    assert (machine.frozen, file.read_text()) == (False, states[0])


def test_hierarchies_are_found_next_to_mounts_with_names_in_any_encoding(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    others = [f"/dev/sdb1 /media/{name} vfat rw 0 0\n".encode() for name in ("B\u00fccher", "a\u00a0b", "a\u2028b", "a\x85b")]
    table.write_bytes(b"".join([*others, b"/dev/sdc1 /media/\xfc vfat rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"]))
    assert cgroups.hierarchies(table) == [Path("/sys/fs/cgroup")]


def test_what_runs_in_a_machine_does_not_have_the_umask_of_its_caller(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").touch()
    before = os.umask(0o077)
    try:
        ended = subprocess.run(cgroups_at(tmp_path).inside(["sh", "-c", "umask"]), capture_output=True, text=True, check=True)
    finally:
        os.umask(before)
    assert ended.stdout.strip() in {"022", "0022"}


def test_a_host_that_cannot_freeze_processes_is_reported(tmp_path: Path) -> None:
    machine = cgroups_at(tmp_path / "cpu")
    machine.thaw()
    assert not machine.frozen
    with pytest.raises(HostError, match="this host cannot freeze processes"):
        machine.freeze()


def test_cgroups_that_a_machine_has_made_are_removed_when_its_power_is_cut(tmp_path: Path) -> None:
    machine = cgroups_at(tmp_path / "cpu")
    (tmp_path / "cpu" / "payload" / "kubepods" / "pod1").mkdir(parents=True)
    machine.clear()
    assert [*(tmp_path / "cpu").iterdir()] == []
    assert (tmp_path / "cpu").is_dir()


def test_a_machine_does_not_start_outside_of_its_cgroups(tmp_path: Path) -> None:
    machine = cgroups_at(tmp_path / "cpu", tmp_path / "memory")
    argv = machine.within(["touch", str(tmp_path / "started")])
    (tmp_path / "memory").rmdir()
    assert subprocess.run(argv, stderr=subprocess.DEVNULL, check=False).returncode == 1
    (tmp_path / "memory").mkdir()
    assert not (tmp_path / "started").exists()
    assert subprocess.run(argv, check=False).returncode == 0
    assert (tmp_path / "started").exists()


def test_a_process_that_enters_cgroups_while_they_are_removed_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, late = cgroups_at(tmp_path / "machines" / "cpu"), tmp_path / "machines" / "cpu" / "process"
    kills = list[int]()

    def kill(**_: float) -> None:
        kills.append(1)
        if len(kills) == 1:
            late.touch()
        else:
            late.unlink()

    monkeypatch.setattr(machine, "kill", kill)
    machine.remove()
    assert (len(kills), [*tmp_path.iterdir()]) == (2, [])


@pytest.mark.parametrize("inner", ["", "payload", "payload/init.scope"])
def test_commands_enter_the_innermost_cgroup_that_may_have_processes(tmp_path: Path, inner: str) -> None:
    machine = cgroups_at(tmp_path / "unified", tmp_path / "cpu")
    (tmp_path / "unified" / inner).mkdir(parents=True, exist_ok=True)
    ran = subprocess.run(machine.inside(["echo", "ran", "--"]), capture_output=True, text=True, check=True)
    assert ran.stdout == "ran --\n"
    entered = {path.parent.relative_to(tmp_path) for path in tmp_path.rglob("cgroup.procs")}
    assert entered == {Path("unified") / inner, Path("cpu")}


@pytest.mark.parametrize(
    ("booted", "controllers", "owned"),
    [(True, True, True), (False, True, False), (True, False, False)],
    ids=["systemd and version 2", "version 2 alone", "systemd and version 1"],
)
def test_systemd_owns_version_2_where_it_is_pid_1(tmp_path: Path, *, booted: bool, controllers: bool, owned: bool) -> None:
    if booted:
        (tmp_path / "system").mkdir()
    if controllers:
        (tmp_path / "cgroup.controllers").touch()
    assert scopes.is_owner(mount=tmp_path, booted=tmp_path / "system") is owned


def test_a_machine_starts_in_a_delegated_scope(tmp_path: Path) -> None:
    machine = cgroups_at(scope=scope_at(tmp_path))
    argv = machine.within(["systemd-nspawn", "-b"])
    assert argv[:2] == ["systemd-run", "--scope"]
    assert argv[argv.index("--") :] == ["--", "systemd-nspawn", "-b"]
    wanted = {"--unit=kubewright-group_one.scope", "--slice=kubewright.slice", "--property=Delegate=yes", "--property=TasksMax=infinity"}
    assert wanted <= set(argv)
    assert machine.directories == [tmp_path / "cgroup" / "kubewright.slice" / "kubewright-group_one.scope"]


def test_a_daemon_leaves_the_session_that_starts_it_where_systemd_is_pid_1(tmp_path: Path) -> None:
    assert scopes.apart("a daemon", booted=tmp_path / "system") == []
    words = scopes.apart("a daemon", booted=tmp_path)
    assert (words[:2], words[-2:]) == (["systemd-run", "--scope"], ["--description=a daemon", "--"])


def test_a_machine_in_a_scope_also_enters_hierarchies_of_version_1(tmp_path: Path) -> None:
    machine = cgroups_at(tmp_path / "net_cls", scope=scope_at(tmp_path))
    argv = machine.within(["systemd-nspawn"])
    entering = argv[argv.index("--") + 1 :]
    assert (entering[0], entering[-3:]) == ("/bin/sh", [str(tmp_path / "net_cls"), "--", "systemd-nspawn"])
    assert len(machine.directories) == 2


def test_machines_in_scopes_are_known_from_before_their_start_until_their_removal(tmp_path: Path) -> None:
    machine = cgroups_at(scope=scope_at(tmp_path))
    known = {"mount": tmp_path / "cgroup", "known": tmp_path / "known"}
    assert scopes.names(**known) == set()
    machine.make()
    machine.make()
    assert scopes.names(**known) == {"group_one"}
    scope_at(tmp_path, "group_two").directory.mkdir(parents=True)
    assert scopes.names(**known) == {"group_one", "group_two"}
    machine.clear()
    assert scopes.names(**known) == {"group_one", "group_two"}
    machine.remove()
    machine.remove()
    assert scopes.names(**known) == {"group_two"}
    assert not (tmp_path / "known").exists()


def test_a_scope_is_gone_when_systemd_has_removed_its_file(tmp_path: Path) -> None:
    scope = scope_at(tmp_path)
    scope.wait_until_gone(within=0)
    file = tmp_path / "transient" / scope.unit
    file.touch()
    with pytest.raises(WaitTimeout, match=r"systemd to remove kubewright-group_one\.scope") as caught:
        scope.wait_until_gone(within=0)
    assert caught.value.remedy == "see `systemctl status kubewright-group_one.scope`"


def test_a_scope_is_frozen_below_its_own_cgroup_which_belongs_to_systemd(tmp_path: Path) -> None:
    machine = cgroups_at(scope=scope_at(tmp_path))
    (place,) = machine.directories
    (place / "payload").mkdir(parents=True)
    for file in (place / "cgroup.freeze", place / "payload" / "cgroup.freeze"):
        file.write_text("0")
    machine.freeze()
    assert [(place / name / "cgroup.freeze").read_text() for name in ("", "payload")] == ["0", "1"]
    assert machine.frozen
