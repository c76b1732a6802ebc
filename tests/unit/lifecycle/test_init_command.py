"""`kubewright init` from argv to exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from init_kit import FAST

from kubewright.apis.machine import Layout
from kubewright.base import yaml
from kubewright.cli.handlers import machine as cli_machine
from kubewright.cli.main import main
from kubewright.host.decisions import roots
from kubewright.lifecycle.init.operation import INIT
from kubewright.lifecycle.machine import LOCK
from operation_kit import Below

VARIABLE = INIT.dry_run.variable


@pytest.fixture
def config(tmp_path, box):
    path = tmp_path / "kubeadm.yaml"
    path.write_text(
        f"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.2\n{FAST}"
        f"certificatesDir: {box.layout.pki}\n"
        "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nbootstrapTokens: [{token: abcdef.0123456789abcdef}]\n"
    )
    return path


@pytest.fixture(autouse=True)
def this_machine(monkeypatch, box, tmp_path):
    """A machine that has nothing in kubeadm's directories, and a home of its own."""

    def machine(layout, *, files=None):
        host = Below(box.machine(layout))
        for root in roots(Layout()):
            host.remove(root)
        return host

    monkeypatch.setattr(cli_machine, "host", machine)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("sys.argv", ["kubewright"])


def test_only_the_plan_is_printed_on_stdout(config, capsys):
    assert main(["init", "--plan", "--config", str(config)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("create certificate ca (made, expires in ")
    assert out.endswith("\nplan: 55 to create, 3 to update\n")
    assert err == ""


def test_a_plan_as_yaml_is_the_same_list(config, capsys):
    assert main(["init", "--plan", "-o", "yaml", "--config", str(config)]) == 0
    out, err = capsys.readouterr()
    assert (len(yaml.load(out)), err) == (58, "")


def test_a_plan_as_json_is_a_list(config, capsys):
    assert main(["init", "--plan", "-o", "json", "--config", str(config)]) == 0
    out, err = capsys.readouterr()
    changes = json.loads(out)
    assert len(changes) == 58
    assert changes[0]["target"] == "certificate ca"
    assert err == ""


@pytest.mark.parametrize(("form", "printed"), [("text", ""), ("json", "[]\n")])
def test_the_plan_of_an_unchanged_machine_is_empty(form, printed, config, capsys, monkeypatch, box):
    monkeypatch.setattr(cli_machine, "host", box.machine)
    argv = ["init", "phase", "certs", "all", "--config", str(config)]
    assert main(argv) == 0
    capsys.readouterr()
    assert main([*argv, "--plan", "-o", form]) == 0
    assert capsys.readouterr().out == printed


def test_a_dry_run_leaves_nothing_behind(config, capsys, tmp_path):
    assert main(["init", "--dry-run", "--config", str(config)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("[init] Using Kubernetes version: v1.36.2\n[preflight] ")
    assert "\n\nYour Kubernetes control plane is up.\n" in out
    assert "[] " not in out
    assert f'"{tmp_path}/state/kubewright/dryrun/kubeadm-init-dryrun' in out
    assert list((tmp_path / "state/kubewright/dryrun").iterdir()) == []
    assert out.splitlines()[-1] == f"[dryrun] That directory is removed again; set {VARIABLE} to a directory to keep it"
    assert err == ""


def test_dry_run_can_be_set_in_the_file(config, capsys):
    config.write_text(config.read_text() + "dryRun: true\n")
    assert main(["init", "--config", str(config)]) == 0
    out = capsys.readouterr().out
    assert "[dryrun] Would write file" in out
    assert "successfully" not in out


def test_a_named_directory_stays(config, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "dry"))
    assert main(["init", "phase", "control-plane", "all", "--dry-run", "--config", str(config)]) == 0
    assert sorted(path.name for path in (tmp_path / "dry").iterdir()) == [
        "kube-apiserver.yaml",
        "kube-controller-manager.yaml",
        "kube-scheduler.yaml",
    ]
    out = capsys.readouterr().out
    assert "Using Kubernetes version" not in out
    assert "removed" not in out


def test_skipped_phases_are_reported(config, capsys):
    config.write_text(config.read_text().replace(FAST, FAST + "etcd: {external: {endpoints: ['http://192.0.2.1:2379']}}\n"))
    assert main(["init", "--dry-run", "--config", str(config), "--skip-phases", "addon"]) == 0
    out = capsys.readouterr().out
    assert "[certs] Skipping etcd-ca: etcd is external\n" in out
    assert "[addon] Skipping coredns: named by --skip-phases\n" in out


def test_file_phases_report_what_they_do(config, capsys, monkeypatch, box):
    monkeypatch.setattr(cli_machine, "host", box.machine)
    assert main(["init", "phase", "certs", "ca", "--config", str(config)]) == 0
    assert capsys.readouterr().out == '[certs] Generated "ca" certificate and key\n'
    assert main(["init", "phase", "certs", "ca", "--config", str(config), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("leaf", "lost", "said"),
    [
        ("sa", [], 'Using the existing "sa" key'),
        ("sa", ["sa.pub"], 'Using the existing "sa" key, generated its public key sa.pub'),
        ("sa", ["sa.pub", "sa.key"], 'Generated "sa" key and public key'),
        ("front-proxy-client", ["front-proxy-client.crt"], 'Generated "front-proxy-client" certificate for the existing key'),
        ("front-proxy-ca", ["front-proxy-ca.key"], 'Using existing "front-proxy-ca" certificate'),
    ],
)
def test_a_certificate_phase_reports_which_files_it_created(leaf, lost, said, config, capsys, monkeypatch, box):
    monkeypatch.setattr(cli_machine, "host", box.machine)
    assert main(["init", "phase", "certs", "all", "--config", str(config)]) == 0
    capsys.readouterr()
    for name in lost:
        Path(box.layout.pki, name).unlink()
    assert main(["init", "phase", "certs", leaf, "--config", str(config)]) == 0
    assert capsys.readouterr().out == f"[certs] {said}\n"


def test_certificates_can_be_written_by_ordinary_users(tmp_path, capsys, monkeypatch, box):
    monkeypatch.setattr(cli_machine, "host", box.machine)
    argv = ["init", "phase", "certs", "sa", "--cert-dir", str(tmp_path / "pki"), "--kubernetes-version=v1.36.2"]
    assert main(argv) == 0
    assert sorted(path.name for path in (tmp_path / "pki").iterdir()) == ["sa.key", "sa.pub"]
    assert (tmp_path / f"state/kubewright/{LOCK}").exists()


@pytest.mark.parametrize(
    ("add_on", "kinds"),
    [
        ("coredns", ["Deployment", "ConfigMap", "Service", "ClusterRole", "ClusterRoleBinding", "ServiceAccount"]),
        ("kube-proxy", ["ServiceAccount", "ClusterRoleBinding", "Role", "RoleBinding", "ConfigMap", "DaemonSet"]),
    ],
)
def test_add_ons_are_printed_in_the_order_of_kubeadm(add_on, kinds, config, capsys):
    assert main(["init", "phase", "addon", add_on, "--print-manifest", "--config", str(config)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("---\n")
    assert [document.value["kind"] for document in yaml.load_all(out)] == kinds
    assert err == ""
    assert main(["init", "phase", "addon", add_on, "--print-manifest", "-o", "json", "--config", str(config)]) == 0
    text = capsys.readouterr().out
    assert text.startswith('{\n    "')
    assert text.count("\n}\n") == len(kinds)
    assert json.loads(text.partition("\n}\n")[0] + "}") == yaml.load_all(out)[0].value


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--skip-phases", "nonsense"], "invalid phase name: nonsense"),
        (["--skip-phases", "bootstrap-token"], "unresolved dependencies"),
        (["--pod-network-cidr", "10.0.0.0/8"], "--config cannot be combined with --pod-network-cidr"),
        (["--dry-run"], "--plan and --dry-run exclude each other"),
    ],
)
def test_errors_are_reported_with_exit_code_1(argv, message, config, capsys):
    assert main(["init", "--plan", "--config", str(config), *argv]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


@pytest.mark.parametrize(
    "text", ["", "a: [", "kind: ClusterConfiguration\n", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\netcd: 3\n"]
)
def test_a_bad_file_is_an_error_and_never_a_traceback(text, tmp_path, capsys):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    assert main(["init", "--plan", "--config", str(path)]) == 1
    assert capsys.readouterr().err.startswith("error: ")
