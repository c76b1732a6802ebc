"""Command lines, right and wrong, for real kubeadm and for kubewright called as `kubeadm`, on machines without a cluster.

Each line must end with the same exit code. SAME lines also give the same first line of stderr and the same stdout;
TEXT lines the same stdout. No line of ours names kubewright.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from arena import Arena, Request, arena
from certs_comparison import find_kubeadm
from command_kit import first_error, named

SOURCE = Path(__file__).parents[2] / "src"
TOKEN = "abcdef.0123456789abcdef"
FOUND = f"join 10.0.0.1:6443 --token {TOKEN} --discovery-token-unsafe-skip-ca-verification"
ALL_OF_KUBEADMS = json.loads((Path(__file__).parents[1] / "data" / "reference" / "commands.json").read_text())

FILES = {
    "/srv/join.yaml": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n"
    f"discovery: {{bootstrapToken: {{apiServerEndpoint: '10.0.0.1:6443', token: {TOKEN}, unsafeSkipCAVerification: true}}}}\n",
    "/srv/control-plane.yaml": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ncontrolPlane: {}\n"
    f"discovery: {{bootstrapToken: {{apiServerEndpoint: '10.0.0.1:6443', token: {TOKEN}, unsafeSkipCAVerification: true}}}}\n",
    "/srv/reset.yaml": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ResetConfiguration\n",
    "/srv/skipping.yaml": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ResetConfiguration\nskipPhases: [nonsense]\n",
    "/srv/upgrade.yaml": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: UpgradeConfiguration\napply: {kubernetesVersion: v1.36.3}\n",
}

SAME = (
    # commands
    "nonsense",
    "nonsense --help",
    "generate",
    "certs nonsense",
    "certificates nonsense",
    "certs renew nonsense",
    "init nonsense",
    "init phase nonsense",
    "init phase certs nonsense",
    "init phase uploadconfig nonsense",
    "init phase bootstraptoken nonsense",
    "join phase check-etcd",
    "join phase control-plane-join etcd",
    "join phase control-plane-prepare control-plane x",
    "upgrade apply phase kubeconfig",
    "upgrade node phase kubeconfig",
    "upgrade node x",
    "reset phase nonsense",
    "--dry-run token generate",
    "upgrade apply --dry-run phase preflight",
    "join --dry-run phase preflight",
    'certs "a',
    # flags
    "--nonsense",
    "version --nonsense",
    "version --nonsense extra",
    "version extra --nonsense",
    "version --help --nonsense",
    "kubeconfig --nonsense",
    "alpha --nonsense",
    "help --nonsense",
    "version --out",
    "version --out_put",
    "version --dry-run",
    "version -x",
    "version -hx",
    "version ---x",
    "version --=x",
    "version --output",
    "version -o",
    "version -v",
    "--v",
    "--rootfs",
    "certs -o",
    "version -vx",
    "version --v=x",
    "version --v=0x1",
    "version --v=1.5",
    "version --vmodule x",
    "version --vmodule=a=x",
    "version --help=x",
    "init --dry-run=maybe",
    "init --dry-run false",
    "init --apiserver-bind-port abc",
    "init --apiserver-bind-port 99999999999",
    "init --token-ttl x",
    "init --token-ttl 5",
    'init --skip-phases a"b',
    "init phase control-plane scheduler --scheduler-extra-args a",
    "upgrade diff -c x",
    "upgrade apply -yx v1.36.3",
    "upgrade apply -f= v1.36.3",
    "upgrade apply v1.36.3 -y=maybe",
    "upgrade node --force",
    # arguments
    "version x",
    "version -- x",
    "version -",
    "token generate x",
    "token list x",
    "certs certificate-key x",
    "join a:1 b:1",
    "join phase preflight a:1 b:1",
    "completion",
    "completion bash zsh",
    "upgrade apply",
    "upgrade apply a b",
    "upgrade apply phase preflight",
    # phases
    "join --config /srv/join.yaml --skip-phases nonsense",
    "join --config /srv/join.yaml --skip-phases check-etcd,all",
    "join --config /srv/join.yaml --skip-phases Preflight",
    f"{FOUND} --skip-phases nonsense",
    f"{FOUND} --skip-phases nonsense --certificate-key xx --apiserver-bind-port 1",
    f"{FOUND} --skip-phases nonsense --cri-socket x --patches relative",
    "join --discovery-file https://a/b --skip-phases nonsense",
    "reset -f --skip-phases nonsense",
    "reset -f --cri-socket x --skip-phases nonsense",
    "reset a b --dry-run --skip-phases nonsense",
    "reset --config /srv/skipping.yaml",
)
TEXT = (
    "version -o short",
    "version -o=short",
    "version -oshort",
    "version -o json --output short",
    "version -o xml -o short",
    "version -o short --",
    "-v=0 version -o short",
    "version --v 0 -o short",
    "version --vmodule=a=1,b=2 -o short",
    "version --vmodule= -o short",
    "version -h=false -o short",
    "--rootfs= version -o short",
    "config print join-defaults",
    "config print reset-defaults",
    "config print upgrade-defaults",
    "config --kubeconfig /none print init-defaults",
    "config images list --kubernetes-version v1.36.3",
    "config images list --kubernetes-version v1.36.3 -o json",
    "config validate --config /srv/join.yaml",
    "config validate --config=/srv/upgrade.yaml --allow-experimental-api",
    "help nonsense",
)
CODE = (
    "",
    "--help",
    "--help certs",
    "-- version",
    "certs",
    "certs nonsense --help",
    "certs --help renew",
    "init phase",
    "init phase certs",
    "token --dry-run",
    "token --kubeconfig generate",
    "token --dry-run generate",
    "token generate --kubeconfig=/none",
    "upgrade",
    "kubeconfig",
    "alpha",
    "help",
    "help certs nonsense",
    "help init phase certs ca",
    "completion bash",
    "completion zsh",
    "completion tcsh",
    "version",
    "version -o xml",
    "version -o=",
    "token delete",
    "token create a b c --dry-run",
    "join",
    "join 10.0.0.1:6443",
    f"join 10.0.0.1:6443 --token {TOKEN}",
    f"join --discovery-token {TOKEN}",
    "join --discovery-file /none",
    "join --discovery-file /srv/join.yaml --discovery-token x",
    "join 10.0.0.1:6443 --config /srv/join.yaml --token x --control-plane --node-name y",
    "join --config /srv/reset.yaml",
    "join --config /srv/join.yaml --ignore-preflight-errors all,Swap",
    f"join a.b --token {TOKEN}",
    f"join a.b:1 --discovery-file /etc/hosts --token {TOKEN} --discovery-token-unsafe-skip-ca-verification",
    f"{FOUND} --node-name A_b",
    f"{FOUND} --control-plane --apiserver-advertise-address x",
    f"{FOUND} --control-plane --apiserver-advertise-address 10.0.0.1 --apiserver-bind-port 99999",
    f"{FOUND} --control-plane --apiserver-advertise-address 127.0.0.1",
    f"{FOUND} --control-plane --apiserver-advertise-address 10.0.0.1 --certificate-key xx",
    "join --discovery-file http://a/b",
    "join phase",
    "join phase kubelet-start",
    "join phase etcd-join",
    "join phase kubelet-wait-bootstrap --config /srv/control-plane.yaml --dry-run",
    "reset -f --cert-dir relative",
    "reset -f --ignore-preflight-errors all,Swap",
    "reset --config /srv/reset.yaml --cri-socket x",
    "reset --config /srv/join.yaml",
    "upgrade apply v1.36.3 --config /srv/join.yaml",
    "upgrade apply --config /srv/upgrade.yaml --force --etcd-upgrade --patches x",
    "upgrade plan --config /srv/upgrade.yaml --allow-experimental-upgrades",
    "upgrade diff --config /srv/upgrade.yaml -c 3",
    "init --config /none",
    "config print init-defaults --component-configs nonsense",
    "certs check-expiration -o xml",
)


@pytest.fixture(scope="module")
def machines() -> Iterator[Arena]:
    with arena(find_kubeadm()) as both:
        yield both


def naming_us(text: str) -> list[str]:
    """Lines that name kubewright. Paths may contain it, and so may our own part of the version."""
    lines = [re.sub(r"\S*/kubewright\S*", "", line) for line in text.splitlines()]
    return [line for line in lines if "kubewright" in line and not line.startswith("kubeadm version:")]


def test_there_are_enough_command_lines():
    assert len({*SAME, *TEXT, *CODE}) == len(SAME) + len(TEXT) + len(CODE) > 100


@pytest.mark.parametrize("line", [*SAME, *TEXT, *CODE], ids=lambda line: line or "nothing")
def test_a_command_line_ends_as_with_kubeadm(line, machines):
    request = Request([line.split()], FILES)
    theirs, ours = machines.both(request)
    assert (ours.code, dict(ours.files)) == (theirs.code, dict(theirs.files))
    if line in SAME:
        assert (named(first_error(ours.err)), ours.out) == (named(first_error(theirs.err)), theirs.out)
    if line in TEXT:
        assert ours.out == theirs.out
    assert naming_us(ours.out + ours.err) == []


def test_a_deprecated_flag_is_reported_in_the_words_of_kubeadm(machines):
    words = ["init", "phase", "control-plane", "apiserver", "--apiserver-extra-args=a=b,c=d", "--config", "/none"]
    theirs, ours = machines.both(Request([words]))
    assert (ours.code, ours.err.splitlines()[0]) == (theirs.code, theirs.err.splitlines()[0])


OTHERWISE = ("reset", "upgrade plan", "kubeconfig")
"""Reset and plan accept any number; a word after `kubeconfig` is an error here and none in kubeadm (docs/compat/certs.md)."""


@pytest.mark.parametrize(
    "path",
    [path for row in ALL_OF_KUBEADMS if not (path := row["command"].partition(" ")[2]).startswith(OTHERWISE) or path == "kubeconfig user"],
)
def test_surplus_arguments_are_treated_as_by_kubeadm(path, machines):
    """With three of them: a command that accepts any number continues and fails because there is no cluster."""
    theirs, ours = machines.both(Request([[*path.split(), "a", "b", "c"]], FILES))
    wrong = re.compile(r"error: (unknown command|accepts at most|too many arguments)")
    told = [line if wrong.match(line) else "" for line in (first_error(theirs.err), first_error(ours.err))]
    assert ours.code == theirs.code == 1
    assert told[0] == told[1]


def test_output_of_a_link_named_kubeadm_mentions_only_kubeadm(tmp_path):
    program = tmp_path / "kubeadm"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(SOURCE)!r})\nfrom kubewright.cli.main import run\nrun()\n")
    program.chmod(0o755)
    for words in (
        ["--help"],
        ["up", "--help"],
        ["init", "--help"],
        ["local", "env", "--help"],
        ["certs", "nonsense"],
        ["completion", "bash"],
    ):
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode in {0, 1}
        assert "kubeadm" in done.stdout + done.stderr
        assert naming_us(done.stdout + done.stderr) == []
