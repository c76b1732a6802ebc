"""A machine of the control plane: its agent starts with the kubeconfig that init made, and shows the machine's static pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_cluster import AgentCluster, agent_cluster, stop_serving

from kubewright.agent.certificates.store import FileCredentialStore
from kubewright.agent.dependencies import Seams, Timings
from kubewright.agent.logs import LogOptions, NoLog
from kubewright.agent.node import NodeAgent
from kubewright.agent.pods.mirrors import StaticPodState
from kubewright.agent.server import KubeletServer
from kubewright.agent.status.facts import NodeFacts, simulated_machine
from kubewright.base.clock import SystemClock, rfc3339
from kubewright.kube import resources

MANIFEST: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "echo", "namespace": "kube-system", "labels": {"component": "echo"}},
    "spec": {
        "containers": [{"name": "echo", "image": "echo:1", "resources": {"requests": {"cpu": "100m"}}}],
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
    },
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentCluster]:
    with agent_cluster(tmp_path_factory.mktemp("static")) as running:
        yield running


class Static:
    """Runs one static pod, and has its log."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.pods = [self.pod("hash-1")]

    def pod(self, hash_: str) -> StaticPodState:
        state = {"running": {"startedAt": rfc3339(SystemClock().now())}}
        row = {"name": "echo", "image": "echo:1", "imageID": "", "ready": True, "restartCount": 2, "state": state, "lastState": {}}
        return StaticPodState(manifest=MANIFEST, hash=hash_, containers=[row])

    def list(self) -> list[StaticPodState]:
        return self.pods

    async def read(self, pod: Any, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        if options.previous:
            raise NoLog(f"no earlier log of {pod['metadata']['name']} is kept")
        for line in [b"first\n", b"second\n"][-(2 if options.tail is None else options.tail) :]:
            yield line
        if options.follow:
            await asyncio.sleep(0.3)
            yield b"followed\n"


@asynccontextmanager
async def machine(cluster: AgentCluster, tmp_path: Path, name: str) -> AsyncIterator[tuple[NodeAgent, Static]]:
    handed = cluster.kubeconfig(f"system:node:{name}", "system:nodes")
    static = Static()
    facts = NodeFacts(name=name, profile=simulated_machine(kubelet_version="v1.36.3"), addresses=(cluster.address,))
    agent = NodeAgent(
        facts,
        store=FileCredentialStore(tmp_path / "pki", handed, clock=SystemClock()),
        seams=Seams(),
        static_pods=static,
        timings=Timings.prompt(),
    )
    kubelet = KubeletServer(lambda: [agent], client_ca_pem=cluster.ca_pem, logs=static)
    await kubelet.start(cluster.address, 10250)
    running = asyncio.create_task(agent.run())
    try:
        async with asyncio.timeout(600):
            await agent.ready.wait()
        yield agent, static
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await stop_serving(kubelet)


async def kubectl(cluster: AgentCluster, *arguments: str) -> str:
    done = await asyncio.to_thread(cluster.kubectl, "-n", "kube-system", *arguments, check=False)
    return done.stdout + done.stderr


async def mirrored(cluster: AgentCluster, hash_: str) -> None:
    """Wait until the mirror pod is that of a static pod: `kubectl wait` fails for a pod that does not exist."""
    path = "jsonpath={.metadata.annotations.kubernetes\\.io/config\\.mirror}{.metadata.deletionTimestamp}"
    async with asyncio.timeout(600):
        while await kubectl(cluster, "get", "pod", "echo-control-1", "--ignore-not-found", "-o", path) != hash_:
            await asyncio.sleep(0.05)


async def test_static_pods_and_their_logs_are_shown(cluster: AgentCluster, tmp_path: Path):
    async with machine(cluster, tmp_path, "control-1") as (agent, static):
        await mirrored(cluster, "hash-1")
        assert "condition met" in await kubectl(cluster, "wait", "--for=condition=Ready", "pod/echo-control-1", "--timeout=600s")
        assert agent.client is not None
        found = await agent.client.get(resources.POD, "echo-control-1", "kube-system")
        assert found["status"]["containerStatuses"][0]["restartCount"] == 2
        assert found["status"]["podIP"] == cluster.address
        assert found["spec"]["priority"] == 2000001000
        assert await kubectl(cluster, "logs", "echo-control-1") == "first\nsecond\n"
        assert await kubectl(cluster, "logs", "echo-control-1", "--tail=1") == "second\n"
        assert await kubectl(cluster, "logs", "echo-control-1", "-f") == "first\nsecond\nfollowed\n"
        assert await kubectl(cluster, "logs", "echo-control-1", "--limit-bytes=3") == "fir"
        assert "no earlier log of echo-control-1 is kept" in await kubectl(cluster, "logs", "echo-control-1", "--previous")
        assert "exec is not possible there" in await kubectl(cluster, "exec", "echo-control-1", "--", "true")

        await kubectl(cluster, "delete", "pod", "echo-control-1", "--timeout=600s")
        await mirrored(cluster, "hash-1")
        assert "condition met" in await kubectl(cluster, "wait", "--for=condition=Ready", "pod/echo-control-1", "--timeout=600s")

        static.pods = [static.pod("hash-2")]
        static.changed.set()
        await mirrored(cluster, "hash-2")
        static.pods = []
        static.changed.set()
        await kubectl(cluster, "wait", "--for=delete", "pod/echo-control-1", "--timeout=600s")
        assert "not found" in await kubectl(cluster, "get", "pod", "echo-control-1")


async def test_a_control_plane_machine_requests_no_certificate(cluster: AgentCluster, tmp_path: Path):
    async with machine(cluster, tmp_path, "control-2"):
        assert "No resources found" in await kubectl(cluster, "get", "csr")
        assert "kubelet-client-current.pem" in [path.name for path in (tmp_path / "pki").iterdir()]
