"""An ordinary user needs no help: a home, state and cache of their own, and only the permissions of a new account.

If the tests run as root, the test becomes such a user. Files that this user may not read, such as a virtual
environment or a cache in another home, are copied first.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from local_kit import COMPONENTS, LIMIT, Ran, has_programs, leftovers, program

import other_user


@dataclass(frozen=True)
class Account:
    """A user with a home of their own, and the command as they call it."""

    home: Path
    uid: int
    argv: tuple[str, ...]
    environment: dict[str, str]

    def run(self, *words: str) -> Ran:
        return self.call(*self.argv, *words)

    def call(self, *argv: str) -> Ran:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
            cwd=self.home,
            env=self.environment,
            **other_user.becoming(self.uid),
        )
        return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    if not has_programs():
        pytest.skip("no component binaries: run `kubewright binaries fetch`, or set KUBEWRIGHT_BINARIES_DIR")
    uid = other_user.uid()
    base = Path(tempfile.mkdtemp(prefix="kw-user-"))
    base.chmod(0o755)
    home = base / "home"
    home.mkdir(mode=0o700)
    os.chown(home, uid, -1)
    made = Account(home, uid, (other_user.python(uid), "-m", "kubewright"), _environment(home, base, uid))
    try:
        yield made
    finally:
        made.run("down")
        shutil.rmtree(base, ignore_errors=True)  # what is still running after a failed test may be writing


def _environment(home: Path, base: Path, uid: int) -> dict[str, str]:
    programs = base / "programs"
    programs.mkdir()
    for name in (*COMPONENTS, "kubectl"):
        _give(Path(program(name)), programs / name)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "KUBEWRIGHT_BINARIES_DIR": str(programs), "LANG": "C.UTF-8"}
    return {**environment, "PYTHONPATH": other_user.library(uid, base / "library")}


def _give(path: Path, to: Path) -> None:
    """Make a large file readable elsewhere: with a hard link if possible, because it is the same file."""
    try:
        os.link(path.resolve(), to)
    except OSError:
        shutil.copy(path, to)


def test_up_kubectl_and_down_without_root(account: Account) -> None:
    state = account.home / ".local" / "state" / "kubewright" / "clusters"

    ran = account.run("up", "--nodes", "1", "--control-planes", "3", "-o", "json")

    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert (found["state"], found["nodes"]["total"], found["stateDirectory"]) == ("Ready", 4, str(state / "default"))
    pids = [row["pid"] for machine in found["machines"] for row in machine["components"]]
    assert len(pids) == 3 * len(COMPONENTS)
    assert {Path(f"/proc/{pid}").stat().st_uid for pid in [*pids, found["daemon"]["pid"]]} == {account.uid}
    assert set(_owners(account.home)) == {account.uid}

    kubectl = f"{account.environment['KUBEWRIGHT_BINARIES_DIR']}/kubectl"
    ran = account.call(kubectl, f"--kubeconfig={found['kubeconfig']}", "get", "nodes", "--no-headers")
    assert (ran.code, ran.out.count(" Ready ")) == (0, 4), ran.err
    ran = account.run("local", "env")
    assert f"export KUBECONFIG={found['kubeconfig']}" in ran.out, ran.err

    again = account.run("up", "-o", "json")
    assert (again.code, json.loads(again.out)["changes"]) == (0, [])
    ran = account.run("down")
    assert ran.code == 0, ran.err
    assert [left for machine in found["machines"] for left in leftovers(state / "default", machine["address"])] == []


def test_machines_need_root_and_the_error_says_so(account: Account) -> None:
    ran = account.run("preflight", "machines")
    assert (ran.code, "machines need root" in ran.out) == (4, True), ran.err
    ran = account.run("up", "--machines", "--name", "whole")
    assert (ran.code, "run the same command with sudo" in ran.err) == (4, True), ran.err
    assert list(account.home.rglob("whole")) == []


def _owners(directory: Path) -> Iterator[int]:
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a component has removed it
            yield path.lstat().st_uid


def test_a_directory_that_the_user_may_not_write_is_reported(account: Account) -> None:
    closed = account.home / "closed"
    closed.mkdir()
    os.chown(closed, account.uid, -1)
    closed.chmod(0o500)
    for place, said in ((closed, f"not allowed as user {account.uid}"), (Path("/root/kubewright"), "/root"), (Path("/proc/x"), "/proc")):
        ran = account.run("up", "--state-dir", str(place))
        assert (ran.code, said in ran.err, "hint: " in ran.err, "Traceback" in ran.err) == (1, True, True, False), ran.err


def test_an_unknown_home_directory_is_reported(account: Account) -> None:
    lost = {name: value for name, value in account.environment.items() if name != "HOME"} | {"HOME": ""}
    ran = Account(account.home, account.uid, account.argv, lost).run("local", "list")
    assert ran.code in {0, 2}, ran.err
    assert "Traceback" not in ran.err
