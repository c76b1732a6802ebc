"""What stands behind a wait for components of this machine: observations in a thread beside, so that what comes up loses no time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from kubewright.base.clock import Clock
from kubewright.base.errors import ComponentFailed
from kubewright.base.records import replace
from kubewright.base.wait import Condition
from kubewright.host.seam import Host
from kubewright.lifecycle.diagnosis import failures, remedies
from kubewright.lifecycle.diagnosis.cluster import BootstrapLook
from kubewright.lifecycle.diagnosis.failures import Observations, PermanentFailure
from kubewright.lifecycle.diagnosis.observation import Observation, last_errors, observe

LAST_LINES: Final = 10
"""Last lines of a component that a diagnosis has."""
FIRST: Final = 0.9
"""Seconds of waiting before the first observation: most waits are over by then, and the others show their first reason."""
PAUSE: Final = 0.5
"""Seconds between the end of an observation and the next one, which costs some ms of a core."""
JOURNAL_AFTER: Final = 3.0
"""Seconds of waiting before the kubelet's journal is read though it runs."""
JOURNAL_EVERY: Final = 4
"""Observations between two such readings."""

Submit = Callable[[Callable[[], None]], object]
"""Has something done in the background; it never raises."""


class Diagnosis(Protocol):
    """What stands behind one wait."""

    def explained(self, condition: Condition, /) -> Condition:
        """Return the condition with a better reason. It raises ComponentFailed where waiting is pointless."""
        ...

    def diagnose(self) -> str:
        """Return all that can be said when the wait has failed."""
        ...

    def remedy(self) -> str:
        """Return what to do about what `diagnose` found, '' where nothing points to it."""
        ...


def in_a_thread(work: Callable[[], None]) -> None:
    """Do it in a thread of its own, which nobody waits for."""
    threading.Thread(target=work, name="diagnosis", daemon=True).start()


class ComponentWatch:
    """What stands behind one wait for components of this machine, in the order in which they need each other.

    `bootstrap` asks the cluster where the kubelet is waiting for its certificate.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        host: Host,
        clock: Clock,
        bootstrap: BootstrapLook | None = None,
        background: Submit = in_a_thread,
    ) -> None:
        self._names = tuple(names)
        self._host = host
        self._clock = clock
        self._bootstrap = bootstrap
        self._background = background
        self._began = clock.now().timestamp()
        self._start = clock.monotonic()
        self._free = threading.Event()  # no observation is under way
        self._free.set()
        self._next = self._start + FIRST
        self._count = 0
        self._observations: Observations | None = None
        self._last = Observation()
        self._told = ""

    def explained(self, condition: Condition, /) -> Condition:
        """Return the condition with the machine's reason in place of its own. It raises ComponentFailed where waiting is pointless."""

        def watched() -> str | None:
            own = condition()
            if own is None:
                return None
            self._observe_again()
            observations = self._observations
            if observations is None:
                return own
            if (found := failures.permanent_failure(observations)) is not None:
                raise self._failure(found, observations.latest)
            self._told = failures.reason(observations.latest, own, now=self._clock.now().timestamp())
            return self._told

        return watched

    def diagnose(self) -> str:
        """Observe once more, and return all that can be said but for the reason that was told last."""
        self._last = self._look(journal=True, thoroughly=True)
        return "\n".join(line for line in self._report(self._last).splitlines() if line != self._told)

    def remedy(self) -> str:
        """Return what to do about what `diagnose` found."""
        return failures.remedy(self._last)

    def _look(self, *, journal: bool, thoroughly: bool = False) -> Observation:
        """Observe the machine; where the journal is worth reading, asking the cluster is worth it too."""
        seen = observe(self._host, self._names, journal=journal)
        if self._bootstrap is None or not journal:
            return seen
        return replace(seen, cluster=self._bootstrap.look(seen.kubelet, thoroughly=thoroughly))

    def _observe_again(self) -> None:
        if self._free.is_set() and self._clock.monotonic() >= self._next:
            self._free.clear()
            self._background(self._observe)

    def _observe(self) -> None:
        try:
            seen = self._look(journal=self._wants_journal())
            self._observations = (
                Observations.begin(seen, began=self._began) if self._observations is None else self._observations.and_then(seen)
            )
        finally:
            self._count += 1
            self._next = self._clock.monotonic() + PAUSE
            self._free.set()

    def _wants_journal(self) -> bool:
        """Whether the journal is worth its price: something does not come up, and it was not asked a moment ago."""
        if self._observations is None or self._clock.monotonic() - self._start < JOURNAL_AFTER:
            return False
        components = self._observations.latest.components
        return self._count % JOURNAL_EVERY == 0 and not (components and all(component.runs for component in components))

    def _failure(self, found: PermanentFailure, seen: Observation) -> ComponentFailed:
        if not found.component:
            detail = failures.report(seen, {})
            return ComponentFailed(found.what, detail=detail, remedy=found.remedy)
        said = last_errors(self._host, found.component)
        remedy = remedies.of_component(said)
        return ComponentFailed(found.what, detail="\n".join(failures.with_heading(found.component, said)), remedy=remedy)

    def _report(self, seen: Observation) -> str:
        if seen.runtime:
            return failures.report(seen, {})
        return failures.report(seen, {name: last_errors(self._host, name) for name in self._names})


class LastLines:
    """The diagnosis where somebody else watches the components: a failure shows their last lines."""

    def __init__(self, names: Sequence[str], *, host: Host) -> None:
        self._names = tuple(names)
        self._host = host

    def explained(self, condition: Condition, /) -> Condition:
        return condition

    def diagnose(self) -> str:
        return "\n".join(
            line for name in self._names for line in failures.with_heading(name, self._host.runtime.last_lines(name, count=LAST_LINES))
        )

    def remedy(self) -> str:
        return ""
