"""What `-v` shows: klog's lines on stderr, decisions, differences without secrets; and nothing without it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubewright.base import events, logs
from kubewright.base.change import Action, Change
from kubewright.cli import main as entry
from kubewright.cli.printers import progress
from kubewright.cli.printers.reporters import PlainLines, logged

LINE = re.compile(r"[IWE]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [a-z_]+\.py:\d+\] .+")
CANARY = "c4n4ry0t0ken0000"
CONFIG = f"""\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{{token: c4n4ry.{CANARY}}}]
localAPIEndpoint: {{advertiseAddress: 10.98.0.11}}
certificateKey: {"C4" * 32}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
apiServer: {{extraEnvs: [{{value: canary of a variable, name: some_password}}]}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "kubeadm.yaml"
    path.write_text(CONFIG)
    return path


def run(capsys, *words: object) -> tuple[str, list[str]]:
    """Run a command; its output, and the lines of its log."""
    assert entry.main([str(word) for word in words]) == 0
    out, err = capsys.readouterr()
    assert CANARY not in err
    assert "c4c4" not in err.lower()
    assert "canary of" not in out + err
    return out, [line for line in err.splitlines() if LINE.fullmatch(line)]


@pytest.mark.parametrize("verbosity", [0, 1, 4, 8, 10])
def test_a_plan_logs_its_decisions(verbosity, config, capsys):
    words = ("init", "phase", "control-plane", "apiserver", "--plan", "--config", config, "-v", verbosity)
    out, lines = run(capsys, *words)
    assert "file /etc/kubernetes/manifests/kube-apiserver.yaml" in out
    assert sum("] kubewright " in line and '"init phase control-plane apiserver" with --config --plan --v' in line for line in lines) == (
        verbosity >= 1
    )
    assert sum("reporters.py" in line and "phase control-plane/apiserver begins" in line for line in lines) == (verbosity >= 4)
    assert sum("file /etc/kubernetes/manifests/kube-apiserver.yaml: " in line for line in lines) == (verbosity >= 4)
    assert sum("difference of file /etc/kubernetes/manifests/kube-apiserver.yaml:" in line for line in lines) == (verbosity >= 8)


def test_every_command_has_a_log(config, capsys, tmp_path):
    commands = [
        ("version",),
        ("token", "generate"),
        ("config", "validate", "--config", config),
        ("local", "list", "--state-dir", tmp_path),
        ("certs", "certificate-key"),
    ]
    for words in commands:
        _, [first] = run(capsys, *words, "-v", "10")
        assert f'"{" ".join(word for word in map(str, words) if not word.startswith(("--", "/")))}" with' in first


EVENTS = [
    (events.PhaseStarted(phase="a/b"), "phase a/b begins"),
    (events.PhaseFinished(phase="a/b", seconds=1.5), "phase a/b took 1.5s"),
    (events.PhaseSkipped(phase="a", reason="asked"), "phase a is left out: asked"),
    (events.Changed(change=Change(target="file /a", action=Action.UPDATE, reason="mode")), "file /a: update (mode)"),
    (events.Changed(change=Change(target="file /a", action=Action.NONE)), "file /a: unchanged"),
    (events.Waiting(what="it", reason="not\nyet", elapsed=2), "waiting for it (2.0s): not yet"),
    (events.Waited(what="it", seconds=3), "waited for it: 3.0s"),
    (events.State(subject="etcd", state="Ready", elapsed=1), "etcd: Ready"),
]


@pytest.mark.parametrize(("event", "text"), EVENTS, ids=lambda value: type(value).__name__)
def test_decisions_are_logged(event, text, capsys):
    logs.configure(4)
    inner = events.RecordingReporter()
    logged(inner).emit(event)
    assert inner.events == [event]
    assert capsys.readouterr().err.endswith(f"] {text}\n")


def test_without_a_log_hosts_are_not_wrapped(capsys):
    inner = PlainLines()
    assert logged(inner) is inner
    logs.configure(3)
    assert logged(inner) is inner


def test_there_is_no_live_display_with_a_log(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    logs.configure(1)
    with progress.progress("x", form="text") as reporter:
        assert isinstance(reporter, PlainLines)
