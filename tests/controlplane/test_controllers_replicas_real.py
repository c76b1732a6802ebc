"""Replicas of the controllers on a real API server: the leader stopped, continued and killed in the middle of its work; what they serve and tell."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from local_kit import Bench, bench, eventually

from kubewright.apis.machine import Layout
from kubewright.http.sync import Transport
from kubewright.http.tls import anonymous_context
from kubewright.kube.client import KubeClient
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, LEASE
from kubewright.manifests import controllers

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "controllers"))

from controllers_kit import CLIENT_USAGES, request

NAME = controllers.NAME
CLIENT_KUBELET = "kubernetes.io/kube-apiserver-client-kubelet"
ROUNDS = (signal.SIGSTOP, signal.SIGKILL, signal.SIGSTOP, signal.SIGSTOP)
EACH = 80
"""Requests of one round."""
TIMES = ("--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2500ms", "--leader-elect-retry-period=200ms")
CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
apiServer:
  extraArgs:
  - {{name: audit-policy-file, value: {directory}/policy.yaml}}
  - {{name: audit-log-path, value: {directory}/audit.log}}
  extraVolumes:
  - {{name: audit, hostPath: {directory}, mountPath: {directory}, pathType: Directory}}
"""
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "verbs": ["update"], "resources": [{"group": "certificates.k8s.io"}]}, {"level": "None"}],
}


@dataclass(eq=False)
class Replica:
    """One process of ours, with its log."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def identity(self) -> str:
        """Who it was when it led, '' if it never did."""
        found = re.findall(r"(\S+) leads by the lease", self.log.read_text())
        return found[-1] if found else ""

    def signed(self, start: str) -> int:
        """How many requests whose names begin so it has signed."""
        return len(re.findall(rf"{start}-\d+ of \S+ is signed", self.log.read_text()))

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)


class Replicas:
    """A cluster whose own controllers were taken away, and what runs in their place."""

    def __init__(self, cluster: Bench) -> None:
        self.cluster = cluster
        [kubeconfig] = cluster.paths().machines.glob(f"*/kubernetes/{NAME}.conf")
        self.kubeconfig = kubeconfig
        self._running: list[Replica] = []
        self._made = 0

    def start(self, *flags: str, **environment: str) -> Replica:
        self._made += 1
        log = self.cluster.root / f"replica-{self._made}.log"
        pki = self.kubeconfig.parent / "pki"
        argv = [
            *(sys.executable, "-m", "kubewright", "controllers", "run", f"--kubeconfig={self.kubeconfig}", "--kube-api-qps=1000"),
            *("--kube-api-burst=1000", f"--cluster-signing-cert-file={pki / 'ca.crt'}", f"--cluster-signing-key-file={pki / 'ca.key'}"),
            *(*TIMES, *flags),
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(argv, stdout=output, stderr=output, env={**os.environ, **environment})
        self._running.append(Replica(process, log))
        return self._running[-1]

    @property
    def alive(self) -> int:
        """How many run."""
        return sum(one.process.poll() is None for one in self._running)

    def leader(self, api: KubeClient) -> Replica | None:
        """Return the replica whose name the lease holds."""
        leases = [one for one in api.list(LEASE, "kube-system") if one["metadata"]["name"] == NAME]
        holder = leases[0]["spec"].get("holderIdentity") if leases else ""
        return next((one for one in self._running if holder and one.identity == holder), None)

    def stop(self) -> None:
        for one in self._running:
            if one.process.poll() is None:
                one.send(signal.SIGCONT)
                one.send(signal.SIGTERM)
                one.process.wait(60)
        self._running.clear()


@pytest.fixture(scope="module")
def audited() -> Iterator[Bench]:
    for found in bench():
        directory = found.root / "audit"
        directory.mkdir()
        (directory / "policy.yaml").write_text(json.dumps(POLICY))
        found.up(nodes=0, controllers="kubewright", config=CONFIG.format(directory=directory))
        [manifest] = found.paths().machines.glob(f"*/kubernetes/manifests/{NAME}.yaml")
        manifest.unlink()
        eventually(lambda cluster=found: NAME not in cluster.components(), "the cluster's own controllers to end")
        yield found


@pytest.fixture(scope="module")
def api(audited: Bench) -> Iterator[KubeClient]:
    with audited.client() as client:
        yield client


@pytest.fixture
def replicas(audited: Bench) -> Iterator[Replicas]:
    made = Replicas(audited)
    yield made
    made.stop()


def _body(name: str) -> dict[str, Any]:
    spec = {"request": base64.b64encode(request()).decode(), "signerName": CLIENT_KUBELET, "usages": list(CLIENT_USAGES)}
    return {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}, "spec": spec}


def _issued(api: KubeClient) -> set[str]:
    found = api.list(CERTIFICATE_SIGNING_REQUEST)
    return {one["metadata"]["name"] for one in found if (one.get("status") or {}).get("certificate")}


def _decisions(cluster: Bench) -> Counter[tuple[str, str]]:
    """Count the writes that the API server took, by name and subresource: its audit log is the witness."""
    found: Counter[tuple[str, str]] = Counter()
    for line in (cluster.root / "audit" / "audit.log").read_text().splitlines():
        event = json.loads(line)
        if event["responseStatus"]["code"] == 200 and event["user"]["username"] == NAME:
            found[event["objectRef"]["name"], event["objectRef"]["subresource"]] += 1
    return found


def _in_the_middle(replicas: Replicas, api: KubeClient, start: str, *, least: int) -> Replica:
    """Wait until the leader, whoever that is by then, has signed some requests of a round."""
    found: list[Replica] = []

    def begun() -> bool:
        leader = replicas.leader(api)
        if leader is not None and leader.process.poll() is None and leader.signed(start) >= least:
            found.append(leader)
        return bool(found)

    eventually(begun, "the leader to be in the middle of its work")
    return found[0]


def test_a_leader_that_is_stopped_or_killed_in_the_middle_leaves_each_request_decided_once(
    audited: Bench, api: KubeClient, replicas: Replicas
) -> None:
    names: list[str] = []
    by_leaders: list[int] = []
    for number, how in enumerate(ROUNDS):
        while replicas.alive < 2:  # one that could not renew its lease in time, on a slow machine, has ended as well
            replicas.start("--secure-port=0")
        mine = tuple(f"round-{number}-{index:03d}" for index in range(EACH))
        names += mine
        sender = threading.Thread(target=lambda made=mine: [api.create(_body(name)) for name in made])
        sender.start()
        leader = _in_the_middle(replicas, api, f"round-{number}", least=3 + 7 * number)
        leader.send(how)
        sender.join()
        eventually(lambda other=leader: replicas.leader(api) not in (None, other), "another leader")
        if how == signal.SIGSTOP:
            leader.send(signal.SIGCONT)
        assert leader.process.wait(60) == (1 if how == signal.SIGSTOP else -how)
        if how == signal.SIGSTOP:
            assert "was not renewed in time" in leader.log.read_text()
        by_leaders.append(leader.signed(f"round-{number}"))
    eventually(lambda: _issued(api) >= set(names), "every request to be signed")
    found = _decisions(audited)
    assert {name: [found[name, part] for part in ("approval", "status")] for name in names} == {name: [1, 1] for name in names}
    assert len(names) == EACH * len(ROUNDS)
    assert min(by_leaders) < EACH, "no leader was interrupted"


def test_a_replica_that_is_told_to_stop_gives_the_lease_back(api: KubeClient, replicas: Replicas) -> None:
    first = replicas.start("--secure-port=0")
    eventually(lambda: replicas.leader(api) is first, "the first to lead")
    first.send(signal.SIGTERM)
    assert first.process.wait(60) == 0
    [lease] = [one for one in api.list(LEASE, "kube-system") if one["metadata"]["name"] == NAME]
    assert lease["spec"].get("holderIdentity", "") == ""


def _account(api: KubeClient, name: str, *, may: bool) -> str:
    """Make a service account, perhaps with the right to see metrics, and return a token of it."""
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


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def test_metrics_are_for_those_whom_the_api_server_lets_and_the_service_manager_hears_of_it(
    api: KubeClient, replicas: Replicas, tmp_path: Path
) -> None:
    tokens = {name: _account(api, name, may=name == "scraper") for name in ("scraper", "stranger")}
    port, kubeconfig = _free_port(), replicas.kubeconfig
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        replica = replicas.start(
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            NOTIFY_SOCKET=str(tmp_path / "notify"),
            WATCHDOG_USEC="200000",
        )
        assert manager.recv(4096).startswith(b"READY=1\n")
        transport = Transport(f"https://127.0.0.1:{port}", context=anonymous_context(None, verify=False))

        def get(path: str, token: str = "") -> tuple[int, str]:
            answer = transport.request("GET", path, headers={"authorization": f"Bearer {token}"} if token else {})
            return answer.status, answer.body.decode()

        eventually(lambda: replicas.leader(api) is replica, "it to lead")
        api.create(_body("measured"))
        eventually(lambda: "measured" in _issued(api), "the certificate")
        assert [get(path)[0] for path in ("/healthz", "/livez", "/readyz")] == [200, 200, 200]
        assert [get("/metrics", token)[0] for token in ("", "made-up", tokens["stranger"], tokens["scraper"])] == [403, 401, 403, 200]
        text = get("/metrics", tokens["scraper"])[1]
        assert 'kubewright_controllers_outcomes_total{controller="csrsigning-kubelet-client",outcome="signed"} 1.0' in text
        assert f'leader_election_master_status{{name="{NAME}"}} 1.0' in text
        assert 'workqueue_depth{name="certificate"} 0.0' in text
        transport.close()
        told = {manager.recv(4096) for _ in range(8)}
        assert told <= {b"WATCHDOG=1", b"STATUS=working", b"STATUS=waiting for the lease"}
        assert b"WATCHDOG=1" in told
        replica.send(signal.SIGTERM)
        while manager.recv(4096) != b"STOPPING=1":
            pass
        assert replica.process.wait(60) == 0


def test_a_request_that_fails_has_an_event(api: KubeClient, replicas: Replicas) -> None:
    replicas.start("--secure-port=0")
    bad = _body("fails")
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


def test_manifests_are_what_a_real_api_server_takes_when_it_is_strict(api: KubeClient) -> None:
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
    made = _body("shown")
    made["spec"]["request"] = base64.b64encode(request(names=[("dns", "a.example"), ("ip", b"\x0a\0\0\1")])).decode()
    made["spec"]["signerName"] = "kubernetes.io/kubelet-serving"
    made["spec"]["usages"] = ["digital signature", "server auth"]
    api.create(made)
    api.create(_body("explained"))

    def command(*words: str) -> Any:
        argv = [sys.executable, "-m", "kubewright", "csr", *words, "--kubeconfig", str(audited.cluster().kubeconfig), "-o", "json"]
        return json.loads(subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout)

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
