"""Commands and flags that kubeadm lacks, each by name: the reference data does not contain them."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

from kubewright.agent.configuration.flags import FLAGS, OURS
from kubewright.base.errors import UsageError
from kubewright.cli.handlers import local
from kubewright.cli.parsing.parser import parse
from kubewright.cli.rows import commands
from kubewright.cli.rows.model import INT, INT32

_ROWS = json.loads((Path(__file__).parents[2] / "data" / "reference" / "commands.json").read_text())
KUBEADMS = {row["command"].partition(" ")[2]: row for row in _ROWS}
_HUB = "config key-file output state state-kubeconfig"
_NODE = "accept-kubelet-fields apiserver-ca-cert-file apiserver-endpoint container-runtime-endpoint extra-san{} image-service-endpoint join-key-fingerprint join-token nodename output plan"
_RESTORE = "again etcdutl fence from-this-member output peers-are-gone plan unfence yes"
_BACKUP_RESTORE = "etcdutl key-file output peers-are-gone plan yes"
_ETCD = "cert-dir endpoints output"
OWN = {
    "up": "address binaries-dir client-certificates cni config control-planes controllers kubernetes-version machines mount name nodes output publish registry-config serving-certificates state-dir wait",
    "down": "keep-data name output state-dir",
    "local": "",
    "local status": "name output state-dir",
    "local logs": "follow machine name state-dir tail",
    "local list": "output state-dir",
    "local env": "name output state-dir",
    "local export": "name output state-dir",
    "local use": "kubeconfig name output state-dir",
    "local shell": "name state-dir",
    "local load": "name output state-dir",
    "local publish": "address list name output remove state-dir",
    "local machine": "",
    "local machine add": "binaries-dir name output state-dir",
    "local machine kill": "name output state-dir",
    "local machine pause": "name output state-dir",
    "local machine remove": "name output state-dir",
    "local machine start": "binaries-dir name output state-dir",
    "local machine stop": "name output state-dir",
    "binaries": "",
    "binaries list": "binaries-dir kubernetes-version output",
    "binaries fetch": "binaries-dir kubernetes-version output",
    "binaries verify": "binaries-dir kubernetes-version output",
    "preflight": "",
    "preflight init": "apiserver-advertise-address apiserver-bind-port cert-dir config cri-socket ignore-preflight-errors image-repository"
    " kubernetes-version node-name output pod-network-cidr service-cidr",
    "preflight join": "apiserver-advertise-address apiserver-bind-port config control-plane cri-socket discovery-file discovery-token"
    " discovery-token-ca-cert-hash discovery-token-unsafe-skip-ca-verification ignore-preflight-errors node-name output tls-bootstrap-token"
    " token",
    "preflight machines": "binaries-dir output",
    "config explain": "kubeconfig output",
    "config diff": "config kubeconfig output",
    "agent": "",
    "agent run": " ".join(sorted(flag.name for flag in (*FLAGS, *OURS))),  # the kubelet's, and ours: tests/compat/test_kubelet_flags.py
    "agent install": " ".join(sorted(["output", "plan", *(flag.name for flag in (*FLAGS, *OURS))])),
    "agent leave": "kubeconfig output plan root-dir skip-phases",
    "agent leave phase": "",
    "agent leave phase preflight": "kubeconfig output plan root-dir",
    "agent leave phase service": "output plan root-dir",
    "agent leave phase objects": "kubeconfig output plan root-dir",
    "agent leave phase files": "output plan root-dir",
    "agent status": "output root-dir",
    "certs renew kubewright-controllers.conf": "cert-dir config kubeconfig output plan",
    "controllers": "",
    "controllers audit": "kubeconfig kubelet-certificate-authority node-policy output timeout",
    "controllers manifest": "ca-secret controllers image output replicas",
    "controllers run": "authentication-kubeconfig authorization-kubeconfig bind-address cluster-signing-cert-file cluster-signing-duration"
    " cluster-signing-key-file cluster-signing-kube-apiserver-client-cert-file cluster-signing-kube-apiserver-client-key-file"
    " cluster-signing-kubelet-client-cert-file cluster-signing-kubelet-client-key-file cluster-signing-kubelet-serving-cert-file"
    " cluster-signing-kubelet-serving-key-file cluster-signing-legacy-unknown-cert-file cluster-signing-legacy-unknown-key-file config controllers"
    " journal kube-api-burst kube-api-qps kubeconfig leader-elect leader-elect-lease-duration leader-elect-renew-deadline"
    " leader-elect-resource-lock leader-elect-resource-name leader-elect-resource-namespace leader-elect-retry-period node-policy secure-port"
    " tls-cert-file tls-private-key-file",
    "csr": "",
    "csr list": "kubeconfig node-policy output pending",
    "csr show": "kubeconfig node-policy output",
    "csr approve": "all-matching journal kubeconfig node-policy output override",
    "csr deny": "all-matching journal kubeconfig message output",
    "csr explain": "kubeconfig node-policy output signer usages username",
    "hub": "",
    "hub run": "authentication-kubeconfig authorization-kubeconfig bind-address config keep-journal keep-journal-lines key-file leader-elect"
    " leader-elect-lease-duration leader-elect-renew-deadline leader-elect-retry-period secure-port state state-kubeconfig tls-cert-file"
    " tls-private-key-file",
    "hub cluster": "",
    "hub cluster add": "allow-names allow-node-names allow-ranges approval certificate-lifetime client-ca-cert-file client-ca-key-file config keep-requests key-algorithm key-file"
    " kubeconfig kubelet-client-ca-file kubelet-config kubernetes-version output pod-network-cidr reserved-names server service-cidr"
    " service-dns-domain serving-ca-cert-file serving-ca-key-file state state-kubeconfig vpn-cidr vpn-endpoint vpn-interface vpn-keepalive vpn-mtu vpn-server",
    "hub cluster list": _HUB,
    "hub cluster remove": _HUB,
    "hub cluster rotate-vpn-key": _HUB,
    "hub import": "config dry-run key-file output state state-kubeconfig token-ttl",
    "hub token": "",
    "hub token create": "config description key-file output state state-kubeconfig ttl",
    "hub token list": _HUB,
    "hub token revoke": _HUB,
    "hub requests": _HUB,
    **{f"hub requests {verb}": _HUB for verb in ("approve", "refuse", "forget")},
    "hub journal": _HUB,
    "hub nodes": _HUB,
    "hub backup": _HUB,
    "hub restore": _HUB,
    "hub migrate": _HUB,
    "node": "",
    "node join": _NODE.format(" ignore-preflight-errors") + " skip-phases",
    "node join phase": "",
    "node join phase preflight": _NODE.format(" ignore-preflight-errors"),
    **{
        f"node join phase {name}": _NODE.format("")
        for name in ("request", "answer", "kubelet-install", "tunnel", "files", "forget-key", "tunnel-start", "kubelet-start", "node-ready")
    },
    "node leave": "drain drain-timeout output plan skip-phases",
    "node leave phase": "",
    "node leave phase drain": "drain drain-timeout output plan",
    **{f"node leave phase {name}": "output plan" for name in ("kubelet-stop", "depart", "cleanup-node")},
    "node rotate-vpn-key": "hub-key output plan skip-phases",
    "node rotate-vpn-key phase": "",
    "node rotate-vpn-key phase hub-key": "hub-key output plan",
    **{f"node rotate-vpn-key phase {name}": "output plan" for name in ("vpn-key", "offer", "use-key", "taken", "forget-key")},
    "etcd": "",
    "etcd status": _ETCD,
    "etcd member": "",
    "etcd member list": _ETCD,
    "upgrade status": "kubeconfig output",
    "upgrade rollback": "output plan yes",
    "upgrade rollback phase": "",
    "upgrade rollback phase preflight": "output plan yes",
    "upgrade rollback phase cluster": "output plan",
    "upgrade rollback phase control-plane": "output plan",
    "etcd member remove": f"{_ETCD} yes",
    "etcd member replace": "after again endpoints output plan yes",
    "etcd member replace phase": "",
    "etcd member replace phase preflight": "after again endpoints output plan yes",
    "etcd member replace phase replace": "again endpoints output plan yes",
    "etcd restore": _RESTORE,
    "etcd restore phase": "",
    "etcd restore phase preflight": _RESTORE,
    "etcd restore phase restore": _RESTORE,
    "backup": "",
    "backup create": "key-file local output plain",
    "backup show": "key-file output",
    "backup restore": _BACKUP_RESTORE,
    "backup restore phase": "",
    "backup restore phase preflight": _BACKUP_RESTORE,
    "backup restore phase restore": _BACKUP_RESTORE,
    "etcd snapshot": "",
    "etcd snapshot save": "cert-dir endpoints local output",
    "etcd snapshot verify": "etcdutl output",
    "recover": "output",
    "help": "",
    "alpha": "",
}
MORE = {
    "output": 102,
    "plan": 89,
    "adopt": 2,
    "drain": 2,
    "skip-dead": 2,
    "keep-changes": 2,
    "kubelet": 2,
    "cleanup-cni": 1,
    "cleanup-packet-filter": 1,
    "delete-node": 1,
    "fail-within": 1,
    "token-file": 1,
    "print-bootstrap-kubeconfig": 1,
    "serving-certificates": 1,
    "controllers-image": 1,
    "client-certificates": 1,
    "node-cidrs": 1,
    "node": 1,
    "address": 1,
    "name": 1,
}
"""How many of kubeadm's commands have which flag in addition to kubeadm's."""


def test_additional_commands_have_these_flags():
    found = {row.path: " ".join(sorted(flag.name for flag in row.flags)) for row in commands.TABLE.every() if row.path not in KUBEADMS}
    assert found == OWN


def test_additional_flags_of_kubeadm_commands_are_counted():
    found: Counter[str] = Counter()
    for row in commands.TABLE.every():
        if row.words and row.path in KUBEADMS:
            kubeadms = KUBEADMS[row.path]
            known = {flag["name"] for kind in ("flags", "hidden_deprecated_flags") for flag in kubeadms.get(kind, ())}
            found.update(flag.name for flag in row.flags if flag.name not in {*known, *kubeadms["inherited_flags"]})
    assert found == MORE


def test_defaults_are_of_the_kind_of_their_flag():
    numbers = [flag for row in commands.TABLE.every() for flag in row.flags if flag.kind in {INT, INT32}]
    assert len(numbers) > 20
    assert [flag.name for flag in numbers if flag.default is not None and not isinstance(flag.default, int)] == []


def test_every_command_has_examples_that_call_it():
    rows = [
        row for row in commands.TABLE.every() if row.handler and row.path not in KUBEADMS and " phase " not in row.path and not row.hidden
    ]
    assert [row.path for row in rows if not row.examples] == []
    assert len(rows) >= len(OWN) / 2
    for row in rows:
        for example in row.examples:
            words = shlex.split(
                re.sub(r"^.*\$\(kubewright (.*)\).*$", r"\1", example).partition(" |")[0].partition(" >")[0].partition(" <")[0]
            )
            assert parse(words, program="kubewright").command.path == row.path


@pytest.mark.parametrize("words", [("down", ""), ("local", "status", ""), ("local", "env", ""), ("local", "use", "")])
def test_an_empty_name_is_not_that_of_the_default_cluster(words, tmp_path):
    """`down "$CLUSTER"` in a shell without this variable would remove another cluster."""
    parsed = parse([*words, "--state-dir", str(tmp_path)], program="kubewright")
    handler = {"down": local.down, "status": local.status, "env": local.env, "use": local.use}[words[-2]]
    with pytest.raises(UsageError, match='"" cannot be the name of a cluster'):
        handler(parsed)


def test_a_name_may_be_given_twice_if_it_is_the_same(tmp_path, capsys):
    for words in (("dev", "--name", "dev"), ("dev",), ("--name", "dev")):
        assert local.down(parse(["down", *words, "--state-dir", str(tmp_path)], program="kubewright")) == 0
    assert capsys.readouterr().out == "cluster dev does not exist; nothing to do\n" * 3
    with pytest.raises(UsageError, match="two clusters are specified, dev and other"):
        local.down(parse(["down", "dev", "--name", "other", "--state-dir", str(tmp_path)], program="kubewright"))


def test_a_number_of_lines_is_not_negative(tmp_path):
    with pytest.raises(UsageError, match="--tail -5 is not possible"):
        local.logs(parse(["local", "logs", "--tail", "-5", "--state-dir", str(tmp_path)], program="kubewright"))


@pytest.mark.parametrize(
    ("words", "what", "remedy"),
    [
        (("--nodes", "-1"), "--nodes -1 is not possible", "choose 0 to 30000"),
        (("--nodes", "30001"), "--nodes 30001 is not possible", "choose 0 to 30000"),
        (("--nodes", "-1", "--machines"), "--nodes -1 is not possible", "choose 0 to 150"),
        (("--nodes", "151", "--machines"), "--nodes 151 is not possible", "choose 0 to 150"),
        (("--control-planes", "8", "--machines"), "--control-planes 8 is not possible", "choose 1 to 7"),
    ],
)
def test_numbers_of_nodes_are_limited_by_the_kind_of_cluster(words, what, remedy, tmp_path):
    with pytest.raises(UsageError) as caught:
        local.up(parse(["up", *words, "--state-dir", str(tmp_path / "state")], program="kubewright"))
    assert (caught.value.what, caught.value.remedy) == (what, remedy)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wait", ["0", "0s", "-5s"])
def test_waiting_for_no_time_is_refused_before_anything_is_started(wait, tmp_path):
    with pytest.raises(UsageError, match=f"--wait {wait} is not possible"):
        local.up(parse(["up", "--wait", wait, "--state-dir", str(tmp_path / "state")], program="kubewright"))
    assert list(tmp_path.iterdir()) == []
