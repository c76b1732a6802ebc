"""`up --serving-certificates strict --client-certificates strict`: certificates of kubelet APIs that the cluster signs, and a token for each node."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from local_kit import Bench, bench, eventually

from kubewright.base import yaml
from kubewright.base.errors import ConfigurationChanged, UsageError
from kubewright.kube.client import KubeClient
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, CONFIG_MAP, SECRET, named
from kubewright.manifests import node_policy
from kubewright.manifests.rbac import APPROVAL_BINDINGS
from kubewright.tokens import secrets

SIGNER = "kubernetes.io/kubelet-serving"


@pytest.fixture(scope="module")
def home() -> Iterator[Bench]:
    yield from bench()


@pytest.fixture(scope="module")
def made(home: Bench) -> Bench:
    ran = home.run("up", "--nodes", "2", "--serving-certificates", "strict", "--client-certificates", "strict")
    assert ran.code == 0, ran.err
    return home


def serving_requests(api: KubeClient) -> dict[str, list[tuple[str, str]]]:
    """The conditions of each serving request by its requester."""
    return {
        csr["spec"]["username"]: [(one["type"], one["reason"]) for one in csr.get("status", {}).get("conditions", ())]
        for csr in api.list(CERTIFICATE_SIGNING_REQUEST)
        if csr["spec"]["signerName"] == SIGNER
    }


def test_the_kubelet_api_has_a_certificate_of_the_cluster_that_the_api_server_verifies(made: Bench) -> None:
    node = "system:node:one-control-plane"
    with made.client() as api:
        eventually(lambda: serving_requests(api) == {node: [("Approved", "NodeJoinPolicy")]}, "the approval")
        layout = made.paths().layout("one-control-plane")
        machine = made.status()["machines"][0]

        def served() -> x509.Certificate | None:
            try:
                pem = ssl.get_server_certificate((machine["address"], 10250), ca_certs=str(layout.certificate("ca")))
            except OSError:
                return None
            return x509.load_pem_x509_certificate(pem.encode())

        eventually(lambda: served() is not None, "the certificate")
        found = served()
        assert found is not None
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == [machine["address"]]
        assert names.get_values_for_type(x509.DNSName) == ["one-control-plane"]
        [kubelet] = [one for one in api.list(CONFIG_MAP, "kube-system") if one["metadata"]["name"] == "kubelet-config"]
        assert "serverTLSBootstrap: true" in kubelet["data"]["kubelet"]
    manifest = yaml.load(Path(layout.manifest("kube-apiserver")).read_text())
    [container] = manifest["spec"]["containers"]
    assert f"--kubelet-certificate-authority={layout.certificate('ca')}" in container["command"]


def test_a_second_up_changes_nothing_and_keeps_additions_to_the_policy(made: Bench) -> None:
    with made.client() as api:
        found = api.get(CONFIG_MAP, node_policy.NAME, "kube-system")
        policy = yaml.load(found["data"][node_policy.KEY])
        rows = {row["node"]: (len(row.get("addresses", ())), len(row.get("tokens", ()))) for row in policy["sources"][0]["file"]["nodes"]}
        assert rows == {"one-control-plane": (1, 0), "one-worker-1": (0, 1), "one-worker-2": (0, 1)}
        policy["sources"][0]["file"]["nodes"].append({"node": "db-*", "addresses": ["10.1.0.0/24"]})
        changed = api.update({**found, "data": {node_policy.KEY: yaml.dump(policy)}})
        assert made.up().changes == ()
        again = api.get(CONFIG_MAP, node_policy.NAME, "kube-system")
        assert again["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]
    with pytest.raises(ConfigurationChanged, match="has strict serving certificates, not self-signed"):
        made.up(serving_certificates="self-signed")


def test_each_node_has_joined_with_a_token_of_its_own(made: Bench) -> None:
    with made.client() as api:
        bindings = {one["metadata"]["name"] for one in api.list(named("ClusterRoleBinding"))}
        found = [one for one in api.list(CERTIFICATE_SIGNING_REQUEST) if one["spec"]["username"].startswith("system:bootstrap:")]
        assert len({one["spec"]["username"] for one in found}) == len(found) == 2
        assert {one["status"]["conditions"][0]["reason"] for one in found} == {"NodeJoinPolicy"}
    assert "kubeadm:kubelet-bootstrap" in bindings
    assert bindings.isdisjoint(APPROVAL_BINDINGS)
    assert made.up(nodes=3).changes
    with made.client() as api:
        assert [one["metadata"]["name"] for one in api.list(SECRET, "kube-system") if one["type"] == secrets.TYPE] == []
        rows = yaml.load(api.get(CONFIG_MAP, node_policy.NAME, "kube-system")["data"][node_policy.KEY])["sources"][0]["file"]["nodes"]
        assert {row["node"]: len(row.get("tokens", ())) for row in rows}["one-worker-3"] == 1
    with pytest.raises(ConfigurationChanged, match="has strict client certificates, not stock"):
        made.up(client_certificates="stock")
    made.up(nodes=0)  # a worker has the address of the control plane, so an audit would find another node's certificate there


def test_strict_client_certificates_need_the_approver(home: Bench) -> None:
    with pytest.raises(UsageError, match="--client-certificates strict needs the approver"):
        home.up("two", client_certificates="strict")
    assert not home.paths("two").record.exists()


def test_the_audit_finds_certificates_with_names_that_are_not_the_nodes_own(made: Bench, tmp_path: Path) -> None:
    cluster = made.cluster()
    code, rows = audit(cluster.kubeconfig)
    assert code == 0
    places = {(row["node"], row["found"].partition(" ")[0], row["result"]) for row in rows}
    address = made.status()["machines"][0]["address"]
    assert ("one-control-plane", f"{address}:10250", "good") in places
    assert ("one-control-plane", "request", "good") in places
    policy = tmp_path / "policy.yaml"
    with made.client() as api:
        text = api.get(CONFIG_MAP, node_policy.NAME, "kube-system")["data"][node_policy.KEY]
    policy.write_text(text.replace(address, "127.0.99.99"))
    code, rows = audit(cluster.kubeconfig, f"--node-policy={policy}")
    assert code == 4
    found = {row["found"].partition(" ")[0]: row["problems"] for row in rows if row["node"] == "one-control-plane"}
    assert f'NotOwned: no source of the policy gives "{address}" to one-control-plane' in found[f"{address}:10250"]
    assert found["request"] == found[f"{address}:10250"]


def audit(kubeconfig: Path, *words: str) -> tuple[int, Any]:
    argv = [sys.executable, "-m", "kubewright", "controllers", "audit", f"--kubeconfig={kubeconfig}", "-o", "json", *words]
    ended = subprocess.run(argv, capture_output=True, check=False, text=True)
    return ended.returncode, json.loads(ended.stdout)


def test_the_approver_is_a_component_that_may_not_sign(made: Bench) -> None:
    eventually(lambda: made.components()["kubewright-controllers"]["state"] == "Ready", "the controllers to be ready")
    with made.client() as api:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": "kubewright-controllers",
                "resourceAttributes": {"group": "certificates.k8s.io", "resource": "signers", "name": SIGNER, "verb": "sign"},
            },
        }
        assert api.create(review)["status"]["allowed"] is False
