"""What an agent reaches the world through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kubewright.base.clock import Clock, SystemClock
from kubewright.base.events import Reporter, SilentReporter
from kubewright.base.randomness import Random, SystemRandom
from kubewright.base.records import dataclass, field
from kubewright.kube.aio import AsyncKubeClient
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.credentials import Access, Identity


class Client(AsyncKubeAPI, Protocol):
    """A client whose identity can be exchanged while it is in use. `kube.aio.AsyncKubeClient` is one."""

    async def set_identity(self, identity: Identity) -> None:
        """Be somebody else from now on; calls in flight finish, watches are cut."""
        ...

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        ...


Connect = Callable[[Access], Client]
"""Makes a client for an access; opens nothing."""


def connect(access: Access) -> AsyncKubeClient:
    """Make the client of a node: it names itself as the kubelet does."""
    return AsyncKubeClient(access, field_manager="kubelet")


@dataclass(frozen=True, kw_only=True)
class Seams:
    """Connections, time, randomness, and who is told. The defaults are the real ones, and tell nobody."""

    connect: Connect = connect
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=SystemRandom)
    reporter: Reporter = field(default_factory=SilentReporter)
