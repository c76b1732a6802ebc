"""One agent that runs against an API in memory."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

from agent_values import facts
from fake_api import FakeAPI
from fake_controllers import LoopClock, made_pair

from kubewright.agent.certificates.bootstrap import KnownCluster
from kubewright.agent.certificates.store import MemoryCredentialStore
from kubewright.agent.node import NodeAgent, Seams
from kubewright.base.events import RecordingReporter
from kubewright.base.randomness import SeededRandom
from kubewright.kube.credentials import Access, BearerToken

CLUSTER = Access(server="https://10.0.0.9:6443", ca_pem=b"ca")
TOKEN = CLUSTER.as_identity(BearerToken("abcdef.0123456789abcdef"))


def agent_of(api: FakeAPI, *, home: MemoryCredentialStore | None = None, bootstrap: Any = None, **changes: Any) -> NodeAgent:
    seams = Seams(connect=api.connect, clock=LoopClock(), random=SeededRandom(4), reporter=changes.pop("reporter", RecordingReporter()))
    subject = changes.pop("facts", facts())
    return NodeAgent(
        subject,
        home=home or MemoryCredentialStore(),
        seams=seams,
        bootstrap=bootstrap or KnownCluster(TOKEN, connect=api.connect),
        **changes,
    )


@asynccontextmanager
async def running(agent: NodeAgent):
    task = asyncio.create_task(agent.run())
    try:
        yield agent
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def joined(**changes: Any) -> MemoryCredentialStore:
    return MemoryCredentialStore(CLUSTER, made_pair(**changes))
