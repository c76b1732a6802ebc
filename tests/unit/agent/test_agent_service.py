"""The agent as a service: its unit, its status file, its output, and leaving."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import fake_api
import pytest
from agent_running import agent_of, joined, running
from agent_values import facts
from fake_controllers import START, LoopClock

from kubewright.agent import status_file, telemetry
from kubewright.agent.certificates.manager import CertificateView, WaitingRequest
from kubewright.agent.daemon import missing_taints
from kubewright.agent.status.snapshot import Snapshot, Unchanging
from kubewright.agent.view import NodePhase, NodeView
from kubewright.base.records import replace
from kubewright.cli.handlers.agent import run as agent_command
from kubewright.cli.main import main
from kubewright.host.filesystem.files import Files
from kubewright.http.metrics import Registry

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


def record(view: NodeView = VIEW, **changes: Any) -> dict[str, Any]:
    return status_file.record(view, pid=7, started=START, kubeconfig=PurePosixPath("/k.conf"), pki=PurePosixPath("/pki"), **changes)


def test_the_status_file_is_replaced_atomically_and_only_after_changes(tmp_path: Path):
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
async def test_the_status_says_why_the_node_is_not_ready(tmp_path: Path):
    api = fake_api.FakeAPI()
    source = Unchanging(Snapshot(addresses=("10.0.0.5",), runtime_errors=("container runtime is down",)))
    async with running(agent_of(api, store=joined(), source=source, facts=facts(needs_pod_range=False))) as agent:
        while agent.view().phase is not NodePhase.NOT_READY or agent.view().reported_at is None:
            await asyncio.sleep(0.01)
        found = record(agent.view())
    assert found["notReady"] == "container runtime is down"
    assert "not ready because     container runtime is down" in list(agent_command.status_lines({**found, "running": True}))
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
node                                      n
agent                                     NotReady (pid PID, since 2026-01-02T03:04:05Z)
trouble                                   no answer
not ready because                         container runtime is down
certificate expires                       2026-01-02T03:04:05Z
certificate rotates                       2026-01-02T03:04:05Z
waiting because                           certificate request node-csr-x (since 2026-01-02T03:04:05Z)
clock                                     the clock of this machine is 2 h ahead
kubelet API                               port 10250 of 10.0.0.5 is taken
serving until                             2026-01-02T03:04:05Z
serving rotates                           2026-01-02T03:04:05Z
serving trouble                           it was denied
serving waits because                     csr-y is Approved (since 2026-01-02T03:04:05Z)
status reported                           2026-01-02T03:04:05Z
lease renewed                             2026-01-02T03:04:05Z
cannot determine images                   no runtime
cannot determine a setter of a long name  none
taints not on the Node                    kubewright.dev/no-pods:NoSchedule, a=b:NoExecute
"""
READY = """\
node                    n
agent                   Ready (pid PID, since 2026-01-02T03:04:05Z)
taints not on the Node  kubewright.dev/no-pods:NoSchedule
"""
ENDED = """\
node                     n
agent                    not running; it was Joining (pid PID, since 2026-01-02T03:04:05Z)
trouble                  no answer
waiting because          node-csr-x is Pending (since 2026-01-02T03:04:05Z)
cannot determine images  no runtime
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
def test_the_status_has_one_line_per_fact(tmp_path, capsys, monkeypatch, view, more, pid, code, shown):
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
        (b"[]", 3, "FILE is not an AgentStatus of this version"),
        (b'{"kind": "Other"}', 3, "FILE is not an AgentStatus of this version"),
        (b'{"apiVersion": "agent.kubewright.dev/v1alpha1", "kind": "AgentStatus"}', 3, "FILE is not an AgentStatus of this version"),
    ],
)
def test_a_missing_or_unreadable_status_has_its_own_exit_code(tmp_path, capsys, monkeypatch, content, code, said):
    path = Path(status_file.path_of(PurePosixPath(tmp_path)))
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(sys, "argv", ["kubewright"])
    assert main(["agent", "status", "--root-dir", str(tmp_path)]) == code
    out, err = capsys.readouterr()
    assert (out, said.replace("FILE", str(path)) in err) == ("", True)


def test_metrics_have_the_names_of_the_kubelet():
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


@pytest.mark.parametrize(("seconds", "shown"), [(1.9, "1.0"), (0.0, "0.0"), (-1.0, "+Inf")])
def test_the_remaining_time_of_a_certificate_is_in_whole_seconds_and_that_of_an_expired_one_infinite(seconds, shown):
    """In the kubelet, an expired certificate is none."""
    registry, certificate = Registry(), CertificateView(expires=START + timedelta(seconds=seconds))
    telemetry.follow(registry, lambda: replace(VIEW, certificate=certificate, serving=certificate), clock=LoopClock())
    text = registry.read().body.decode()
    for name in ("client", "server"):
        assert f"\nkubelet_certificate_manager_{name}_ttl_seconds {shown}\n" in text


def test_missing_taints_of_an_existing_node_are_reported():
    class Agent:
        facts = type("Facts", (), {"taints": (("a", "", "NoSchedule"), ("b", "c", "NoExecute"))})
        node: Any = None

    assert missing_taints(Agent()) == []  # type: ignore[arg-type]
    Agent.node = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    assert missing_taints(Agent()) == ["b=c:NoExecute"]  # type: ignore[arg-type]
