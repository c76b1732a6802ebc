"""What an agent reaches the world through."""

from __future__ import annotations

from collections.abc import Callable

from kubewright.base.clock import Clock, SystemClock
from kubewright.base.events import Reporter, SilentReporter
from kubewright.base.randomness import Random, SystemRandom
from kubewright.base.records import dataclass, field
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.credentials import Access

Connect = Callable[[Access], AsyncKubeClient]
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
