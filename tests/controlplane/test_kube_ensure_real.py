"""Desired objects, the informer, discovery and certificate requests against a real API server."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kubewright.base.change import Action
from kubewright.base.clock import SystemClock
from kubewright.base.errors import CertificateError, Forbidden, TrustError, Unauthorized
from kubewright.base.events import SilentReporter
from kubewright.base.wait import PollingWaiter
from kubewright.discovery import csr, token
from kubewright.http import loop
from kubewright.kube import resources
from kubewright.kube.answers import EventType
from kubewright.kube.client import AsyncKubeClient, KubeClient
from kubewright.kube.credentials import BearerToken, ClientCertificate
from kubewright.kube.daemons.informers import Informer
from kubewright.kube.objects import DesiredObject, NodeMarks, Write, ensure_node_marks, ensure_object, remove_object
from kubewright.kube.patches import node_status_patch
from kubewright.kube.recording import RecordingKube
from kubewright.pki import keys
from kubewright.pki.keys import Algorithm
from kubewright.pki.pins import Pin, PinMismatch, pin
from kubewright.tokens import cluster_info
from kubewright.tokens.strings import parse

OBJECTS = Path(__file__).parents[1] / "data" / "reference" / "cluster-objects"
TOKEN = parse("ensure.0123456789abcdef")


def name_of() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


def deployment(name: str) -> dict:
    container = {"name": "c", "image": "i", "resources": {"limits": {"memory": "170Mi"}, "requests": {"cpu": "100m"}}, "volumeMounts": []}
    spec = {"containers": [container], "volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": {"kubernetes.io/os": "linux"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": {"k8s-app": name}, "creationTimestamp": None},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"k8s-app": name}},
            "strategy": {},
            "template": {"metadata": {"labels": {"k8s-app": name}}, "spec": spec},
        },
        "status": {},
    }


def test_a_second_ensure_changes_nothing(admin: KubeClient) -> None:
    name = name_of()
    body = deployment(name)
    assert ensure_object(admin, DesiredObject(body)).action is Action.CREATE
    assert ensure_object(admin, DesiredObject(body)).action is Action.NONE
    before = admin.get(resources.DEPLOYMENT, name, "default")
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "j"
    change = ensure_object(admin, DesiredObject(body))
    assert [line for line in change.diff.splitlines() if line[:2] in {"+ ", "- "}] == ["-      - image: i", "+      - image: j"]
    after = admin.get(resources.DEPLOYMENT, name, "default")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["template"]["spec"]["containers"][0]["terminationMessagePath"] == "/dev/termination-log"
    assert ensure_object(admin, DesiredObject(body)).action is Action.NONE
    assert remove_object(admin, resources.DEPLOYMENT, name, "default").action is Action.DELETE
    assert remove_object(admin, resources.DEPLOYMENT, name, "default").action is Action.NONE


def test_only_named_keys_are_changed(admin: KubeClient) -> None:
    name = name_of()
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"a": "1", "b": "2"}}
    admin.create(body)
    desired = {**body, "data": {"a": "9"}}
    assert ensure_object(admin, DesiredObject(desired, write=Write.MUTATE_DATA_KEYS)).action is Action.UPDATE
    assert ensure_object(admin, DesiredObject({**desired, "data": {"a": "x"}}, write=Write.CREATE_ONLY)).action is Action.NONE
    assert admin.get(resources.CONFIG_MAP, name, "default")["data"] == {"a": "9", "b": "2"}


@pytest.mark.skipif(not OBJECTS.is_dir(), reason="the reference objects are not here")
def test_every_reference_object_is_ensured_once(admin: KubeClient) -> None:
    # The references do not contain Secrets and cluster-info, only their descriptions: their content differs from run
    # to run.
    paths = [path for path in sorted(OBJECTS.glob("*_*.json")) if not path.name.startswith(("Node", "Secret", "ConfigMap_kube-public"))]
    bodies = [json.loads(path.read_text()) for path in paths]
    assert len(bodies) == 29
    first, second = ([ensure_object(admin, DesiredObject(body)).action for body in bodies] for _ in range(2))
    assert set(first) <= {Action.CREATE, Action.NONE, Action.UPDATE}
    assert second == [Action.NONE] * len(bodies)


def test_a_plan_over_a_real_cluster_writes_nothing(admin: KubeClient) -> None:
    plan, body = RecordingKube(admin), deployment(name_of())
    assert ensure_object(plan, DesiredObject(body)).action is Action.CREATE
    assert ensure_object(plan, DesiredObject(body)).action is Action.NONE
    assert ensure_object(admin, DesiredObject(body)).action is Action.CREATE
    assert len(plan.writes) == 1


def test_a_node_is_marked_and_its_status_patched(admin: KubeClient) -> None:
    name = name_of()
    admin.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
    marks = NodeMarks(
        name=name,
        labels={"node-role.kubernetes.io/control-plane": ""},
        taints=({"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},),
    )
    assert [ensure_node_marks(admin, marks).action for _ in range(2)] == [Action.UPDATE, Action.NONE]
    found = admin.get(resources.NODE, name)
    assert found["metadata"]["labels"] == {"kubernetes.io/hostname": name, "node-role.kubernetes.io/control-plane": ""}
    assert found["spec"]["taints"][0]["key"] == "node-role.kubernetes.io/control-plane"

    def status(**fields: object) -> dict:
        present = admin.get(resources.NODE, name)
        body = node_status_patch(present, {**present, "status": {**present["status"], **fields}})
        return admin.patch(resources.NODE, name, body, subresource="status")["status"]

    two = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "10.0.0.2"}]
    conditions = [{"type": "Ready", "status": "False"}, {"type": "Foreign", "status": "True"}]
    assert status(addresses=[two[0]], conditions=conditions)["addresses"] == [two[0]]
    assert status(addresses=two)["addresses"] == two
    assert status(addresses=[*two[1:], {"type": "Hostname", "address": name}])["addresses"] == [
        two[1],
        {"type": "Hostname", "address": name},
    ]
    assert {
        one["type"]: one["status"] for one in status(conditions=[{"type": "Ready", "status": "True"}, conditions[1]])["conditions"]
    } == {
        "Ready": "True",
        "Foreign": "True",
    }


def test_an_informer_has_all_existing_objects(apiserver, admin: KubeClient) -> None:
    name = name_of()

    def body(number: int) -> dict:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{name}-{number}", "namespace": "default", "labels": {"run": name}},
        }

    admin.create(body(0))

    async def main() -> list[tuple[str, str]]:
        client = AsyncKubeClient(apiserver.access(), timeout=600)
        informer = Informer(client, resources.CONFIG_MAP, namespace="default", label_selector=f"run={name}")
        found, events = [], informer.events()
        async for kind, obj in events:
            found.append((kind.value, (obj.get("metadata") or {}).get("name", "")[-1:]))
            if kind is EventType.SYNCED and len(found) == 2:
                await client.create(body(1))
            elif len(found) == 3:
                await client.set_identity(apiserver.access().identity)  # as after a new certificate: the watch is cut, and resumes
                await client.delete(resources.CONFIG_MAP, f"{name}-0", "default")
            elif len(found) == 4:
                break
        await events.aclose()
        await client.close()
        return found

    assert loop.run(main) == [("ADDED", "0"), ("SYNCED", ""), ("ADDED", "1"), ("DELETED", "0")]


@pytest.fixture
def bootstrapped(apiserver, admin: KubeClient) -> None:
    """Write what init and the bootstrap signer would write."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"bootstrap-token-{TOKEN.id}", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": TOKEN.id,
            "token-secret": TOKEN.secret,
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",
        },
    }
    plain = cluster_info.config_map(server=apiserver.url, ca_pem=apiserver.ca_pem)
    signatures = {f"jws-kubeconfig-{TOKEN.id}": cluster_info.detached_signature(plain["data"]["kubeconfig"], TOKEN)}
    rbac, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    for body in (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-public"}},
        secret,
        cluster_info.config_map(server=apiserver.url, ca_pem=apiserver.ca_pem, signatures=signatures),
        {
            "apiVersion": rbac,
            "kind": "Role",
            "metadata": {"name": "read-cluster-info", "namespace": "kube-public"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["cluster-info"], "verbs": ["get"]}],
        },
        {
            "apiVersion": rbac,
            "kind": "RoleBinding",
            "metadata": {"name": "read-cluster-info", "namespace": "kube-public"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "read-cluster-info"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "system:anonymous"}],
        },
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "kubelet-bootstrap"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:node-bootstrapper"},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:bootstrappers"}],
        },
    ):
        ensure_object(admin, DesiredObject(body))


@pytest.mark.usefixtures("bootstrapped")
def test_a_cluster_is_discovered_by_token_and_pin(apiserver) -> None:
    pins = [Pin.parse(pin(apiserver.ca_pem))]
    question = token.Question(server=apiserver.url, token=TOKEN, pins=pins, within=600)
    clock = SystemClock()
    waiter = PollingWaiter(clock=clock, reporter=SilentReporter())
    found = token.discover(question, connect=KubeClient, waiter=waiter, clock=clock)
    assert (found.server, found.ca_pem, found.identity) == (apiserver.url, apiserver.ca_pem, BearerToken(TOKEN.text))
    assert loop.run(lambda: token.discover_async(question, connect=AsyncKubeClient, clock=clock)) == found
    for bad, error in (
        (token.Question(server=apiserver.url, token=TOKEN, pins=[Pin(bytes(32))]), PinMismatch),
        (token.Question(server=apiserver.url, token=parse("ensure.ffffffffffffffff")), TrustError),
        (token.Question(server=apiserver.url, token=parse("zzzzzz.0123456789abcdef"), unknown_token=0.2), TrustError),
    ):
        with pytest.raises(error):
            token.discover(bad, connect=KubeClient, waiter=waiter, clock=clock)


def sign(apiserver, request_pem: bytes) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    request = x509.load_pem_x509_csr(request_pem)
    issuer = x509.load_pem_x509_certificate(apiserver.ca_pem)
    key = serialization.load_pem_private_key(apiserver.authority.private_key_pem.bytes(), None)
    start = datetime.now(UTC) - timedelta(minutes=5)
    usage = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = x509.CertificateBuilder(
        issuer.subject, request.subject, request.public_key(), x509.random_serial_number(), start, start + timedelta(days=1)
    )
    return builder.add_extension(usage, critical=False).sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


async def decide(apiserver, api: AsyncKubeClient, kind: str) -> None:
    """Act as approver and signer for the next request with the token. Other tests that share the API server have left requests of others."""
    informer = Informer(api, resources.CERTIFICATE_SIGNING_REQUEST)
    events = informer.events()
    async for event, found in events:
        mine = event in {EventType.ADDED, EventType.MODIFIED} and found["spec"]["username"] == f"system:bootstrap:{TOKEN.id}"
        if mine and not (found.get("status") or {}).get("conditions"):
            break
    await events.aclose()
    condition = {"type": kind, "status": "True", "reason": "Test", "message": "so it is"}
    approved = await api.update({**found, "status": {"conditions": [condition]}}, subresource="approval")
    await asyncio.sleep(0.1)
    if kind == "Approved":
        content = sign(apiserver, base64.b64decode(found["spec"]["request"]))
        signed = {**approved["status"], "certificate": base64.b64encode(content).decode()}
        await api.update({**approved, "status": signed}, subresource="status")


async def once_allowed(call: Callable[[], Awaitable[bytes]]) -> bytes:
    """Call again while it is refused."""
    async with asyncio.timeout(600):
        while True:
            try:
                return await call()
            except (Forbidden, Unauthorized):
                await asyncio.sleep(0.1)


@pytest.mark.usefixtures("bootstrapped")
@pytest.mark.parametrize("kind", ["Approved", "Denied"])
def test_a_certificate_is_requested_with_the_token(apiserver, kind: str) -> None:
    node, key = name_of(), keys.generate(Algorithm.ECDSA_P256)

    async def main() -> str:
        admin = AsyncKubeClient(apiserver.access(), timeout=600)
        found = await token.discover_async(token.Question(server=apiserver.url, token=TOKEN), connect=AsyncKubeClient, clock=SystemClock())
        client = AsyncKubeClient(found, timeout=600)
        deciding = asyncio.create_task(decide(apiserver, admin, kind))
        try:
            # The token and its permissions are new, and the API server learns of them by watches.
            content = await once_allowed(lambda: csr.obtain(client, csr.node_client(node, key), within=600))
            await client.set_identity(ClientCertificate(cert_pem=content, key_pem=key.pem()))
            review = await client.create({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
        finally:
            deciding.cancel()
            await asyncio.gather(deciding, return_exceptions=True)
            await client.close()
            await admin.close()
        return review["status"]["userInfo"]["username"]

    if kind == "Denied":
        with pytest.raises(CertificateError) as caught:
            loop.run(main)
        assert "so it is" in str(caught.value)
    else:
        assert loop.run(main) == f"system:node:{node}"
