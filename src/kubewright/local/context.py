"""The context of init on a local machine: what the general one lacks, the cluster's daemon and its nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from kubewright.apis.kubeadm.types import Configuration
from kubewright.base.change import Change
from kubewright.base.errors import ComponentFailed
from kubewright.base.events import State, Waited
from kubewright.base.records import dataclass, field
from kubewright.base.waiting import Condition, Waiter
from kubewright.kube.api import KubeAPI
from kubewright.kube.kubeconfigs import load_access
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.machine import LONG
from kubewright.lifecycle.reasons.model import LastWords, Reasons
from kubewright.lifecycle.settling import SettlingKube
from kubewright.local import remedies
from kubewright.local.control import Answer, Control, Daemon
from kubewright.local.places import Places
from kubewright.local.record import ClusterRecord

CRASHES: frozenset[str] = frozenset({"CrashLoop"})
_LOOK = 0.5
"""Seconds between two looks at the components while something else is waited for."""


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """What lets nodes join now: a token for all of them, and the key of the certificates that further control planes download."""

    server: str
    token: str
    pins: tuple[str, ...]
    certificate_key: str


class Joins(Protocol):
    """The joins of further control planes, which go on beside the phases of the first one."""

    @property
    def newcomers(self) -> Sequence[str]:
        """The machines that cannot do without an invitation: they have never joined, or lost what they had."""
        ...

    def start(self, invitation: Invitation | None, configured: Configuration) -> None:
        """Let newcomers join with an invitation, and look after the others; returns at once. `configured` is what the first machine is made of."""
        ...

    def finish(self) -> Iterable[Change]:
        """Wait until all have joined; return the changes. Raises what the first one that failed raised."""
        ...

    def call_off(self) -> None:
        """End what still runs, and wait for that. Idempotent."""
        ...


@dataclass(frozen=True, kw_only=True)
class LocalContext(InitContext):
    """One `up`. `plain` waits without looking at the components, for the daemon itself; `start` is when `up` began.

    `look` raises where the daemon or a component is in such a state that waiting is pointless. `free_leases` says that whoever holds the
    leases of leader election has ended.
    """

    look: Callable[[], None]
    health_checks: Mapping[str, Condition]
    record: ClusterRecord
    places: Places
    daemon: Daemon
    plain: Waiter
    within: float
    start: float
    joins: Joins | None = None
    free_leases: bool = False
    milestones: dict[str, float] = field(default_factory=dict)

    def connect(self, name: str, *, timeout: float = LONG) -> KubeAPI:
        """Make a client from a kubeconfig of the machine."""
        return self.bound.connections.kube(load_access(self.layout.kubeconfig(name), read=self.host.read), timeout=timeout)

    @functools.cached_property
    def api(self) -> KubeAPI:
        """The client that init writes with; it gives up where the daemon or a component does."""
        within = self.configuration.init.timeouts.kubernetes_api_call.seconds
        return SettlingKube(self.probe, clock=self.clock, within=within, look=self.look)

    @functools.cached_property
    def control(self) -> Control:
        """The daemon's control socket; waits for it at first use."""
        return self.daemon.serving(waiter=self.plain)

    def reasons(self, names: Sequence[str]) -> Reasons:
        """Return last words only: `look` tells what becomes of the processes."""
        return LastWords(names, host=self.host)

    def mark(self, name: str) -> None:
        """Note that a milestone is reached now."""
        self.milestones[name] = round(self.clock.monotonic() - self.start, 3)
        self.reporter.emit(State(subject=name, state="reached", elapsed=self.milestones[name]))


class WatchfulWaiter:
    """Waits as another waiter does, and looks at the control plane now and then: `look` raises what makes waiting pointless.

    A component with a bad flag shows itself in a second; without this it would be told when the time is over.
    """

    def __init__(self, inner: Waiter, *, look: Callable[[], None], monotonic: Callable[[], float]) -> None:
        self._inner = inner
        self._look = look
        self._monotonic = monotonic
        self._looked = 0.0

    def until(
        self,
        condition: Condition,
        /,
        *,
        within: float,
        saying: str,
        every: float = 0.05,
        at_most: float = 0.5,
        diagnose: Callable[[], str] | None = None,
        remedy: str = "",
    ) -> Waited:
        def watched() -> str | None:
            reason = condition()
            if reason is not None and self._monotonic() - self._looked >= _LOOK:
                self._looked = self._monotonic()
                self._look()
            return reason

        return self._inner.until(watched, within=within, saying=saying, every=every, at_most=at_most, diagnose=diagnose, remedy=remedy)


def require_alive(status: Answer, *, leaving: Collection[str] = ()) -> None:
    """Raise ComponentFailed, with its last words, if a component crashes in a loop or cannot be started. Machines that leave do not count."""
    components = [component for component in status.get("components", []) if component["machine"] not in leaving]
    several = len({component["machine"] for component in components}) > 1
    for component in components:
        if component["state"] in CRASHES or component.get("refused"):
            words = [component["reason"], *component.get("lastWords", [])]
            where = f" of {component['machine']}" if several else ""
            raise ComponentFailed(
                f"{component['name']}{where} does not stay up",
                detail="\n".join(words),
                remedy=f"{remedies.of(words, 'mend what it complains about, extraArgs for example')}, then run `kubewright up` again",
            )
