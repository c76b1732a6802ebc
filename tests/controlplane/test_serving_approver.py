"""`controllers run --controllers servingapproving` with a real API server: what a node with real credentials gets, and what it does not."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from local_kit import eventually
from server_kit import RunningServer, api_server

from kubewright.base.clock import SystemClock
from kubewright.base.errors import APIError
from kubewright.controllers.serving import clients
from kubewright.controllers.serving.checks import CHECKS
from kubewright.discovery.node_requests import NodeRequests
from kubewright.kube.client import KubeClient
from kubewright.kube.core import Object
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, CONFIG_MAP, EVENT, NODE
from kubewright.manifests import controllers, node_policy, rbac
from kubewright.manifests.rbac import Purpose
from matrices import Matrix

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "controllers"))

from controllers_kit import NODES, SERVING_USAGES, request
from cryptography.hazmat.primitives.asymmetric import ec

SIGNER, CLIENT_SIGNER = "kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"
POLICY = """apiVersion: controllers.kubewright/v1alpha1
kind: NodeApprovalPolicy
sources:
- file:
    nodes:
    - node: approver-a
      names: ["{node}.nodes.example.com"]
      addresses: [10.55.0.1]
      tokens: [aaaaaa]
    - node: approver-b
      addresses: [10.55.0.2]
      tokens: [bbbbbb]
    - node: approver-c
      tokens: [cccccc]
    - node: approver-e
      addresses: [10.55.1.1]
reserved: [10.55.0.100]
clients: strict
"""
RBAC = "rbac.authorization.k8s.io"
BINDINGS = {
    "kubeadm:kubelet-bootstrap": "system:node-bootstrapper",
    "kubeadm:node-autoapprove-bootstrap": "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
}
CLIENT_USAGES = ["digital signature", "client auth"]
A, B, VIP = (bytes((10, 55, 0, last)) for last in (1, 2, 100))


class Attacker:
    """A node with real credentials: what it reports about itself, and which requests it sends."""

    def __init__(self, server: RunningServer, name: str) -> None:
        self.name = name
        self.client = KubeClient(server.access(f"system:node:{name}", NODES), timeout=600)
        self.key = ec.generate_private_key(ec.SECP256R1())

    def register(self, *addresses: str) -> None:
        self.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}})
        self.report(*addresses)

    def report(self, *addresses: str) -> None:
        found = self.client.get(NODE, self.name)
        rows = [{"type": "InternalIP", "address": one} for one in addresses] + [
            {"type": "Hostname", "address": self.name},
            {"type": "InternalDNS", "address": f"{self.name}.nodes.example.com"},
        ]
        self.client.update({**found, "status": {**found.get("status", {}), "addresses": rows}}, subresource="status")

    def ask(self, name: str, *sans: tuple[str, str | bytes], key: ec.EllipticCurvePrivateKey | None = None) -> Object:
        subject = (("2.5.4.10", NODES), ("2.5.4.3", f"system:node:{self.name}"))
        text = request(names=sans, subject=subject, key=key or ec.generate_private_key(ec.SECP256R1()))
        spec = {"request": base64.b64encode(text).decode(), "signerName": SIGNER, "usages": list(SERVING_USAGES)}
        body = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}, "spec": spec}
        return self.client.create(body)


@dataclass(frozen=True)
class Scene:
    """Two nodes, an administrator, and the directory with the files of the approver."""

    a: Attacker
    b: Attacker
    admin: KubeClient
    place: Path
    server: RunningServer

    def ask_client(
        self, name: str, node: str, *, user: str, group: str = "system:bootstrappers", key: ec.EllipticCurvePrivateKey | None = None
    ) -> None:
        """Request a client certificate for a node as some user."""
        text = request(
            subject=(("2.5.4.10", NODES), ("2.5.4.3", f"system:node:{node}")), key=key or ec.generate_private_key(ec.SECP256R1())
        )
        spec = {"request": base64.b64encode(text).decode(), "signerName": CLIENT_SIGNER, "usages": CLIENT_USAGES}
        body = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}, "spec": spec}
        client = KubeClient(self.server.access(user, group), timeout=600)
        try:
            client.create(body)
        finally:
            client.close()


@pytest.fixture(scope="module")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """An API server of its own: which bindings for approving exist matters here."""
    with api_server(tmp_path_factory.mktemp("approver-apiserver")) as server:
        yield server


@pytest.fixture(scope="module")
def scene(apiserver: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Two nodes, and the approver as a process that has exactly the permissions of its manifest."""
    place = tmp_path_factory.mktemp("approver")
    admin = KubeClient(apiserver.access(), timeout=600)
    for document in controllers.rights(purposes=[Purpose.SERVING_APPROVER]):
        admin.create(document)
    admin.create(node_policy.used_tokens())
    for name, role in BINDINGS.items():  # what kubeadm creates: tokens may request certificates, and the stock approver approves them
        groups = ("system:bootstrappers",) if "autoapprove" in name else ("system:bootstrappers", rbac.JOINING_NODES.name)
        subjects = [{"kind": "Group", "name": group, "apiGroup": RBAC} for group in groups]
        body = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name}, "subjects": subjects}
        admin.create({**body, "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}})
    (place / "policy.yaml").write_text(POLICY)
    kubeconfig = place / "approver.conf"
    kubeconfig.write_text(json.dumps(_kubeconfig(apiserver, controllers.NAME, "approvers")))
    kubeconfig.chmod(0o600)
    (place / "admin.conf").write_text(json.dumps(_kubeconfig(apiserver, "kubernetes-admin", "system:masters")))
    argv = [sys.executable, "-m", "kubewright", "controllers", "run", "--controllers=servingapproving", "--secure-port=0"]
    argv += [f"--kubeconfig={kubeconfig}", f"--node-policy={place / 'policy.yaml'}", f"--journal={place / 'journal'}"]
    with (place / "approver.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log)
    pair = Attacker(apiserver, "approver-a"), Attacker(apiserver, "approver-b")
    pair[0].register("10.55.0.1")
    pair[1].register("10.55.0.2")
    try:
        yield Scene(*pair, admin=admin, place=place, server=apiserver)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 0, (place / "approver.log").read_text()


def _kubeconfig(server: RunningServer, name: str, group: str) -> dict[str, object]:
    identity = server.identity(name, group)
    encoded = {"client-certificate-data": identity.cert_pem, "client-key-data": identity.key_pem}
    user = {name: base64.b64encode(value).decode() for name, value in encoded.items()}
    cluster = {"server": server.url, "certificate-authority-data": base64.b64encode(server.ca_pem).decode()}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }


def outcome(admin: KubeClient, name: str) -> tuple[str, str]:
    """Wait for the decision about a request."""

    def conditions() -> list[dict[str, str]]:
        found = admin.get(CERTIFICATE_SIGNING_REQUEST, name).get("status") or {}
        return list(found.get("conditions") or ())

    eventually(lambda: bool(conditions()), f"a decision about {name}")
    [found] = conditions()
    return found["type"], found["reason"]


def test_a_node_gets_only_its_own_names(scene: Scene) -> None:
    a, b, admin = scene.a, scene.b, scene.admin
    a.ask("own", ("dns", "approver-a"), ("dns", "approver-a.nodes.example.com"), ("ip", A), key=a.key)
    assert outcome(admin, "own") == ("Approved", "NodeJoinPolicy")
    a.report("10.55.0.1", "10.55.0.2", "10.55.0.100")  # a node may report any address about itself
    attacks = {
        "address-of-b": [("dns", "approver-a"), ("ip", B)],
        "name-of-b": [("dns", "approver-b"), ("ip", A)],
        "control-plane": [("dns", "approver-a"), ("ip", VIP)],
        "service": [("dns", "kubernetes.default.svc"), ("ip", A)],
        "service-address": [("dns", "approver-a"), ("ip", b"\x0a\x60\0\x01")],
        "localhost": [("dns", "localhost"), ("ip", A)],
        "loopback": [("ip", b"\x7f\0\0\x01")],
        "mapped": [("ip", A), ("ip", b"\0" * 10 + b"\xff\xff" + B)],
        "capitals": [("dns", "APPROVER-B"), ("ip", A)],
        "trailing-dot": [("dns", "approver-b."), ("ip", A)],
        "wildcard": [("dns", "*.nodes.example.com"), ("ip", A)],
    }
    found = {}
    for name, sans in attacks.items():  # one at a time: a newer request of a node replaces an open one
        a.ask(name, *sans)
        found[name] = outcome(admin, name)
    assert {kind for kind, _ in found.values()} == {"Denied"}
    assert {name: reason for name, (_, reason) in found.items()} == {
        "address-of-b": "ForeignName",
        "name-of-b": "ForeignName",
        "control-plane": "ReservedName",
        "service": "ReservedName",
        "service-address": "ReservedName",
        "localhost": "ReservedName",
        "loopback": "ReservedName",
        "mapped": "ForeignName",
        "capitals": "SanForm",
        "trailing-dot": "SanForm",
        "wildcard": "SanForm",
    }
    b.ask("key-of-a", ("dns", "approver-b"), ("ip", B), key=a.key)
    assert outcome(admin, "key-of-a") == ("Denied", "KeyReuse")
    b.ask("own-of-b", ("dns", "approver-b"), ("ip", B))
    assert outcome(admin, "own-of-b") == ("Approved", "NodeJoinPolicy")  # claims of a take nothing from b


LISTED = "10.55.0.200"
"""The address of an API server, as API servers list themselves."""


def test_a_node_gets_nothing_by_odd_names_by_replays_or_by_changes_meanwhile(scene: Scene, matrix: Callable[[str], Matrix]) -> None:
    """Requests of the node e with its real credentials. It sends at most twelve, because no more are looked at within an hour."""
    admin = scene.admin
    metadata = {"name": "kubernetes", "namespace": "default"}
    subsets = [{"addresses": [{"ip": LISTED}], "ports": [{"name": "https", "port": 6443}]}]
    admin.create({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets})
    e = Attacker(scene.server, "approver-e")
    e.register("10.55.1.1", "10.55.0.2", LISTED)
    own = ("ip", bytes((10, 55, 1, 1)))
    attacks: dict[str, tuple[list[tuple[str, str | bytes]], str]] = {
        "name of the API server": ([("dns", "kubernetes"), own], "Denied ReservedName"),
        "address of the API server": ([own, ("ip", ip_address(LISTED).packed)], "Denied ReservedName"),
        "64 addresses": ([("ip", bytes((10, 55, 9, last))) for last in range(64)], "Denied SanForm"),
        "zone of an address": ([("dns", "fe80::1%eth0"), own], "Denied SanForm"),
        "fullwidth letters": ([("dns", "approver-\uff42"), own], "refused"),
        "name in Punycode": ([("dns", "xn--approver-b-w1a"), own], "waits NotOwned"),
    }
    found = {}
    for number, (attack, (sans, _)) in enumerate(attacks.items()):
        found[attack] = _tried(scene, f"odd-{number}", partial(e.ask, f"odd-{number}", *sans))
    scene.b.ask("to-replay", ("dns", "approver-b"), ("ip", B))
    assert outcome(admin, "to-replay") == ("Approved", "NodeJoinPolicy")
    replayed = {**admin.get(CERTIFICATE_SIGNING_REQUEST, "to-replay")["spec"]}
    body = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "replayed"}}
    sent = {name: replayed[name] for name in ("request", "signerName", "usages")}
    found["replayed request of b"] = _tried(scene, "replayed", lambda: e.client.create({**body, "spec": sent}))
    admin.delete(NODE, "approver-e")
    open_one = f"odd-{len(attacks) - 1}"  # it waits, and is checked again when its Node changes
    eventually(lambda: "NodeMissing" in [one["reason"] for one in journal(scene) if one["request"] == open_one], "the Node to be missed")
    found["Node deleted meanwhile"] = _tried(scene, "meanwhile-1", lambda: e.ask("meanwhile-1", own))
    admin.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "approver-e"}})
    e.report("10.55.0.2")
    policy = scene.place / "policy.yaml"
    policy.write_text(policy.read_text().replace("10.55.1.1", "10.55.1.2"))
    eventually(lambda: (scene.place / "approver.log").read_text().count("is in force") == 2, "the changed policy")
    found["policy changed meanwhile"] = _tried(scene, "meanwhile-2", lambda: e.ask("meanwhile-2", own))
    for attack, told in found.items():
        matrix("requests of a node with real credentials").record(attack, "outcome", told)
    expected = {attack: told for attack, (_, told) in attacks.items()}
    assert found == {
        **expected,
        "replayed request of b": "refused",  # by NodeRestriction of the API server; ours is tested in test_serving_checks.py
        "Node deleted meanwhile": "waits NodeMissing",
        "policy changed meanwhile": "waits NotOwned",
    }
    mine = [one for one in admin.list(CERTIFICATE_SIGNING_REQUEST) if one["spec"]["username"] == "system:node:approver-e"]
    kinds = [condition["type"] for one in mine for condition in one.get("status", {}).get("conditions", ())]
    assert (len(mine), "Approved" in kinds) == (7, False)


def _tried(scene: Scene, name: str, send: Callable[[], object]) -> str:
    """Send a request and return what becomes of it: its condition, what it waits for, or that the API server does not take it."""
    try:
        send()
    except APIError:
        return "refused"

    def told() -> str:
        conditions = (scene.admin.get(CERTIFICATE_SIGNING_REQUEST, name).get("status") or {}).get("conditions") or ()
        waits = [f"waits {one['reason']}" for one in journal(scene) if one["request"] == name and one["outcome"] == "wait"]
        return next((f"{one['type']} {one['reason']}" for one in conditions), "") or next(iter(waits), "")

    eventually(lambda: bool(told()), f"a decision about {name}")
    return told()


def test_the_journal_has_one_line_for_each_decision_and_no_long_text_of_a_requester(scene: Scene) -> None:
    scene.b.ask("journaled-own", ("dns", "approver-b"), ("ip", B))
    assert outcome(scene.admin, "journaled-own") == ("Approved", "NodeJoinPolicy")
    long = "x" * 63 + ".nodes.example.com"
    scene.b.ask("journaled-long", ("dns", long), ("ip", B))
    names = {"journaled-own", "journaled-long"}
    eventually(lambda: names <= {one["request"] for one in journal(scene)}, "the lines about both")
    lines = [one for one in journal(scene) if one["request"] in names]
    assert sorted((one["request"], one["outcome"]) for one in lines) == [("journaled-long", "wait"), ("journaled-own", "approve")]
    [own] = [one for one in lines if one["request"] == "journaled-own"]
    assert (own["by"], own["requester"], own["names"]) == ("servingapproving", "system:node:approver-b", ["approver-b", "10.55.0.2"])
    assert str(own["credential"]).startswith("X509SHA256=")
    assert len(str(own["key"])) == 64
    assert long not in (scene.place / "journal").read_text() + (scene.place / "approver.log").read_text()


def journal(scene: Scene) -> list[dict[str, object]]:
    """Return the complete lines; none before the first decision, which makes the file."""
    path = scene.place / "journal"
    return [json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines()] if path.exists() else []


def csr(scene: Scene, *words: str) -> tuple[int, Any, str]:
    """Run a `csr` command as the administrator: its exit code, its result, its messages."""
    argv = [sys.executable, "-m", "kubewright", "csr", *words, f"--kubeconfig={scene.place / 'admin.conf'}", "-o", "json"]
    environment = {**os.environ, "XDG_STATE_HOME": str(scene.place / "state")}
    ended = subprocess.run(argv, capture_output=True, check=False, text=True, env=environment)
    return ended.returncode, json.loads(ended.stdout or "null"), ended.stderr


def test_a_person_may_only_approve_what_the_policy_allows_unless_a_reason_is_given(scene: Scene) -> None:
    policy = f"--node-policy={scene.place / 'policy.yaml'}"
    scene.b.ask("moved", ("dns", "approver-b"), ("ip", bytes((10, 55, 0, 4))))
    reason = 'NotOwned: no source of the policy gives "10.55.0.4" to approver-b'
    code, rows, _ = csr(scene, "list", "--pending", policy)
    assert (code, {row["name"]: row["reason"] for row in rows}["moved"]) == (0, reason)
    code, shown, _ = csr(scene, "show", "moved", policy)
    assert shown["reason"] == reason
    assert re.fullmatch("[A-Z2-7]{4}-[A-Z2-7]{4}-[A-Z2-7]{4}", shown["key"]["code"])

    code, rows, told = csr(scene, "approve", "moved", policy)
    assert (code, [(row["outcome"], row["reason"]) for row in rows]) == (4, [("refused", reason)])
    assert "1 of 1 requests are not approved" in told
    code, _, told = csr(scene, "approve", "moved", policy, "--override", " ")
    assert (code, "--override needs a reason" in told) == (2, True)
    assert not scene.admin.get(CERTIFICATE_SIGNING_REQUEST, "moved").get("status")

    code, rows, _ = csr(scene, "approve", "moved", policy, "--override", "new address, ticket 4711")
    assert (code, [(row["outcome"], row["reason"]) for row in rows]) == (0, [("approved", f"overridden: {reason}")])
    assert outcome(scene.admin, "moved") == ("Approved", "PolicyOverridden")
    [line] = (scene.place / "state/kubewright/decisions.jsonl").read_text().splitlines()
    kept = json.loads(line)
    assert (kept["by"], kept["override"], kept["message"]) == ("kubernetes-admin", "new address, ticket 4711", reason)
    assert csr(scene, "approve", "moved", policy)[:2] == (0, [{**rows[0], "outcome": "unchanged", "reason": "it is Approved"}])


def test_all_pending_requests_of_matching_nodes_are_decided_about_together(scene: Scene) -> None:
    scene.b.ask("pending-b", ("dns", "approver-b"), ("ip", bytes((10, 55, 0, 5))))
    scene.a.ask("pending-a", ("dns", "approver-a"), ("ip", bytes((10, 55, 0, 6))))
    code, rows, _ = csr(scene, "deny", "--all-matching", "*-b", "--message", "not ours")
    assert (code, {row["requester"] for row in rows}, {row["outcome"] for row in rows}) == (0, {"system:node:approver-b"}, {"denied"})
    assert [row["name"] for row in rows].count("pending-b") == 1
    assert outcome(scene.admin, "pending-b") == ("Denied", "DeniedByHand")
    assert csr(scene, "approve", "pending-b", "--override", "x")[0] == 4  # a denial is final
    assert csr(scene, "deny", "pending-a", "--all-matching", "nobody-*")[:1] == (0,)
    assert csr(scene, "approve")[0] == 2


def test_a_token_is_good_for_one_key_of_one_node_whose_name_is_free(scene: Scene) -> None:
    admin, key = scene.admin, ec.generate_private_key(ec.SECP256R1())
    scene.ask_client("client-c", "approver-c", user="system:bootstrap:cccccc", key=key)
    assert outcome(admin, "client-c") == ("Approved", "NodeJoinPolicy")
    attacks = {
        "client-other-key": ("approver-c", "system:bootstrap:cccccc", "TokenNotAllowed"),
        "client-other-node": ("approver-b", "system:bootstrap:cccccc", "TokenNotAllowed"),
        "client-unknown-token": ("approver-c", "system:bootstrap:dddddd", "TokenNotAllowed"),
        "client-unknown-node": ("approver-x", "system:bootstrap:cccccc", "TokenNotAllowed"),
        "client-control-plane": ("kubernetes", "system:bootstrap:cccccc", "ReservedName"),
    }
    for name, (node, user, _) in attacks.items():
        scene.ask_client(name, node, user=user)
    assert {name: outcome(admin, name) for name in attacks} == {name: ("Denied", reason) for name, (_, _, reason) in attacks.items()}
    with pytest.raises(APIError, match="can only create a node CSR with CN=system:node:approver-a"):
        scene.ask_client("client-a-as-b", "approver-b", user="system:node:approver-a", group=NODES)

    stored = admin.get(CONFIG_MAP, node_policy.USED_TOKENS, "kube-system")["data"]
    assert {token: text.split()[2] for token, text in stored.items()} == {"cccccc": "approver-c"}
    admin.delete(CERTIFICATE_SIGNING_REQUEST, "client-c")
    scene.ask_client("client-forgotten", "approver-c", user="system:bootstrap:cccccc")
    assert outcome(admin, "client-forgotten") == ("Denied", "TokenNotAllowed")

    scene.ask_client("client-taken", "approver-b", user="system:bootstrap:bbbbbb")  # a stolen token of a node that exists
    policy = f"--node-policy={scene.place / 'policy.yaml'}"
    code, rows, _ = csr(scene, "approve", "client-taken", policy)
    taken = 'NameTaken: there is a Node "approver-b": delete it if its machine is gone'
    assert (code, [(row["outcome"], row["reason"]) for row in rows]) == (4, [("refused", taken)])
    code, found, _ = csr(scene, "explain", "client-taken", policy)
    [decision] = [one for one in found["decisions"] if one["controller"] == "clientapproving"]
    assert (code, decision["outcome"], decision["reason"]) == (0, "wait", taken)
    failed = {one["id"]: one["problem"] for one in found["checks"] if one["result"] != "passed"}
    assert (failed, len(found["checks"])) == ({"C4": taken.partition(": ")[2]}, len(clients.CHECKS))
    scene.ask_client("client-renewed", "approver-a", user="system:node:approver-a", group=NODES)
    assert outcome(admin, "client-renewed") == ("Approved", "NodeJoinPolicy")
    assert not admin.get(CERTIFICATE_SIGNING_REQUEST, "client-taken").get("status")
    machine = KubeClient(scene.server.access("system:bootstrap:bbbbbb", rbac.JOINING_NODES.name), timeout=600)
    with closing(machine):
        status = NodeRequests(machine, "approver-b", clock=SystemClock()).look()
    assert status is not None
    assert "client-taken is Pending: the policy of this cluster does not allow it yet, or a person has to approve it" in status.text


def test_a_second_approver_raises_an_alarm(scene: Scene) -> None:
    def alarms() -> list[str]:
        found = [one for one in scene.admin.list(EVENT, "default") if one["reason"] == "SecondApprover"]
        return [one["involvedObject"]["name"] for one in found]

    eventually(lambda: alarms() == ["kubeadm:node-autoapprove-bootstrap"], "the alarm")
    assert "delete the ClusterRoleBinding" in (scene.place / "approver.log").read_text()


def test_explain_shows_what_each_check_finds_about_a_waiting_request(scene: Scene) -> None:
    scene.b.ask("not-owned", ("dns", "approver-b"), ("ip", bytes((10, 55, 0, 3))))
    argv = [sys.executable, "-m", "kubewright", "csr", "explain", "not-owned", f"--kubeconfig={scene.place / 'admin.conf'}"]
    ended = subprocess.run([*argv, f"--node-policy={scene.place / 'policy.yaml'}", "-o", "json"], capture_output=True, check=True)
    found = json.loads(ended.stdout)
    [decision] = [one for one in found["decisions"] if one["controller"] == "servingapproving"]
    problem = 'no source of the policy gives "10.55.0.3" to approver-b'
    assert decision == {"controller": "servingapproving", "outcome": "wait", "reason": f"NotOwned: {problem}"}
    failed = {one["id"]: (one["result"], one["problem"]) for one in found["checks"] if one["result"] != "passed"}
    assert failed == {"S14": ("wait", problem), "S15": ("wait", 'the Node approver-b does not report "10.55.0.3"')}
    assert len(found["checks"]) == len(CHECKS)
