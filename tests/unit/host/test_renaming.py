"""Directories that are renamed or written by a program: on a machine, in a plan, and after a run that was killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path, PurePosixPath

import pytest

from kubewright.apis.machine import Layout
from kubewright.base.change import Action
from kubewright.base.errors import HostError
from kubewright.host.desired import Generated
from kubewright.host.filesystem.files import Files
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.host.states import Kind


@pytest.fixture
def host(tmp_path):
    made = RealHost(layout=Layout.below(PurePosixPath(tmp_path)), files=Files(durable=False), environment={})
    member = Path(made.layout.etcd_data) / "member"
    member.mkdir(parents=True)
    (member / "db").write_bytes(b"data")
    return made


def _generated(host, script):
    return Generated(path=host.layout.etcd_data / "new", arguments=lambda place: [sys.executable, "-c", script, str(place)], within=60)


MAKE = "import sys, os; os.makedirs(sys.argv[1] + '/member')"


def test_a_directory_is_renamed_once(host):
    member, aside = host.layout.etcd_data / "member", host.layout.etcd_data / "member.old"
    changes = [host.move(member, aside) for _ in range(2)]
    assert [(one.action, one.target, one.reason) for one in changes] == [
        (Action.UPDATE, f"directory {member}", f"renamed to {aside}"),
        (Action.NONE, f"directory {member}", f"renamed to {aside}"),
    ]
    assert (host.read(aside / "db"), host.state(member)) == (b"data", None)


def test_a_plan_renames_nothing(host):
    member, aside = host.layout.etcd_data / "member", host.layout.etcd_data / "member.old"
    plan = OverlayHost(host)
    changes = [plan.move(member, aside), plan.move(member, aside)]
    assert [one.action for one in changes] == [Action.UPDATE, Action.NONE]
    assert (plan.state(member), plan.state(aside).kind) == (None, Kind.DIRECTORY)
    assert host.read(member / "db") == b"data"


@pytest.mark.parametrize(("name", "other", "why"), [("member", "member", "both exist"), ("none", "nothing", "neither exists")])
def test_renaming_replaces_and_creates_nothing(host, name, other, why):
    for one in (host, OverlayHost(host)):
        with pytest.raises(HostError, match="cannot be renamed") as caught:
            one.move(host.layout.etcd_data / name, host.layout.etcd_data / other)
        assert caught.value.detail == why
    assert host.read(host.layout.etcd_data / "member/db") == b"data"


def test_only_directories_of_the_machine_are_renamed(host, tmp_path):
    with pytest.raises(HostError, match="not ours"):
        host.move(host.layout.etcd_data / "member", PurePosixPath(tmp_path) / "elsewhere")


def test_a_program_creates_a_complete_directory_or_none(host):
    left = Path(host.layout.etcd_data) / "new.partial-1"
    left.mkdir()
    (left / "half").write_bytes(b"of a killed run")
    with pytest.raises(HostError, match="failed") as caught:
        host.ensure(_generated(host, "import sys; sys.exit('no space')"))
    assert caught.value.detail == "exit code 1: no space"
    assert (host.state(PurePosixPath(left)), host.state(host.layout.etcd_data / "new")) == (None, None)
    actions = [host.ensure(_generated(host, MAKE)).action for _ in range(2)]
    assert (actions, host.entries(host.layout.etcd_data / "new")) == (
        [Action.CREATE, Action.NONE],
        [host.layout.etcd_data / "new/member"],
    )


SLOWLY = """
import os, sys, time
for _ in range(50):
    os.makedirs(sys.argv[1], exist_ok=True)
    with open(sys.argv[1] + '/written', 'a') as file:
        print(os.getpid(), file=file)
    time.sleep(0.02)
"""
RUN = """
import sys
from pathlib import Path, PurePosixPath
from kubewright.apis.machine import Layout
from kubewright.host.desired import Generated
from kubewright.host.real import RealHost

arguments = lambda place: [sys.executable, "-c", sys.argv[2], str(place)]
host = RealHost(layout=Layout.below(PurePosixPath(sys.argv[1])), environment={})
host.ensure(Generated(path=host.layout.etcd_data / "new", arguments=arguments, within=60))
"""


def test_a_program_of_a_killed_run_that_still_writes_does_not_disturb_that_of_the_next_run(host, tmp_path):
    data, place = Path(host.layout.etcd_data), host.layout.etcd_data / "new"
    earlier = subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path), SLOWLY])
    while not list(data.glob("new*/written")):
        assert earlier.poll() is None
        time.sleep(0.01)
    earlier.kill()
    earlier.wait()
    host.ensure(_generated(host, SLOWLY))
    written = host.read(place / "written").split()
    assert (len(written), len(set(written))) == (50, 1)


def test_a_plan_runs_no_program(host):
    plan = OverlayHost(host)
    change = plan.ensure(_generated(host, "raise SystemExit(1)"))
    assert (change.action, change.reason) == (Action.CREATE, f"written by {sys.executable}")
    assert (plan.state(host.layout.etcd_data / "new").kind, host.state(host.layout.etcd_data / "new")) == (Kind.DIRECTORY, None)
