"""The `config` commands compared with the output of kubeadm v1.36.2, and their exit codes."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from kubewright.apis.machine import Detected
from kubewright.base import yaml
from kubewright.cli.handlers import machine as cli_machine
from kubewright.cli.main import main
from kubewright.cli.rows import commands

REFERENCE = Path(__file__).parents[1] / "data" / "reference"
CASES = sorted(path.name for path in (REFERENCE / "cases").iterdir())
MACHINE = Detected(host_name="node1", default_ipv4="10.98.0.11", default_ipv6="fd00:98::11")
KUBEADMS = {tuple(row["command"].split()[1:]): row for row in json.loads((REFERENCE / "commands.json").read_text())}

MISSING_FILES = {
    "extra-everything": [
        " apiServer.extraArgs: kube-apiserver needs --authorization-webhook-config-file for the mode Webhook, and does not start without it",
        " apiServer.extraArgs: the default of --authorization-mode is Node,RBAC; Node,RBAC,Webhook is used",
        " scheduler.extraArgs: --config: /etc/kubernetes/sched.yaml does not exist on this machine",
    ],
    "structured-authz": [
        (
            " apiServer.extraArgs: --authorization-config: /etc/kubernetes/authz.yaml is not in kube-apiserver's static pod, "
            "which mounts no directory above it; add its directory to extraVolumes"
        )
    ],
}
"""Warnings about the arguments of a case: the machine of the data never started these components."""


@pytest.fixture(autouse=True)
def _machine(monkeypatch):
    monkeypatch.setattr(cli_machine, "detected", lambda: MACHINE)


@pytest.fixture
def run(capsys):
    def call(*argv: object) -> tuple[int, str, str]:
        code = main(["config", *map(str, argv)])
        return (code, *capsys.readouterr())

    return call


def written(tmp_path, text):
    path = tmp_path / "kubeadm.yaml"
    path.write_text(text)
    return path


def document(kind: str, **fields: object) -> str:
    return yaml.dump({"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": kind, **fields})


@pytest.mark.parametrize("name", ["init", "join", "reset", "upgrade"])
def test_printed_defaults_equal_those_of_kubeadm(run, name):
    assert run("print", f"{name}-defaults") == (0, (REFERENCE / "config-print" / f"{name}-defaults.yaml").read_text(), "")


def test_printed_component_configurations_equal_those_of_kubeadm(run):
    text = (REFERENCE / "config-print" / "init-defaults.component-configs.yaml").read_text()
    assert run("print", "init-defaults", "--component-configs", "KubeletConfiguration,KubeProxyConfiguration") == (0, text, "")


def test_components_are_printed_in_the_requested_order_and_unknown_ones_refused(run):
    _, text, _ = run("print", "init-defaults", "--component-configs=KubeProxyConfiguration", "--component-configs=KubeletConfiguration")
    kinds = [found.value["kind"] for found in yaml.load_all(text)]
    assert kinds == ["InitConfiguration", "ClusterConfiguration", "KubeProxyConfiguration", "KubeletConfiguration"]
    code, out, err = run("print", "init-defaults", "--component-configs", "EtcdConfiguration")
    assert (code, out) == (1, "")
    assert "KubeProxyConfiguration, KubeletConfiguration" in err


@pytest.mark.parametrize("case", CASES)
def test_migrated_cases_equal_those_of_kubeadm_except_for_the_timeout_that_it_loses(run, case):
    code, out, err = run("migrate", "--old-config", REFERENCE / "cases" / case / "kubeadm.yaml")
    wanted = (REFERENCE / "cases" / case / "config-migrate.yaml").read_text()
    given = yaml.load_all((REFERENCE / "cases" / case / "kubeadm.yaml").read_text())[0].value.get("timeouts", {})
    timeout = given.get("controlPlaneComponentHealthCheck", "4m0s")
    assert wanted.count("controlPlaneComponentHealthCheck: 0s") == 1
    assert (code, out, err) == (0, wanted.replace("HealthCheck: 0s", f"HealthCheck: {timeout}"), "")


@pytest.mark.parametrize("case", CASES)
def test_images_of_cases_equal_those_of_kubeadm(run, case):
    code, out, _ = run("images", "list", "--config", REFERENCE / "cases" / case / "kubeadm.yaml")
    assert (code, out.split()) == (0, (REFERENCE / "cases" / case / "images.txt").read_text().split())


@pytest.mark.parametrize("case", CASES)
def test_cases_are_valid(run, case):
    code, out, err = run("validate", "--config", REFERENCE / "cases" / case / "kubeadm.yaml")
    assert (code, out) == (0, "ok\n")
    assert [line.partition(":")[2] for line in err.splitlines()] == MISSING_FILES.get(case, [])


def test_images_are_printed_in_kubeadms_output_kind(run):
    wanted = (REFERENCE / "structured-output" / "images-list.json").read_text()
    assert run("images", "list", "--kubernetes-version", "v1.36.2", "-o", "json") == (0, wanted, "")
    _, text, _ = run("images", "list", "--kubernetes-version", "v1.36.2", "-o", "yaml")
    assert yaml.load(text) == json.loads(wanted)


def test_flags_of_images_override_the_file(run, tmp_path):
    path = written(tmp_path, document("ClusterConfiguration", kubernetesVersion="v1.36.1", imageRepository="a.example.com"))
    _, out, _ = run("images", "list", "--config", path, "--image-repository", "b.example.com")
    assert len(out.split()) == 7
    assert all(image.startswith("b.example.com/") for image in out.split())
    assert "b.example.com/kube-proxy:v1.36.1" in out


def test_pulling_images_checks_the_configuration_and_then_needs_a_runtime(run, tmp_path):
    socket = f"unix://{tmp_path}/none.sock"
    code, out, err = run("images", "pull", "--kubernetes-version", "v1.36.2", "--cri-socket", socket)
    assert (code, out) == (1, "")
    assert f"no container runtime answers at {socket}" in err
    assert "imageRepository" in run("images", "pull", "--image-repository", "Not Valid")[2]


@pytest.mark.parametrize("command", [("validate", "--config"), ("migrate", "--old-config")])
def test_an_empty_file_is_valid_and_one_without_content_is_not(run, tmp_path, command):
    assert run(*command, written(tmp_path, ""))[0] == 0
    for text in ("\n", "# nothing\n", "---\n", "---\n---\n"):
        assert run(*command, written(tmp_path, text))[0] == 1


@pytest.mark.parametrize("command", [("validate", "--config"), ("migrate", "--old-config")])
def test_every_failure_exits_1_and_prints_no_result(run, tmp_path, command):
    missing = run(*command, tmp_path / "none.yaml")
    assert missing[:2] == (1, "")
    assert run(command[0])[:2] == (1, "")
    unknown = written(tmp_path, document("ClusterConfiguration", clusterNam="x"))
    code, out, err = run(*command, unknown)
    assert (code, out) == (1, "")
    assert 'clusterNam: Unknown field: did you mean "clusterName"?' in err


def test_deprecated_versions_give_a_warning_unless_they_are_allowed(run):
    path = REFERENCE / "config-migrate" / "v1beta3-input.yaml"
    code, out, err = run("validate", "--config", path)
    assert (code, out, err.count("is deprecated;")) == (0, "ok\n", 3)
    code, out, err = run("validate", "--config", path, "--allow-deprecated-api")
    assert (code, out, err.count("is deprecated;")) == (0, "ok\n", 0)


def test_a_new_configuration_is_written_atomically_and_keeps_the_mode_of_an_old_one(run, tmp_path):
    source = written(tmp_path, document("ResetConfiguration", force=True))
    target = tmp_path / "new.yaml"
    target.write_text("old")
    target.chmod(0o600)
    assert run("migrate", "--old-config", source, "--new-config", target) == (0, "", "")
    assert target.read_text() == (REFERENCE / "config-migrate" / "reset-output.yaml").read_text()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert run("migrate", "--old-config", source, "--new-config", source / "below-a-file")[0] == 1
    code, out, err = run("migrate", "--old-config", source, "--new-config", tmp_path / "missing" / "new.yaml")
    assert (code, out) == (1, "")
    assert f"the directory {tmp_path}/missing does not exist" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kubeadm.yaml", "new.yaml"]


def test_upgrade_configurations_migrate(run, tmp_path):
    path = written(tmp_path, document("UpgradeConfiguration"))
    assert run("migrate", "--old-config", path) == (0, (REFERENCE / "config-print" / "upgrade-defaults.yaml").read_text(), "")


def test_a_missing_discovery_file_is_reported(run, tmp_path):
    path = written(tmp_path, document("JoinConfiguration", discovery={"file": {"kubeConfigPath": str(tmp_path / "none.conf")}}))
    code, _, err = run("validate", "--config", path)
    assert code == 1
    assert "discovery.file.kubeConfigPath" in err


def test_a_field_is_explained_as_text_and_as_json(run):
    code, out, err = run("explain", "etcd.local.dataDir")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "field:   etcd.local.dataDir",
        "kind:    ClusterConfiguration",
        "type:    string",
        "default: /var/lib/etcd",
        "since:   v1beta1 or before",
        "",
        "directory of etcd's data",
    ]
    _, out, _ = run("explain", "timeouts.discovery", "-o", "json")
    assert [one["kind"] for one in json.loads(out)] == [f"{name}Configuration" for name in ("Init", "Join", "Reset", "Upgrade")]


@pytest.mark.parametrize(("asked", "meant"), [("dataDi", "dataDir"), ("clustername", "clusterName"), ("zzz", "JoinConfiguration")])
def test_a_field_that_does_not_exist_is_an_error_with_a_suggestion(run, asked, meant):
    code, out, err = run("explain", asked)
    assert (code, out) == (1, "")
    assert meant in err


def test_commands_have_all_flags_of_kubeadm_with_the_same_defaults():
    ours = {row.words: row for row in commands.TABLE.every() if row.words[:1] == ("config",)}
    theirs = {words: row for words, row in KUBEADMS.items() if words[:1] == ("config",)}
    assert len(theirs) == 11
    assert set(theirs) <= set(ours)
    for words, row in theirs.items():
        flags = {flag.name: flag for flag in ours[words].flags}
        wanted = {flag["name"]: flag for flag in row["flags"]}
        assert set(wanted) <= set(flags)
        assert {name: _default(flags[name].default) for name in wanted} == {name: flag.get("default", "") for name, flag in wanted.items()}


def _default(value):
    return {True: "true", False: "", None: ""}.get(value, value)
