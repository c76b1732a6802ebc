"""What was seen of a machine at one moment: all that changes while an agent runs, as one immutable value that setters read.

Many simulated nodes may share one; a source that sees nothing new goes on giving the same object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kubewright.base.records import dataclass
from kubewright.host.states import Image, RuntimeHandler


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One look at a machine. What could not be found out has a text beside it that says why."""

    addresses: tuple[str, ...] = ()
    """InternalIPs, the preferred one first."""
    address_trouble: str = ""
    runtime: str = ""
    """`name://version` of the container runtime, `name://Unknown` while it does not answer; '' if there is none, or it has not told yet."""
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
    """Where an agent learns how its machine is.

    made ── begin() ──> known ── watch() ──> watching ── stop() ──> stopped
    """

    @property
    def snapshot(self) -> Snapshot:
        """What was seen last. The same object for as long as nothing has changed."""
        ...

    async def begin(self) -> None:
        """Look for the first time: `snapshot` is worth reporting when this returns."""
        ...

    def watch(self, changed: Callable[[], None], /) -> None:
        """Keep looking, and call `changed` after each new snapshot."""
        ...

    def give_pod_range(self, cidrs: tuple[str, ...], /) -> None:
        """Let the machine know the addresses of its pods. Called with each new range, and again with the same one."""
        ...

    async def stop(self) -> None:
        """Stop looking. Idempotent."""
        ...


class Unchanging:
    """The source of a machine that stays as it is: an invented one, or one whose supervisor we are. Implements `SnapshotSource`."""

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
