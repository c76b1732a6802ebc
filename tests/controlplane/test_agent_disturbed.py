"""Faults while `agent run` works with a real API server and kube-controller-manager: the same process recovers, and says what it waits for.

Faults that take longer than a test may are tested with virtual time (tests/unit/agent/test_agent_faults.py) and in
`make soak-agent`.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from agent_cluster import AgentCluster, agent_cluster
from agent_process import GRACE, Agent, condition, eventually, expire, issued_pair, manual_token, ready_node, requests_of
from relays import Relay

from kubewright.kube.client import KubeClient
from kubewright.kube.resources import LEASE, SECRET

SHIM: Final = Path(__file__).parents[1] / "machines" / "clock_shift.c"
LIFETIME: Final = 40
"""Lifetime in seconds of a certificate that expires during a test; longer on a machine on which an agent takes long to start."""
SETTINGS: Final = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentCluster]:
    with agent_cluster(tmp_path_factory.mktemp("agent-faults"), grace=GRACE) as running:
        yield running


@pytest.fixture(scope="module")
def api(cluster: AgentCluster) -> Iterator[KubeClient]:
    client = cluster.client()
    yield client
    client.close()


@pytest.fixture
def relay(cluster: AgentCluster) -> Iterator[Relay]:
    made = Relay(cluster.url)
    yield made
    made.close()


@pytest.fixture
def make(cluster: AgentCluster, tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    made: list[Agent] = []

    def make(name: str, **given: Any) -> Agent:
        place = tmp_path / name
        place.mkdir()
        made.append(Agent(place, cluster, name, given.pop("token", cluster.token), **given))
        return made[-1]

    yield make
    for agent in made:
        agent.stop()


def trouble(agent: Agent, words: str) -> Callable[[], bool]:
    return lambda: words in agent.status()[1].get("trouble", "")


def through(relay: Relay) -> str:
    return f"https://127.0.0.1:{relay.port}"


def test_a_token_lost_while_its_request_is_pending_is_reported_and_another_one_continues_the_request(
    make: Callable[..., Agent], api: KubeClient, cluster: AgentCluster, relay: Relay
) -> None:
    """A token that is deleted, and one that expires."""
    tokens = {name: manual_token(api, cluster) for name in ("deleted-1", "expired-1")}
    agents = [make(name, token=token, server=through(relay)) for name, token in tokens.items()]
    for agent in agents:
        agent.start()
    first = {agent.name: eventually(lambda agent=agent: requests_of(api, agent.name), "the request", agent) for agent in agents}
    for agent in agents:
        eventually(lambda agent=agent: agent.status()[1].get("waiting"), "the wait", agent)
    api.delete(SECRET, f"bootstrap-token-{tokens['deleted-1'].id}", "kube-system")
    expire(api, tokens["expired-1"])

    def refused() -> bool:
        relay.cut()  # as the API server does with each watch after some minutes; it remembers a token for ten more seconds
        time.sleep(1)
        return all(trouble(agent, "Unauthorized")() for agent in agents)

    eventually(refused, "the refusals", agents[0])
    for agent in agents:
        agent.invite(manual_token(api, cluster))
    for agent in agents:
        eventually(lambda agent=agent: agent.status()[1]["trouble"] == "" and agent.status()[1]["waiting"], "another wait", agent)
        [request] = requests_of(api, agent.name)
        assert request["metadata"]["uid"] == first[agent.name][0]["metadata"]["uid"]
        cluster.kubectl("certificate", "approve", request["metadata"]["name"])
    for agent in agents:
        ready_node(api, agent)
        assert len(requests_of(api, agent.name)) == 1


def test_a_certificate_that_expires_during_an_outage_is_replaced_with_the_token(
    make: Callable[..., Agent], api: KubeClient, cluster: AgentCluster, relay: Relay
) -> None:
    """For a node that is registered, and for one that never could register."""
    agents = [make(name, server=through(relay)) for name in ("ended-1", "ended-2")]
    began = time.monotonic()
    agents[0].keep(issued_pair(cluster, agents[0].name, seconds=3600))
    agents[0].start()
    ready_node(api, agents[0])
    eventually(lambda: _renewed(api, agents[0].name), "the Lease, which comes after the status", agents[0])
    lifetime = max(LIFETIME, 4 * (time.monotonic() - began))
    assert agents[0].end() == 0
    last = _renewed(api, agents[0].name)
    ends = time.monotonic() + lifetime
    for agent in agents:
        agent.keep(issued_pair(cluster, agent.name, seconds=lifetime))
    agents[0].start()
    eventually(lambda: _renewed(api, agents[0].name) > last, "a renewal with that certificate", agents[0])
    relay.cut(shut=True)
    agents[1].start()
    for agent in agents:
        eventually(trouble(agent, "127.0.0.1"), "the trouble", agent)
    eventually(lambda: time.monotonic() > ends + 1, "the end of the certificates", agents[1])
    assert [requests_of(api, agent.name) for agent in agents] == [[], []]
    moved = datetime.now(UTC) - timedelta(seconds=1)
    relay.open()
    for agent in agents:

        def reported(agent: Agent = agent) -> bool:
            row = condition(api, agent.name)
            return row.get("status") == "True" and datetime.fromisoformat(row["lastHeartbeatTime"]) > moved

        eventually(reported, "another heartbeat", agent)
        assert len(requests_of(api, agent.name)) == 1


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("clock") / "clock_shift.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", made, SHIM, "-ldl"], check=True)
    return made


HEARD: Final = {
    "lease-only": "nodeLeaseDurationSeconds: 8\nnodeStatusReportFrequency: 1h\n",
    "status-only": "nodeLeaseDurationSeconds: 3600\nnodeStatusUpdateFrequency: 2s\nnodeStatusReportFrequency: 2s\n",
    "wrong-clock": "nodeLeaseDurationSeconds: 8\nnodeStatusReportFrequency: 1h\n",
}
"""Nodes from which the node lifecycle controller gets one kind of sign of life: none of them is considered unreachable."""
MISSED: Final = {
    "neither": "nodeLeaseDurationSeconds: 3600\nnodeStatusReportFrequency: 1h\n",
    "refused": "nodeLeaseDurationSeconds: 8\n",
    "unanswered": "nodeLeaseDurationSeconds: 8\n",
}


def test_only_a_silent_node_is_unreachable_and_it_is_ready_at_once_when_it_is_back(
    make: Callable[..., Agent], api: KubeClient, cluster: AgentCluster, shim: Path, tmp_path: Path
) -> None:
    """Only leases, only status, a clock that jumps two hours and back.

    Compared with silence, refused connections, and connections on which nothing arrives.
    """
    relays = {name: Relay(cluster.url) for name in ("refused", "unanswered")}
    servers = {name: through(relay) for name, relay in relays.items()}
    shift = tmp_path / "shift"
    shift.write_text("7200")
    agents = {name: make(name, server=servers.get(name, ""), settings=SETTINGS + rows) for name, rows in {**HEARD, **MISSED}.items()}
    for agent in agents.values():
        agent.start(env={"LD_PRELOAD": str(shim), "CLOCK_SHIFT_FILE": str(shift)} if agent.name == "wrong-clock" else None)
    uids = {agent.name: ready_node(api, agent)["metadata"]["uid"] for agent in agents.values()}
    ahead = eventually(lambda: _renewed(api, "wrong-clock"), "the Lease, which comes after the status", agents["wrong-clock"])
    assert ahead > datetime.now(UTC) + timedelta(hours=1)

    shift.write_text("-7200")
    latest = datetime.now(UTC) + timedelta(hours=2)  # by its own clock until now, and a renewal may be on its way
    relays["refused"].cut(shut=True)
    relays["unanswered"].swallow()
    for name in MISSED:
        eventually(lambda name=name: condition(api, name)["status"] == "Unknown", "the Node to be missed", agents[name])
    missed = condition(api, "neither")
    assert (missed["reason"], missed["message"]) == ("NodeStatusUnknown", "Kubelet stopped posting node status.")
    for name, server in servers.items():
        eventually(trouble(agents[name], server.partition("//")[2]), "the trouble", agents[name])
    for name in HEARD:
        eventually(lambda name=name: condition(api, name)["status"] == "True", "the Node to be seen", agents[name])
    assert ahead < _renewed(api, "wrong-clock") < latest + timedelta(seconds=1)

    for relay in relays.values():
        relay.open()
    agents["neither"].end(signal.SIGKILL)
    agents["neither"].start()
    for agent in agents.values():
        node = ready_node(api, agent)
        assert node["metadata"]["uid"] == uids[agent.name]
        assert {row["status"] for row in node["status"]["conditions"] if row["type"] != "Ready"} == {"False"}
        eventually(lambda agent=agent: agent.status()[1]["trouble"] == "", "no trouble", agent)
        assert len(requests_of(api, agent.name)) == 1
    for relay in relays.values():
        relay.close()


def _renewed(api: KubeClient, name: str) -> datetime:
    return datetime.fromisoformat(api.get(LEASE, name, "kube-node-lease")["spec"]["renewTime"])
