"""One agent that runs with an API in memory."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

from agent_values import facts
from fake_api import FakeAPI
from fake_controllers import LoopClock, made_pair

from kubewright.agent.certificates.bootstrap import Issuer, SharedIssuer
from kubewright.agent.dependencies import Connect, Seams
from kubewright.agent.node import NodeAgent
from kubewright.base.events import RecordingReporter
from kubewright.base.randomness import SeededRandom
from kubewright.kube.credentials import Access, Anonymous, BearerToken
from kubewright.pki.certificates import Pair

CLUSTER = Access(server="https://10.0.0.9:6443", ca_pem=b"ca")
TOKEN = CLUSTER.as_identity(BearerToken("abcdef.0123456789abcdef"))


class KnownCluster:
    """The bootstrap result of a cluster that was discovered and verified."""

    def __init__(self, access: Access, *, connect: Connect) -> None:
        self._access = access.as_identity(Anonymous())
        self._issuer = SharedIssuer(connect(access))

    async def admit(self) -> tuple[Access, Issuer]:
        return self._access, self._issuer


class MemoryCredentialStore:
    """Keeps the credentials of a node in memory."""

    def __init__(self, access: Access | None = None, pair: Pair | None = None) -> None:
        self._access = access
        self.pairs = [pair] if pair is not None else []

    def cluster(self) -> Access | None:
        return self._access

    def given(self) -> Access | None:
        return self._access

    def keep_cluster(self, access: Access) -> None:
        self._access = access

    def pair(self) -> Pair | None:
        return self.pairs[-1] if self.pairs else None

    def keep_pair(self, pair: Pair) -> None:
        self.pairs.append(pair)


def agent_of(api: FakeAPI, *, store: MemoryCredentialStore | None = None, bootstrap: Any = None, **changes: Any) -> NodeAgent:
    clock, reporter = changes.pop("clock", LoopClock()), changes.pop("reporter", RecordingReporter())
    seams = Seams(connect=api.connect, clock=clock, random=SeededRandom(4), reporter=reporter)
    subject = changes.pop("facts", facts())
    return NodeAgent(
        subject,
        store=store or MemoryCredentialStore(),
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
