"""An operation that did not exist: what the engine gives to any row."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest
from init_kit import Box, names

from kubewright.base.errors import ConfigurationChanged, HostError, Locked
from kubewright.base.records import dataclass, replace
from kubewright.host.desired import File
from kubewright.host.locks import Lock
from kubewright.kube.objects import DesiredObject, ensure_object
from kubewright.kube.recording import RecordingKube
from kubewright.kube.resources import CONFIG_MAP
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.machine import LOCK
from kubewright.lifecycle.machine_record import MachineRecord, load
from kubewright.lifecycle.operation import Bound, DryRun, Operation, Prepared, run
from kubewright.workflow.phases import Phase, Phases
from operation_kit import stand_in_machine


@dataclass(frozen=True, kw_only=True)
class Greeting:
    bound: Bound
    text: str


def file(ctx):
    yield ctx.bound.host.ensure(File(path=ctx.bound.host.layout.kubernetes / "greeting", content=ctx.text.encode()))


def publish(ctx):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "greeting", "namespace": "default"}, "data": {"text": ctx.text}}
    yield ensure_object(ctx.bound.connections.kube(None), DesiredObject(body))


def configure(request, machine):
    text, only = request
    record = MachineRecord(workflow="greet", configuration=f"text: {text}\n")
    return Prepared(configuration=text, host=machine.at(machine.layout), only=only, record=lambda: record)


GREET = Operation(
    name="greet",
    phases=Phases(Phase("file", "Write the greeting", run=file), Phase("object", "Publish the greeting", run=publish)),
    configure=configure,
    context=lambda _, text, bound: Greeting(bound=bound, text=text),
    dry_run=DryRun(variable="GREET_DRYRUN_DIR", prefix="greet-dryrun"),
)
TARGETS = ["file greeting", "configmap default/greeting"]


@pytest.fixture
def greet(tmp_path):
    box, cluster = Box(tmp_path / "machine"), RecordingKube()

    def greet(text="hello", *, mode=Mode.APPLY, only=(), operation=GREET, **environment: str):
        whole = stand_in_machine(box.whole(environment={**box.whole().environment, **environment}), client=lambda _: cluster)
        return run(operation, (text, only), whole, reporter=box.reporter, mode=mode)

    greet.box, greet.cluster = box, cluster
    return greet


def found(greet):
    path = Path(greet.box.layout.kubernetes) / "greeting"
    return path.read_text() if path.exists() else None, [action.verb for action in greet.cluster.writes]


def test_it_is_done_once_and_kept(greet):
    assert [target.rpartition("/")[2] for target in names(greet().changes)] == ["greeting", "greeting"]
    assert found(greet) == ("hello", ["create"])
    assert load(greet.box.machine(greet.box.layout)).finished
    assert greet().changes == ()


def test_its_plan_writes_nothing(greet):
    changes = greet(mode=Mode.PLAN).plan.as_list()
    assert [change["action"] for change in changes] == ["create", "create"]
    assert found(greet) == (None, [])
    greet()
    assert not greet(mode=Mode.PLAN).plan


def test_its_dry_run_tells_and_writes_into_a_directory(greet, tmp_path):
    done = greet(mode=Mode.NARRATE, GREET_DRYRUN_DIR=str(tmp_path / "dry"))
    assert found(greet) == (None, [])
    assert (tmp_path / "dry" / "greeting").read_text() == "hello"
    assert len(done.written) == 1
    told = greet.box.lines("dryrun")
    assert told[0].startswith("Would write file")
    assert told[1] == 'Would perform action CREATE on resource "configmaps" in API group "core/v1"'


def test_one_at_a_time_works_on_a_machine(greet):
    directory = greet.box.whole().lock_directory(greet.box.machine(greet.box.layout))
    Path(directory).mkdir(parents=True, exist_ok=True)
    with Lock(PurePosixPath(directory / LOCK), doing="something else"), pytest.raises(Locked):
        greet()
    assert found(greet) == (None, [])


def test_another_configuration_is_refused(greet):
    greet()
    authority = Path(greet.box.layout.certificate("ca"))  # without any trace of a cluster the machine counts as reset by another tool
    authority.parent.mkdir(parents=True)
    authority.write_text("")
    with pytest.raises(ConfigurationChanged) as refused:
        greet("good day")
    assert "good day" in refused.value.detail
    assert found(greet) == ("hello", ["create"])


def test_what_was_killed_goes_on(greet):
    def dies(_):
        raise HostError("killed")

    broken = replace(GREET, phases=Phases(GREET.phases.roots[0], Phase("object", "Publish the greeting", run=dies)))
    with pytest.raises(HostError):
        greet(operation=broken)
    assert json.loads(Path(greet.box.layout.machine_record).read_text())["finished"] is False
    assert len(greet().changes) == 1
    assert found(greet) == ("hello", ["create"])
    assert greet.cluster.get(CONFIG_MAP, "greeting", "default")["data"] == {"text": "hello"}


def test_a_phase_alone_leaves_no_record(greet):
    greet(only=("file",))
    assert found(greet) == ("hello", [])
    assert load(greet.box.machine(greet.box.layout)) is None
