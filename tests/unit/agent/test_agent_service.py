"""The agent as a service: its unit, its status file, what it shows of itself, and leaving."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path, PurePosixPath
from typing import Any

import fake_api
import pytest
from agent_running import agent_of, joined, running
from agent_values import facts
from fake_controllers import START, LoopClock

from kubewright.agent import installation, status_file, telemetry
from kubewright.agent.certificates.manager import CertificateView, WaitingRequest
from kubewright.agent.daemon import missing_taints
from kubewright.agent.status.snapshot import Snapshot, Unchanging
from kubewright.agent.view import NodePhase, NodeView
from kubewright.apis.machine import Layout
from kubewright.base.change import Action
from kubewright.base.errors import CheckFailed, Forbidden, HostError, Unreachable
from kubewright.base.records import replace
from kubewright.cli.handlers import agent as agent_command
from kubewright.cli.handlers import agent_service, machine
from kubewright.cli.main import main
from kubewright.cli.parsing import parser
from kubewright.host.desired import File, Service
from kubewright.host.files import Files
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.host.states import ServiceState
from kubewright.http.metrics import Registry
from kubewright.kube.core import Call, Object
from kubewright.kube.recording import RecordingKube

VIEW = NodeView(
    name="n",
    phase=NodePhase.JOINING,
    ready=False,
    certificate=CertificateView(
        waiting=WaitingRequest(name="node-csr-x", since=START, explanation="node-csr-x is Pending"), reason="waiting-approval", errors=3
    ),
    pods=0,
    reached={},
    trouble="no answer",
    failures={"images": "no runtime"},
)


class FakeHost:
    def __init__(self, **running: bool) -> None:
        self.running = running
        self.desired: list[Any] = []

    def service(self, name: str, /) -> ServiceState | None:
        return ServiceState(running=self.running[name]) if name in self.running else None

    def ensure(self, desired: Any, /) -> Any:
        self.desired.append(desired)
        return desired

    def remove_units(self, service: str, /, *, units: Any) -> Any:
        self.desired.append((service, tuple(units)))


def test_the_unit_runs_the_command_and_means_every_word_as_it_is():
    text = installation.unit(["/opt/k w/kubewright", "agent", "run", "--node-labels=a=50%", "--config=/a b", "--x=$HOME"])
    assert 'ExecStart="/opt/k w/kubewright" agent run --node-labels=a=50%% "--config=/a b" --x=$$HOME\n' in text
    for line in ("Type=notify", "ExecReload=/bin/kill -HUP $MAINPID", "Restart=always", "WatchdogSec=60", "LimitCORE=0"):
        assert f"\n{line}\n" in text
    with pytest.raises(HostError, match="no unit can start"):
        installation.unit(['/a"b'])


def test_an_agent_without_its_kubeconfig_and_with_nothing_to_join_with_ends_at_once(tmp_path: Path, capsys: Any):
    places = [f"--root-dir={tmp_path}", f"--cert-dir={tmp_path / 'pki'}", "--healthz-port=0"]
    for command in ("run", "install"):  # nothing is installed that would end again and again
        assert main(["agent", command, "--kubeconfig=/nope", *places]) == 3
        error = capsys.readouterr().err
        assert "the kubeconfig /nope does not exist" in error
        assert "hint: check --kubeconfig, or name a file to join with: --bootstrap-kubeconfig\n" in error
        assert list(tmp_path.iterdir()) == []


def test_installing_writes_the_unit_and_starts_it_but_not_beside_a_kubelet():
    host = FakeHost(kubelet=False)
    installation.install(host, ["/k", "agent", "run"])  # type: ignore[arg-type]
    [service] = host.desired
    assert isinstance(service, Service)
    assert (service.name, service.running, service.enabled) == ("kubewright-agent", True, True)
    [file] = service.units
    assert isinstance(file, File)
    assert (str(file.path), file.mode) == ("/etc/systemd/system/kubewright-agent.service", 0o644)
    host.running["kubelet"] = True
    with pytest.raises(CheckFailed, match="a kubelet runs"):
        installation.install(host, ["/k", "agent", "run"])  # type: ignore[arg-type]
    host.running["kubelet"] = False
    installation.install(host, ["/k", "agent", "run", "--hostname-override=other"])  # type: ignore[arg-type]
    assert b"--hostname-override=other" in host.desired[-1].units[0].content


def test_other_flags_replace_those_of_an_earlier_installation(tmp_path: Path):
    host = OverlayHost(RealHost(layout=Layout.below(PurePosixPath(tmp_path)), environment={}))
    installation.install(host, ["/k", "agent", "run", "--hostname-override=taken"])
    [change] = installation.install(host, ["/k", "agent", "run", "--hostname-override=other"])
    assert (change.action, change.reason) == (Action.UPDATE, "reload, restart")
    assert b"--hostname-override=other" in (host.read(installation.UNIT) or b"")
    assert not installation.install(host, ["/k", "agent", "run", "--hostname-override=other"])[0]


def test_the_words_of_the_unit_are_the_flags_that_have_an_effect_with_paths_from_the_root(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    words = [
        "--kubeconfig=k.conf",
        "--node-labels=a=b,c=d",
        "--rotate-certificates",
        "--storage-driver-password=secret",
        "--cluster-dns=10.0.0.1",
    ]
    parsed = parser.parse(["agent", "install", *words], program="kubewright")
    assert agent_service.given_words(parsed) == [f"--kubeconfig={tmp_path}/k.conf", "--node-labels=a=b,c=d", "--rotate-certificates=true"]


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
    assert machine.program_words() == [word.replace("PLACE", str(tmp_path)) for word in words]


def record(view: NodeView = VIEW, **changes: Any) -> dict[str, Any]:
    return status_file.record(view, pid=7, started=START, kubeconfig=PurePosixPath("/k.conf"), pki=PurePosixPath("/pki"), **changes)


def test_the_status_file_is_replaced_whole_and_only_when_something_changed(tmp_path: Path):
    root, current = PurePosixPath(tmp_path), [record()]
    kept = status_file.StatusFile(Files(), root, lambda: current[0])
    kept.write()
    path = Path(status_file.path_of(root))
    first = path.stat().st_ino
    kept.write()
    assert path.stat().st_ino == first
    current[0] = record(replace(VIEW, phase=NodePhase.READY))
    kept.write()
    assert path.stat().st_ino != first
    assert path.stat().st_mode & 0o777 == 0o644
    found = status_file.read(Files(), root)
    assert (found["phase"], found["failedSetters"]) == ("Ready", {"images": "no runtime"})
    assert found["waiting"] == {
        "request": "node-csr-x",
        "since": "2026-01-02T03:04:05Z",
        "approved": False,
        "explanation": "node-csr-x is Pending",
    }
    assert found["certificate"] == {"expires": None, "rotates": None, "reason": "waiting-approval", "trouble": ""}
    assert found["servingCertificate"] is None


@pytest.mark.looptime
async def test_what_its_node_says_against_being_ready_is_told_in_the_status(tmp_path: Path):
    api = fake_api.FakeAPI()
    source = Unchanging(Snapshot(addresses=("10.0.0.5",), runtime_errors=("container runtime is down",)))
    async with running(agent_of(api, store=joined(), source=source, facts=facts(needs_pod_range=False))) as agent:
        while agent.view().phase is not NodePhase.NOT_READY or agent.view().reported_at is None:
            await asyncio.sleep(0.01)
        found = record(agent.view())
    assert found["notReady"] == "container runtime is down"
    assert "not ready because     container runtime is down" in list(agent_command.told({**found, "running": True}))
    assert record()["notReady"] == ""


EVERYTHING = NodeView(
    name="n",
    phase=NodePhase.NOT_READY,
    ready=False,
    certificate=CertificateView(expires=START, rotates_at=START, waiting=WaitingRequest(name="node-csr-x", since=START)),
    pods=0,
    reached={},
    trouble="no answer",
    serving=CertificateView(
        expires=START,
        rotates_at=START,
        trouble="it was denied",
        waiting=WaitingRequest(name="csr-y", since=START, approved=True, explanation="csr-y is Approved"),
    ),
    reported_at=START,
    renewed_at=START,
    failures={"images": "no runtime", "a setter of a long name": "none"},
    not_ready="container runtime is down",
    clock="the clock of this machine is 2 h ahead",
)
SHOWN = """\
node                                 n
agent                                NotReady (pid PID, since 2026-01-02T03:04:05Z)
trouble                              no answer
not ready because                    container runtime is down
certificate expires                  2026-01-02T03:04:05Z
certificate rotates                  2026-01-02T03:04:05Z
waiting because                      certificate request node-csr-x (since 2026-01-02T03:04:05Z)
clock                                the clock of this machine is 2 h ahead
kubelet API                          port 10250 of 10.0.0.5 is taken
serving until                        2026-01-02T03:04:05Z
serving rotates                      2026-01-02T03:04:05Z
serving trouble                      it was denied
serving waits because                csr-y is Approved (since 2026-01-02T03:04:05Z)
status reported                      2026-01-02T03:04:05Z
lease renewed                        2026-01-02T03:04:05Z
cannot tell images                   no runtime
cannot tell a setter of a long name  none
taints not on the Node               kubewright.dev/no-pods:NoSchedule, a=b:NoExecute
"""
READY = """\
node                    n
agent                   Ready (pid PID, since 2026-01-02T03:04:05Z)
taints not on the Node  kubewright.dev/no-pods:NoSchedule
"""
ENDED = """\
node                  n
agent                 not running; it was Joining (pid PID, since 2026-01-02T03:04:05Z)
trouble               no answer
waiting because       node-csr-x is Pending (since 2026-01-02T03:04:05Z)
cannot tell images    no runtime
"""
TAKEN = {"port": 10250, "trouble": "port 10250 of 10.0.0.5 is taken", "certificate": ""}
NO_PODS = "kubewright.dev/no-pods:NoSchedule"
FINE = NodeView(name="n", phase=NodePhase.READY, ready=True, certificate=CertificateView(), pods=0, reached={})


@pytest.mark.parametrize(
    ("view", "more", "pid", "code", "shown"),
    [
        (EVERYTHING, {"taints": (NO_PODS, "a=b:NoExecute"), "kubelet_api": TAKEN}, os.getpid(), 1, SHOWN),
        (FINE, {"taints": (NO_PODS,)}, os.getpid(), 0, READY),
        (VIEW, {}, 2**22 + 1, 1, ENDED),
    ],
    ids=["all there may be", "ready", "ended"],
)
def test_the_status_is_shown_a_line_for_each_thing(tmp_path, capsys, monkeypatch, view, more, pid, code, shown):
    content = status_file.record(view, pid=pid, started=START, kubeconfig=PurePosixPath("/k.conf"), pki=PurePosixPath("/pki"), **more)
    Path(status_file.path_of(PurePosixPath(tmp_path))).write_text(json.dumps(content))
    monkeypatch.setattr(sys, "argv", ["kubewright"])
    assert main(["agent", "status", "--root-dir", str(tmp_path)]) == code
    assert capsys.readouterr().out == shown.replace("PID", str(pid))


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (None, 1, "no agent has run here: FILE does not exist"),
        (b"{", 3, "FILE is not JSON"),
        (b"[]", 3, "FILE is no AgentStatus of this version"),
        (b'{"kind": "Other"}', 3, "FILE is no AgentStatus of this version"),
        (b'{"apiVersion": "agent.kubewright.dev/v1alpha1", "kind": "AgentStatus"}', 3, "FILE is no AgentStatus of this version"),
    ],
)
def test_a_status_that_is_not_there_or_no_status_is_told_with_its_own_exit_code(tmp_path, capsys, monkeypatch, content, code, said):
    path = Path(status_file.path_of(PurePosixPath(tmp_path)))
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(sys, "argv", ["kubewright"])
    assert main(["agent", "status", "--root-dir", str(tmp_path)]) == code
    out, err = capsys.readouterr()
    assert (out, said.replace("FILE", str(path)) in err) == ("", True)


def test_metrics_show_the_agent_by_the_kubelets_names():
    registry, view = Registry(), [VIEW]
    telemetry.follow(registry, lambda: view[0], clock=LoopClock())
    text = registry.read().body.decode()
    for line in (
        "kubelet_certificate_manager_client_ttl_seconds +Inf",
        "kubelet_certificate_manager_client_expiration_renew_errors 3.0",
        "kubewright_agent_ready 0.0",
        "kubewright_agent_waiting_for_certificate 1.0",
        'kubewright_agent_certificate_waits{certificate="client",reason="waiting-approval"} 1.0',
        'kubewright_agent_certificate_waits{certificate="server",reason="denied"} 0.0',
        "kubelet_certificate_manager_server_ttl_seconds +Inf",
        "kubelet_server_expiration_renew_errors 0.0",
        'kubewright_agent_phase{phase="Joining"} 1.0',
        'kubewright_agent_phase{phase="Ready"} 0.0',
        'kubewright_agent_setter_failed{setter="images"} 1.0',
        "kubewright_agent_status_age_seconds +Inf",
        "kubewright_agent_lease_age_seconds +Inf",
    ):
        assert f"\n{line}\n" in text
    view[0] = replace(
        VIEW,
        certificate=CertificateView(expires=START),
        serving=CertificateView(expires=START, reason="denied:No", errors=2),
        reported_at=START,
    )
    text = registry.read().body.decode()
    for line in (
        "kubelet_certificate_manager_client_ttl_seconds 0.0",
        "kubelet_certificate_manager_server_ttl_seconds 0.0",
        "kubelet_server_expiration_renew_errors 2.0",
        'kubewright_agent_certificate_waits{certificate="server",reason="denied"} 1.0',
    ):
        assert f"\n{line}\n" in text


def stored(kind: str, namespace: str | None = None) -> Object:
    api_version = {"Lease": "coordination.k8s.io/v1", "CSINode": "storage.k8s.io/v1", "Node": "v1"}[kind]
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "n", "uid": f"uid-{kind}", **place}}


def deleted(api: RecordingKube) -> list[tuple[str, object]]:
    return [(action.call.resource.kind, action.call.body["preconditions"]) for action in api.writes]


@pytest.mark.parametrize("node", [False, True])
def test_leaving_deletes_what_the_node_has_and_what_is_gone_is_no_error(node):
    api = RecordingKube(stand_ins=[stored("Lease", "kube-node-lease"), stored("Node")])
    changes = list(installation.remove_objects(api, "n", node=node))
    assert deleted(api) == [(kind, {"uid": f"uid-{kind}"}) for kind in ("Lease", *(["Node"] if node else []))]
    assert [change.action for change in changes] == [Action.DELETE, Action.NONE, Action.DELETE][: 2 + node]
    assert changes[0].target == "lease kube-node-lease/n"


class Leaving:
    """A machine with what an agent has left, and what `agent leave` does, in order."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self.done = place, []
        for name in ("kubelet.conf", "pki/kubelet-client-current.pem"):
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text("x")
        view = replace(VIEW, phase=NodePhase.STOPPED)
        paths = {"kubeconfig": PurePosixPath(place / "kubelet.conf"), "pki": PurePosixPath(place / "pki")}
        content = status_file.record(view, pid=7, started=START, **paths)
        Path(status_file.path_of(PurePosixPath(place))).write_text(json.dumps(content))
        monkeypatch.setattr(installation, "stop", lambda _: self.done.append("stop") or [])

    def leave(self, kubeconfig: str) -> int:
        return main(["agent", "leave", f"--root-dir={self.place}", f"--kubeconfig={kubeconfig}"])

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.place.rglob("*") if path.is_file())


LEFT = ["kubelet-client-current.pem", "kubelet.conf", status_file.NAME]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, "/nope"),
        (Unreachable("nobody answers at https://10.0.0.1:6443"), "nobody answers"),
        (Forbidden("nodes is forbidden", code=403), "nodes is forbidden"),
    ],
    ids=["a kubeconfig that does not exist", "a cluster that cannot be reached", "one that may not read the Node"],
)
def test_leaving_with_a_kubeconfig_that_is_of_no_use_ends_nothing(tmp_path: Path, monkeypatch, capsys, error, said: str):
    if error is not None:
        api = RecordingKube()
        monkeypatch.setattr(api, "get", lambda *_: (_ for _ in ()).throw(error))
        monkeypatch.setattr(agent_service, "_client", lambda *_: nullcontext(api))
    leaving = Leaving(tmp_path, monkeypatch)
    assert leaving.leave("/nope") != 0
    assert said in capsys.readouterr().err
    assert (leaving.done, leaving.files) == ([], sorted(LEFT))


def test_leaving_looks_at_the_node_first_and_deletes_that_one_after_the_service_has_ended(tmp_path: Path, monkeypatch, capsys):
    leaving = Leaving(tmp_path, monkeypatch)
    api = RecordingKube(stand_ins=[stored("Lease", "kube-node-lease"), stored("CSINode"), stored("Node")])
    monkeypatch.setattr(
        api, "send", lambda call: (leaving.done.append(f"{call.verb} {call.resource.kind}"), RecordingKube.send(api, call))[1]
    )
    monkeypatch.setattr(agent_service, "_client", lambda *_: nullcontext(api))
    assert leaving.leave("/admin.conf") == 0
    assert leaving.done == ["get Node", "stop", "get Lease", "delete Lease", "get CSINode", "delete CSINode", "delete Node"]
    assert deleted(api)[-1] == ("Node", {"uid": "uid-Node"})
    assert leaving.files == []
    assert "delete node n\n" in capsys.readouterr().out


def test_an_agent_whose_own_kubeconfig_is_damaged_leaves_all_the_same(tmp_path: Path, monkeypatch, capsys):
    leaving = Leaving(tmp_path, monkeypatch)
    assert leaving.leave("") == 1
    assert (leaving.done, leaving.files) == (["stop"], [])
    assert "the Node n is still in the cluster (" in capsys.readouterr().err


def test_what_the_cluster_refuses_at_the_end_is_told(tmp_path: Path, monkeypatch, capsys):
    leaving = Leaving(tmp_path, monkeypatch)
    api = RecordingKube(stand_ins=[stored("Lease", "kube-node-lease"), stored("CSINode"), stored("Node")])

    def send(call: Call) -> Object:
        if (call.verb, call.resource.kind) == ("delete", "Node"):
            raise Forbidden("nodes is forbidden", code=403)
        return RecordingKube.send(api, call)

    monkeypatch.setattr(api, "send", send)
    monkeypatch.setattr(agent_service, "_client", lambda *_: nullcontext(api))
    assert leaving.leave("/admin.conf") == 1
    out, err = capsys.readouterr()
    assert "the Node n is still in the cluster (nodes is forbidden): delete it with `kubectl delete node n`" in err
    assert ("delete lease kube-node-lease/n\n" in out, leaving.files) == (True, [])


def test_leaving_removes_keys_kubeconfig_and_status_and_nothing_else(tmp_path: Path):
    pki = tmp_path / "pki"
    pki.mkdir()
    for name in ("kubelet-client-2026.pem", "kubelet-client.key.tmp", "kubelet-server-2026.pem", "kubelet.crt", "kubelet.key", "mine.pem"):
        (pki / name).write_text("x")
    (pki / "kubelet-client-current.pem").symlink_to(pki / "kubelet-client-2026.pem")
    (tmp_path / "kubelet.conf").write_text("x")
    Path(status_file.path_of(PurePosixPath(tmp_path))).write_text("x")
    status = {"pki": str(pki), "kubeconfig": str(tmp_path / "kubelet.conf")}
    host = RealHost(layout=installation.own_layout(status, PurePosixPath(tmp_path)))
    changes = list(installation.remove_files(host, status, PurePosixPath(tmp_path)))
    assert [change.action for change in changes] == [Action.DELETE] * 8
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine.pem", "pki"]
    again = list(installation.remove_files(host, status, PurePosixPath(tmp_path)))
    assert {change.action for change in again} == {Action.NONE}


def test_taints_that_an_existing_node_lacks_are_named():
    class Agent:
        facts = type("Facts", (), {"taints": (("a", "", "NoSchedule"), ("b", "c", "NoExecute"))})
        node: Any = None

    assert missing_taints(Agent()) == []  # type: ignore[arg-type]
    Agent.node = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    assert missing_taints(Agent()) == ["b=c:NoExecute"]  # type: ignore[arg-type]
