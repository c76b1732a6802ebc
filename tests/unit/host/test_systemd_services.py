"""systemd through `systemctl`; units that are written, read again and restarted. No real systemd is used."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

import pytest

from busy import HANGS
from kubewright.apis.machine import Layout
from kubewright.base.change import Action
from kubewright.base.errors import HostError
from kubewright.host.desired import File, Service
from kubewright.host.filesystem.files import Files
from kubewright.host.overlay import OverlayHost
from kubewright.host.programs import systemd
from kubewright.host.programs.commands import Ended, RealCommands
from kubewright.host.programs.systemd import Systemd
from kubewright.host.real import RealHost
from kubewright.host.states import FileState, Kind, ServiceState


class Systemctl:
    """The calls of `systemctl`, and a unit's state, which changes accordingly."""

    def __init__(self, *, loaded="loaded", active="inactive", sub="dead", file="disabled", stale="no", restarts="0", refuses=None) -> None:
        self.unit = {"LoadState": loaded, "ActiveState": active, "SubState": sub, "UnitFileState": file, "NeedDaemonReload": stale}
        self.unit["NRestarts"] = restarts
        self.journal = []
        self.process = "0"
        self.refuses = refuses
        self.told = []

    def run(self, argv, /, *, within):
        assert within > 1
        if argv == ["journalctl", "--sync"]:
            return Ended(code=0)
        if argv[0] == "journalctl":
            assert argv[1:5] == ["--boot", "--quiet", "--no-pager", "--output=cat"]
            process = ["+", "_SYSTEMD_UNIT=kubelet.service", f"_PID={self.process}"] if self.process != "0" else []
            assert argv[6:] == ["_SYSTEMD_INVOCATION_ID=1a2b", "+", "INVOCATION_ID=1a2b", *process]
            return Ended(code=0, out="".join(f"{line}\n" for line in self.journal[-int(argv[5].removeprefix("--lines=")) :]))
        assert argv[0] == "systemctl"
        if argv[1:3] == ["show", "--property=InvocationID,ExecMainPID"]:
            return Ended(code=0, out=f"ExecMainPID={self.process}\nInvocationID={'1a2b' if self.journal else ''}\n")
        if argv[1] == "show":
            assert argv[2] == f"--property={','.join(self.unit)}"
            return Ended(code=0, out="".join(f"{name}={value}\n" for name, value in self.unit.items()))
        assert argv[1:3] == ["--no-ask-password", "--quiet"]
        self.told.append(" ".join(argv[3:]))
        if self.refuses is not None:
            return Ended(code=1, err=self.refuses + "\n")
        match argv[3]:
            case "start" | "restart":
                self.unit |= {"ActiveState": "active", "SubState": "running"}
            case "stop":
                self.unit |= {"ActiveState": "inactive", "SubState": "dead"}
            case "enable" | "disable":
                self.unit["UnitFileState"] = f"{argv[3]}d"
            case "daemon-reload":
                self.unit |= {"LoadState": "loaded", "NeedDaemonReload": "no"}
        return Ended(code=0)


@pytest.mark.parametrize(
    ("unit", "state"),
    [
        ({}, ServiceState(running=False, enabled=False)),
        ({"active": "active", "sub": "running", "file": "enabled"}, ServiceState(running=True, enabled=True)),
        ({"active": "activating", "sub": "start", "file": "static"}, ServiceState(running=True, enabled=True)),
        (
            {"active": "activating", "sub": "auto-restart", "file": "enabled", "restarts": "2"},
            ServiceState(running=False, enabled=True, failed=True, again=True, restarts=2),
        ),
        (
            {"active": "activating", "sub": "auto-restart-queued", "file": "enabled", "restarts": ""},
            ServiceState(running=False, enabled=True, failed=True, again=True),
        ),
        ({"active": "failed", "sub": "failed", "file": "masked"}, ServiceState(running=False, enabled=False, failed=True)),
        ({"active": "reloading", "sub": "reload", "file": "enabled-runtime", "stale": "yes"}, ServiceState(running=True, stale=True)),
        ({"loaded": "not-found", "file": ""}, None),
    ],
)
def test_the_state_of_a_unit_is_read(unit, state):
    assert Systemd(Systemctl(**unit)).state("kubelet") == state


def test_a_unit_waiting_for_its_next_start_is_restarted_at_once():
    waiting, stopped = Systemctl(active="activating", sub="auto-restart"), Systemctl()
    for one in (waiting, stopped):
        Systemd(one).start("kubelet")
    assert (waiting.told, stopped.told) == (["restart kubelet.service"], ["start kubelet.service"])


@pytest.mark.parametrize("process", ["0", "117"])
def test_the_last_lines_are_those_of_the_journal_since_the_latest_start(process):
    asked = Systemctl()
    assert Systemd(asked).last_lines("kubelet", count=2) == []
    asked.journal, asked.process = ["one", "two", "three"], process
    assert Systemd(asked).last_lines("kubelet", count=2) == ["two", "three"]


def test_an_unreadable_journal_is_no_error():
    class Nothing:
        def run(self, argv, /, *, within):
            raise HostError("journalctl cannot be run")

    assert Systemd(Nothing()).last_lines("kubelet", count=2) == []


def test_every_verb_is_one_of_systemctl():
    asked = Systemctl()
    found = Systemd(asked)
    for verb in (found.stop, found.restart, found.enable, found.disable):
        verb("kubelet")
    found.start("tmp.mount")
    found.reload()
    names = ["stop kubelet.service", "restart kubelet.service", "enable kubelet.service", "disable kubelet.service"]
    assert asked.told == [*names, "start tmp.mount", "daemon-reload"]


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("Failed to start kubelet.service: Unit kubelet.service is masked.", "systemctl unmask kubelet.service"),
        ("Failed to start kubelet.service: Interactive authentication required.", "as root"),
        ("Failed to start kubelet.service: Access denied", "as root"),
        ("Job for kubelet.service failed because the control process exited with error code.", "journalctl -u kubelet.service"),
    ],
)
def test_refusals_of_systemd_have_a_hint(said, remedy):
    with pytest.raises(HostError) as caught:
        Systemd(Systemctl(refuses=said)).start("kubelet")
    assert caught.value.what == "systemd cannot start the service kubelet"
    assert caught.value.detail == said
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("verb", "journal", "detail"),
    [
        ("start", [f"line {number}" for number in range(9)], "\n".join(f"line {number}" for number in range(3, 9))),
        ("restart", ["error: the kubeconfig /nope does not exist"], "error: the kubeconfig /nope does not exist"),
        ("start", [], "exit code 1"),
        ("stop", ["of another matter"], "exit code 1"),
    ],
)
def test_a_service_that_cannot_be_started_is_shown_with_its_last_lines(verb, journal, detail):
    asked = Systemctl(refuses="")
    asked.journal = journal
    with pytest.raises(HostError) as caught:
        getattr(Systemd(asked), verb)("kubelet")
    assert (caught.value.what, caught.value.detail) == (f"systemd cannot {verb} the service kubelet", detail)


def test_an_unreachable_service_manager_is_an_error():
    class Broken:
        def run(self, argv, /, *, within):
            return Ended(code=1, err="Failed to connect to bus: No such file or directory\n")

    with pytest.raises(HostError, match="Failed to connect to bus"):
        Systemd(Broken()).state("kubelet")
    with pytest.raises(HostError) as caught:
        Systemd(Broken()).reload()
    assert (caught.value.what, caught.value.remedy) == ("systemd cannot do daemon-reload", "see the messages of systemd in `journalctl -b`")


@pytest.mark.parametrize(("kind", "there"), [(Kind.DIRECTORY, True), (Kind.FILE, False), (None, False)])
def test_systemd_is_detected_if_it_is_the_init_system(kind, there):
    class Look:
        def state(self, path):
            assert path == PurePosixPath("/run/systemd/system")
            return None if kind is None else FileState(kind=kind, mode=0o755)

    assert (systemd.find(Look(), environment={}) is not None) is there


def test_the_start_of_a_boot_is_that_of_the_systemd_link(tmp_path):
    class Look:
        def state(self, path):
            assert path == PurePosixPath("/run/systemd/units/invocation:kubelet.service")
            return FileState(kind=Kind.LINK, mode=0o777, modified=12.5)

    assert Systemd(Systemctl(active="active"), files=Look()).state("kubelet").since == 12.5
    assert Systemd(Systemctl(active="active")).state("kubelet").since == 0.0


def service(root, content=b"[Service]\n", **more: object):
    names = (("kubelet.service", b"[Unit]\n"), ("kubelet.service.d/10-kubeadm.conf", content))
    units = tuple(File(path=PurePosixPath(root, name), content=text, mode=0o644) for name, text in names)
    return Service(name="kubelet", units=units, **more)


def machine(root, asked):
    return RealHost(layout=Layout.below(PurePosixPath(root)), files=Files(durable=False), environment={}, services=Systemd(asked))


def test_unit_files_are_written_read_again_and_the_service_is_started(tmp_path):
    asked = Systemctl(loaded="not-found", file="")
    host = machine(tmp_path, asked)
    plan = OverlayHost(host)
    planned = plan.ensure(service(tmp_path, enabled=True))
    assert (planned.reason, asked.told, list(tmp_path.iterdir())) == ("reload, enable, start", [], [])
    assert plan.ensure(service(tmp_path, enabled=True)).action is Action.NONE
    done = host.ensure(service(tmp_path, enabled=True))
    assert (done.action, done.reason, done.diff) == (Action.UPDATE, planned.reason, planned.diff)
    assert "+[Service]" in done.diff
    assert asked.told == ["daemon-reload", "enable kubelet.service", "start kubelet.service"]
    assert (tmp_path / "kubelet.service.d/10-kubeadm.conf").stat().st_mode & 0o777 == 0o644
    assert host.ensure(service(tmp_path, enabled=True)).action is Action.NONE
    assert len(asked.told) == 3


def test_a_changed_drop_in_restarts_a_running_service(tmp_path):
    asked = Systemctl(active="active", sub="running", file="enabled")
    host = machine(tmp_path, asked)
    host.ensure(service(tmp_path))
    asked.told.clear()
    assert host.ensure(service(tmp_path, b"[Service]\nA=b\n")).reason == "reload, restart"
    assert asked.told == ["daemon-reload", "restart kubelet.service"]


def test_a_run_killed_before_the_reload_is_completed(tmp_path):
    asked = Systemctl(active="active", sub="running", file="enabled")
    host = machine(tmp_path, asked)
    host.ensure(service(tmp_path))
    asked.told.clear()
    asked.unit["NeedDaemonReload"] = "yes"
    assert host.ensure(service(tmp_path)).reason == "reload, restart"
    assert host.ensure(service(tmp_path)).action is Action.NONE


def test_programs_are_run_with_their_arguments_and_nothing_to_read():
    commands = RealCommands(environment={"PATH": os.environ["PATH"], "LC_ALL": "de_DE.UTF-8"})
    ended = commands.run(["sh", "-c", "cat; echo $LC_ALL; echo oops >&2; exit 3"], within=HANGS)
    assert ended == Ended(code=3, out="C\n", err="oops\n")
    with pytest.raises(HostError, match=r"did not end within 0\.1 s"):
        commands.run(["sleep", str(HANGS)], within=0.1)
    with pytest.raises(HostError) as caught:
        commands.run(["kubewright-no-such-program"], within=HANGS)
    assert "on PATH" in caught.value.remedy


@pytest.mark.parametrize(("said", "stopping"), [("stopping\n", True), ("running\n", False), ("degraded\n", False), ("", False)])
def test_a_shutdown_is_detected_from_the_state_of_systemd(said, stopping, tmp_path):
    class Asked:
        def run(self, argv, /, *, within):
            assert argv == ["systemctl", "is-system-running"]
            if not said:
                raise HostError("no answer")
            return Ended(code=1, out=said)

    services = Systemd(Asked())
    assert services.is_stopping() is stopping
    host = RealHost(layout=Layout.below(PurePosixPath(tmp_path)), services=services, environment={})
    assert host.is_shutting_down() is stopping
    assert OverlayHost(host).is_shutting_down() is stopping
