"""Background observation during a wait for components of this machine, in a separate thread, so that their start is not delayed."""

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
"""Last lines of a component in a diagnosis."""
FIRST: Final = 0.9
"""Seconds of waiting before the first observation: most waits are over by then, and others then show their first reason."""
PAUSE: Final = 0.5
"""Seconds between the end of an observation and the next one, which costs some ms of a core."""
JOURNAL_AFTER: Final = 3.0
"""Seconds of waiting before the kubelet's journal is read although it is running."""
JOURNAL_EVERY: Final = 4
"""Observations between two reads of the journal."""

Submit = Callable[[Callable[[], None]], object]
"""Runs a function in the background; never raises."""


class Diagnosis(Protocol):
    """The diagnosis of one wait."""

    def explained(self, condition: Condition, /) -> Condition:
        """Return the condition with a better reason. It raises ComponentFailed if waiting is pointless."""
        ...

    def diagnose(self) -> str:
        """Return everything that is known when the wait has failed."""
        ...

    def remedy(self) -> str:
        """Return the remedy for the result of `diagnose`, '' if there is none."""
        ...


def in_a_thread(work: Callable[[], None]) -> None:
    """Run a function in a separate thread that nothing waits for."""
    threading.Thread(target=work, name="diagnosis", daemon=True).start()


class ComponentWatch:
    """The diagnosis of one wait for components of this machine, in the order of their dependencies.

    `bootstrap` reads the cluster's view if the kubelet waits for its certificate.
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
        self._free = threading.Event()  # no observation is in progress
        self._free.set()
        self._next = self._start + FIRST
        self._count = 0
        self._observations: Observations | None = None
        self._last = Observation()
        self._reported = ""

    def explained(self, condition: Condition, /) -> Condition:
        """Return the condition with the machine's reason instead of its own.

        It raises ComponentFailed if waiting is pointless.
        """

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
            self._reported = failures.reason(observations.latest, own, now=self._clock.now().timestamp())
            return self._reported

        return watched

    def diagnose(self) -> str:
        """Observe once more, and return everything that is known except the reason that was reported last."""
        self._last = self._look(journal=True, thoroughly=True)
        return "\n".join(line for line in self._report(self._last).splitlines() if line != self._reported)

    def remedy(self) -> str:
        """Return the remedy for the result of `diagnose`."""
        return failures.remedy(self._last)

    def _look(self, *, journal: bool, thoroughly: bool = False) -> Observation:
        """Observe the machine. Whenever reading the journal is worthwhile, requests to the cluster are too."""
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
        """Return whether reading the journal is worthwhile: something does not start, and it was not read recently."""
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
    """The diagnosis if others watch the components: a failure shows their last lines."""

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
