"""`init --serving-certificates strict` on whole machines: real kubelets, certificates that the cluster signs, and verified logs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from archive_kit import image
from machine_kit import CONFIG, INIT, SHARED, administer, eventually, join_command, kubectl, kubewright, write
from testbed.bed import Bed, Parts
from testbed.machine import Machine

from kubewright.base import yaml

SIGNER = "kubernetes.io/kubelet-serving"
POLICY = ("-n", "kube-system", "configmap", "kubewright-node-policy")


@pytest.fixture(scope="module")
def bed(parts: Parts) -> Iterator[Bed]:
    """A control plane whose approver comes from the image, and a worker that has joined."""
    found = image()
    with Bed("one", "two", bed="serving", parts=parts, shared=SHARED) as made:
        one = made["one"]
        shutil.copyfile(found, one.root / "opt" / "image.tar")
        one.run("ctr", "-n", "k8s.io", "images", "import", "/opt/image.tar")
        write(one, CONFIG, INIT.format(address=one.address))
        kubewright(one, "init", "--config", CONFIG, "--serving-certificates", "strict")
        made["two"].run(*join_command(one))
        yield made


def decisions(one: Machine, node: str) -> list[tuple[str, str]]:
    """The conditions of a node's requests for serving certificates."""
    found = kubectl(one, "get", "csr").get("items", [])
    rows = [csr for csr in found if csr["spec"]["signerName"] == SIGNER and csr["spec"]["username"] == f"system:node:{node}"]
    return [(one["type"], one["reason"]) for row in rows for one in row["status"].get("conditions", ())]


def log_of(one: Machine, node: str) -> str:
    """The first line of the log of kube-proxy on a node, through an API server that verifies the kubelet's certificate."""
    pods = kubectl(one, "-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-proxy").get("items", [])
    [pod] = [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") == node]
    return administer(one, "-n", "kube-system", "logs", pod, "--limit-bytes=80", check=False).out


def test_the_kubelet_of_the_control_plane_gets_a_certificate_by_the_policy_of_init(bed: Bed) -> None:
    one = bed["one"]
    eventually(lambda: decisions(one, "one") == [("Approved", "NodeJoinPolicy")], "the approval")
    eventually(lambda: log_of(one, "one"), "a log that is read over a verified connection")
    assert "kubelet-certificate-authority=/etc/kubernetes/pki/ca.crt" in one.run("cat", "/etc/kubernetes/manifests/kube-apiserver.yaml").out
    again = json.loads(kubewright(one, "init", "--config", CONFIG, "--serving-certificates", "strict", "--plan", "-o", "json").out)
    assert again == []


def test_a_worker_waits_until_the_policy_lists_it(bed: Bed) -> None:
    one, two = bed["one"], bed["two"]
    eventually(lambda: _pending(one), "the request of the worker")
    [row] = _pending(one)
    assert (row["requester"], row["reason"].partition(":")[0]) == ("system:node:two", "NotOwned")
    refused = kubewright(one, "csr", "approve", row["name"], check=False)
    assert (refused.code, "NotOwned" in refused.out) == (4, True)
    assert log_of(one, "two") == ""
    found = kubectl(one, "get", *POLICY)
    policy = yaml.load(found["data"]["policy.yaml"])
    assert isinstance(policy, dict)
    policy["sources"][0]["file"]["nodes"].append({"node": "two", "addresses": [two.address]})
    patch = json.dumps({"data": {"policy.yaml": yaml.dump(policy)}})
    administer(one, "patch", *POLICY, "--type=merge", "-p", patch)
    eventually(lambda: ("Approved", "NodeJoinPolicy") in decisions(one, "two"), "the approval")
    eventually(lambda: log_of(one, "two"), "a log of the worker")


def _pending(one: Machine) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(kubewright(one, "csr", "list", "--pending", "-o", "json").out)
    return found
