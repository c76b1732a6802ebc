"""`agent install` and `agent leave` on a machine whose writes stay in memory, applied and as plans."""

from __future__ import annotations

import json
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from fake_controllers import START

from kubewright.agent import status_file
from kubewright.agent.certificates.manager import CertificateView
from kubewright.agent.service import install, leave
from kubewright.agent.service.install import INSTALL, InstallOptions
from kubewright.agent.service.leave import LEAVE, LeaveOptions
from kubewright.agent.view import NodePhase, NodeView
from kubewright.apis.machine import Layout
from kubewright.base.clock import SystemClock
from kubewright.base.errors import CheckFailed, Forbidden, HostError, KubewrightError, Unreachable
from kubewright.base.events import RecordingReporter, Warned
from kubewright.base.randomness import SystemRandom
from kubewright.cli.handlers import machine as this_machine
from kubewright.cli.handlers.agent import requests as agent_requests
from kubewright.cli.main import main
from kubewright.cli.parsing import parser
from kubewright.host.desired import Service
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.host.states import ServiceState
from kubewright.kube.core import Call, Object
from kubewright.kube.recording import RecordingKube
from kubewright.lifecycle import engine
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.machine import TargetMachine
from kubewright.lifecycle.operation import Result
from operation_kit import stand_in_machine

COMMAND = ("/k", "agent", "run")
RUNS, STOPPED = ServiceState(running=True), ServiceState(running=False)


class Base(RealHost):
    """This machine with the services of a test."""

    known: dict[str, ServiceState]

    def service(self, name: str, /) -> ServiceState | None:
        return self.known.get(name)


class Memory(OverlayHost):
    """Writes nothing; records what is done to services."""

    done: list[str]

    def ensure(self, desired: Any, /) -> Any:
        if isinstance(desired, Service):
            self.done.append("start" if desired.running else "stop")
        return super().ensure(desired)


class Box:
    """A machine below a directory, with an agent's files, and a cluster in memory."""

    def __init__(self, place: Path, **services: ServiceState) -> None:
        self.place, self.services = place, {name.replace("_", "-"): state for name, state in services.items()}
        self.api = RecordingKube(stand_ins=[stored("Lease", "kube-node-lease"), stored("CSINode"), stored("Node")])
        self.done: list[str] = []
        self.reporter = RecordingReporter()
        self.host = self.at(Layout.below(PurePosixPath(place)))

    def at(self, layout: Layout) -> OverlayHost:
        base = Base(layout=layout, environment={})
        base.known = self.services
        self.host = Memory(base)
        self.host.done = self.done
        return self.host

    def run(self, operation: Any, options: Any, *, mode: Mode = Mode.APPLY, again: bool = False) -> Result[Any]:
        """Run an operation; with `again` on the machine as the last run has left it."""
        last = self.host
        made = TargetMachine(at=(lambda _: last) if again else self.at, clock=SystemClock(), random=SystemRandom())
        lock = PurePosixPath(self.place)
        machine = stand_in_machine(made, client=lambda *_: self.api)
        object.__setattr__(machine, "lock_directory", lambda _: lock)
        return engine.run(operation, options, machine, reporter=self.reporter, mode=mode)

    def agent_files(self, *, kubeconfig: str = "", pid: int = 2**22 + 1, phase: NodePhase = NodePhase.STOPPED) -> None:
        pki = self.place / "pki"
        pki.mkdir()
        for name in (
            "kubelet-client-2026.pem",
            "kubelet-client.key.tmp",
            "kubelet-server-2026.pem",
            "kubelet.crt",
            "kubelet.key",
            "mine.pem",
        ):
            (pki / name).write_text("x")
        (pki / "kubelet-client-current.pem").symlink_to(pki / "kubelet-client-2026.pem")
        (self.place / "kubelet.conf").write_text(kubeconfig or KUBECONFIG)
        view = NodeView(name="n", phase=phase, ready=False, certificate=CertificateView(), pods=0, reached={})
        paths = {"kubeconfig": PurePosixPath(self.place / "kubelet.conf"), "pki": PurePosixPath(pki)}
        content = status_file.record(view, pid=pid, started=START, **paths)
        Path(status_file.path_of(PurePosixPath(self.place))).write_text(json.dumps(content))

    def leave(self, *, admin: bool = True, mode: Mode = Mode.APPLY, **options: Any) -> Result[Any]:
        (self.place / "admin.conf").write_text(KUBECONFIG)
        kubeconfig = str(self.place / "admin.conf") if admin else ""
        return self.run(LEAVE, LeaveOptions(**{"root_dir": str(self.place), "kubeconfig": kubeconfig, **options}), mode=mode)

    @property
    def files(self) -> set[str]:
        """The agent's files that still exist."""
        paths = [path for path in self.place.rglob("*") if path.name not in {"admin.conf", "machine.lock"} and not path.is_dir()]
        return {path.name for path in paths if self.host.state(PurePosixPath(path)) is not None}

    @property
    def warnings(self) -> list[str]:
        return [event.text for event in self.reporter.events if isinstance(event, Warned)]


KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://10.0.0.1:6443"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
FILES = {
    "kubelet-client-2026.pem", "kubelet-client.key.tmp", "kubelet-server-2026.pem", "kubelet.crt", "kubelet.key", "mine.pem",
    "kubelet-client-current.pem", "kubelet.conf", status_file.NAME,
}  # fmt: skip


def stored(kind: str, namespace: str | None = None) -> Object:
    api_version = {"Lease": "coordination.k8s.io/v1", "CSINode": "storage.k8s.io/v1", "Node": "v1"}[kind]
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "n", "uid": f"uid-{kind}", **place}}


def deleted(api: RecordingKube) -> list[tuple[str, object]]:
    return [(action.call.resource.kind, action.call.body["preconditions"]) for action in api.writes]


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path, kubelet=STOPPED, kubewright_agent=RUNS)


def options(box: Box, *more: str) -> InstallOptions:
    parsed = parser.parse(["agent", "install", f"--kubeconfig={box.place / 'admin.conf'}"], program="kubewright")
    (box.place / "admin.conf").write_text(KUBECONFIG)
    made = agent_requests.install_request(parsed, only=())
    return InstallOptions(command=[*COMMAND, *more], options=made.options, notes=("a note",))


def test_the_unit_quotes_every_word_of_the_command():
    text = install.unit(["/opt/k w/kubewright", "agent", "run", "--node-labels=a=50%", "--config=/a b", "--x=$HOME"])
    assert 'ExecStart="/opt/k w/kubewright" agent run --node-labels=a=50%% "--config=/a b" --x=$$HOME\n' in text
    for line in ("Type=notify", "ExecReload=/bin/kill -HUP $MAINPID", "Restart=always", "WatchdogSec=60", "LimitCORE=0"):
        assert f"\n{line}\n" in text
    with pytest.raises(HostError, match="no unit can start"):
        install.unit(['/a"b'])


def test_installing_writes_the_unit_and_starts_it(tmp_path: Path):
    box = Box(tmp_path, kubelet=STOPPED)
    [change] = box.run(INSTALL, options(box)).changes
    assert (change.action.value, change.target, change.reason) == ("update", "service kubewright-agent", "reload, enable, start")
    assert b"ExecStart=/k agent run\n" in (box.host.read(install.UNIT) or b"")
    assert (box.done, box.warnings) == (["start"], ["a note"])


def test_installing_again_changes_nothing_and_other_flags_restart_the_service(tmp_path: Path):
    box = Box(tmp_path)
    box.run(INSTALL, options(box, "--hostname-override=taken"))
    assert box.run(INSTALL, options(box, "--hostname-override=taken"), again=True).changes == ()
    [change] = box.run(INSTALL, options(box, "--hostname-override=other"), again=True).changes
    assert (change.action.value, change.reason) == ("update", "reload, restart")
    assert b"--hostname-override=other" in (box.host.read(install.UNIT) or b"")


def test_a_plan_of_an_installation_shows_the_unit_and_writes_nothing(tmp_path: Path):
    box = Box(tmp_path)
    plan = box.run(INSTALL, options(box), mode=Mode.PLAN).plan
    assert [(change.action.value, change.target) for change in plan.changes] == [("update", "service kubewright-agent")]
    assert "+ExecStart=/k agent run" in plan.text()
    assert (box.done, box.host.read(install.UNIT)) == ([], None)


@pytest.mark.parametrize("mode", [Mode.APPLY, Mode.PLAN])
def test_no_agent_is_installed_while_a_kubelet_runs(tmp_path: Path, mode: Mode):
    box = Box(tmp_path, kubelet=RUNS)
    with pytest.raises(CheckFailed, match="a kubelet runs"):
        box.run(INSTALL, options(box), mode=mode)
    assert box.done == []


def test_an_agent_without_any_credentials_is_refused(tmp_path: Path, capsys: Any):
    places = [f"--root-dir={tmp_path}", f"--cert-dir={tmp_path / 'pki'}", "--healthz-port=0"]
    for command in ("run", "install"):  # nothing is installed that would exit repeatedly
        assert main(["agent", command, "--kubeconfig=/nope", *places]) == 3
        error = capsys.readouterr().err
        assert "the kubeconfig /nope does not exist" in error
        assert "hint: check --kubeconfig, or pass a file to join with: --bootstrap-kubeconfig\n" in error
        assert list(tmp_path.iterdir()) == []


def test_the_unit_has_the_flags_that_have_an_effect_with_absolute_paths(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    words = [
        "--kubeconfig=k.conf",
        "--node-labels=a=b,c=d",
        "--rotate-certificates",
        "--storage-driver-password=secret",
        "--cluster-dns=10.0.0.1",
    ]
    parsed = parser.parse(["agent", "install", *words], program="kubewright")
    assert agent_requests.given_words(parsed) == [f"--kubeconfig={tmp_path}/k.conf", "--node-labels=a=b,c=d", "--rotate-certificates=true"]


@pytest.mark.parametrize(
    ("called", "words"),
    [
        ("kubewright", ["PLACE/bin/kubewright"]),
        ("bin/kubewright", ["PLACE/bin/kubewright"]),
        ("PLACE/bin/kubewright", ["PLACE/bin/kubewright"]),
        ("/opt/k/kubewright/__main__.py", [sys.executable, "-m", "kubewright"]),
        ("another", [sys.executable, "-m", "kubewright"]),
    ],
    ids=["found on PATH", "below the working directory", "from the root", "a module", "a name of nothing"],
)
def test_the_unit_calls_the_program_that_was_called(monkeypatch, tmp_path: Path, called: str, words: list[str]):
    program = tmp_path / "bin" / "kubewright"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(sys, "argv", [called.replace("PLACE", str(tmp_path)), "agent", "install"])
    assert this_machine.program_words() == [word.replace("PLACE", str(tmp_path)) for word in words]


@pytest.mark.parametrize("admin", [False, True])
def test_leaving_deletes_the_objects_of_the_node_and_missing_ones_are_no_error(box: Box, admin):
    box.agent_files()
    box.api = RecordingKube(stand_ins=[stored("Lease", "kube-node-lease"), stored("Node")])
    result = box.leave(admin=admin)
    assert deleted(box.api) == [(kind, {"uid": f"uid-{kind}"}) for kind in ("Lease", *(["Node"] if admin else []))]
    assert [change.target for change in result.changes if "lease" in change.target] == ["lease kube-node-lease/n"]
    told = [] if admin else ["the Node n is still in the cluster: delete it with `kubectl delete node n`"]
    assert (result.failures, box.warnings) == ((), told)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, "/nope"),
        (Unreachable("nobody answers at https://10.0.0.1:6443"), "nobody answers"),
        (Forbidden("nodes is forbidden", code=403), "nodes is forbidden"),
    ],
    ids=["a kubeconfig that does not exist", "a cluster that cannot be reached", "one that may not read the Node"],
)
@pytest.mark.parametrize("mode", [Mode.APPLY, Mode.PLAN])
def test_leaving_with_an_unusable_kubeconfig_changes_nothing(box: Box, monkeypatch, error, said: str, mode: Mode):
    box.agent_files()
    if error is not None:
        monkeypatch.setattr(box.api, "get", lambda *_: (_ for _ in ()).throw(error))
    with pytest.raises(KubewrightError, match=said):
        box.leave(mode=mode, **({"kubeconfig": "/nope"} if error is None else {}))
    assert (box.done, box.files) == ([], FILES)


def test_leaving_deletes_only_the_node_that_it_read_before_the_service_ended(box: Box, monkeypatch):
    box.agent_files()
    monkeypatch.setattr(
        box.api, "send", lambda call: (box.done.append(f"{call.verb} {call.resource.kind}"), RecordingKube.send(box.api, call))[1]
    )
    result = box.leave()
    assert box.done == ["get Node", "stop", "get Lease", "delete Lease", "get CSINode", "delete CSINode", "delete Node"]
    assert deleted(box.api)[-1] == ("Node", {"uid": "uid-Node"})
    assert box.files == {"mine.pem"}
    assert [change.target for change in result.changes if change.target.startswith("node")] == ["node n"]


def test_a_plan_of_leaving_names_everything_and_removes_nothing(box: Box):
    box.agent_files(pid=1, phase=NodePhase.READY)  # the service runs
    plan = box.leave(mode=Mode.PLAN).plan
    targets = [change.target for change in plan.changes]
    assert [target for target in targets if not target.startswith(("file", "symbolic link"))] == [
        "service kubewright-agent", "lease kube-node-lease/n", "csinode n", "node n",
    ]  # fmt: skip
    assert {PurePosixPath(target).name for target in targets if target.startswith(("file", "symbolic link"))} == FILES - {"mine.pem"}
    assert (box.done, box.files, box.api.writes) == ([], FILES, [])


def test_leaving_is_refused_while_an_agent_runs_outside_of_the_service(tmp_path: Path):
    box = Box(tmp_path)
    box.agent_files(pid=1, phase=NodePhase.READY)
    for mode in (Mode.APPLY, Mode.PLAN):
        with pytest.raises(CheckFailed, match="an agent runs as process 1"):
            box.leave(mode=mode)
    assert (box.done, box.files) == ([], FILES)


def test_an_agent_with_a_damaged_kubeconfig_can_leave(box: Box):
    box.agent_files(kubeconfig="x")
    result = box.leave(admin=False)
    assert (box.done, box.files) == (["stop"], {"mine.pem"})
    with pytest.raises(HostError) as refused:
        result.require_complete()
    assert "the Node n is still in the cluster (" in (refused.value.detail or "")
    assert refused.value.remedy == "delete it with `kubectl delete node n`"


def test_refusals_of_the_cluster_at_the_end_are_reported(box: Box, monkeypatch):
    box.agent_files()

    def send(call: Call) -> Object:
        if (call.verb, call.resource.kind) == ("delete", "Node"):
            raise Forbidden("nodes is forbidden", code=403)
        return RecordingKube.send(box.api, call)

    monkeypatch.setattr(box.api, "send", send)
    result = box.leave()
    assert [str(error) for error in result.failures] == ["the Node n is still in the cluster (nodes is forbidden)"]
    assert ("lease kube-node-lease/n" in [change.target for change in result.changes], box.files) == (True, {"mine.pem"})


def test_one_phase_of_leaving_can_run_alone(box: Box):
    box.agent_files()
    result = box.leave(only=("files",))
    assert (box.done, box.files, box.api.writes) == ([], {"mine.pem"}, [])
    assert {change.action.value for change in result.changes} == {"delete"}
    assert leave.own_layout({"pki": "/p", "kubeconfig": "/k/kubelet.conf"}, PurePosixPath("/r")).kubelet == PurePosixPath("/r")
