"""`agent run` as a process with a real API server: it registers by TLS bootstrap, becomes Ready, and continues after any kind of end."""

from __future__ import annotations

import base64
import json
import signal
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_cluster import AgentCluster, agent_cluster
from agent_process import GRACE, Agent, eventually, manual_token, ready_node, requests_of, usable_address

import certificate_summaries as summaries
import hostile_clients
from kubewright.agent import status_file
from kubewright.agent.status.setters import find
from kubewright.base import yaml
from kubewright.base.errors import NotFound, PortInUse
from kubewright.base.randomness import SystemRandom
from kubewright.kube.client import KubeClient
from kubewright.kube.resources import CSI_NODE, EVENT, LEASE, NODE
from kubewright.pki.requests import csr
from kubewright.tokens import strings
from kubewright.tokens.strings import BootstrapTokenString


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentCluster]:
    with agent_cluster(tmp_path_factory.mktemp("agent-run"), grace=GRACE) as running:
        yield running


@pytest.fixture
def api(cluster: AgentCluster) -> Iterator[KubeClient]:
    client = cluster.client()
    yield client
    client.close()


@pytest.fixture
def make(cluster: AgentCluster, tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    made: list[Agent] = []

    def make(name: str, token: BootstrapTokenString | None = None) -> Agent:
        made.append(Agent(tmp_path, cluster, name, token or cluster.token))
        return made[-1]

    yield make
    for agent in made:
        agent.stop()


EVENTS = {"Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"}


def events_of(api: KubeClient, name: str) -> set[str]:
    """The reasons of the events that its agent has sent about a node."""
    rows = api.list(EVENT, "default")
    return {row["reason"] for row in rows if row["involvedObject"]["name"] == name and row["source"]["component"] == "kubelet"}


@pytest.fixture
def addressed() -> str:
    return usable_address()


def test_a_machine_becomes_a_node_and_continues_after_any_end(
    make: Callable[..., Agent], api: KubeClient, cluster: AgentCluster, tmp_path: Path, addressed: str
) -> None:
    configuration = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd",
        "clusterDNS": ["10.96.0.10"],
        "maxPods": 42,
        "rotateCertificates": True,
        "systemReserved": {"cpu": "100m"},
    }
    (tmp_path / "config.yaml").write_text(yaml.dump(configuration))
    agent = make("device-1")
    flags = (f"--config={tmp_path / 'config.yaml'}", "--node-labels=example.com/kind=press", f"--node-ip={addressed}")
    agent.start(*flags)
    node = ready_node(api, agent)
    assert node["spec"]["taints"][0] == {"key": "kubewright.dev/no-pods", "effect": "NoSchedule"}
    assert node["metadata"]["labels"]["example.com/kind"] == "press"
    assert node["status"]["addresses"] == [{"type": "InternalIP", "address": addressed}, {"type": "Hostname", "address": "device-1"}]
    assert node["status"]["capacity"]["pods"] == "42"
    assert node["status"]["allocatable"]["cpu"] != node["status"]["capacity"]["cpu"]
    csi_node, lease = api.get(CSI_NODE, "device-1"), eventually(lambda: api.get(LEASE, "device-1", "kube-node-lease"), "the lease", agent)
    assert [owner["uid"] for held in (csi_node, lease) for owner in held["metadata"]["ownerReferences"]] == [node["metadata"]["uid"]] * 2
    status = eventually(lambda: (found := agent.status())[0] == 0 and found[1], "a status that says so", agent)
    assert (status["phase"], status["ready"], status["waiting"], status["failedSetters"]) == ("Ready", True, None, {})
    assert "ignored, because it runs no pods: clusterDNS" in agent.log()

    told = eventually(lambda: (found := events_of(api, "device-1")) >= EVENTS and found, "the events", agent)
    assert told == EVENTS
    assert _answer(agent, "/healthz") == "ok"
    assert "\nkubewright_agent_ready 1.0\n" in _answer(agent, "/metrics")
    (tmp_path / "config.yaml").write_text(yaml.dump({**configuration, "maxPods": 43}))
    cluster.kubectl("cordon", "device-1")
    agent.send(signal.SIGHUP)
    eventually(lambda: api.get(NODE, "device-1")["status"]["capacity"]["pods"] == "43", "the reloaded limit", agent)
    eventually(lambda: "NodeNotSchedulable" in events_of(api, "device-1"), "the event of a node that is cordoned", agent)
    (tmp_path / "config.yaml").write_text(yaml.dump({**configuration, "maxPods": -1}))
    agent.send(signal.SIGHUP)
    eventually(lambda: "the configuration is not reloaded" in agent.log(), "the refusal", agent)

    (tmp_path / "config.yaml").write_text(yaml.dump(configuration))
    for number, code, left in ((signal.SIGTERM, 0, "4"), (signal.SIGKILL, -9, "0")):
        assert agent.end(number) == code
        assert agent.status()[0] == 1
        assert agent.status()[1]["running"] is False
        last = _renewed(api, "device-1")
        api.patch(NODE, "device-1", {"status": {"capacity": {"example.com/dongle": "4"}}}, subresource="status")
        if left == "0":
            (tmp_path / "root" / status_file.NAME).unlink()  # as on a reinstalled machine
        agent.start(*flags)
        eventually(lambda: _amounts(api, "device-1", "example.com/dongle") == [left, left], "its extended resource", agent)  # noqa: B023
        eventually(lambda: _renewed(api, "device-1") > last, "another renewal", agent)  # noqa: B023
        eventually(lambda: agent.status()[0] == 0, "a status that says so", agent)
    assert ready_node(api, agent)["metadata"]["uid"] == node["metadata"]["uid"]
    assert len(requests_of(api, "device-1")) == 1
    assert len(list((tmp_path / "root" / "pki").glob("kubelet-client-2*.pem"))) == 1
    assert agent.end() == 0
    assert "Traceback" not in agent.log()


def _answer(agent: Agent, path: str) -> str:
    with urllib.request.urlopen(f"http://{agent.health}:10248{path}", timeout=600) as answer:
        return str(answer.read().decode())


def _amounts(api: KubeClient, name: str, resource: str) -> list[str]:
    status = api.get(NODE, name)["status"]
    return [status[kind].get(resource, "") for kind in ("capacity", "allocatable")]


def _renewed(api: KubeClient, name: str) -> str:
    """The time of the last Lease renewal, to the microsecond: the heartbeats of conditions have seconds, within which an agent can restart."""
    return str(api.get(LEASE, name, "kube-node-lease")["spec"]["renewTime"])


def test_a_paused_agent_is_unreachable_and_ready_again_when_it_continues(make: Callable[..., Agent], api: KubeClient) -> None:
    agent = make("device-4")
    agent.start()
    ready_node(api, agent)
    agent.send(signal.SIGSTOP)

    def missed() -> bool:
        row = find(api.get(NODE, "device-4")["status"]["conditions"], "Ready")
        return row is not None and row["status"] == "Unknown" and row["reason"] == "NodeStatusUnknown"

    eventually(missed, "the Node to be Unknown", agent)
    agent.send(signal.SIGCONT)
    node = ready_node(api, agent)
    assert {row["status"] for row in node["status"]["conditions"] if row["type"] != "Ready"} == {"False"}
    assert agent.end() == 0


def test_a_deleted_node_comes_back_and_one_that_leaves_does_not(make: Callable[..., Agent], api: KubeClient, cluster: AgentCluster) -> None:
    agent = make("device-3")
    agent.start()
    uid = ready_node(api, agent)["metadata"]["uid"]
    api.delete(NODE, "device-3")
    eventually(lambda: api.get(NODE, "device-3")["metadata"]["uid"] != uid, "another Node", agent)
    uid = ready_node(api, agent)["metadata"]["uid"]
    for look in (lambda: api.get(CSI_NODE, "device-3"), lambda: api.get(LEASE, "device-3", "kube-node-lease")):
        eventually(lambda look=look: look()["metadata"]["ownerReferences"][0]["uid"] == uid, "what belongs to it", agent)
    cluster.kubeconfig("kubernetes-admin")
    admin = cluster.place / "kubernetes-admin.conf"
    refused = agent.call("leave")
    assert (refused.returncode, "an agent runs as process" in refused.stderr) == (4, True)
    agent.end()
    left = agent.call("leave", f"--kubeconfig={admin}")
    assert (left.returncode, left.stderr) == (0, "")
    assert "delete node device-3" in left.stdout
    for resource, namespace in ((NODE, None), (CSI_NODE, None), (LEASE, "kube-node-lease")):
        with pytest.raises(NotFound):
            api.get(resource, "device-3", namespace)
    assert [path.name for path in agent.place.rglob("kubelet*")] == []


def test_no_node_is_registered_if_the_health_port_is_taken(make: Callable[..., Agent], api: KubeClient) -> None:
    agent = make("device-7")
    with socket.create_server((agent.health, 10248)):
        agent.start()
        eventually(agent.has_ended, "its end", agent)
    assert agent.end() == PortInUse.exit_code
    assert f"port 10248 of {agent.health} is taken" in agent.log()
    assert requests_of(api, "device-7") == []
    with pytest.raises(NotFound):
        api.get(NODE, "device-7")


def test_an_unknown_token_is_reported_and_replacing_it_is_enough(
    make: Callable[..., Agent], api: KubeClient, cluster: AgentCluster
) -> None:
    agent = make("device-5", strings.generate(SystemRandom()))
    agent.start()
    eventually(lambda: "Unauthorized" in agent.status()[1].get("trouble", ""), "the refusal", agent)
    assert agent.end() == 0
    agent.start("--exit-without-certificate=1s")
    eventually(agent.has_ended, "its end, as a kubelet's after five minutes", agent)
    assert agent.end() == 1
    assert "no valid client certificate for 1 s" in agent.log()
    agent.start()
    agent.invite(cluster.token)
    ready_node(api, agent)
    assert len(requests_of(api, "device-5")) == 1
    assert cluster.token.secret not in agent.log() + agent.call("status", "-o", "json").stdout


def test_one_request_is_pending_until_approval_however_often_the_agent_restarts(
    make: Callable[..., Agent], api: KubeClient, cluster: AgentCluster, tmp_path: Path
) -> None:
    agent = make("device-2", manual_token(api, cluster))
    agent.start()
    [request] = eventually(lambda: requests_of(api, "device-2"), "the request", agent)
    waits = eventually(lambda: agent.status()[1].get("waiting"), "the status", agent)
    assert waits["request"] == request["metadata"]["name"]
    assert _answer(agent, "/healthz") == "ok"
    for number in (signal.SIGTERM, signal.SIGKILL):
        agent.end(number)
        agent.start()
        eventually(lambda: agent.status()[1]["running"] and agent.status()[1]["waiting"], "the status", agent)
    unapproved = f"certificate request {waits['request']} is Pending, and nobody approves it: system:bootstrap:"
    eventually(lambda: unapproved in agent.call("status").stdout, "the binding that is missing", agent)
    [same] = requests_of(api, "device-2")
    assert same["metadata"]["uid"] == request["metadata"]["uid"]

    cluster.kubectl("certificate", "deny", request["metadata"]["name"])
    second = eventually(
        lambda: [row for row in requests_of(api, "device-2") if row["metadata"]["uid"] != request["metadata"]["uid"]],
        "a new request",
        agent,
    )
    assert len(second) == 1
    assert f"certificate request {waits['request']} was denied: KubectlDeny" in agent.log()
    cluster.kubectl("certificate", "approve", second[0]["metadata"]["name"])
    ready_node(api, agent)
    assert len(requests_of(api, "device-2")) == 2
    assert not (tmp_path / "root" / "pki" / "kubelet-client.key.tmp").exists()
    assert agent.end() == 0


def serving_requests(api: KubeClient, name: str) -> list[dict[str, Any]]:
    return [row for row in requests_of(api, name) if row["spec"]["signerName"] == csr.SERVING_SIGNER]


def test_the_kubelet_api_uses_a_certificate_that_a_person_has_approved(
    make: Callable[..., Agent], api: KubeClient, cluster: AgentCluster, addressed: str
) -> None:
    agent = make("device-6")
    flags = (
        f"--node-ip={addressed}",
        f"--address={addressed}",
        f"--client-ca-file={cluster.place / 'ca.crt'}",
        "--rotate-server-certificates",
    )
    flags = (*flags, "--certificate-lifetime=1h")
    agent.start(*flags)
    ready_node(api, agent)
    [request] = eventually(lambda: serving_requests(api, "device-6"), "the request", agent)
    assert (request["spec"]["username"], request["spec"]["expirationSeconds"]) == ("system:node:device-6", 3600)
    asked = summaries.of_request(base64.b64decode(request["spec"]["request"])).names
    assert (asked.dns, asked.ips) == (("device-6",), (addressed,))

    def waits() -> dict[str, Any]:
        found: dict[str, Any] = agent.status()[1].get("servingCertificate") or {}
        return found if found.get("waiting") else {}

    waiting = eventually(waits, "the status", agent)
    assert (waiting["waiting"]["request"], waiting["reason"], waiting["expires"]) == (request["metadata"]["name"], "waiting-approval", None)
    assert f"serving waits because  certificate request {request['metadata']['name']} is Pending" in agent.call("status").stdout
    assert agent.end() == 0
    with hostile_clients.few_files():
        agent.start(*flags)
    eventually(lambda: agent.status()[1]["running"] and waits(), "the same request", agent)
    assert [row["metadata"]["uid"] for row in serving_requests(api, "device-6")] == [request["metadata"]["uid"]]

    cluster.kubectl("certificate", "deny", request["metadata"]["name"])
    [second] = eventually(lambda: [row for row in serving_requests(api, "device-6") if not row["status"]], "a new request", agent)
    cluster.kubectl("certificate", "approve", second["metadata"]["name"])
    eventually(lambda: agent.status()[1]["servingCertificate"]["expires"], "the certificate", agent)
    names = sorted(path.name for path in (agent.place / "root" / "pki").glob("kubelet-server*"))
    assert (len(names), names[1]) == (2, "kubelet-server-current.pem")

    assert cluster.kubectl("get", "--raw", "/api/v1/nodes/device-6/proxy/healthz").stdout == "ok"
    assert (
        "kubelet_certificate_manager_server_ttl_seconds" in cluster.kubectl("get", "--raw", "/api/v1/nodes/device-6/proxy/metrics").stdout
    )
    assert "node_memory_working_set_bytes" in cluster.kubectl("get", "--raw", "/api/v1/nodes/device-6/proxy/metrics/resource").stdout
    assert json.loads(cluster.kubectl("get", "--raw", "/api/v1/nodes/device-6/proxy/pods").stdout)["items"] == []
    shown = json.loads(cluster.kubectl("get", "--raw", "/api/v1/nodes/device-6/proxy/configz").stdout)["kubeletconfig"]
    assert (shown["serverTLSBootstrap"], shown["nodeLeaseDurationSeconds"]) == (True, 8)
    token = cluster.kubectl("create", "token", "default").stdout.strip()
    for headers, code in (({}, 401), ({"authorization": "Bearer nonsense"}, 401), ({"authorization": f"Bearer {token}"}, 403)):
        assert _code(f"https://{addressed}:10250/pods", headers, cluster.ca_pem) == code

    def healthy() -> bool:
        """Return whether the kubelet API answers. The API server waits 10 s for a handshake, which is not enough on a busy machine."""
        return cluster.kubectl("get", "--raw", "/api/v1/nodes/device-6/proxy/healthz", check=False).stdout == "ok"

    for address, port, secure in ((addressed, 10250, True), (agent.health, 10248, False)):
        with hostile_clients.hostile(address, port, secure=secure):
            for _ in range(3):
                assert hostile_clients.health(agent.health, 10248, secure=False) == (200, b"ok")
                eventually(healthy, "an answer to the API server", agent)
            last = _renewed(api, "device-6")
            eventually(lambda last=last: _renewed(api, "device-6") > last, "a heartbeat", agent)
    assert agent.end() == 0
    assert "Traceback" not in agent.log()


def _code(url: str, headers: dict[str, str], ca_pem: bytes) -> int:
    """Send a request to a server whose certificate must be signed by the cluster and for its address."""
    context = ssl.create_default_context(cadata=ca_pem.decode())
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=600, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
