"""A control plane's machine: its agent starts with the kubeconfig that init made, and shows the machine's static pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agent_cluster import AgentCluster, stop_serving

from kubewright.agent.certificates.store import FileCredentialStore
from kubewright.agent.dependencies import Seams, Timings
from kubewright.agent.logs import LogOptions, NoLog
from kubewright.agent.node import NodeAgent
from kubewright.agent.pods.mirrors import StaticPodState
from kubewright.agent.server import KubeletServer
from kubewright.agent.status.facts import NodeFacts, simulated_machine
from kubewright.base.clock import SystemClock, rfc3339

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
    """Run the agent of a machine with static pods. Its Node is removed afterwards."""
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
        await asyncio.to_thread(cluster.kubectl, "delete", "node", "--ignore-not-found", "--wait=false", name)
