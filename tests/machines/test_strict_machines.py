"""`init --serving-certificates strict --client-certificates strict` on whole machines: the approver of the image, and a token for each worker."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from archive_kit import give_image
from cluster_kit import KUBEWRIGHT, run
from machine_kit import CONFIG, ENVIRONMENT, INIT, SHARED, administer, argv, eventually, kubectl, kubewright, patiently, signed, write
from testbed.bed import Bed

from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts
from kubewright.manifests.rbac import APPROVAL_BINDINGS

STRICT = ("--serving-certificates=strict", "--client-certificates=strict")
ADMINISTRATOR = {"KUBECONFIG": "/etc/kubernetes/admin.conf"}
SERVING, CLIENT = "kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"


@pytest.fixture(scope="module")
def bed(parts: Parts) -> Iterator[Bed]:
    """A control plane whose approver comes from the image, and a machine that has not joined."""
    with Bed("one", "two", bed="strict", parts=parts, shared=SHARED) as made:
        one = made["one"]
        give_image(one)
        write(one, CONFIG, INIT.format(address=one.address))
        kubewright(one, "init", "--config", CONFIG, *STRICT)
        yield made


def decided(one: Machine, user: str, signer: str = SERVING) -> set[tuple[str, str]]:
    """The conditions of a user's requests, without those that were replaced by another one."""
    found = kubectl(one, "get", "csr").get("items", [])
    rows = [csr for csr in found if csr["spec"]["signerName"] == signer and csr["spec"]["username"] == user]
    return {(one["type"], one["reason"]) for row in rows for one in row["status"].get("conditions", ())} - {("Denied", "Superseded")}


def reads_log(one: Machine, node: str) -> bool:
    """Whether the log of kube-proxy on a node can be read: the API server verifies the kubelet's certificate."""
    pods = kubectl(one, "-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-proxy").get("items", [])
    names = [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") == node]
    return bool(names and administer(one, "-n", "kube-system", "logs", names[0], "--limit-bytes=80", check=False).out)


def test_the_kubelet_of_the_control_plane_gets_a_certificate_by_the_policy_of_init(bed: Bed) -> None:
    one = bed["one"]
    eventually(lambda: reads_log(one, "one"), "a log that is read over a verified connection")
    assert decided(one, "system:node:one") == {("Approved", "NodeJoinPolicy")}
    assert "kubelet-certificate-authority=/etc/kubernetes/pki/ca.crt" in one.run("cat", "/etc/kubernetes/manifests/kube-apiserver.yaml").out
    bindings = {item["metadata"]["name"] for item in kubectl(one, "get", "clusterrolebindings")["items"]}
    assert bindings.isdisjoint(APPROVAL_BINDINGS)
    assert json.loads(kubewright(one, "init", "--config", CONFIG, *STRICT, "--plan", "-o", "json").out) == []


def test_a_worker_joins_with_a_token_of_its_own_and_gets_its_certificates_without_a_change_by_hand(bed: Bed) -> None:
    one, two = bed["one"], bed["two"]
    create = argv("token", "create", "--node=two", f"--address={two.address}", "--print-join-command")
    words = one.run(*create, env={**ENVIRONMENT, **ADMINISTRATOR}).out.split()[1:]
    token = words[words.index("--token") + 1]
    signed(one, token)
    run(KUBEWRIGHT, two, *patiently(two, words))
    eventually(lambda: reads_log(one, "two"), "a log of the worker")
    assert decided(one, f"system:bootstrap:{token[:6]}", CLIENT) == {("Approved", "NodeJoinPolicy")}
    assert decided(one, "system:node:two") == {("Approved", "NodeJoinPolicy")}
    used = kubectl(one, "-n", "kube-system", "get", "configmap", "kubewright-used-tokens")["data"]
    assert {name: text.split()[2] for name, text in used.items()} == {token[:6]: "two"}
