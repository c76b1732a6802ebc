"""Each source of a NodeApprovalPolicy with a real API server, real requests of nodes, and the service that the source asks.

The policy of one running approver is replaced again and again, as people do.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import trustme
from local_kit import eventually
from server_kit import RunningServer
from test_serving_approver import Attacker, _kubeconfig, outcome

from kubewright.http import tls
from kubewright.kube.client import KubeClient
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, Resource

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "controllers"))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "enrollment"))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "http"))

import hub_kit
from controllers_kit import authority_files
from dns_server import DNSServer
from scripted_server import Raw, ScriptedServer, Seen, json_answer

from kubewright.apis import join_records
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import replace
from kubewright.enrollment.state.secret_store import SecretStore
from kubewright.enrollment.state.sqlite_store import SQLiteStore
from kubewright.enrollment.state.store import HubStore

HEAD = "apiVersion: controllers.kubewright/v1alpha1\nkind: NodeApprovalPolicy\n"
MACHINE = Resource(group="cluster.x-k8s.io", version="v1beta2", kind="Machine", plural="machines", namespaced=True)


@dataclass
class Bed:
    """An approver and a signer as one process, whose policy tests replace."""

    server: RunningServer
    admin: KubeClient
    place: Path

    def use(self, *sources: str, more: str = "") -> None:
        """Replace the policy and wait until it is in force."""
        before = self.log().count("is in force")
        new = self.place / "new.yaml"
        new.write_text(f"{HEAD}sources:\n{''.join(f'- {one}{chr(10)}' for one in sources)}{more}")
        new.replace(self.place / "policy.yaml")
        eventually(lambda: self.log().count("is in force") > before, "the policy is in force")

    def log(self) -> str:
        return (self.place / "approver.log").read_text()

    def node(self, name: str, *addresses: str) -> Attacker:
        found = Attacker(self.server, name)
        found.register(*addresses)
        return found

    def message(self, name: str) -> str:
        [found] = self.admin.get(CERTIFICATE_SIGNING_REQUEST, name)["status"]["conditions"]
        return str(found["message"])

    def explained(self, name: str) -> tuple[str, Mapping[str, str]]:
        """Return what would be decided, and what each source says, by the command."""
        argv = [sys.executable, "-m", "kubewright", "csr", "explain", name, f"--kubeconfig={self.place / 'admin.conf'}", "-o=json"]
        ended = subprocess.run([*argv, f"--node-policy={self.place / 'policy.yaml'}"], capture_output=True, check=True)
        found = json.loads(ended.stdout)
        [decision] = [one for one in found["decisions"] if one["controller"] == "servingapproving"]
        said = {one["source"]: one["problem"] or one["gives"] for one in found["sources"]}
        return f"{decision['outcome']} {decision['reason']}", said


def ip(text: str) -> tuple[str, bytes]:
    return ("ip", ip_address(text).packed)


def dns(text: str) -> tuple[str, str]:
    return ("dns", text)


@pytest.fixture(scope="module")
def bed(apiserver: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    place = tmp_path_factory.mktemp("sources")
    (place / "policy.yaml").write_text(f"{HEAD}sources: [{{file: {{nodes: [{{node: src-first, addresses: [10.57.9.1]}}]}}}}]\n")
    (place / "admin.conf").write_text(json.dumps(_kubeconfig(apiserver, "kubernetes-admin", "system:masters")))
    for name, content in zip(("ca.crt", "ca.key"), authority_files(), strict=True):
        (place / name).write_bytes(content)
    argv = [sys.executable, "-m", "kubewright", "controllers", "run", "--controllers=servingapproving,csrsigning", "--secure-port=0"]
    argv += [f"--kubeconfig={place / 'admin.conf'}", f"--node-policy={place / 'policy.yaml'}", "--leader-elect=false"]
    argv += [f"--cluster-signing-cert-file={place / 'ca.crt'}", f"--cluster-signing-key-file={place / 'ca.key'}"]
    with (place / "approver.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        found = Bed(apiserver, KubeClient(apiserver.access(), timeout=600), place)
        found.node("src-first", "10.57.9.1").ask("first", ip("10.57.9.1"))
        assert outcome(found.admin, "first") == ("Approved", "NodeJoinPolicy")  # it has read its policy
        yield found
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 0, (place / "approver.log").read_text()


@contextmanager
def answering(server: DNSServer) -> Iterator[DNSServer]:
    """Run a DNS server in a thread."""
    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with server.running():
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(600)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def test_dns_records_give_a_node_its_names_and_addresses(bed: Bed) -> None:
    node = bed.node("src-dns", "10.57.0.1", "10.57.0.2")
    zone = {
        ("src-dns.nodes.example.com", "A"): ["10.57.0.1", "10.57.0.2"],
        ("1.0.57.10.in-addr.arpa", "PTR"): ["src-dns.nodes.example.com."],
    }
    with answering(DNSServer(zone)) as server:
        source = f'dns: {{names: ["{{node}}.nodes.example.com"], resolvers: ["127.0.0.1:{server.port}"], timeout: 20s}}'
        bed.use(source)
        node.ask("dns-own", dns("src-dns.nodes.example.com"), ip("10.57.0.1"))
        assert outcome(bed.admin, "dns-own") == ("Approved", "NodeJoinPolicy")
        assert bed.message("dns-own").endswith("(dns)")
        node.ask("dns-no-reverse", dns("src-dns.nodes.example.com"), ip("10.57.0.2"))
        told, said = bed.explained("dns-no-reverse")
        assert told == 'wait NotOwned: no source of the policy gives "10.57.0.2" to src-dns'
        assert said == {"dns": "src-dns.nodes.example.com"}
    told, said = bed.explained("dns-no-reverse")  # the server is gone
    assert told.startswith("wait SourceUnavailable: no answer from dns")
    with answering(DNSServer({**zone, ("2.0.57.10.in-addr.arpa", "PTR"): ["src-dns.nodes.example.com."]})) as server:
        bed.use(source.replace(source[source.index("127.0.0.1") : source.index('"], timeout')], f"127.0.0.1:{server.port}"))
        assert outcome(bed.admin, "dns-no-reverse") == ("Approved", "NodeJoinPolicy")


def test_a_webhook_assigns_names_to_a_node_and_requests_wait_while_it_fails(bed: Bed) -> None:
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    server = ScriptedServer(context=tls.server_context(leaf.cert_chain_pems[0].bytes(), leaf.private_key_pem.bytes()))
    answers: list[Any] = [json_answer({}, 500)]

    def answer(seen: Seen) -> Raw:
        asked = json.loads(seen.body)["request"]
        known = {"src-hook": ["10.57.1.1"]}.get(asked["node"], [])
        response = {"id": asked["id"], "node": asked["node"], "names": [asked["node"]], "addresses": known}
        review = {"apiVersion": "controllers.kubewright/v1alpha1", "kind": "NodeNamesReview", "response": response}
        return answers[-1] or json_answer(review)

    server.handler = answer
    try:
        hook = {"url": f"{server.url}/nodes", "certificateAuthority": authority.cert_pem.bytes().decode(), "timeout": "20s"}
        bed.use(f"webhook: {json.dumps(hook)}")
        bed.node("src-hook", "10.57.1.1").ask("hook-own", dns("src-hook"), ip("10.57.1.1"))
        told, _ = bed.explained("hook-own")
        assert told == "wait SourceUnavailable: no answer from webhook (it answered with status 500)"
        other = {"id": "hook-own", "node": "src-other", "names": ["src-hook"], "addresses": ["10.57.1.1"]}
        answers.append(json_answer({"apiVersion": "controllers.kubewright/v1alpha1", "kind": "NodeNamesReview", "response": other}))
        assert "about another request" in bed.explained("hook-own")[0]
        answers.append(None)  # it works
        assert outcome(bed.admin, "hook-own") == ("Approved", "NodeJoinPolicy")
        assert bed.message("hook-own").endswith(f"(webhook 127.0.0.1:{server.port})")
        bed.node("src-hook-2", "10.57.1.2").ask("hook-stolen", dns("src-hook-2"), ip("10.57.1.2"))
        assert bed.explained("hook-stolen")[0].startswith("wait NotOwned")
    finally:
        server.stop()


def test_machines_of_cluster_api_give_nodes_their_addresses(bed: Bed) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": "machines", "singular": "machine", "kind": "Machine"}
    version = {"name": "v1beta2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    bed.admin.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": "machines.cluster.x-k8s.io",
                "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/cluster-api"},
            },
            "spec": {"group": "cluster.x-k8s.io", "names": names, "scope": "Namespaced", "versions": [version]},
        }
    )

    def create(name: str, address: str, cluster: str, node: str) -> bool:
        labels = {"cluster.x-k8s.io/cluster-name": cluster}
        status = {"addresses": [{"type": "InternalIP", "address": address}], "nodeRef": {"kind": "Node", "name": node}}
        body = {"kind": "Machine", "metadata": {"name": name, "namespace": "default", "labels": labels}, "status": status}
        bed.admin.create({"apiVersion": "cluster.x-k8s.io/v1beta2", **body}, resource=MACHINE)
        return True

    eventually(lambda: bool(_tried(lambda: create("m-1", "10.57.2.1", "mine", "src-machine"))), "Machines are served")
    create("m-2", "10.57.2.2", "mine", "src-machine-2")
    create("m-3", "10.57.2.3", "another", "src-machine")
    bed.use(f"machines: {{kubeconfig: {bed.place / 'admin.conf'}, namespace: default, cluster: mine}}")
    node = bed.node("src-machine", "10.57.2.1", "10.57.2.2", "10.57.2.3")
    node.ask("machine-own", ip("10.57.2.1"))
    assert outcome(bed.admin, "machine-own") == ("Approved", "NodeJoinPolicy")
    assert bed.message("machine-own").endswith("(machines)")
    node.ask("machine-of-another", ip("10.57.2.2"))
    assert outcome(bed.admin, "machine-of-another") == ("Denied", "ForeignName")
    node.ask("machine-of-another-cluster", ip("10.57.2.3"))
    assert bed.explained("machine-of-another-cluster")[0].startswith("wait NotOwned")


def _tried(work: Any) -> bool:
    from kubewright.base.errors import APIError

    try:
        return bool(work())
    except APIError:
        return False


@pytest.mark.parametrize("kind", ["file", "secrets"])
def test_join_records_of_a_hub_give_names_and_deny_nodes_that_have_left(bed: Bed, kind: str) -> None:
    key = bed.place / "hub.key"
    key.write_text(f"{hub_kit.STATE_KEY.hex()}\nopens sealed rows only\n")
    key.chmod(0o600)
    sealed = {"key": hub_kit.STATE_KEY, "random": SystemRandom()}
    if kind == "file":
        store: HubStore = SQLiteStore(bed.place / "hub.db", **sealed)
        state = f"state: {bed.place / 'hub.db'}"
    else:
        bed.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "src-hubs"}})
        store = SecretStore(bed.admin, namespace="src-hubs", name="main", **sealed)
        state = f'state: "secrets:src-hubs/main", stateKubeconfig: {bed.place / "admin.conf"}'
    hub_kit.put(store, hub_kit.cluster("mine"))
    own, other = (f"10.57.3.{last + (0 if kind == 'file' else 10)}" for last in (1, 2))
    record = join_records.JoinRecord(
        cluster="mine",
        node=f"src-{kind}",
        state=join_records.State.ISSUED,
        protocol="p",
        request="r",
        key="k",
        names=(f"src-{kind}.example.com",),
        lease=own,
    )
    store.keep(record, hub_kit.event(), digest="d", generation=hub_kit.generation(store, "mine"))
    bed.use(f"joinRecords: {{{state}, keyFile: {key}, cluster: mine}}")
    node = bed.node(f"src-{kind}", own)
    node.ask(f"hub-own-{kind}", dns(f"src-{kind}"), ip(own))
    assert outcome(bed.admin, f"hub-own-{kind}") == ("Approved", "NodeJoinPolicy")
    thief = bed.node(f"src-thief-{kind}", own, other)
    thief.ask(f"hub-stolen-{kind}", ip(own))
    assert outcome(bed.admin, f"hub-stolen-{kind}") == ("Denied", "ForeignName")
    left = replace(record, state=join_records.State.LEFT)
    store.keep(left, hub_kit.event(), before=record, digest="d", generation=hub_kit.generation(store, "mine"))
    node.ask(f"hub-left-{kind}", dns(f"src-{kind}"), ip(own))
    assert outcome(bed.admin, f"hub-left-{kind}") == ("Denied", "Revoked")
    if kind == "file":
        store.close()


def test_certificates_are_renewed_for_the_same_names_while_no_source_answers(bed: Bed) -> None:
    node = bed.node("src-renewal", "10.57.4.1", "10.57.4.2")
    bed.use("file: {nodes: [{node: src-renewal, addresses: [10.57.4.1]}]}")
    node.ask("renewal-first", dns("src-renewal"), ip("10.57.4.1"))
    assert outcome(bed.admin, "renewal-first") == ("Approved", "NodeJoinPolicy")
    signed = lambda: bool(bed.admin.get(CERTIFICATE_SIGNING_REQUEST, "renewal-first")["status"].get("certificate"))  # noqa: E731
    eventually(signed, "the certificate")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # refuses connections, and nobody else gets the port
        hook = {"url": f"https://127.0.0.1:{unused.getsockname()[1]}/", "certificateAuthority": trustme.CA().cert_pem.bytes().decode()}
        bed.use(f"webhook: {json.dumps(hook)}", more="renewal: certificate\n")
        node.ask("renewal-again", dns("src-renewal"), ip("10.57.4.1"))
        assert outcome(bed.admin, "renewal-again") == ("Approved", "NodeJoinPolicy")
        assert bed.message("renewal-again").endswith("(present certificate)")
        node.ask("renewal-wider", dns("src-renewal"), ip("10.57.4.1"), ip("10.57.4.2"))
        assert bed.explained("renewal-wider")[0].startswith("wait SourceUnavailable")


def test_a_policy_whose_source_cannot_be_opened_leaves_the_one_before_in_force(bed: Bed) -> None:
    bed.use("file: {nodes: [{node: src-kept, addresses: [10.57.5.1]}]}")
    wrong = f"{HEAD}sources: [{{machines: {{kubeconfig: /missing.conf, namespace: default, cluster: mine}}}}]\n"
    (bed.place / "policy.yaml").write_text(wrong)
    eventually(lambda: "/missing.conf" in bed.log(), "the error is in the log")
    assert "stays in force" in bed.log()
    bed.node("src-kept", "10.57.5.1").ask("kept", dns("src-kept"), ip("10.57.5.1"))
    assert outcome(bed.admin, "kept") == ("Approved", "NodeJoinPolicy")
