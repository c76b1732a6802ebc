"""The approver's Deployment in a cluster of kubeadm with stock controllers: kubelets with serverTLSBootstrap, whose addresses and names change."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from agent_bed import Worker
from archive_kit import REFERENCE, give_image
from cluster_kit import KUBEADM, at_once, run
from interop_kit import reset
from machine_kit import CONFIG, INIT, SHARED, administer, eventually, join_command, kubectl, kubewright, patiently, ready, write
from testbed.bed import Bed

from kubewright.base import yaml
from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts

SIGNER = "kubernetes.io/kubelet-serving"
APPROVER, POLICY = "kubewright-controllers", "kubewright-node-policy"
AUTHORITY = "/etc/kubernetes/pki/ca.crt"
CLUSTER = INIT.replace(
    "networking:", f"apiServer: {{{{extraArgs: [{{{{name: kubelet-certificate-authority, value: {AUTHORITY}}}}}]}}}}\nnetworking:"
).replace("cgroupDriver:", "serverTLSBootstrap: true\ncgroupDriver:")


@dataclass
class Cluster:
    """Three machines, and the addresses that the policy gives to their nodes."""

    bed: Bed
    owned: dict[str, str] = field(default_factory=dict)

    @property
    def one(self) -> Machine:
        return self.bed["one"]

    def allow(self, *, source: Any = None) -> None:
        """Store the policy: the addresses of the nodes, or another source."""
        rows = [{"node": node, "addresses": [address]} for node, address in self.owned.items()]
        sources = [source or {"file": {"nodes": rows}}]
        head = {"apiVersion": "controllers.kubewright/v1alpha1", "kind": "NodeApprovalPolicy"}
        policy = yaml.dump({**head, "sources": sources, "renewal": "certificate"})
        stored = {"metadata": {"name": POLICY, "namespace": "kube-system"}, "data": {"policy.yaml": policy}}
        self.apply(yaml.dump({"apiVersion": "v1", "kind": "ConfigMap", **stored}))

    def apply(self, documents: str) -> None:
        """Create or change objects."""
        administer(self.one, "apply", "-f", "-", data=documents)

    def run_approver(self) -> None:
        """Run the approver as the guide does, from the image of this release."""
        give_image(self.one)
        selected = ("--controllers", "servingapproving", "--image", REFERENCE)
        self.apply(kubewright(self.one, "controllers", "manifest", "deployment", *selected).out)
        eventually(lambda: ready(self.one, "deployment", APPROVER), "the approver")

    def pod_of(self, node: str) -> str:
        """The pod of kube-proxy on a node, '' if there is none."""
        pods = kubectl(self.one, "-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-proxy").get("items", [])
        return next((pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") == node), "")

    def reads_log(self, node: str) -> bool:
        """Whether a log of the node can be read: the API server verifies the kubelet's certificate for its address."""
        pod = self.pod_of(node)
        return bool(pod and administer(self.one, "-n", "kube-system", "logs", pod, "--limit-bytes=80", check=False).out)

    def runs_commands(self, node: str) -> bool:
        """Whether a command can be run in a container of the node."""
        words = ("-n", "kube-system", "exec", self.pod_of(node), "--", "/usr/local/bin/kube-proxy", "--version")
        return administer(self.one, *words, check=False).out.startswith("Kubernetes v1.")

    def reasons(self, node: str) -> set[str]:
        """What the open requests of a node wait for."""
        listed = kubewright(
            self.one, "csr", "list", "--pending", f"--node-policy=configmap:kube-system/{POLICY}", "-o", "json", check=False
        )
        rows = json.loads(listed.out or "[]")
        return {row["reason"].partition(":")[0] for row in rows if row["requester"] == f"system:node:{node}"}

    def approved(self, node: str) -> int:
        """How many of a node's requests for serving certificates were approved. None may be denied unless it was replaced by another one."""
        found = kubectl(self.one, "get", "csr").get("items", [])
        rows = [csr for csr in found if csr["spec"]["signerName"] == SIGNER and csr["spec"]["username"] == f"system:node:{node}"]
        decided = Counter((one["type"], one["reason"]) for row in rows for one in row["status"].get("conditions", ()))
        assert set(decided) <= {("Approved", "NodeJoinPolicy"), ("Denied", "Superseded")}
        return decided["Approved", "NodeJoinPolicy"]


@pytest.fixture(scope="module")
def cluster(parts: Parts) -> Iterator[Cluster]:
    """A control plane and two workers of kubeadm. No approver is running yet."""
    with Bed("one", "two", "three", bed="approver", parts=parts, shared=SHARED) as bed:
        one = bed["one"]
        write(one, CONFIG, CLUSTER.format(address=one.address))
        run(KUBEADM, one, "init", "--config", CONFIG)
        words = join_command(one, tool=("kubeadm",))
        at_once(*(_joining(bed[name], words) for name in ("two", "three")))
        yield Cluster(bed, {name: bed[name].address for name in ("one", "two", "three")})


def _joining(machine: Machine, words: Sequence[str]) -> Callable[[], object]:
    return lambda: run(KUBEADM, machine, *patiently(machine, words))


def renew(machine: Machine, *flags: str) -> None:
    """Make a kubelet request a serving certificate at once, with other flags."""
    machine.run("systemctl", "stop", "kubelet")
    machine.run("sh", "-c", "rm -f /var/lib/kubelet/pki/kubelet-server-*")
    write(machine, "/etc/default/kubelet", f"KUBELET_EXTRA_ARGS='{' '.join(flags)}'\n")
    machine.run("systemctl", "start", "kubelet")


def another(address: str) -> str:
    """An address of the machine's network that no machine has."""
    network, _, last = address.rpartition(".")
    return f"{network}.{int(last) + 100}"


def test_logs_and_exec_work_over_verified_connections_with_the_approver_only(cluster: Cluster) -> None:
    eventually(lambda: all(cluster.pod_of(node) for node in cluster.owned), "a pod on each node")
    assert not any(cluster.reads_log(node) for node in cluster.owned)
    cluster.allow()
    cluster.run_approver()
    for node in cluster.owned:
        eventually(lambda node=node: cluster.reads_log(node), f"a log of {node}")
        eventually(lambda node=node: cluster.runs_commands(node), f"a command on {node}")
        assert cluster.approved(node) == 1


def test_a_node_with_another_address_gets_a_certificate_when_the_policy_lists_it(cluster: Cluster) -> None:
    two = cluster.bed["two"]
    moved = another(two.address)
    two.run("ip", "address", "add", f"{moved}/24", "dev", "eth0")
    renew(two, f"--node-ip={moved}")
    eventually(lambda: cluster.reasons("two") == {"NotOwned"}, "the request for the new address")
    assert not cluster.reads_log("two")
    cluster.owned["two"] = moved
    cluster.allow()
    eventually(lambda: cluster.reads_log("two"), "a log from the new address")


def test_a_node_that_was_renamed_keeps_its_address_although_the_former_node_still_reports_it(cluster: Cluster) -> None:
    three = cluster.bed["three"]
    cluster.owned["renamed"] = cluster.owned.pop("three")
    cluster.allow()
    reset(KUBEADM, three)
    run(KUBEADM, three, *patiently(three, [*join_command(cluster.one, tool=("kubeadm",)), "--node-name=renamed"]))
    assert kubectl(cluster.one, "get", "node", "three")["status"]["addresses"][0]["address"] == three.address
    eventually(lambda: cluster.reads_log("renamed"), "a log of the renamed node")
    administer(cluster.one, "delete", "node", "three")


def test_a_node_that_was_deleted_and_made_again_gets_a_certificate(cluster: Cluster) -> None:
    two = cluster.bed["two"]
    two.run("systemctl", "stop", "kubelet")
    administer(cluster.one, "delete", "node", "two")
    before = cluster.approved("two")
    renew(two, f"--node-ip={cluster.owned['two']}")
    eventually(lambda: cluster.reads_log("two"), "a log of the node that was made again")
    assert cluster.approved("two") > before


def test_certificates_are_renewed_while_the_inventory_is_not_available(cluster: Cluster) -> None:
    authority = cluster.one.run("cat", AUTHORITY).out
    cluster.allow(source={"webhook": {"url": "https://127.0.0.1:9/", "certificateAuthority": authority}})
    two, three = cluster.bed["two"], cluster.bed["three"]
    renew(two, f"--node-ip={cluster.owned['two']}")
    eventually(lambda: cluster.reads_log("two"), "a log after the renewal")
    moved = another(three.address)
    three.run("ip", "address", "add", f"{moved}/24", "dev", "eth0")
    renew(three, f"--node-ip={moved}")
    eventually(lambda: cluster.reasons("renamed") == {"SourceUnavailable"}, "the request that needs the inventory")
    cluster.owned["renamed"] = moved
    cluster.allow()
    eventually(lambda: cluster.reads_log("renamed"), "a log from the address that the policy lists")


def test_the_agent_gets_its_certificate_in_the_same_way(cluster: Cluster) -> None:
    worker = Worker(cluster.one, cluster.bed["two"])
    before = cluster.approved("two")
    worker.end()
    moved = worker.heartbeat()
    worker.machine.run("sh", "-c", "rm -f /var/lib/kubelet/pki/kubelet-server-*")
    worker.agent("--rotate-server-certificates")
    worker.ready(since=moved)
    healthy = ("get", "--raw", "/api/v1/nodes/two/proxy/healthz")
    eventually(lambda: administer(cluster.one, *healthy, check=False).out == "ok", "an answer of the agent over a verified connection")
    assert cluster.approved("two") > before
