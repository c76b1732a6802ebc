"""join, reset and the upgrade commands: flags and files are read and checked as by kubeadm."""

from __future__ import annotations

import io
import json
from pathlib import Path, PurePosixPath

import pytest

from kubewright.apis.machine import Detected, Layout
from kubewright.cli.handlers import machine as cli_machine
from kubewright.cli.handlers import operations
from kubewright.cli.handlers.operation_requests import join_request
from kubewright.cli.main import main
from kubewright.cli.parsing.parser import parse
from kubewright.cli.rows import commands
from kubewright.host.facts import Facts, MachineInfo
from kubewright.host.real import RealHost
from kubewright.lifecycle.join import request as joining
from kubewright.lifecycle.join.phases import PHASES as JOIN
from kubewright.lifecycle.reset.phases import PHASES as RESET
from kubewright.lifecycle.upgrade.phases import APPLY, NODE

TOKEN = "abcdef.0123456789abcdef"
OTHER = "zzzzzz.0123456789abcdef"
PIN = f"sha256:{'0' * 64}"
DETECTED = Detected(host_name="node1", default_ipv4="10.0.0.9", cri_sockets=("unix:///run/containerd/containerd.sock",))
GOOD = ["join", "10.0.0.1:6443", "--token", TOKEN, "--discovery-token-ca-cert-hash", PIN]
TREES = {"join": JOIN, "reset": RESET, "upgrade apply": APPLY, "upgrade node": NODE}
KUBEADM = {
    row["command"].removeprefix("kubeadm").strip(): row
    for row in json.loads((Path(__file__).parents[2] / "data" / "reference" / "commands.json").read_text())
}


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A machine without any file of kubeadm's; what is put into the set exists. Resets empty a directory."""
    there: set[str] = set()

    def below(_, **__: object):
        host = RealHost(layout=Layout.below(PurePosixPath(tmp_path / "machine")), environment={"PATH": str(tmp_path / "bin")})
        host.__dict__["facts"] = Facts(detected=DETECTED, machine=MachineInfo())
        return host

    monkeypatch.setattr(cli_machine, "host", below)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("sys.argv", ["kubewright"])
    monkeypatch.setattr(cli_machine, "detected", lambda: DETECTED)
    monkeypatch.setattr(operations, "exists", lambda path: path in there)
    return there


@pytest.fixture
def run(capsys):
    def run(*words: str) -> tuple[int, str]:
        code = main(list(words))
        out, err = capsys.readouterr()
        assert out == "" or words[0] in {"join", "reset"}
        return code, err

    return run


def file(tmp_path, kind, text):
    path = tmp_path / "kubeadm.yaml"
    path.write_text(f"apiVersion: kubeadm.k8s.io/v1beta4\nkind: {kind}\n{text}")
    return str(path)


def joined(*words: str):
    """The configuration that `join` uses, and its warnings."""
    made = join_request(parse([*words], program="kubewright"), only=())
    loaded = joining.configure(made, detected=DETECTED, exists=lambda path: path == "/f", admin_kubeconfig="/etc/kubernetes/admin.conf")
    return loaded.configuration, loaded.warnings


NO_CONTROL_PLANE = "this machine is not a control plane"
NO_NODE = "kubelet.conf does not exist"


@pytest.mark.parametrize(
    "path", [row.path for row in commands.TABLE.every() if row.words[:2] in {("upgrade", "apply"), ("upgrade", "node")} and row.handler]
)
def test_a_machine_without_a_cluster_is_not_upgraded(path, run):
    apply = path.startswith("upgrade apply")
    code, err = run(*path.split(), *(["v1.36.3"] if apply else []))
    assert (code, (NO_CONTROL_PLANE if apply else NO_NODE) in err) == (1, True)


OF_KUBELET = {"config.yaml", "instance-config.yaml"}
OF_CONTROL_PLANE = {"kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml"}


@pytest.mark.parametrize(
    ("words", "missing", "files"),
    [
        ("apply v1.36.3", "admin.conf", OF_KUBELET | OF_CONTROL_PLANE),
        ("apply phase control-plane v1.36.3", "admin.conf", OF_CONTROL_PLANE),
        ("node", "kubelet.conf", OF_KUBELET),
        ("node --kubeconfig=/nowhere.conf", "/nowhere.conf", OF_KUBELET),
    ],
)
def test_a_dry_run_of_an_upgrade_without_a_cluster_uses_placeholder_data(words, missing, files, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KUBEADM_UPGRADE_DRYRUN_DIR", str(tmp_path / "dry"))
    code, (out, err) = main(["upgrade", *words.split(), "--dry-run"]), capsys.readouterr()
    assert (code, "Would write file" in out) == (0, True), err
    assert f"{missing} does not exist; stand-ins at https://192.168.0.101:6443 replace the cluster" in err
    assert {path.name for path in (tmp_path / "dry").iterdir()} == files
    assert not (tmp_path / "machine").exists()


def test_a_dry_run_of_an_upgrade_without_a_cluster_shows_a_new_kubelet_on_a_worker(machine, monkeypatch, tmp_path, capsys):
    programs = {place: tmp_path / place / "kubelet" for place in ("bin", "new")}
    for program, version in zip(programs.values(), ("v1.36.2", "v1.36.3"), strict=True):
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho Kubernetes {version}\n")
        program.chmod(0o755)
    monkeypatch.setenv("KUBEADM_UPGRADE_DRYRUN_DIR", str(tmp_path / "dry"))
    for more in ([], ["--drain"]):
        code, (out, err) = main(["upgrade", "node", "--dry-run", f"--kubelet={programs['new']}", *more]), capsys.readouterr()
        assert (code, "The kubelet runs v1.36.3" in out) == (0, True), err
    assert "v1.36.2" in programs["bin"].read_text()


def test_a_dry_run_takes_the_address_and_the_runtime_of_an_upgrade_from_the_machine(machine, monkeypatch, tmp_path, capsys):
    """kubeadm uses those of its placeholder objects, even if the machine has others."""
    layout, dry = Layout.below(PurePosixPath(tmp_path / "machine")), tmp_path / "dry"
    manifest = "metadata: {annotations: {kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: '10.0.0.7:443'}}"
    for path, text in ((layout.manifest("kube-apiserver"), manifest), (layout.kubelet_flags, 'A="--container-runtime-endpoint=unix:///x"')):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)
    monkeypatch.setenv("KUBEADM_UPGRADE_DRYRUN_DIR", str(dry))
    assert main(["upgrade", "node", "--dry-run"]) == 0, capsys.readouterr().err
    assert "--advertise-address=10.0.0.7" in (dry / "kube-apiserver.yaml").read_text()
    assert "unix:///x" in (dry / "config.yaml").read_text()
    assert not (dry / "etcd.yaml").exists()


@pytest.mark.parametrize("section", ["apply", "node"])
def test_a_plan_of_an_upgrade_needs_a_cluster(section, run, tmp_path):
    path = file(tmp_path, "UpgradeConfiguration", f"{section}: {{dryRun: true}}\n")
    version = ["v1.36.3"] if section == "apply" else []
    code, err = run("upgrade", section, *version, "--plan", "--config", path)
    assert (code, ".conf does not exist" in err) == (1, True)


@pytest.mark.parametrize("path", TREES)
def test_phase_trees_have_the_phases_of_kubeadm_in_its_order(path):
    row = KUBEADM[path]
    shown = [node for node in TREES[path].nodes if not node.phase.hidden]
    assert ["  /" * bool(node.above) + node.phase.word for node in shown] == row["phase_tree_printed"]
    for hidden in row.get("hidden_phases", ()):
        names = [node.name for node in TREES[path].nodes if not node.above]
        assert TREES[path].find(hidden["name"]).phase.hidden
        assert names[names.index(hidden["name"]) - 1] == hidden["runs_after"]


@pytest.mark.parametrize("path", TREES)
def test_every_phase_has_a_command_with_the_same_summary(path):
    tree = TREES[path]
    rows = {
        tuple(words): row
        for words in ((row.words[len(path.split()) + 1 :]) for row in commands.TABLE.every() if row.path.startswith(f"{path} phase "))
        for row in [commands.TABLE.command(*path.split(), "phase", *words)]
    }
    assert rows
    for words, row in rows.items():
        node = tree.named(words)
        assert node is not None
        assert (node.phase.summary if words[-1] != "all" else row.summary, node.phase.aliases) == (row.summary, row.aliases)
        assert bool(node.phase.children) == (not row.handler)


@pytest.mark.parametrize("words", [GOOD, ["reset"], ["upgrade", "apply", "v1.36.3"], ["upgrade", "node"]])
@pytest.mark.parametrize("name", ["nonsense", "all", "Preflight"])
def test_an_unknown_phase_to_skip_is_an_error(words, name, run):
    assert run(*words, "--skip-phases", f"preflight,{name}") == (1, run(*words, "--skip-phases", name)[1])
    assert run(*words, "--skip-phases", name)[1].startswith(f"error: invalid phase name: {name}\n")


@pytest.mark.parametrize("pin", [PIN.replace("sha256", "SHA256"), f"sha256:{'AB' * 32}"])
def test_the_case_of_a_pin_does_not_matter(pin):
    loaded, _ = joined("join", "10.0.0.1:6443", "--token", TOKEN, "--discovery-token-ca-cert-hash", pin)
    assert loaded.discovery.bootstrap_token.ca_cert_hashes == (pin,)


def test_hidden_phases_may_be_skipped(run):
    assert "preflight checks failed" in run(*GOOD, "--skip-phases", "check-etcd")[1]
    assert NO_NODE in run("upgrade", "node", "--skip-phases=kubeconfig,addon/coredns")[1]


def test_phases_to_skip_come_from_the_file_only_if_the_flag_is_empty(run, tmp_path):
    path = file(tmp_path, "ResetConfiguration", "skipPhases: [nonsense]\n")
    assert "invalid phase name: nonsense" in run("reset", "--config", path)[1]
    assert run("reset", "--config", path, "--skip-phases=cleanup-node", "--ignore-preflight-errors=all")[0] == 0
    path = file(tmp_path, "UpgradeConfiguration", "node: {skipPhases: [nonsense]}\n")
    assert "invalid phase name: nonsense" in run("upgrade", "node", "--config", path)[1]


@pytest.mark.parametrize(
    ("words", "kind", "named"),
    [
        (["join", "a:1", "--token=x", "--control-plane", "--node-name=n"], "JoinConfiguration", "--control-plane, --token"),
        (["join", "phase", "kubelet-start", "--patches=x", "--cri-socket=unix:///x"], "JoinConfiguration", "--cri-socket, --patches"),
        (
            ["reset", "--force", "--cert-dir=/x", "--cleanup-tmp-dir", "--dry-run"],
            "ResetConfiguration",
            "--cert-dir, --cleanup-tmp-dir, --force",
        ),
        (["upgrade", "apply", "-f", "-y", "--etcd-upgrade"], "UpgradeConfiguration", "--etcd-upgrade, --force"),
        (["upgrade", "node", "--certificate-renewal=false"], "UpgradeConfiguration", "--certificate-renewal"),
        (
            ["upgrade", "plan", "--allow-experimental-upgrades", "--print-config"],
            "UpgradeConfiguration",
            "--allow-experimental-upgrades, --print-config",
        ),
        (["upgrade", "diff", "-c3", "--vmodule=a=1", "-v1"], "UpgradeConfiguration", "--context-lines, --vmodule"),
    ],
)
def test_flags_that_belong_into_the_file_are_reported_all_at_once(words, kind, named, run, tmp_path):
    code, err = run(*words, "--config", file(tmp_path, kind, ""))
    assert code == 1
    (told,) = [line for line in err.splitlines() if line.startswith("error: ")]  # with -v, log lines precede it
    assert told == f"error: --config cannot be combined with {named}"


def test_phases_of_upgrade_accept_flags_in_addition_to_the_file(run, tmp_path):
    path = file(tmp_path, "UpgradeConfiguration", "apply: {kubernetesVersion: v1.36.3}\n")
    assert NO_CONTROL_PLANE in run("upgrade", "apply", "phase", "control-plane", "--etcd-upgrade=false", "--config", path)[1]


@pytest.mark.parametrize(("words", "kind"), [(["join"], "Join"), (["reset"], "Reset"), (["upgrade", "plan"], "Upgrade")])
def test_a_file_without_the_kind_is_refused(words, kind, run, tmp_path):
    code, err = run(*words, "--config", file(tmp_path, "ClusterConfiguration", ""))
    assert code == 1
    assert f"contains no {kind}Configuration" in err


def test_every_wrong_field_is_reported_at_once(run):
    _, err = run("join", "10.0.0.1:6443", "--control-plane", "--certificate-key=x", "--apiserver-bind-port=0")
    named = ["--certificate-key", "--discovery-token-ca-cert-hash", "--token"]
    assert sorted(line.strip().partition(":")[0] for line in err.splitlines() if line.startswith("  ")) == named
    assert "<masked>" not in err


def test_join_without_arguments_explains_discovery(run):
    code, err = run("join")
    assert (code, "  HOST:PORT or --discovery-file: " in err) == (1, True)


def test_one_token_is_used_for_discovery_and_bootstrap():
    found, _ = joined("join", "a:1", "--token", TOKEN, "--discovery-token-ca-cert-hash", PIN)
    assert (found.discovery.bootstrap_token.token, found.discovery.tls_bootstrap_token) == (TOKEN, TOKEN)
    found, _ = joined("join", "a:1", "--token", TOKEN, "--discovery-token", OTHER, "--discovery-token-unsafe-skip-ca-verification")
    assert (found.discovery.bootstrap_token.token, found.discovery.tls_bootstrap_token) == (OTHER, TOKEN)
    found, _ = joined("join", "--discovery-file", "/f", "--tls-bootstrap-token", OTHER, "--token", TOKEN)
    assert (found.discovery.bootstrap_token, found.discovery.tls_bootstrap_token) == (None, OTHER)


def test_without_an_endpoint_there_is_no_discovery_by_token(run):
    code, err = run("join", "--token", TOKEN, "--discovery-token-ca-cert-hash", PIN)
    assert code == 1
    assert "discovery" in err


def test_control_plane_flags_without_control_plane_are_ignored_with_a_warning():
    found, warnings = joined(*GOOD, "--certificate-key=x", "--apiserver-bind-port=1", "--apiserver-advertise-address=10.0.0.9")
    assert found.control_plane is None
    assert warnings == ["--certificate-key, --apiserver-advertise-address, --apiserver-bind-port: ignored without --control-plane"]


def test_a_control_plane_has_its_flags():
    found, warnings = joined(*GOOD, "--control-plane", f"--certificate-key={'0' * 64}", "--apiserver-bind-port=7000")
    assert warnings == []
    assert (found.control_plane.local_api_endpoint.bind_port, found.control_plane.certificate_key) == (7000, "0" * 64)
    assert found.control_plane.local_api_endpoint.advertise_address == "10.0.0.9"


def test_the_file_is_combined_with_the_flags(tmp_path):
    text = (
        f"discovery: {{bootstrapToken: {{apiServerEndpoint: 'a.b:1', token: {TOKEN}, unsafeSkipCAVerification: true}}}}\n"
        "nodeRegistration: {name: file, ignorePreflightErrors: [Swap]}\nskipPhases: [preflight]\ndryRun: false\n"
    )
    path = file(tmp_path, "JoinConfiguration", text)
    found, warnings = joined("join", "x.y:2", "--config", path, "--node-name=flag", "--ignore-preflight-errors=Mem,Swap", "--dry-run")
    assert found.node_registration.name == "flag"
    assert tuple(found.node_registration.ignore_preflight_errors) == ("Swap", "Mem")
    assert (found.skip_phases, found.dry_run) == (("preflight",), True)
    assert found.discovery.bootstrap_token.api_server_endpoint == "a.b:1"
    assert warnings == ["x.y:2 is ignored: with --config, discovery is configured in the file"]


@pytest.mark.parametrize("words", [GOOD, ["reset"], ["upgrade", "apply", "v1.36.3"], ["upgrade", "node"], ["upgrade", "plan"]])
def test_all_and_names_of_checks_exclude_each_other(words, run):
    code, err = run(*words, "--ignore-preflight-errors=all,Swap")
    assert (code, "'all' cannot be combined" in err) == (1, True)


def test_a_phase_without_discovery_flags_needs_the_admin_kubeconfig(run):
    code, err = run("join", "phase", "etcd-join", "--control-plane")
    assert code == 1
    assert err.splitlines()[0].endswith("kubernetes/admin.conf does not exist")
    assert "control-plane-prepare" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "missing one or more required arguments. Required arguments: [version]"),
        (["phase", "preflight"], "missing one or more required arguments. Required arguments: [version]"),
        (["v1.36.3", "v1.36.2"], "too many arguments. Required arguments: [version]"),
        (["v1.37.0", "--force"], "this cluster cannot be upgraded to v1.37.0"),
        (["v1.36.9"], "this cluster cannot be upgraded to v1.36.9"),
        (["v1.36.0-rc.1"], "this cluster cannot be upgraded to v1.36.0-rc.1"),
    ],
)
def test_an_invalid_version_is_refused(words, message, run):
    code, err = run("upgrade", "apply", *words)
    assert (code, err.splitlines()[0]) == (1, f"error: {message}")


@pytest.mark.parametrize("words", [["v1.36.9", "-f"], ["v1.36.0-rc.1", "--allow-release-candidate-upgrades"], ["stable"]])
def test_other_versions_are_accepted(words, run):
    assert NO_CONTROL_PLANE in run("upgrade", "apply", *words)[1]


def test_the_version_of_the_file_counts_unless_there_is_exactly_one_argument(run, tmp_path):
    path = file(tmp_path, "UpgradeConfiguration", "apply: {kubernetesVersion: v1.37.0}\n")
    assert "upgraded to v1.37.0" in run("upgrade", "apply", "--config", path)[1]
    assert "upgraded to v1.37.0" in run("upgrade", "apply", "a", "b", "--config", path)[1]
    assert NO_CONTROL_PLANE in run("upgrade", "apply", "v1.36.1", "--config", path)[1]
    path = file(tmp_path, "UpgradeConfiguration", "apply: {kubernetesVersion: v1.36.9, forceUpgrade: true}\n")
    assert NO_CONTROL_PLANE in run("upgrade", "apply", "--config", path)[1]


@pytest.mark.parametrize("words", [["reset", "a", "b"], ["reset", "phase", "preflight", "a"]])
def test_some_commands_take_any_arguments(words, run):
    assert run(*words, "--ignore-preflight-errors=all")[0] == 0


def test_plan_takes_any_arguments_and_needs_a_kubeconfig(run, tmp_path):
    for words in ([], ["a", "b"]):
        code, err = run("upgrade", "plan", *words, "--kubeconfig", str(tmp_path / "none"))
        assert (code, str(tmp_path / "none") in err.splitlines()[0]) == (1, True)
