"""The objects that `init` writes to a cluster, read back from a real API server and compared with those that kubeadm v1.36.2 wrote."""

from __future__ import annotations

import base64
import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from server_kit import api_server

from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document
from kubewright.apis.machine import Addresses, Detected
from kubewright.base import yaml
from kubewright.base.change import Lifetime
from kubewright.base.clock import FakeClock
from kubewright.base.errors import AlreadyExists, NotFound
from kubewright.base.events import RecordingReporter
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import replace
from kubewright.base.wait import PollingWaiter
from kubewright.host.decisions import roots
from kubewright.host.facts import Facts, MachineInfo
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.kube.client import KubeClient
from kubewright.kube.resources import named
from kubewright.lifecycle.binding import bind
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.engine import run
from kubewright.lifecycle.init import existing_cluster
from kubewright.lifecycle.init.operation import INIT, prepare
from kubewright.lifecycle.init.request import InitOptions
from kubewright.lifecycle.machine import TargetMachine
from kubewright.pki.encryption import sealing
from kubewright.tokens import cluster_info, parse
from operation_kit import observed, run_phases

REFERENCE = Path(__file__).parents[1] / "data" / "reference" / "cluster-objects"
STORED = sorted(path.stem for path in REFERENCE.glob("*_*.json"))
DETECTED = Detected(host_name="node1", default_ipv4="10.98.0.11")
VOLATILE = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
CERTIFICATE_KEY = bytes(range(32))


class Cluster:
    """A machine whose files are in memory, and the real API server to which its phases write."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.clock = FakeClock(datetime.now(UTC))  # other tests share the API server, which uses the real time
        self.reporter = RecordingReporter()
        self._hosts: dict[object, OverlayHost] = {}

    def machine(self, layout):
        if layout not in self._hosts:
            host = OverlayHost(RealHost(layout=layout, environment={}), facts=Facts(detected=DETECTED, machine=MachineInfo()))
            for root in roots(layout):
                host.remove(root)
            self._hosts[layout] = host
        return self._hosts[layout]

    def call(self, *, upload_certs: bool):
        path = REFERENCE / "kubeadm.yaml"
        return InitOptions(documents=yaml.load_all(path.read_bytes(), source=path.name), from_file=True, upload_certs=upload_certs)

    def prepared(self, *, upload_certs: bool):
        return prepare(self.call(upload_certs=upload_certs), self.whole())

    def whole(self):
        return TargetMachine(at=self.machine, clock=self.clock, random=SystemRandom(), environment={"HOME": "/nonexistent"})

    def init(self, *, upload_certs: bool):
        request = self.call(upload_certs=upload_certs)
        prepared = prepare(request, self.whole())
        waiter = PollingWaiter(clock=self.clock, reporter=self.reporter)
        return run_phases(prepared, request, self.whole(), kube=self.client, reporter=self.reporter, waiter=waiter)

    def plan(self, *, upload_certs: bool):
        row = observed(lambda _: KubeClient(self.client.access))
        return run(row, self.call(upload_certs=upload_certs), self.whole(), reporter=self.reporter, mode=Mode.PLAN).plan


@pytest.fixture(scope="module")
def apiserver(tmp_path_factory):
    """An API server of its own: other tests create some of these objects."""
    with api_server(tmp_path_factory.mktemp("init-apiserver")) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(apiserver):
    client = KubeClient(apiserver.access(), timeout=600)
    with contextlib.suppress(AlreadyExists):  # the kubelet's part
        client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1", "labels": {"kubernetes.io/hostname": "node1"}}})
    yield Cluster(client)
    client.close()


@pytest.fixture(scope="module")
def made(cluster):
    """The changes of the first run."""
    return cluster.init(upload_certs=True)


def stored(cluster, kind, namespace, name):
    return cluster.client.get(named(kind), name, None if namespace == "-" else namespace)


def find(cluster, entry):
    """Read the object that a file of the reference describes; the Secret of a random token is found by its description."""
    kind, namespace, _ = entry.split("_", 2)
    wanted = json.loads((REFERENCE / f"{entry}.json").read_text())
    name = wanted["metadata"]["name"]
    if name != "bootstrap-token-<ID>":
        return wanted, stored(cluster, kind, namespace, name)
    secrets = cluster.client.list(named("Secret"), namespace)
    description = wanted["data_decoded"]["description"]
    return wanted, next(one for one in secrets if base64.b64decode(one.get("data", {}).get("description", "")).decode() == description)


def without_volatile(body):
    metadata = {key: value for key, value in body["metadata"].items() if key not in VOLATILE}
    if metadata.get("annotations", {}).pop("deprecated.daemonset.template.generation", None):  # the API server's own
        metadata = {key: value for key, value in metadata.items() if key != "annotations" or value}
    return {key: value for key, value in body.items() if key != "status"} | {"metadata": metadata}


COMPARED = [entry for entry in STORED if not entry.startswith(("Secret", "Node", "ConfigMap_kube-public"))]


def test_the_reference_contains_all_kinds():
    assert (len(STORED), len(COMPARED)) == (34, 29)


@pytest.mark.parametrize("entry", COMPARED)
def test_the_cluster_contains_the_objects_of_kubeadm(cluster, made, entry):
    wanted, found = find(cluster, entry)
    assert without_volatile(found) == wanted


def test_every_object_is_created_once_and_in_the_order_of_kubeadm(made):
    targets = [change.target for change in made if change and "/etc/" not in change.target and "/var/" not in change.target]
    objects = [target for target in targets if not target.startswith(("certificate", "key pair", "kubeconfig"))]
    assert len(set(objects)) == len(objects)
    first = ["clusterrolebinding kubeadm:cluster-admins", "configmap kube-system/kubeadm-config"]
    assert objects[:2] == first
    assert objects[-1] == "rolebinding kube-system/kube-proxy"
    assert objects.index("node node1") < objects.index("secret kube-system/bootstrap-token-abcdef")


@pytest.mark.parametrize("entry", [entry for entry in STORED if entry.startswith("Secret") and "kubeadm-certs" not in entry])
def test_tokens_are_stored_as_by_kubeadm(cluster, made, entry):
    wanted, found = find(cluster, entry)
    decoded = {key: base64.b64decode(value).decode() for key, value in found["data"].items()}
    placeholders = {key: decoded[key] for key, value in wanted["data_decoded"].items() if value.startswith("<")}
    assert decoded == {**wanted["data_decoded"], **placeholders}
    assert found["type"] == wanted["type"]
    assert decoded["expiration"].endswith("Z")


def test_uploaded_certificates_are_encrypted_and_removed_with_a_token(cluster, made):
    wanted, found = find(cluster, "Secret_kube-system_kubeadm-certs")
    values = {name: base64.b64decode(value) for name, value in found["data"].items()}
    assert sorted(values) == sorted(wanted["data_decoded"])
    for name, value in values.items():
        content = cluster.prepared(upload_certs=True).host.read(place(cluster, name))
        assert content is not None
        assert sealing.unseal(value, CERTIFICATE_KEY, name=name) == content
        assert len(value) == len(content) + 28
    (owner,) = found["metadata"]["ownerReferences"]
    secret = stored(cluster, "Secret", "kube-system", owner["name"])
    assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (secret["metadata"]["uid"], True, True)


def place(cluster, name):
    layout = cluster.prepared(upload_certs=True).host.layout
    return layout.pki / (name.replace("etcd-", "etcd/") if name.startswith("etcd-") else name)


def test_cluster_info_is_that_of_kubeadm_and_already_signed(cluster, made):
    wanted, found = find(cluster, "ConfigMap_kube-public_cluster-info")
    ca = base64.b64encode(cluster.prepared(upload_certs=False).host.read(place(cluster, "ca.crt"))).decode()
    assert sorted(found["data"]) == sorted(wanted["data"])
    assert found["data"]["kubeconfig"].replace(ca, "<base64 of pki/ca.crt>") == wanted["data"]["kubeconfig"]
    verified = cluster_info.verify(found, token=parse("abcdef.0123456789abcdef"), server="test", now=datetime.now(UTC))
    assert verified.server == "https://10.98.0.11:6443"


def test_the_node_is_marked(cluster, made):
    wanted, found = find(cluster, "Node_-_node1")
    assert wanted["metadata"]["labels_added_by_kubeadm"].items() <= found["metadata"]["labels"].items()
    assert found["spec"]["taints"][: len(wanted["spec"]["taints"])] == wanted["spec"]["taints"]


def test_every_field_is_managed_by_kubeadm(cluster, made):
    rows = [row for row in json.loads((REFERENCE / "index.json").read_text()) if "PROXY" not in row["name"]]
    assert len(rows) == 33
    for row in rows:
        found = cluster.client.get(named(row["kind"]), row["name"], row["namespace"])
        managers = {one["manager"] for one in found["metadata"].get("managedFields", [])}
        nothing_to_own = row["kind"] == "ServiceAccount"  # except its name
        assert managers == (set() if nothing_to_own else {"kubeadm"}), row["name"]


def test_a_second_run_changes_nothing(cluster, made):
    changes = cluster.init(upload_certs=False)
    assert [change for change in changes if change] == []
    assert len(changes) > 50


def test_a_second_plan_of_the_live_cluster_is_empty(cluster, made):
    plan = cluster.plan(upload_certs=True)
    assert (plan.text(), plan.as_list()) == ("", [])


def test_missing_objects_are_planned_and_then_created(cluster, made):
    cluster.client.delete(named("ClusterRoleBinding"), "kubeadm:node-proxier")
    plan = cluster.plan(upload_certs=False)
    assert [(change.action.value, change.target) for change in plan.changes] == [("create", "clusterrolebinding kubeadm:node-proxier")]
    with pytest.raises(NotFound):
        stored(cluster, "ClusterRoleBinding", "-", "kubeadm:node-proxier")
    changes = cluster.init(upload_certs=False)
    assert [change.target for change in changes if change] == ["clusterrolebinding kubeadm:node-proxier"]


def test_uploading_again_recreates_only_short_lived_objects(cluster, made):
    changes = [change for change in cluster.init(upload_certs=True) if change]
    assert len(changes) == 2
    assert {change.lifetime for change in changes} == {Lifetime.EPHEMERAL}


def test_a_customised_corefile_and_the_number_of_dns_pods_stay(cluster, made):
    config = stored(cluster, "ConfigMap", "kube-system", "coredns")
    edited = config["data"]["Corefile"].replace("cache 30", "cache 60")
    cluster.client.update({**config, "data": {"Corefile": edited}})
    cluster.client.patch(named("Deployment"), "coredns", {"spec": {"replicas": 5}}, "kube-system")
    assert [change.target for change in cluster.init(upload_certs=False) if change] == []
    assert stored(cluster, "ConfigMap", "kube-system", "coredns")["data"] == {"Corefile": edited}
    assert stored(cluster, "Deployment", "kube-system", "coredns")["spec"]["replicas"] == 5


def test_a_plan_finds_the_cluster_through_a_kubeconfig(cluster, made, apiserver, tmp_path):
    identity = apiserver.identity("kubernetes-admin", "system:masters")
    path = tmp_path / "admin.conf"
    path.write_text(
        yaml.dump(
            kubeconfig_document(
                server=apiserver.url,
                ca_pem=apiserver.ca_pem,
                cluster_name="kubernetes",
                user="kubernetes-admin",
                credentials=EmbeddedCertificate(certificate_pem=identity.cert_pem, key_pem=identity.key_pem),
            )
        )
    )
    fresh = Cluster(cluster.client)  # the machine has no CA yet from which the kubeconfig could differ
    request = replace(fresh.call(upload_certs=False), kubeconfig=str(path))
    with bind(INIT, prepare(request, fresh.whole()), fresh.whole(), mode=Mode.PLAN, reporter=fresh.reporter) as bound:
        found = existing_cluster.cluster(bound, Addresses.of_machine("10.98.0.11"), kubeconfig=request.kubeconfig)
    assert isinstance(found, KubeClient)
    assert found.get(named("Node"), "node1")["metadata"]["name"] == "node1"
    found.close()
