"""Replicas of the controllers with a real API server: the leader stopped, continued and killed during its work.

Metrics, events, manifests.
"""

from __future__ import annotations

import base64
import json
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import controllers_faults
import pytest
from controllers_faults import PATIENT
from local_kit import Bench, eventually
from replicas_kit import NAME, Replicas, audited_cluster, body, interrupted_rounds, issued

import hostile_clients
from kubewright.apis.machine import Layout
from kubewright.base import yaml
from kubewright.base.randomness import SystemRandom
from kubewright.http.sync import Transport
from kubewright.http.tls import anonymous_context, client_context, identify
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import BearerToken, ClientCertificate
from kubewright.kube.daemons.serving_identity import own_pair
from kubewright.kube.resources import LEASE
from kubewright.manifests import controllers
from kubewright.pki import certificates
from kubewright.pki.keys import Algorithm
from loopback import free_port

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "controllers"))

from controllers_kit import request

ROUNDS = (signal.SIGSTOP, signal.SIGKILL, signal.SIGSTOP)


@pytest.fixture(scope="module")
def audited() -> Iterator[Bench]:
    yield from audited_cluster()


@pytest.fixture(scope="module")
def api(audited: Bench) -> Iterator[KubeClient]:
    with audited.client() as client:
        yield client


@pytest.fixture
def replicas(audited: Bench) -> Iterator[Replicas]:
    made = Replicas(audited)
    yield made
    made.stop()


def test_each_request_is_decided_once_if_the_leader_is_stopped_or_killed(audited: Bench, api: KubeClient, replicas: Replicas) -> None:
    interrupted_rounds(audited, api, replicas, ROUNDS)


def test_cut_watches_and_an_expired_history_lose_no_request(audited: Bench, api: KubeClient, replicas: Replicas) -> None:
    controllers_faults.cut_off_and_restarted(audited, api, replicas, count=60)


def test_each_request_is_decided_once_despite_conflicting_writers_and_a_replaced_ca(
    audited: Bench, api: KubeClient, replicas: Replicas
) -> None:
    controllers_faults.written_to_by_others(audited, api, replicas, count=80)


def test_hostile_requests_of_one_user_do_not_delay_others(audited: Bench, api: KubeClient, replicas: Replicas) -> None:
    found = controllers_faults.beset(audited, api, replicas, count=240, harmless=60)
    assert found.hostile < 300, "one hangs; what it may take is measured by `make soak`"


def test_a_stopped_replica_releases_its_lease(api: KubeClient, replicas: Replicas) -> None:
    first = replicas.start(*PATIENT)
    eventually(lambda: replicas.leader(api) is first, "the first to lead")
    first.send(signal.SIGTERM)
    assert first.process.wait(600) == 0
    [lease] = [one for one in api.list(LEASE, "kube-system") if one["metadata"]["name"] == NAME]
    assert lease["spec"].get("holderIdentity", "") == ""


def _account(api: KubeClient, name: str, *, may: bool) -> str:
    """Create a service account, optionally with permission to read metrics, and return a token of it."""
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}})
    if may:
        rbac = "rbac.authorization.k8s.io"
        rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
        api.create({"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
        api.create(
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
            }
        )
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/default/serviceaccounts/{name}/token"
    answer = api.raw("POST", path, body=json.dumps(wanted).encode(), headers={"content-type": "application/json"})
    token: str = json.loads(answer.body)["status"]["token"]
    return token


def _serving_pair(files: tuple[Path, Path], name: str) -> bytes:
    """Write a certificate and its key, and return the certificate as DER."""
    made = own_pair(name=name, algorithm=Algorithm.ECDSA_P256, now=datetime.now(UTC), random=SystemRandom())
    for path, content in zip(files, made, strict=True):
        path.write_bytes(content)
    return certificates.parse(made[0], source=name)[0].der


def _shown(port: int) -> bytes:
    """Return the certificate that a server presents."""
    context, address = anonymous_context(None, verify=False), ("127.0.0.1", port)
    with socket.create_connection(address, timeout=600) as plain, context.wrap_socket(plain) as sock:
        return sock.getpeercert(binary_form=True) or b""


def _certificate_context(api: KubeClient) -> ssl.SSLContext:
    """Return a context with an administrator's client certificate, which does not verify the server."""
    identity = api.access.identity
    assert isinstance(identity, ClientCertificate)
    context = client_context(None, verify=False)
    identify(context, identity.cert_pem, identity.key_pem)
    return context


def test_metrics_require_authorization_and_the_service_manager_is_notified(api: KubeClient, replicas: Replicas, tmp_path: Path) -> None:
    tokens = {name: _account(api, name, may=name == "scraper") for name in ("scraper", "stranger")}
    port, kubeconfig = free_port(), replicas.kubeconfig
    files = (tmp_path / "tls.crt", tmp_path / "tls.key")
    first = _serving_pair(files, "first")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(600)
        flags = {
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "tls-cert-file": files[0],
            "tls-private-key-file": files[1],
        }
        with hostile_clients.few_files():
            named = [f"--{name}={value}" for name, value in flags.items()]
            replica = replicas.start(*PATIENT, *named, NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="200000")
        assert manager.recv(4096).startswith(b"READY=1\n")
        transport = Transport(f"https://127.0.0.1:{port}", context=anonymous_context(None, verify=False))

        def get(path: str, token: str = "") -> tuple[int, str]:
            answer = transport.request("GET", path, headers={"authorization": f"Bearer {token}"} if token else {})
            return answer.status, answer.body.decode()

        eventually(lambda: replicas.leader(api) is replica, "it to lead")
        api.create(body("measured"))
        eventually(lambda: "measured" in issued(api), "the certificate")
        assert [get(path)[0] for path in ("/healthz", "/livez", "/readyz")] == [200, 200, 200]
        assert [get("/metrics", token)[0] for token in ("", "made-up", tokens["stranger"], tokens["scraper"])] == [403, 401, 403, 200]
        signed = 'kubewright_controllers_outcomes_total{controller="csrsigning-kubelet-client",outcome="signed"} 1.0'
        eventually(lambda: signed in get("/metrics", tokens["scraper"])[1], "the request to be counted")
        text = get("/metrics", tokens["scraper"])[1]
        assert f'leader_election_master_status{{name="{NAME}"}} 1.0' in text
        assert 'workqueue_depth{name="certificate"}' in text
        eventually(lambda: 'workqueue_depth{name="certificate"} 0.0' in get("/metrics", tokens["scraper"])[1], "the queue to be empty")
        transport.close()
        administrator = Transport(f"https://127.0.0.1:{port}", context=_certificate_context(api))
        eventually(lambda: administrator.request("GET", "/metrics").status == 200, "client certificates of the cluster to be known")
        administrator.close()
        with hostile_clients.hostile("127.0.0.1", port, secure=True):
            assert [hostile_clients.health("127.0.0.1", port, secure=True) for _ in range(3)] == [(200, b"ok")] * 3
            api.create(body("unhindered"))
            eventually(lambda: "unhindered" in issued(api), "the certificate")
        assert _shown(port) == first
        second = _serving_pair(files, "second")
        eventually(lambda: _shown(port) == second, "the other certificate to be shown")
        told = {manager.recv(4096) for _ in range(8)}
        assert told <= {b"WATCHDOG=1", b"STATUS=working", b"STATUS=waiting for the lease"}
        assert b"WATCHDOG=1" in told
        replica.send(signal.SIGTERM)
        while manager.recv(4096) != b"STOPPING=1":
            pass
        assert replica.process.wait(600) == 0


def test_a_new_token_in_the_file_of_a_kubeconfig_is_used_when_the_old_one_is_invalid(
    api: KubeClient, replicas: Replicas, tmp_path: Path
) -> None:
    tokens = {name: _account(api, name, may=False) for name in ("former", "present")}
    rbac = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "accounts-of-replicas"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"} for name in tokens],
    }
    api.create(binding)
    kubeconfig, file = tmp_path / "kubeconfig", tmp_path / "token"
    document = yaml.load_one(replicas.kubeconfig.read_bytes(), source="kubeconfig").value
    document["users"] = [{**user, "user": {"tokenFile": "token"}} for user in document["users"]]
    kubeconfig.write_text(yaml.dump(document))
    file.write_text(tokens["former"])
    lease = ("--leader-elect-lease-duration=1h", "--leader-elect-renew-deadline=30m")
    replica = replicas.start(*PATIENT, *lease, f"--kubeconfig={kubeconfig}")
    eventually(lambda: replicas.leader(api) is replica, "it to lead")
    assert api.raw("DELETE", "/api/v1/namespaces/default/serviceaccounts/former").status == 200
    former = KubeClient(api.access.as_identity(BearerToken(tokens["former"])), timeout=600)
    eventually(lambda: former.raw("GET", "/version").status == 401, "the former token to be refused")
    former.close()
    file.write_text(tokens["present"])
    api.create(body("with-the-present-token"))
    eventually(lambda: "with-the-present-token" in issued(api), "the certificate")
    assert replica.process.poll() is None


def test_a_failed_request_has_an_event(api: KubeClient, replicas: Replicas) -> None:
    replicas.start(*PATIENT)
    bad = body("fails")
    bad["spec"]["request"] = base64.b64encode(request(names=[("dns", "a")])).decode()
    made = api.create(bad)
    condition = {"type": "Approved", "status": "True", "reason": "ByHand", "message": ""}
    api.update({**made, "metadata": {"name": "fails"}, "status": {"conditions": [condition]}}, subresource="approval")

    def events() -> list[dict[str, Any]]:
        answer = api.raw("GET", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dfails")
        found: list[dict[str, Any]] = json.loads(answer.body)["items"]
        return found

    eventually(events, "the event")
    [event] = events()
    assert (event["reason"], event["message"], event["type"]) == (
        "SignerValidationFailure",
        "DNS subjectAltNames are not allowed",
        "Warning",
    )
    assert event["source"]["component"] == NAME


def test_manifests_pass_strict_validation_of_a_real_api_server(api: KubeClient) -> None:
    paths = {
        "Deployment": "/apis/apps/v1/namespaces/kube-system/deployments",
        "PodDisruptionBudget": "/apis/policy/v1/namespaces/kube-system/poddisruptionbudgets",
        "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/kube-system/networkpolicies",
        "ServiceAccount": "/api/v1/namespaces/kube-system/serviceaccounts",
        "Pod": "/api/v1/namespaces/kube-system/pods",
    }
    pod = controllers.machine_static_pod(Layout(), image="registry.example/kubewright:1")
    documents = [*controllers.deployment(image="registry.example/kubewright:1"), pod]
    answers = {}
    for document in documents:
        path = paths.get(document["kind"])
        if path is not None:
            target = f"{path}?dryRun=All&fieldValidation=Strict"
            answer = api.raw("POST", target, body=json.dumps(document).encode(), headers={"content-type": "application/json"})
            answers[document["kind"]] = (answer.status, answer.body.decode()[:300] if answer.status != 201 else "")
    assert answers == dict.fromkeys(paths, (201, ""))


def test_a_request_of_a_cluster_is_shown_and_explained(audited: Bench, api: KubeClient) -> None:
    made = body("shown")
    made["spec"]["request"] = base64.b64encode(request(names=[("dns", "a.example"), ("ip", b"\x0a\0\0\1")])).decode()
    made["spec"]["signerName"] = "kubernetes.io/kubelet-serving"
    made["spec"]["usages"] = ["digital signature", "server auth"]
    api.create(made)
    api.create(body("explained"))

    def command(*words: str) -> Any:
        argv = [sys.executable, "-m", "kubewright", "csr", *words, "--kubeconfig", str(audited.cluster().kubeconfig), "-o", "json"]
        return json.loads(subprocess.run(argv, capture_output=True, check=True, timeout=900).stdout)

    shown = command("show", "shown")
    assert (shown["state"], shown["request"]["dnsNames"], shown["request"]["ipAddresses"]) == ("Pending", ["a.example"], ["10.0.0.1"])
    assert shown["requester"] == "kubernetes-admin"
    outcomes = {
        name: {one["controller"]: one["outcome"] for one in command("explain", name)["decisions"]} for name in ("shown", "explained")
    }
    assert outcomes == {
        "shown": {"csrapproving": "nothing", "csrsigning-kubelet-serving": "nothing", "csrcleaner": "nothing"},
        "explained": {"csrapproving": "approve", "csrsigning-kubelet-client": "nothing", "csrcleaner": "nothing"},
    }
    listed = {one["name"]: one["state"] for one in command("list")}
    assert (listed["shown"], listed["explained"]) == ("Pending", "Pending")
