"""Edge cases of the `reset` command: the question, output formats, exit codes."""

from __future__ import annotations

import io
import json
import os
from pathlib import PurePosixPath

import pytest

from kubewright.apis.machine import Detected, Layout
from kubewright.cli.handlers import machine as cli_machine
from kubewright.cli.main import main
from kubewright.host.facts import Facts, MachineInfo
from kubewright.host.real import RealHost
from kubewright.host.states import ServiceState

DETECTED = Detected(host_name="node1", cri_sockets=("unix:///no/such/socket",))


class Services:
    """A kubelet that runs."""

    running = True

    def state(self, name, /):
        return ServiceState(running=self.running)

    def stop(self, name, /):
        self.running = False

    start = restart = enable = disable = stop


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A worker below a directory."""
    for name in ("kubernetes/kubelet.conf", "kubernetes/pki/ca.crt", "kubelet/config.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")

    services = Services()

    def machine(layout, *, files):
        host = RealHost(layout=Layout.below(PurePosixPath(tmp_path)), files=files, services=services, environment={})
        host.__dict__["facts"] = Facts(detected=DETECTED, machine=MachineInfo())
        return host

    monkeypatch.setattr(cli_machine, "host", machine)
    return tmp_path


@pytest.fixture
def run(root, monkeypatch, capsys):
    def run(*words: str, answer: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        code = main(["reset", "--ignore-preflight-errors=all", *words])
        return (code, *capsys.readouterr())

    return run


def test_the_question_is_that_of_kubeadm_and_no_is_the_default(run, root):
    code, out, err = run()
    assert code == 1
    assert out.endswith("[reset] Are you sure you want to proceed? [y/N]: ")
    assert err.startswith("error: error execution phase preflight: nothing was reset: the answer was not y")
    assert (root / "kubernetes/kubelet.conf").exists()


def test_a_yes_resets(run, root):
    code, out, _ = run(answer="y\n")
    assert (code, (root / "kubernetes/kubelet.conf").exists()) == (0, False)
    assert "[reset] Stopping the kubelet service\n" in out


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", None)])
def test_changes_are_the_result_and_messages_go_to_stderr(run, form, read):
    code, out, err = run("-o", form, answer="y\n")
    assert code == 0
    if read is not None:
        assert [(row["target"].split()[0], row["action"]) for row in read(out)] == [
            ("service", "update"),
            ("contents", "delete"),
            ("file", "delete"),
            ("contents", "delete"),
        ]
        assert "[reset] Are you sure you want to proceed? [y/N]: " in err
    assert "[reset]" not in out


@pytest.mark.parametrize("form", ["text", "json", "yaml"])
@pytest.mark.parametrize("words", [["--plan"], ["--dry-run"], ["--force"]])
def test_names_that_are_not_utf_8_are_shown_in_every_format(run, root, form, words):
    (root / "kubelet" / os.fsdecode(b"caf\xe9")).mkdir()
    (root / "kubernetes/pki" / os.fsdecode(b"\xff.key")).write_text("")
    code, out, err = run(*words, "-o", form)
    assert (code, "internal error" in err) == (0, False)
    shown = r"caf\\xe9" if form == "json" else r"caf\xe9"
    assert shown in out or (form == "text" and words != ["--plan"])
    assert (root / "kubernetes/pki/ca.crt").exists() == (words != ["--force"])


def test_a_plan_shows_the_changes_without_a_question(run, root):
    code, out, _ = run("--plan")
    assert code == 0
    assert f"delete file {root / 'kubernetes/kubelet.conf'}\n" in out
    assert out.endswith("plan: 1 to update, 3 to delete\n")
    assert (root / "kubernetes/kubelet.conf").exists()
    assert [row["action"] for row in json.loads(run("--plan", "-o", "json")[1])] == ["update", "delete", "delete", "delete"]


def test_failures_are_reported_after_the_changes(run, root, monkeypatch):
    monkeypatch.setattr(Services, "stop", _refuse)
    code, out, err = run("-o", "json", "--force")
    assert code == 1
    assert len(json.loads(out)) == 3
    assert "error: not everything could be reset\n  the kubelet does not stop\n" in err


def _refuse(*_: object) -> None:
    from kubewright.base.errors import HostError

    raise HostError("the kubelet does not stop")


def test_plan_and_dry_run_exclude_each_other(run):
    code, _, err = run("--plan", "--dry-run")
    assert (code, "exclude each other" in err) == (1, True)


def test_our_flags_may_be_combined_with_a_file(run, tmp_path):
    path = tmp_path / "reset.yaml"
    path.write_text("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ResetConfiguration\nforce: true\n")
    assert run("--config", str(path), "--cleanup-cni", "--plan", "--cleanup-packet-filter")[0] == 0
    code, _, err = run("--config", str(path), "--force")
    assert (code, "--force" in err) == (1, True)
