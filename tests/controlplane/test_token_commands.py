"""`token create`, `list` and `delete` with a real API server, compared with real kubeadm on the same cluster."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest

from kubewright import binaries
from kubewright.apis import node_approval
from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document
from kubewright.base import yaml
from kubewright.base.errors import AlreadyExists
from kubewright.base.level import KUBERNETES
from kubewright.cli.main import main
from kubewright.kube.resources import CONFIG_MAP, SECRET
from kubewright.manifests import node_policy
from kubewright.pki import pins
from kubewright.tokens import is_valid

TOKEN = "abcdef.0123456789abcdef"
SPACE = "kube-system"
CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens:
- {token: aaaaaa.0123456789abcdef, description: from a file, ttl: 2h, usages: [authentication]}
- {token: bbbbbb.0123456789abcdef, ttl: 0s, groups: ['system:bootstrappers:x']}
"""


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str


class Cluster:
    """One API server, its administrator's kubeconfig, and both tools."""

    def __init__(self, apiserver, client, place) -> None:
        self.client, self.place, self.ca_pem, self.url = client, place, apiserver.ca_pem, apiserver.url
        identity = apiserver.identity("kubernetes-admin", "system:masters")
        credentials = EmbeddedCertificate(certificate_pem=identity.cert_pem, key_pem=identity.key_pem)
        document = kubeconfig_document(
            server=apiserver.url, cluster_name="kubernetes", user="admin", ca_pem=apiserver.ca_pem, credentials=credentials
        )
        self.kubeconfig = place / "admin.conf"
        self.kubeconfig.write_text(yaml.dump(document))

    def kubewright(self, *argv: object, named: bool = True) -> Run:
        out, err = io.StringIO(), io.StringIO()
        words = [*map(str, argv), *(("--kubeconfig", str(self.kubeconfig)) if named else ())]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["token", *words])
        return Run(code, out.getvalue(), err.getvalue())

    def kubeadm(self, *argv: object) -> Run:
        found = binaries.locate(("kubeadm",), version=KUBERNETES, sources=binaries.sources_from(os.environ)).found
        if "kubeadm" not in found:
            pytest.skip("no kubeadm: run `kubewright binaries fetch kubeadm`, or set KUBEWRIGHT_BINARIES_DIR")
        words = [str(found["kubeadm"].path), "token", *map(str, argv), "--kubeconfig", str(self.kubeconfig)]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=900)
        return Run(done.returncode, done.stdout, done.stderr)

    def both(self, *argv: object) -> tuple[Run, Run]:
        return self.kubewright(*argv), self.kubeadm(*argv)

    def secret(self, token_id):
        return self.client.get(SECRET, f"bootstrap-token-{token_id}", SPACE)

    def names(self):
        return sorted(one["metadata"]["name"] for one in self.client.list(SECRET, SPACE))

    def clear(self):
        for one in self.client.list(SECRET, SPACE):
            self.client.delete(SECRET, one["metadata"]["name"], SPACE)


@pytest.fixture
def cluster(apiserver, admin, tmp_path):
    with contextlib.suppress(AlreadyExists):
        admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    cluster = Cluster(apiserver, admin, tmp_path)
    cluster.clear()
    yield cluster
    cluster.clear()


def test_a_token_is_created_and_printed(cluster):
    run = cluster.kubewright("create")
    assert (run.code, run.err) == (0, "")
    assert is_valid(run.out.removesuffix("\n"))
    assert cluster.names() == [f"bootstrap-token-{run.out[:6]}"]


ARGUMENTS = [
    (),
    ("--ttl", "0"),
    ("--ttl", "1h30m"),
    ("--ttl", "50h"),
    ("--ttl", "9000h"),
    ("--description", "for the lab", "--groups", "system:bootstrappers:a,system:bootstrappers:b"),
    ("--usages", "authentication"),
    ("--usages", "authentication", "--usages", "signing"),
]


@pytest.mark.parametrize("argv", ARGUMENTS)
def test_the_secret_equals_that_of_kubeadm(cluster, argv):
    found = []
    for create in (cluster.kubewright, cluster.kubeadm):
        assert create("create", TOKEN, *argv).out == f"{TOKEN}\n"
        secret = cluster.secret("abcdef")
        expiration = secret["data"].pop("expiration", None)
        found.append((secret["data"], secret["type"], sorted(secret["metadata"]), expiration is None))
        cluster.clear()
    ours, theirs = found
    assert ours == theirs


def test_groups_need_authentication(cluster):
    ours, theirs = cluster.both("create", TOKEN, "--usages", "signing")
    assert (ours.code, theirs.code) == (1, 1)
    assert cluster.names() == []


def masked(text):
    """Seconds pass between two runs."""
    return re.sub(r"\b(\d+m)?\d+s\b", "0s", text)


def test_the_list_equals_that_of_kubeadm_in_every_format(cluster):
    for index, argv in enumerate(ARGUMENTS):
        assert cluster.kubewright("create", f"{index}bcdef.0123456789abcdef", *argv).code == 0
    for form in ("text", "json", "yaml"):
        ours, theirs = cluster.both("list", "-o", form)
        assert (ours.code, theirs.code) == (0, 0)
        assert masked(ours.out) == masked(theirs.out)
        assert ours.out.count("0123456789abcdef") == len(ARGUMENTS)


FORMS = (
    "kyaml",
    "jsonpath={.token} {.usages[*]} {.description}",
    "jsonpath-as-json={.usages}",
    "go-template={{.token}} {{len .groups}} {{.description}}\n",
    "go-template={{range .usages}}{{.}},{{else}}none{{end}}{{with .expires}} until{{end}};",
)


@pytest.mark.parametrize("form", FORMS)
def test_templates_and_paths_are_applied_to_each_token(cluster, form):
    for index, argv in enumerate(ARGUMENTS[:7]):
        assert cluster.kubewright("create", f"{index}bcdef.0123456789abcdef", *argv).code == 0
    ours, theirs = cluster.both("list", "-o", form)
    assert (ours.code, theirs.code) == (0, 0)
    assert ours.out == theirs.out
    assert len(ours.out) > 100


def test_a_range_in_a_template_works_for_the_second_token_too(cluster):
    """kubeadm's template has lost its beginning at the second object."""
    form = "jsonpath={range .groups[*]}<{@}>{end};"
    assert cluster.kubewright("create", TOKEN).code == 0
    ours, theirs = cluster.both("list", "-o", form)
    assert (ours.out, ours.code) == (theirs.out, theirs.code) == ("<system:bootstrappers:kubeadm:default-node-token>;", 0)
    assert cluster.kubewright("create", "bbcdef.0123456789abcdef").code == 0
    ours, theirs = cluster.both("list", "-o", form)
    assert (ours.out, ours.code) == ("<system:bootstrappers:kubeadm:default-node-token>;" * 2, 0)
    assert theirs.code == 1
    assert "not in range, nothing to end" in theirs.err


def altered(cluster, which, **data: str):

    assert cluster.kubewright("create", f"{which}.0123456789abcdef").code == 0
    secret = cluster.secret(which)
    secret["data"] |= {key.replace("_", "-"): base64.b64encode(value.encode()).decode() for key, value in data.items()}
    cluster.client.update(secret)


def test_odd_tokens_are_listed_as_kubeadm_does(cluster):
    altered(cluster, "aaaaaa", expiration="2020-01-01T00:00:00Z")
    altered(cluster, "bbbbbb", usage_bootstrap_signing="false", usage_bootstrap_authentication="false", auth_extra_groups="")
    altered(cluster, "cccccc", description="x" * 70)
    altered(cluster, "dddddd", usage_bootstrap_other="true")
    for form in ("text", "json", "yaml"):
        ours, theirs = cluster.both("list", "-o", form)
        assert masked(ours.out) == masked(theirs.out)
        assert ours.err == ""


@pytest.mark.parametrize("data", [{"expiration": "tomorrow"}, {"token_secret": "short"}, {"token_id": "another"}])
def test_secrets_without_a_token_are_reported_and_skipped(cluster, data):
    altered(cluster, "aaaaaa")
    altered(cluster, "bbbbbb", **data)
    ours, theirs = cluster.both("list")
    assert (ours.code, theirs.code) == (0, 0)
    assert ours.out == theirs.out
    assert ours.out.count("\n") == 2
    assert "bootstrap-token-bbbbbb" in ours.err
    assert "0123456789abcdef" not in ours.err


def test_an_empty_list_prints_nothing(cluster):
    for form in ("text", "json", "yaml"):
        ours, theirs = cluster.both("list", "-o", form)
        assert (ours.code, ours.out, theirs.out) == (0, "", "")


def test_an_existing_token_id_is_an_error_and_changes_nothing(cluster):
    cluster.kubewright("create", TOKEN, "--description", "first")
    before = cluster.secret("abcdef")
    ours, theirs = cluster.both("create", "abcdef.aaaaaaaaaaaaaaaa")
    assert (ours.code, theirs.code, ours.out) == (1, 1, "")
    assert "exists already" in ours.err
    assert cluster.secret("abcdef") == before


def test_tokens_are_deleted_by_id_and_as_a_whole(cluster):
    for token in (TOKEN, "bbbbbb.0123456789abcdef", "cccccc.0123456789abcdef"):
        cluster.kubewright("create", token)
    run = cluster.kubewright("delete", "abcdef", "bbbbbb.0123456789abcdef")
    assert (run.code, run.out) == (0, 'bootstrap token "abcdef" deleted\nbootstrap token "bbbbbb" deleted\n')
    assert cluster.names() == ["bootstrap-token-cccccc"]
    cluster.kubewright("create", TOKEN)
    ours, theirs = (delete("delete", "abcdef") for delete in (cluster.kubewright, cluster.kubeadm))
    assert (ours.code, theirs.code) == (0, 1)
    cluster.kubewright("create", TOKEN)
    assert cluster.kubeadm("delete", "abcdef").out == ours.out


@pytest.mark.parametrize("argv", [(), ("abcde",), ("abcdef.short",), ("ABCDEF",), ("cccccc", "nonsense")])
def test_an_invalid_token_is_refused_before_anything_is_deleted(cluster, argv):
    cluster.kubewright("create", "cccccc.0123456789abcdef")
    ours = cluster.kubewright("delete", *argv)
    assert (ours.code, ours.out) == (1, "")
    assert cluster.names() == ["bootstrap-token-cccccc"]
    assert cluster.kubeadm("delete", *argv).code == 1
    assert cluster.names() == ([] if argv == ("cccccc", "nonsense") else ["bootstrap-token-cccccc"])


KEY = "0123456789abcdef" * 4


@pytest.mark.parametrize("argv", [(), ("--certificate-key", KEY)])
def test_the_join_command_equals_that_of_kubeadm(cluster, argv, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/bin/kubeadm"])
    ours, theirs = (
        run("create", token, "--print-join-command", *argv).out.replace(token, TOKEN)
        for run, token in ((cluster.kubewright, "aaaaaa.0123456789abcdef"), (cluster.kubeadm, "bbbbbb.0123456789abcdef"))
    )
    assert ours == theirs
    assert pins.pin(cluster.ca_pem) in ours


def test_the_join_command_names_the_program_that_was_called(cluster, monkeypatch):
    commands = {}
    for program in ("kubeadm", "kubewright"):
        monkeypatch.setattr("sys.argv", [f"/usr/bin/{program}"])
        commands[program] = cluster.kubewright("create", TOKEN, "--print-join-command").out
        cluster.clear()
    assert commands["kubewright"].startswith("kubewright join ")
    assert commands["kubewright"].replace("kubewright", "kubeadm", 1) == commands["kubeadm"]


def test_a_bundle_is_pinned_as_a_whole(cluster, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/bin/kubeadm"])
    document = yaml.load(cluster.kubeconfig.read_text())

    import trustme

    bundle = cluster.ca_pem + trustme.CA().cert_pem.bytes()
    document["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(bundle).decode()
    cluster.kubeconfig.write_text(yaml.dump(document))
    run = cluster.kubewright("create", TOKEN, "--print-join-command")
    assert run.out.count("--discovery-token-ca-cert-hash sha256:") == 2
    cluster.clear()
    assert run.out == cluster.kubeadm("create", TOKEN, "--print-join-command").out


POLICY = """apiVersion: controllers.kubewright/v1alpha1
kind: NodeApprovalPolicy
sources: [{file: {nodes: [{node: one, addresses: [10.1.4.1]}]}}]
reserved: [10.1.4.100]
clients: strict
"""


@pytest.fixture
def policy(cluster):
    """The ConfigMap with a policy of nodes, as `init --serving-certificates strict` creates it."""
    cluster.client.create(node_policy.config_map(POLICY))
    yield lambda: node_approval.read(stored(cluster).encode(), source="the policy")
    cluster.client.delete(CONFIG_MAP, node_policy.NAME, SPACE)


def stored(cluster):
    return cluster.client.get(CONFIG_MAP, node_policy.NAME, SPACE)["data"][node_policy.KEY]


def test_a_token_for_a_node_is_written_into_the_policy_with_its_addresses(cluster, policy):
    run = cluster.kubewright(
        "create", "aaaaaa.0123456789abcdef", "--node=worker-1", "--address=10.1.4.7,2001:db8::7", "--print-join-command"
    )
    assert (run.code, run.err) == (0, "")
    assert run.out.count(" --node-name worker-1 ") == 1
    row = policy().row("worker-1")
    assert (row.lists("10.1.4.7"), row.lists("2001:db8::7"), row.tokens) == (True, True, {"aaaaaa"})
    assert cluster.kubewright("delete", "aaaaaa").code == 0
    assert cluster.kubewright("create", "bbbbbb.0123456789abcdef", "--node=worker-1").code == 0
    again = policy().row("worker-1")
    assert (again.lists("10.1.4.7"), again.tokens) == (True, {"bbbbbb"})
    assert (policy().clients, len(policy().rows)) == ("strict", 2)


REFUSED = {
    "--address=10.1.4.100": "the policy reserves 10.1.4.100",
    "--address=10.1.4": '--address: Invalid value: "10.1.4"',
    "--name=UPPER": '--name: Invalid value: "UPPER"',
    "": 'the policy gives no address to "worker-1"',
}


@pytest.mark.parametrize("flag", REFUSED)
def test_a_node_that_the_policy_cannot_have_gets_no_token(cluster, policy, flag):
    run = cluster.kubewright("create", TOKEN, "--node=worker-1", *([flag] if flag else []))
    assert (run.code, run.out, REFUSED[flag] in run.err) == (1, "", True), run.err
    assert cluster.names() == []
    assert stored(cluster) == POLICY


def test_a_token_for_a_node_needs_a_policy(cluster):
    run = cluster.kubewright("create", TOKEN, "--node=worker-1", "--address=10.1.4.7")
    assert (run.code, "no ConfigMap kube-system/kubewright-node-policy" in run.err) == (1, True)
    run = cluster.kubewright("create", TOKEN, "--address=10.1.4.7")
    assert (run.code, "--address needs --node" in run.err) == (1, True)
    assert cluster.names() == []


def test_a_dry_run_shows_the_row_of_the_node(cluster, policy):
    run = cluster.kubewright("create", TOKEN, "--node=worker-1", "--address=10.1.4.7", "--dry-run")
    assert (run.code, "worker-1" in run.out) == (0, True)
    assert stored(cluster) == POLICY


@pytest.mark.parametrize(
    "argv",
    [
        ("--certificate-key", KEY),
        ("--certificate-key", "short", "--print-join-command"),
        ("--usages", "flying"),
        ("--groups", "system:masters"),
        ("--print-join-command", "--print-bootstrap-kubeconfig"),
    ],
)
def test_a_refused_command_creates_no_token(cluster, argv):
    """kubeadm creates the token, and then finds that the certificate key cannot be used."""
    run = cluster.kubewright("create", TOKEN, *argv)
    assert (run.code, run.out) == (1, "")
    assert KEY not in run.err
    assert cluster.names() == []


def test_kubeadm_creates_the_token_before_it_refuses_the_certificate_key(cluster):
    assert cluster.kubeadm("create", TOKEN, "--certificate-key", KEY).code == 1
    assert cluster.names() == ["bootstrap-token-abcdef"]


def test_the_bootstrap_kubeconfig_contains_the_token(cluster):
    run = cluster.kubewright("create", TOKEN, "--print-bootstrap-kubeconfig")
    document = yaml.load(run.out)
    assert document["users"] == [{"name": "tls-bootstrap-token-user", "user": {"token": TOKEN}}]
    assert document["current-context"] == "tls-bootstrap-token-user@kubernetes"
    assert document["clusters"][0]["cluster"]["server"] == cluster.url
    assert cluster.names() == ["bootstrap-token-abcdef"]


def test_tokens_of_a_file_are_created(cluster):
    path = cluster.place / "kubeadm.yaml"
    path.write_text(CONFIG)
    found = []
    for run in (cluster.kubewright, cluster.kubeadm):
        assert run("create", "--config", path).out == "aaaaaa.0123456789abcdef\n"
        found.append(
            [{**cluster.secret(one)["data"], "expiration": "expiration" in cluster.secret(one)["data"]} for one in ("aaaaaa", "bbbbbb")]
        )
        cluster.clear()
    assert found[0] == found[1]
    ours, theirs = cluster.both("create", "--config", path, "--ttl", "1h")
    assert (ours.code, theirs.code) == (1, 1)
    assert cluster.names() == []


def test_either_all_tokens_of_a_file_are_created_or_none(cluster):
    """kubeadm creates those before the one whose id exists."""
    path = cluster.place / "kubeadm.yaml"
    path.write_text(CONFIG)
    cluster.kubewright("create", "bbbbbb.aaaaaaaaaaaaaaaa")
    assert cluster.kubewright("create", "--config", path).code == 1
    assert cluster.names() == ["bootstrap-token-bbbbbb"]
    assert cluster.kubeadm("create", "--config", path).code == 1
    assert cluster.names() == ["bootstrap-token-aaaaaa", "bootstrap-token-bbbbbb"]


def test_a_token_can_be_read_from_a_file_or_stdin(cluster, monkeypatch):
    path = cluster.place / "token"
    path.write_text(f"{TOKEN}\n")
    assert cluster.kubewright("create", path).out == f"{TOKEN}\n"
    assert cluster.kubewright("delete", path).out == 'bootstrap token "abcdef" deleted\n'
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{TOKEN}\n"))
    assert cluster.kubewright("create", "-").out == f"{TOKEN}\n"
    assert cluster.kubewright("create", cluster.place / "none").code == 1


def test_a_dry_run_sends_nothing_and_hides_secrets(cluster):
    run = cluster.kubewright("create", TOKEN, "--dry-run")
    theirs = cluster.kubeadm("create", TOKEN, "--dry-run")
    assert (run.code, theirs.code) == (0, 0)
    assert run.out.splitlines()[-1] == theirs.out.splitlines()[-1] == TOKEN
    assert [line for line in run.out.splitlines() if "CREATE" in line] == [line for line in theirs.out.splitlines() if "CREATE" in line]
    assert "MDEyMzQ1Njc4OWFiY2RlZg" not in run.out
    assert cluster.names() == []
    cluster.kubewright("create", TOKEN)
    assert cluster.kubewright("create", TOKEN, "--dry-run").code == 1
    assert 'bootstrap token "abcdef" deleted' in cluster.kubewright("delete", "abcdef", "--dry-run").out
    assert cluster.names() == ["bootstrap-token-abcdef"]


def test_a_dry_run_works_without_the_cluster(cluster):
    document = yaml.load(cluster.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    cluster.kubeconfig.write_text(yaml.dump(document))
    assert cluster.kubewright("create", TOKEN).code == 1
    assert cluster.kubewright("create", TOKEN, "--dry-run").code == 0
    run = cluster.kubewright("delete", "abcdef", "--dry-run")
    assert run.out.endswith('bootstrap token "abcdef" deleted\n') or 'bootstrap token "abcdef" deleted\n' in run.out
    assert "which tokens exist is not known" in run.err


def test_the_kubeconfig_comes_from_the_flag_the_environment_or_the_home(cluster, monkeypatch):
    home = cluster.place / "home"
    (home / ".kube").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("KUBECONFIG", f"{cluster.place / 'none'}:{cluster.kubeconfig}")
    assert cluster.kubewright("create", TOKEN, named=False).code == 0
    monkeypatch.delenv("KUBECONFIG")
    (home / ".kube" / "config").write_text(cluster.kubeconfig.read_text())
    assert TOKEN in cluster.kubewright("list", named=False).out
    (home / ".kube" / "config").unlink()
    run = cluster.kubewright("list", named=False)
    if not os.path.exists("/etc/kubernetes/admin.conf"):  # noqa: PTH110
        assert run.code == 1
        assert "/etc/kubernetes/admin.conf" in run.err


def test_structured_results_of_create_and_delete(cluster, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/bin/kubewright"])
    made = json.loads(cluster.kubewright("create", TOKEN, "--print-join-command", "-o", "json").out)
    assert (made["kind"], made["token"], made["joinCommand"].split()[:2]) == ("BootstrapToken", TOKEN, ["kubewright", "join"])
    assert json.loads(cluster.kubewright("delete", "abcdef", "-o", "json").out) == {"deleted": ["abcdef"]}


def test_the_log_has_each_request_and_no_secret(cluster):
    run = cluster.kubewright("create", TOKEN, "-v", "10")
    assert (run.code, run.out) == (0, f"{TOKEN}\n")
    requests = [line for line in run.err.splitlines() if '] "Response" verb=' in line]
    assert requests
    assert re.search(
        rf'"Response" verb="POST" url="{cluster.url}/api/v1/namespaces/kube-system/secrets[^"]*" status="201" milliseconds=', run.err
    )
    key = base64.b64encode(TOKEN.partition(".")[2].encode()).decode()
    assert [text for text in (TOKEN.partition(".")[2], key, "PRIVATE") if text in run.err] == []


def test_a_flag_may_stand_before_the_sub_command(cluster):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["token", "--kubeconfig", str(cluster.kubeconfig), "create", TOKEN]) == 0
    assert out.getvalue() == f"{TOKEN}\n"
