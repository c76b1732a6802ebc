"""The approver of serving certificates in a cluster in memory, with virtual time."""

from __future__ import annotations

import asyncio

import pytest
from controllers_cluster import Cluster
from controllers_kit import request
from cryptography.hazmat.primitives.asymmetric import ec
from serving_kit import DNS, IP, POLICY, serving_csr

from kubewright.base.errors import ValidationError
from kubewright.controllers import options
from kubewright.controllers.serving.locations import PolicyObject
from kubewright.kube.resources import NODE
from kubewright.manifests import controllers, node_policy
from kubewright.manifests.rbac import Purpose

pytestmark = pytest.mark.looptime
WANTED = options.selected(["servingapproving"])
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())


def node(name: str = "a", *addresses: str, **spec: object) -> dict:
    rows = [{"type": "InternalIP", "address": one} for one in addresses or ("10.1.0.7",)] + [{"type": "Hostname", "address": name}]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": {"addresses": rows}}


def running(*objects: dict, policy: str | PolicyObject = POLICY) -> Cluster:
    return Cluster(*objects, wanted=WANTED, policy=policy)


def conditions(cluster, name="csr-1"):
    return [(one["type"], one["reason"]) for one in cluster.csr(name)["status"].get("conditions", [])]


async def test_a_node_that_asks_for_its_own_names_is_approved():
    async with running(node(), serving_csr()).running() as cluster:
        assert conditions(cluster) == [("Approved", "NodeJoinPolicy")]


async def test_a_request_that_comes_before_its_node_is_approved_when_the_node_reports_its_address():
    async with running(serving_csr()).running() as cluster:
        assert conditions(cluster) == []
        cluster.api.put(node("a", "10.1.0.8"))
        await asyncio.sleep(1)
        assert conditions(cluster) == []
        cluster.api.put(node())
        await asyncio.sleep(1)
        assert conditions(cluster) == [("Approved", "NodeJoinPolicy")]


async def test_a_node_that_reports_the_address_of_another_gets_no_certificate_for_it():
    thief = serving_csr(request(names=(DNS, IP)), name="csr-thief")
    victim = node("worker-1", "10.1.0.7")
    async with running(node(), victim, thief).running() as cluster:
        # the file gives 10.1.0.7 to a: what worker-1 reports does not take it away
        assert conditions(cluster, "csr-thief") == [("Approved", "NodeJoinPolicy")]
    stolen = serving_csr(
        request(names=(("dns", "worker-1"), IP), subject=(("2.5.4.10", "system:nodes"), ("2.5.4.3", "system:node:worker-2"))),
        username="system:node:worker-2",
    )
    async with running(victim, node("worker-2", "10.1.0.7"), stolen).running() as cluster:
        assert conditions(cluster) == [("Denied", "ForeignName")]


async def test_a_key_that_another_node_or_a_client_certificate_has_is_denied():
    subject = (("2.5.4.10", "system:nodes"), ("2.5.4.3", "system:node:worker-1"))
    names = (("dns", "worker-1"), ("ip", b"\x0a\x01\x00\x08"))
    again = serving_csr(request(names=names, subject=subject), name="csr-2", username="system:node:worker-1")
    async with running(node(), node("worker-1", "10.1.0.8"), serving_csr()).running() as cluster:
        assert conditions(cluster) == [("Approved", "NodeJoinPolicy")]
        cluster.api.put(again)
        await asyncio.sleep(1)
        assert conditions(cluster, "csr-2") == [("Denied", "KeyReuse")]


async def test_of_two_open_requests_the_older_is_superseded():
    newer = serving_csr(request(names=(DNS, IP), key=OTHER_KEY), name="csr-2", created="2026-01-02T03:04:06Z")
    async with running(serving_csr(), newer).running() as cluster:
        assert conditions(cluster) == [("Denied", "Superseded")]
        assert conditions(cluster, "csr-2") == []


async def test_addresses_of_services_pods_and_api_servers_belong_to_no_node():
    endpoints = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": "kubernetes", "namespace": "default"},
        "subsets": [{"addresses": [{"ip": "10.1.0.7"}]}],
    }
    services = {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "x"}, "spec": {"cidrs": ["10.1.0.0/20"]}}
    asked = serving_csr(
        request(names=(("dns", "worker-1"), IP), subject=(("2.5.4.10", "system:nodes"), ("2.5.4.3", "system:node:worker-1"))),
        username="system:node:worker-1",
    )
    for reserved in (endpoints, services, node("b", "10.7.0.1", podCIDRs=["10.1.0.0/24"])):
        async with running(node("worker-1"), reserved, asked).running() as cluster:
            assert conditions(cluster) == [("Denied", "ReservedName")]
    # the policy lists this address for the node a: it is a control plane, and others cannot take it by their pod ranges
    for others in (endpoints, node("b", "10.7.0.1", podCIDRs=["0.0.0.0/0"])):
        async with running(node(), others, serving_csr()).running() as cluster:
            assert conditions(cluster) == [("Approved", "NodeJoinPolicy")]


TRUSTING = """apiVersion: controllers.kubewright/v1alpha1
kind: NodeApprovalPolicy
sources: [{nodes: {trustReportedAddresses: true}}]
nodeCIDRs: [10.1.0.0/16]
"""
FALSE_RANGES = {
    "the whole network, with its own address": (node("b", "10.7.0.1", podCIDRs=["0.0.0.0/0"]),),
    "all nodes": (node("b", "10.7.0.1", podCIDRs=["10.1.0.0/24"]), node("c", "10.1.0.9")),
    "a control plane": (
        node("b", "10.7.0.1", podCIDRs=["10.1.0.0/24"]),
        {**node("cp", "10.1.0.1"), "metadata": {"name": "cp", "labels": {"node-role.kubernetes.io/control-plane": ""}}},
    ),
    "an API server": (
        node("b", "10.7.0.1", podCIDRs=["10.1.0.0/24"]),
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": "kubernetes", "namespace": "default"},
            "subsets": [{"addresses": [{"ip": "10.1.0.2"}]}],
        },
    ),
}


@pytest.mark.parametrize(
    "policy", [TRUSTING, POLICY.replace("a\n", "x\n", 1).replace("worker-*", "a")], ids=["reported", "range in the file"]
)
@pytest.mark.parametrize("others", FALSE_RANGES.values(), ids=FALSE_RANGES)
async def test_a_node_cannot_deny_the_others_their_certificates_by_a_pod_range_of_its_choice(policy, others):
    async with running(node(), *others, serving_csr(), policy=policy).running() as cluster:
        assert conditions(cluster) == [("Approved", "NodeJoinPolicy")]


async def test_an_address_of_a_pod_that_one_node_reports_is_not_its_own():
    async with running(node(), node("b", "10.7.0.1", podCIDRs=["10.1.0.0/24"]), serving_csr(), policy=TRUSTING).running() as cluster:
        assert conditions(cluster) == [("Denied", "ReservedName")]


async def test_a_changed_policy_decides_about_waiting_requests_and_a_wrong_one_changes_nothing():
    without = POLICY.replace("10.1.0.7, ", "")
    async with running(node(), serving_csr(), policy=without).running() as cluster:
        assert conditions(cluster) == []
        cluster.set_policy("kind: nonsense")
        await asyncio.sleep(5)
        assert conditions(cluster) == []
        cluster.set_policy(POLICY)
        await asyncio.sleep(5)
        assert conditions(cluster) == [("Approved", "NodeJoinPolicy")]


async def test_a_policy_in_a_config_map_is_used_as_soon_as_it_is_there_and_while_it_is_valid():
    found = PolicyObject(namespace="kube-system", name="kubewright-node-policy")
    async with running(node(), serving_csr(), policy=found).running() as cluster:
        for content in (None, "kind: nonsense", POLICY.replace("10.1.0.7, ", "")):
            if content is not None:
                cluster.api.put(policy_map(content))
            await asyncio.sleep(5)
            assert conditions(cluster) == []
        cluster.api.put(policy_map(POLICY))
        await asyncio.sleep(5)
        assert conditions(cluster) == [("Approved", "NodeJoinPolicy")]


def policy_map(content: str) -> dict:
    metadata = {"name": "kubewright-node-policy", "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {node_policy.KEY: content}}


async def test_a_wrong_policy_keeps_the_controllers_from_starting():
    cluster = running(policy=POLICY.replace("sources", "source"))
    with pytest.raises(ValidationError):
        await cluster.manager.run()


async def test_a_denial_is_an_event_on_the_node():
    async with running(node(), serving_csr(usages=("server auth",))).running() as cluster:
        found = cluster.events()
        assert [(one["reason"], one["involvedObject"]["kind"], one["involvedObject"]["name"]) for one in found] == [("Usages", "Node", "a")]


async def test_the_approver_does_not_change_nodes():
    async with running(node(), serving_csr()).running() as cluster:
        assert cluster.api.get(NODE, "a")["status"] == node()["status"]


def test_the_deployment_of_the_approver_alone_may_neither_sign_nor_read_secrets():
    documents = controllers.deployment(image="x", controllers="servingapproving", purposes=[Purpose.SERVING_APPROVER])
    rules = [rule for one in documents for rule in one.get("rules", ())]
    granted = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert len(rules) == 15
    assert ("signers", "approve") in granted
    assert not {one for one in granted if one[0] == "secrets" or one[1] in {"sign", "delete", "patch"}}
    bound = {one["metadata"]["name"]: {subject["kind"] for subject in one["subjects"]} for one in documents if "subjects" in one}
    assert bound == {"kubewright:serving-approver": {"ServiceAccount"}, "kubewright:node-client-by-policy": {"Group"}}
    changed = [rule["resourceNames"] for rule in rules if rule["resources"] == ["configmaps"] and "update" in rule["verbs"]]
    assert changed == [["kubewright-used-tokens"]]
    [signers] = [rule for rule in rules if rule["resources"] == ["signers"]]
    assert signers["resourceNames"] == ["kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"]
    [pod] = [one["spec"]["template"]["spec"] for one in documents if one["kind"] == "Deployment"]
    assert pod["volumes"] == []
    assert "--node-policy=configmap:kube-system/kubewright-node-policy" in pod["containers"][0]["command"]
    assert not [word for word in pod["containers"][0]["command"] if "cluster-signing" in word]
    [[egress]] = [one["spec"]["egress"] for one in documents if one["kind"] == "NetworkPolicy"]
    ports = [(one["protocol"], one["port"]) for one in egress["ports"]]
    assert ports == [("TCP", 443), ("TCP", 6443), ("UDP", 53), ("TCP", 53), ("TCP", 10250)]
