"""The observed state of a machine at one moment: everything that changes while an agent runs, as one immutable value.

Setters read it. Many simulated nodes may share one. A source that observes no change keeps returning the same object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kubewright.base.records import dataclass
from kubewright.host.states import Image, RuntimeHandler


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One observation of a machine. If something could not be determined, a text says why."""

    addresses: tuple[str, ...] = ()
    """InternalIPs, the preferred one first."""
    address_trouble: str = ""
    runtime: str = ""
    """`name://version` of the container runtime, `name://Unknown` while it does not answer; '' if none is known yet."""
    handlers: tuple[RuntimeHandler, ...] = ()
    supplemental_groups_policy: bool | None = None
    images: tuple[Image, ...] | None = None
    """None: the machine has no images to report."""
    pressures: frozenset[str] = frozenset()
    """The pressure conditions that are true."""
    runtime_errors: tuple[str, ...] = ()
    network_errors: tuple[str, ...] = ()
    shutting_down: bool = False


class SnapshotSource(Protocol):
    """The agent's source of information about its machine.

    made ── begin() ──> known ── watch() ──> watching ── stop() ──> stopped
    """

    @property
    def snapshot(self) -> Snapshot:
        """The last observation. The same object as long as nothing has changed."""
        ...

    async def begin(self) -> None:
        """Make the first observation: when this returns, `snapshot` can be reported."""
        ...

    def watch(self, changed: Callable[[], None], /) -> None:
        """Keep observing, and call `changed` after each new snapshot."""
        ...

    def give_pod_range(self, cidrs: tuple[str, ...], /) -> None:
        """Pass the addresses of its pods to the machine.

        Called with each new range, possibly repeatedly with the same one.
        """
        ...

    async def stop(self) -> None:
        """Stop observing. Idempotent."""
        ...


class Unchanging:
    """The source for a machine that does not change: an invented one, or one that our supervisor runs.

    Implements `SnapshotSource`.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    async def begin(self) -> None:
        return

    def watch(self, changed: Callable[[], None], /) -> None:
        return

    def give_pod_range(self, cidrs: tuple[str, ...], /) -> None:
        return

    async def stop(self) -> None:
        return
