"""What other approvers let through, or deny by mistake, and what ours does with the same request in the same cluster.

docs/compat/approvers.md has the table; each of its rows names its case here.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import peer_approvers
import pytest
from controllers_cluster import Cluster
from controllers_kit import NODES, NOW, request
from cryptography.hazmat.primitives.asymmetric import ec
from peer_approvers import APPROVE, DENY, World
from serving_kit import IP, USER, policy, serving, serving_csr

from kubewright.apis import formats
from kubewright.base.records import replace
from kubewright.controllers import options, requests
from kubewright.controllers.requests import SigningRequest
from kubewright.controllers.serving import deciding
from kubewright.controllers.serving.deciding import Approve, Deny, Wait
from kubewright.controllers.serving.evidence import Evidence, Fetched, KnownNode

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

OTHER = ("ip", b"\x0a\x01\x00\x08")
"""The address of the node b."""
NOWHERE = ("ip", b"\x0a\x02\x00\x01")
"""An address that no node has."""


def asks(*sans: tuple[str, object], username: str = USER, common_name: str = USER, extra: tuple = (), **fields: object) -> SigningRequest:
    subject = (("2.5.4.10", NODES), *extra, ("2.5.4.3", common_name))
    return serving(request(names=sans, subject=subject), username=username, **fields)


def dns(name: str) -> tuple[str, str]:
    return ("dns", name)


A_AND_B = World(
    nodes={"a": ("a", "10.1.0.7"), "b": ("b", "10.1.0.8")},
    machines={"a": ("a", "10.1.0.7"), "b": ("b", "10.1.0.8")},
    dns={"a": ("10.1.0.7",), "b": ("10.1.0.8",)},
)
LIAR = replace(A_AND_B, nodes={"a": ("a", "10.1.0.7", "10.2.0.1"), "b": ("b", "10.1.0.8")})
POOLED = replace(A_AND_B, dns={"a": ("10.1.0.7",), "a-2.example.com": ("10.1.0.8",)}, dns_names=2)
AUTH = replace(A_AND_B, dns={"auth.example.com": ("10.1.0.7",)})
THREE = ("digital signature", "server auth", "client auth")
LET_THROUGH = {
    "postfinance: addresses without DNS names are not checked": ("postfinance", asks(OTHER), A_AND_B, "S13"),
    "postfinance: any name that begins with the node's name": ("postfinance", asks(dns("auth.example.com"), IP), AUTH, "S14"),
    "postfinance: addresses of several names are pooled": ("postfinance", asks(dns("a"), dns("a-2.example.com"), IP, OTHER), POOLED, "S13"),
    "postfinance: the organisation is not checked": (
        "postfinance",
        asks(dns("a"), IP, extra=(("2.5.4.10", "system:masters"),)),
        A_AND_B,
        "S4",
    ),
    "postfinance: usages are not checked": ("postfinance", asks(dns("a"), IP, usages=THREE), A_AND_B, "S5"),
    "postfinance: e-mail and URI names are not checked": ("postfinance", asks(dns("a"), IP, ("uri", "https://b")), A_AND_B, "S7"),
    "postfinance: by default every address is allowed": ("postfinance", asks(NOWHERE), A_AND_B, "S14"),
    "OpenShift: usages are counted": ("openshift", asks(dns("a"), IP, usages=THREE), A_AND_B, "S5"),
    "k0s before September 2026: the requester is not compared": (
        "old_k0s",
        asks(dns("b"), OTHER, username="system:bootstrap:abcdef", common_name="system:node:b"),
        A_AND_B,
        "S3",
    ),
    "k0s: what a node reports about itself is believed": ("k0s", asks(dns("a"), NOWHERE), LIAR, "S14"),
    "Talos: the Node is found by the first DNS name": ("talos", asks(dns("b"), OTHER), A_AND_B, "S13"),
    "Talos: further DNS names are not checked": ("talos", asks(dns("a"), dns("b"), IP), A_AND_B, "S13"),
    "kubelet-serving-cert-approver: names are not checked": (
        "serving_cert_approver",
        asks(dns("b"), dns("localhost"), OTHER),
        A_AND_B,
        "S12",
    ),
    "kubelet-serving-cert-approver: usages may be missing": (
        "serving_cert_approver",
        asks(dns("a"), IP, usages=("server auth",)),
        A_AND_B,
        "S5",
    ),
}
FAULTY = World(dns={"a": None}, nodes={"a": ("a", "10.1.0.7")})
DENIED_BY_MISTAKE = {
    "postfinance: a DNS server that fails denies for good": ("postfinance", asks(dns("a"), IP), FAULTY),
    "Talos: a request without DNS names fails": ("talos", asks(IP), A_AND_B),
}


def ours(csr: SigningRequest, world: World) -> deciding.Decision:
    """Our decision with an inventory that says what the Machines say."""
    sans = (*csr.details().names.dns, *csr.details().names.addresses)
    inventory = {"a": ("a", "10.1.0.7"), "b": ("b", "10.1.0.8")}
    node = csr.username.removeprefix("system:node:")
    own = inventory.get(node, ())
    found = Evidence(
        node=KnownNode(name=node, reported=frozenset(world.nodes.get(node, ()))),
        owned={san: "file" for san in sans if san in own},
        foreign={san: other for other, held in inventory.items() for san in sans if other != node and san in held},
        fetched=Fetched(
            resolved={name: None if world.dns[name] is None else frozenset(world.dns[name]) for name in sans if name in world.dns}
        ),
    )
    return deciding.decide(csr, found, policy(), now=NOW)


@pytest.mark.parametrize("name", LET_THROUGH)
def test_a_request_that_another_approver_lets_through_is_not_approved(name, matrix):
    peer, csr, world, check = LET_THROUGH[name]
    assert getattr(peer_approvers, peer)(csr, world) == APPROVE
    decision = ours(csr, world)
    assert isinstance(decision, Deny | Wait), decision
    assert decision.check == check
    for column, told in (("it", "approves"), ("ours", f"{'denies' if isinstance(decision, Deny) else 'waits'}: {decision.reason}")):
        matrix("what other approvers let through").record(name, column, told)


def test_a_passing_fault_that_makes_another_approver_deny_is_waited_for():
    peer, csr, world = DENIED_BY_MISTAKE["postfinance: a DNS server that fails denies for good"]
    assert getattr(peer_approvers, peer)(csr, world) == DENY
    decision = ours(csr, world)
    assert isinstance(decision, Wait)
    assert decision.check == "S16a"


def test_a_request_for_addresses_only_that_another_approver_denies_is_approved():
    peer, csr, world = DENIED_BY_MISTAKE["Talos: a request without DNS names fails"]
    assert getattr(peer_approvers, peer)(csr, world) == DENY
    assert isinstance(ours(csr, world), Approve)


@pytest.mark.parametrize("peer", ["postfinance", "openshift", "old_k0s", "k0s", "talos", "serving_cert_approver"])
def test_an_ordinary_request_is_approved_by_all(peer):
    csr = asks(dns("a"), IP)
    assert getattr(peer_approvers, peer)(csr, A_AND_B) == APPROVE
    assert isinstance(ours(csr, A_AND_B), Approve)


def reporting(name: str, address: str) -> dict:
    rows = [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": {"addresses": rows}}


POLICY = """apiVersion: controllers.kubewright/v1alpha1
kind: NodeApprovalPolicy
sources: [{file: {nodes: [{node: "*", addresses: [10.1.0.0/16]}]}}]
"""


@pytest.mark.looptime
async def test_neither_many_open_requests_nor_a_broken_one_stop_the_others():
    """OpenShift's stops completely when more requests are open than Machines and 100; k0s' pass ended at the first error."""
    noisy = [
        serving_csr(request(names=(dns("a"), ("ip", formats.address(f"10.1.9.{number % 250}").packed))), name=f"a-{number:03d}")
        for number in range(300)
    ]
    subject = (("2.5.4.10", NODES), ("2.5.4.3", "system:node:b"))
    good = serving_csr(
        request(names=(dns("b"), OTHER), subject=subject, key=ec.generate_private_key(ec.SECP256R1())), name="z", username="system:node:b"
    )
    broken = serving_csr(b"junk", name="0", username="system:node:c")
    pending = [requests.read(one) for one in (*noisy, good)]
    assert peer_approvers.openshift_pass(pending, A_AND_B) == []
    assert peer_approvers.openshift_pass(pending[-1:], A_AND_B) == ["z"]
    assert peer_approvers.old_k0s_pass([pending[-1], requests.read(broken)], A_AND_B) == []
    assert peer_approvers.old_k0s_pass(pending[-1:], A_AND_B) == ["z"]
    nodes = (reporting("a", "10.1.0.7"), reporting("b", "10.1.0.8"))
    cluster = Cluster(*nodes, broken, *noisy, good, wanted=options.selected(["servingapproving"]), policy=POLICY)
    async with cluster.running():
        await asyncio.sleep(1)
        assert cluster.kinds("z") == ["Approved"]
        assert cluster.kinds("0") == ["Denied"]
