"""`kubewright join` of workers on whole machines: by token, by file, by a kubeconfig from a URL; refusals, and how quickly they come."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import trustme
from machine_kit import CONFIG, INIT, PATIENT, SHARED, administer, eventually, gone, join_command, kubectl, kubewright, write
from testbed.bed import Bed

from kubewright.machines.machine import Ended, Machine
from kubewright.machines.parts import Parts

IGNORED = "--ignore-preflight-errors=SystemVerification"  # these machines have cgroup v1
STATIC = {"kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml"}
"""Manifests of a joining control plane, before etcd's."""
AGE = 12
"""Seconds after which a cluster has had enough time to sign."""

SERVER = """\
import http.server, ssl, sys

class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = "cluster-info" if self.path.startswith("/api") else self.path.strip("/")
        try:
            status, body = 200, open(f"/root/served/{name}", "rb").read()
        except OSError:
            status, body = 404, b"<html>nothing here</html>"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/root/served/server.pem")
server = http.server.ThreadingHTTPServer(("", 8443), Answers)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""

FANCY = f"""\
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  file: {{{{kubeConfigPath: {{place}}}}}}
  tlsBootstrapToken: {{token}}
nodeRegistration:
  name: worker-four
  ignorePreflightErrors: [SystemVerification]
  taints: [{{{{key: team, value: blue, effect: NoSchedule}}}}, {{{{key: slow, effect: PreferNoSchedule}}}}]
  kubeletExtraArgs: [{{{{name: v, value: "3"}}}}]
patches: {{{{directory: /root/patches}}}}
{PATIENT}"""
PLANE = f"""\
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {{{{apiServerEndpoint: "{{endpoint}}", token: {{token}}, caCertHashes: ["{{pin}}"]}}}}
controlPlane:
  localAPIEndpoint: {{{{advertiseAddress: {{address}}}}}}
{PATIENT}"""


@dataclass(frozen=True)
class Cluster:
    """A control plane, a token for it, and machines that are to join."""

    bed: Bed
    join: tuple[str, ...]
    """Endpoint, token and pin as `token create` prints them."""

    @property
    def one(self) -> Machine:
        return self.bed["one"]

    def joining(self, *, token: str = "", pin: str = "") -> list[str]:
        endpoint, _, valid, _, pinned = self.join
        return [endpoint, "--token", token or valid, "--discovery-token-ca-cert-hash", pin or pinned, IGNORED]

    def has_no_signature_of(self, token: str) -> bool:
        """Whether cluster-info is readable, and not signed with the token."""
        data = kubectl(self.one, "-n", "kube-public", "get", "configmap", "cluster-info").get("data", {})
        return "kubeconfig" in data and f"jws-kubeconfig-{token[:6]}" not in data

    def node(self, name: str) -> dict:
        return kubectl(self.one, "get", "node", name)

    def ready(self, name: str) -> bool:
        rows = self.node(name).get("status", {}).get("conditions", [])
        return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)


@pytest.fixture(scope="module")
def cluster(parts: Parts) -> Iterator[Cluster]:
    with Bed("one", "two", "three", "four", bed="workers", parts=parts, shared=SHARED) as bed:
        one = bed["one"]
        write(one, CONFIG, INIT.format(address=one.address))
        kubewright(one, "init", "--config", CONFIG)
        time.sleep(AGE)
        yield Cluster(bed, tuple(join_command(one)[1:]))


def refused(machine: Machine, *arguments: str) -> Ended:
    """Run a join that fails. tests/unit/discovery tests how soon that is reported."""
    return kubewright(machine, "join", *arguments, check=False)


def left_alone(machine: Machine) -> bool:
    return machine.run("ls", "/etc/kubernetes", "/var/lib/kubelet", check=False).out == ""


def test_an_unknown_token_is_refused_at_once(cluster: Cluster) -> None:
    ended = refused(cluster.bed["two"], *cluster.joining(token="zzzzzz.0123456789abcdef"))
    assert ended.code == 1
    assert "does not know the token zzzzzz" in ended.err
    assert "0123456789abcdef" not in ended.err
    assert left_alone(cluster.bed["two"])


def test_a_token_with_a_wrong_secret_is_refused_at_once(cluster: Cluster) -> None:
    wrong = cluster.join[2][:-16] + "0" * 16
    ended = refused(cluster.bed["two"], *cluster.joining(token=wrong))
    assert ended.code == 1
    assert "is not signed with the token" in ended.err
    assert left_alone(cluster.bed["two"])


def test_an_expired_token_is_refused_at_once(cluster: Cluster) -> None:
    token = kubewright(cluster.one, "token", "create", "--ttl", "2s").out.strip()
    secret = f"bootstrap-token-{token[:6]}"
    eventually(lambda: gone(cluster.one, "-n", "kube-system", "secret", secret), "the token to be removed")
    eventually(lambda: cluster.has_no_signature_of(token), "its signature to be removed")
    ended = refused(cluster.bed["two"], *cluster.joining(token=token))
    assert (ended.code, f"does not know the token {token[:6]}" in ended.err) == (1, True)


def test_a_wrong_pin_is_refused_at_once(cluster: Cluster) -> None:
    ended = refused(cluster.bed["two"], *cluster.joining(pin=f"sha256:{'0' * 64}"))
    assert ended.code == 1
    assert "is not the one you pinned" in ended.err
    assert left_alone(cluster.bed["two"])


def test_a_machine_joins_by_token(cluster: Cluster) -> None:
    two = cluster.bed["two"]
    plan = kubewright(two, "join", "--plan", *cluster.joining()).out
    assert "create Node two (the kubelet registers it)" in plan
    assert "create file /var/lib/kubelet/config.yaml" in plan
    ended = kubewright(two, "join", *cluster.joining())
    assert "has joined the cluster as the node two" in ended.out
    eventually(lambda: cluster.ready("two"), "the Node to be Ready")
    assert two.run("ls", "/etc/kubernetes").out.split() == ["kubelet.conf", "manifests", "pki"]
    assert two.run("stat", "-c", "%a", "/etc/kubernetes/kubelet.conf", "/var/lib/kubelet").out.split() == ["600", "700"]


def test_the_same_command_again_changes_nothing_without_a_valid_token(cluster: Cluster) -> None:
    two, late = cluster.bed["two"], cluster.joining(token="zzzzzz.0123456789abcdef")
    ended = kubewright(two, "join", "--plan", *late)
    assert (ended.out, ended.err) == ("", "")
    before = two.run("systemctl", "show", "-P", "MainPID", "kubelet").out
    kubewright(two, "join", *late)
    assert two.run("systemctl", "show", "-P", "MainPID", "kubelet").out == before


def test_another_configuration_is_refused_with_the_difference(cluster: Cluster) -> None:
    ended = kubewright(cluster.bed["two"], "join", *cluster.joining(), "--node-name", "other", check=False)
    assert ended.code == 1
    assert "created with another configuration" in ended.err
    assert "+  name: other" in ended.err


def test_changes_by_others_are_shown_and_repaired(cluster: Cluster) -> None:
    two = cluster.bed["two"]
    two.run("sed", "-i", "s/clusterDomain: .*/clusterDomain: else.where/", "/var/lib/kubelet/config.yaml")
    two.run("rm", "/etc/kubernetes/pki/ca.crt")
    plan = kubewright(two, "join", "--plan", *cluster.joining()).out
    assert plan.count("create file") == plan.count("update file") == 1
    assert "+clusterDomain: cluster.local" in plan.replace(" ", "").replace("clusterDomain:", "clusterDomain: ")
    ended = kubewright(two, "join", *cluster.joining(), "-o", "json")
    changed = {row["target"] for row in json.loads(ended.out)}
    assert changed == {"file /etc/kubernetes/pki/ca.crt", "file /var/lib/kubelet/config.yaml", "service kubelet"}
    started = [row["phase"] for row in map(json.loads, ended.err.splitlines()) if row["event"] == "PhaseStarted"]
    assert started == ["preflight", "kubelet-start", "kubelet-wait-bootstrap"]
    assert kubewright(two, "join", "--plan", *cluster.joining()).out == ""


def test_a_node_name_in_use_is_refused(cluster: Cluster) -> None:
    """The name of a Node that stays Ready: the kubelet of `two` was just started again, and may report for a moment that it is not ready."""
    three = cluster.bed["three"]
    eventually(lambda: cluster.ready("one"), "the Node to be Ready")
    ended = kubewright(three, "join", *cluster.joining(), "--node-name", "one", check=False)
    assert ended.code == 1
    assert "a Node with the name one exists in the cluster and is Ready" in ended.err
    assert left_alone(three)
    assert three.run("ls", "/var/lib/kubewright", check=False).out == ""


def test_a_machine_joins_by_file(cluster: Cluster) -> None:
    three = cluster.bed["three"]
    info = kubectl(cluster.one, "-n", "kube-public", "get", "configmap", "cluster-info")
    write(three, "/root/discovery.conf", info["data"]["kubeconfig"])
    kubewright(three, "join", "--discovery-file", "/root/discovery.conf", "--tls-bootstrap-token", cluster.join[2], IGNORED)
    eventually(lambda: cluster.ready("three"), "the Node to be Ready")


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[Machine]:
    """A file server with TLS on the control plane's machine, whose CA the machine `four` trusts."""
    one, four, authority = cluster.one, cluster.bed["four"], trustme.CA()
    made = authority.issue_cert("cluster.test")
    one.run("mkdir", "-p", "/root/served")
    write(one, "/root/served/server.pem", made.private_key_and_cert_chain_pem.bytes().decode())
    write(one, "/root/server.py", SERVER)
    four.run("sh", "-c", "cat >> /etc/ssl/certs/ca-certificates.crt", data=authority.cert_pem.bytes().decode())
    process = one.start("python3", "/root/server.py")
    eventually(lambda: one.run("sh", "-c", "ss -ltn | grep -q :8443", check=False).code == 0, "the server")
    yield one
    one.run("pkill", "-f", "/root/server.py", check=False)
    process.wait(600)


def test_a_forged_cluster_info_is_refused(cluster: Cluster, server: Machine) -> None:
    info = kubectl(cluster.one, "-n", "kube-public", "get", "configmap", "cluster-info")
    info["data"]["kubeconfig"] = info["data"]["kubeconfig"].replace("cluster.test:6443", "cluster.test:8443")
    write(server, "/root/served/cluster-info", json.dumps(info))
    words = [*cluster.joining()]
    ended = refused(cluster.bed["four"], "cluster.test:8443", *words[1:])
    assert ended.code == 1
    assert "is not signed with the token" in ended.err


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (None, "answers 404 where a kubeconfig should be"),
        ("users: [{name: a, user: {exec: {command: id}}}]", "may not run a program"),
        ("users: [{name: a, user: {tokenFile: /etc/shadow}}]", "may not name files of this machine"),
        ("x" * (2 << 20), "larger than allowed"),
    ],
)
def test_unusable_kubeconfigs_from_urls_are_refused(cluster: Cluster, server: Machine, body: str | None, message: str) -> None:
    if body is not None:
        write(server, "/root/served/bad.conf", body)
    words = ["--discovery-file", "https://cluster.test:8443/bad.conf", "--tls-bootstrap-token", cluster.join[2], IGNORED]
    ended = kubewright(cluster.bed["four"], "join", *words, check=False)
    assert (ended.code, message in ended.err) == (1, True), ended.err


def test_a_machine_joins_by_url_with_a_name_taints_arguments_and_patches(cluster: Cluster, server: Machine) -> None:
    four = cluster.bed["four"]
    info = kubectl(cluster.one, "-n", "kube-public", "get", "configmap", "cluster-info")
    write(server, "/root/served/discovery.conf", info["data"]["kubeconfig"])
    write(four, "/root/join.yaml", FANCY.format(place="https://cluster.test:8443/discovery.conf", token=cluster.join[2]))
    four.run("mkdir", "-p", "/root/patches")
    write(four, "/root/patches/kubeletconfiguration.yaml", "maxPods: 47\n")
    kubewright(four, "join", "--config", "/root/join.yaml")
    eventually(lambda: cluster.ready("worker-four"), "the Node to be Ready")
    node = cluster.node("worker-four")
    taints = {(row["key"], row.get("value"), row["effect"]) for row in node["spec"]["taints"]}
    # the cluster sets its own taint on a Node that was not ready until now
    assert {one for one in taints if not one[0].startswith("node.kubernetes.io/")} == {
        ("team", "blue", "NoSchedule"),
        ("slow", None, "PreferNoSchedule"),
    }
    assert node["status"]["capacity"]["pods"] == "47"
    flags = four.run("cat", "/var/lib/kubelet/kubeadm-flags.env").out
    assert flags == (
        'KUBELET_KUBEADM_ARGS="--hostname-override=worker-four --register-with-taints=team=blue:NoSchedule,slow:PreferNoSchedule --v=3"\n'
    )
    assert kubewright(four, "join", "--plan", "--config", "/root/join.yaml").out == ""


def test_a_machine_joins_by_single_phases(cluster: Cluster) -> None:
    """Each phase, and both groups.

    The machine becomes a control plane, because most phases have nothing to do on workers. docs/compat/commands.md
    names this test for them.
    """
    four, one = cluster.bed["four"], cluster.one
    kubewright(four, "reset", "--force", IGNORED)
    administer(one, "delete", "node", "worker-four", "--ignore-not-found")
    uploaded = kubewright(one, "init", "phase", "upload-certs", "--upload-certs", "--config", CONFIG).out
    key = uploaded.partition("Using certificate key:\n")[2].split()[0]
    trust = cluster.joining()[:-1]
    plane = ["--control-plane"]
    found, place = [*trust, *plane, "--certificate-key", key], "/root/phases.yaml"

    def phase(name: str, *words: str) -> Ended:
        return kubewright(four, "join", "phase", *name.split(), *words)

    def made(directory: str) -> set[str]:
        return set(four.run("ls", f"/etc/kubernetes/{directory}", check=False).out.split())

    def taints() -> list[str]:
        return [row["key"] for row in cluster.node("four")["spec"].get("taints", []) if "control-plane" in row["key"]]

    assert "admin.conf does not exist" in kubewright(four, "join", "phase", "etcd-join", *plane, check=False).err
    phase("preflight", *found, IGNORED)
    assert four.run("ls", "/var/lib/kubelet/config.yaml", check=False).out == ""
    phase("control-plane-prepare download-certs", *found)
    assert made("pki") == {"ca.crt", "ca.key", "etcd", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub"}
    phase("control-plane-prepare certs", *trust, *plane)
    assert made("pki") >= {"apiserver.crt", "apiserver-etcd-client.crt", "apiserver-kubelet-client.crt", "front-proxy-client.crt"}
    assert made("manifests") == set()
    phase("control-plane-prepare kubeconfig", *found)
    # the directory of manifests exists if the machine was a worker before: reset keeps directories
    assert made("") - {"manifests"} == {"admin.conf", "controller-manager.conf", "pki", "scheduler.conf"}
    phase("control-plane-prepare control-plane", *plane)
    assert made("manifests") == STATIC
    four.run("rm", "/etc/kubernetes/manifests/kube-scheduler.yaml", "/etc/kubernetes/scheduler.conf", "/etc/kubernetes/pki/apiserver.crt")
    phase("control-plane-prepare all", *found)
    assert made("manifests") == STATIC
    assert "scheduler.conf" in made("")
    assert "apiserver.crt" in made("pki")
    write(four, place, PLANE.format(endpoint=trust[0], token=trust[2], pin=trust[4], address=four.address))
    phase("kubelet-start", "--config", place)
    assert "bootstrap-kubelet.conf" in made("")
    assert "Waiting for the new etcd member to join" in phase("etcd-join", "--config", place).out
    phase("kubelet-wait-bootstrap")
    assert "bootstrap-kubelet.conf" not in made("")
    eventually(lambda: bool(cluster.node("four")), "the Node to be registered")  # by its own API server, a moment after the certificate
    assert taints() == []
    phase("control-plane-join mark-control-plane", *plane)
    assert taints() == ["node-role.kubernetes.io/control-plane"]
    administer(one, "taint", "node", "four", "node-role.kubernetes.io/control-plane-")
    phase("control-plane-join all", *plane)
    assert taints() == ["node-role.kubernetes.io/control-plane"]
    phase("wait-control-plane")
    eventually(lambda: cluster.ready("four"), "the Node to be Ready")
    assert "node-role.kubernetes.io/control-plane" in cluster.node("four")["metadata"]["labels"]
    assert '"finished": false' in four.run("cat", "/var/lib/kubewright/machine.json").out
