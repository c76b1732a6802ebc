"""A new operation: what the engine gives to any row."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path, PurePosixPath

import greeting_operation
import pytest
from greeting_operation import GREET, TABLE
from init_kit import Box, names

from kubewright.base.errors import ConfigurationChanged, HostError, Locked
from kubewright.base.records import replace
from kubewright.cli.handlers import operations
from kubewright.cli.handlers.completion import SHELLS
from kubewright.cli.main import main
from kubewright.host.locks import Lock
from kubewright.kube.recording import RecordingKube
from kubewright.kube.resources import CONFIG_MAP
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.engine import run
from kubewright.lifecycle.machine import LOCK
from kubewright.lifecycle.machine_record import load
from kubewright.workflow.phases import Phase, Phases
from operation_kit import stand_in_machine

TARGETS = ["file greeting", "configmap default/greeting"]


@pytest.fixture
def greet(tmp_path):
    box, cluster = Box(tmp_path / "machine"), RecordingKube()

    def greet(text="hello", *, mode=Mode.APPLY, only=(), operation=GREET, **environment: str):
        whole = stand_in_machine(box.whole(environment={**box.whole().environment, **environment}), client=lambda *_: cluster)
        return run(operation, (text, only, False), whole, reporter=box.reporter, mode=mode)

    greet.box, greet.cluster = box, cluster
    return greet


def found(greet):
    path = Path(greet.box.layout.kubernetes) / "greeting"
    return path.read_text() if path.exists() else None, [action.verb for action in greet.cluster.writes]


def test_an_operation_is_done_once_and_recorded(greet):
    assert [target.rpartition("/")[2] for target in names(greet().changes)] == ["greeting", "greeting"]
    assert found(greet) == ("hello", ["create"])
    assert load(greet.box.machine(greet.box.layout)).finished
    assert greet().changes == ()


def test_the_plan_of_an_operation_writes_nothing(greet):
    changes = greet(mode=Mode.PLAN).plan.as_list()
    assert [change["action"] for change in changes] == ["create", "create"]
    assert found(greet) == (None, [])
    greet()
    assert not greet(mode=Mode.PLAN).plan


def test_the_dry_run_of_an_operation_writes_into_a_directory(greet, tmp_path):
    done = greet(mode=Mode.NARRATE, GREET_DRYRUN_DIR=str(tmp_path / "dry"))
    assert found(greet) == (None, [])
    assert (tmp_path / "dry" / "greeting").read_text() == "hello"
    assert len(done.written) == 1
    told = greet.box.lines("dryrun")
    assert told[0].startswith("Would write file")
    assert told[1] == 'Would perform action CREATE on resource "configmaps" in API group "core/v1"'


def test_only_one_operation_runs_on_a_machine(greet):
    directory = greet.box.whole().lock_directory(greet.box.machine(greet.box.layout))
    Path(directory).mkdir(parents=True, exist_ok=True)
    with Lock(PurePosixPath(directory / LOCK), doing="something else"), pytest.raises(Locked):
        greet()
    assert found(greet) == (None, [])


@pytest.mark.parametrize(
    "environment", [{"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "/proc/none"}], ids=["no home", "a home that cannot be used"]
)
def test_a_user_without_a_directory_of_their_own_needs_no_lock(greet, environment):
    made = greet.box.machine

    def of_a_user(layout):
        host = made(layout)
        host.facts.user = 1000
        return host

    greet.box.machine = of_a_user
    greet(**environment)
    assert found(greet) == ("hello", ["create"])


def test_another_configuration_is_refused(greet):
    greet()
    authority = Path(greet.box.layout.certificate("ca"))  # without any trace of a cluster the machine counts as reset by another tool
    authority.parent.mkdir(parents=True)
    authority.write_text("")
    with pytest.raises(ConfigurationChanged) as refused:
        greet("good day")
    assert "good day" in refused.value.detail
    assert found(greet) == ("hello", ["create"])


def test_a_killed_operation_continues(greet):
    def dies(_):
        raise HostError("killed")

    broken = replace(GREET, phases=Phases(GREET.phases.roots[0], Phase("object", "Publish the greeting", run=dies)))
    with pytest.raises(HostError):
        greet(operation=broken)
    assert json.loads(Path(greet.box.layout.machine_record).read_text())["finished"] is False
    assert len(greet().changes) == 1
    assert found(greet) == ("hello", ["create"])
    assert greet.cluster.get(CONFIG_MAP, "greeting", "default")["data"] == {"text": "hello"}


def test_a_single_phase_leaves_no_record(greet):
    greet(only=("file",))
    assert found(greet) == ("hello", [])
    assert load(greet.box.machine(greet.box.layout)) is None


@pytest.fixture
def command(greet, monkeypatch, capsys):
    """The command line, with the row of the operation in its table."""

    def command(*words: str) -> tuple[int, str]:
        code = main(["greet", *words], table=TABLE)
        return code, capsys.readouterr().out

    machine = stand_in_machine(greet.box.whole(), client=lambda *_: greet.cluster)
    monkeypatch.setattr(operations, "this_machine", lambda **_: machine)
    monkeypatch.setattr("sys.argv", ["kubewright"])
    return command


def test_an_operation_has_forty_lines():
    source = inspect.getsource(greeting_operation).partition("@dataclass")[2]
    assert len([line for line in source.splitlines() if line.strip()]) <= 40


def test_the_row_of_an_operation_defines_its_command(greet, command):
    code, out = command("--text", "good day", "-o", "json")
    assert (code, [change["action"] for change in json.loads(out)]) == (0, ["create", "create"])
    assert found(greet) == ("good day", ["create"])
    assert command("--text", "good day") == (0, "")


def test_the_command_shows_a_plan_as_text_and_as_json(greet, command):
    code, out = command("--plan", "-o", "json")
    assert (code, [change["action"] for change in json.loads(out)]) == (0, ["create", "create"])
    assert command("--plan")[1].endswith("plan: 2 to create\n")
    assert found(greet) == (None, [])


def test_the_command_has_the_dry_run_of_kubeadm(greet, command):
    code, out = command("--dry-run")
    assert code == 0
    assert out.startswith("[dryrun] Would write file")
    assert found(greet) == (None, [])


def test_each_phase_of_an_operation_is_a_command(greet, command):
    assert command("phase", "file", "--text", "hi") == (0, "")
    assert found(greet) == ("hi", [])
    assert command("phase", "nonsense")[0] == 2


def test_the_help_of_an_operation_shows_phases_and_flags(command, capsys):
    out = command("--help")[1]
    assert "Phases, in the order in which greet runs them:\n  file    Write the greeting\n  object  Publish the greeting\n" in out
    assert re.search(r"--text string +what to say \(default hello\)\n", out)
    assert command("phase", "object", "--help")[1].startswith("Publish the greeting.\n\nUsage:\n  kubewright greet phase object [flags]\n")
    assert main(["help"], table=TABLE) == 0
    assert re.search(r"greet +Leave a greeting\n", capsys.readouterr().out)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_of_an_operation_is_completed(shell, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["kubewright"])
    assert main(["completion", shell], table=TABLE) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "greet" in line]
    assert any("object" in line for line in lines)
    assert any("text" in line for line in lines)
