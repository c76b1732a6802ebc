"""Watching a machine while something on it is waited for: looks in a thread beside, so that what comes up loses no time to being looked at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from kubewright.base.clock import Clock
from kubewright.base.errors import ComponentFailed
from kubewright.base.wait import Condition
from kubewright.host.seam import Host
from kubewright.lifecycle.reasons import giving_up, telling
from kubewright.lifecycle.reasons.giving_up import Hopeless, Looks
from kubewright.lifecycle.reasons.looking import last_words, look
from kubewright.lifecycle.reasons.seen import Seen

FIRST: Final = 0.9
"""Seconds of waiting before the first look: most waits are over by then, and the others show their first reason."""
PAUSE: Final = 0.5
"""Seconds between the end of a look and the next one: a look costs some ms of a core."""
WORDS_AFTER: Final = 3.0
"""Seconds of waiting before the kubelet's journal is read though it runs."""
WORDS_EVERY: Final = 4
"""Looks between two such readings."""
Background = Callable[[Callable[[], None]], object]
"""Has something done by and by; what it does never raises."""


def in_a_thread(work: Callable[[], None]) -> None:
    """Do it in a thread of its own, which nobody waits for."""
    threading.Thread(target=work, name="reasons", daemon=True).start()


class Watching:
    """What stands behind one wait for components of this machine, in the order in which they need each other."""

    def __init__(self, names: Sequence[str], *, host: Host, clock: Clock, background: Background = in_a_thread) -> None:
        self._names = tuple(names)
        self._host = host
        self._clock = clock
        self._background = background
        self._began = clock.now().timestamp()
        self._start = clock.monotonic()
        self._free = threading.Event()  # no look is under way
        self._free.set()
        self._next = self._start + FIRST
        self._count = 0
        self._looks: Looks | None = None

    def beside(self, condition: Condition, /) -> Condition:
        """Return the condition with the machine's reason in place of its own. It raises ComponentFailed where waiting is pointless."""

        def watched() -> str | None:
            own = condition()
            if own is None:
                return None
            self._look_now_and_then()
            looks = self._looks
            if looks is None:
                return own
            if (found := giving_up.hopeless(looks)) is not None:
                raise self._failure(found, looks.latest)
            return telling.reason(looks.latest, own, now=self._clock.now().timestamp())

        return watched

    def diagnose(self) -> str:
        """Look once more, and return all that can be said."""
        return self._story(look(self._host, self._names, words=True))

    def _look_now_and_then(self) -> None:
        if self._free.is_set() and self._clock.monotonic() >= self._next:
            self._free.clear()
            self._background(self._look)

    def _look(self) -> None:
        try:
            seen = look(self._host, self._names, words=self._wants_words())
            self._looks = Looks.begin(seen, began=self._began) if self._looks is None else self._looks.and_then(seen)
        finally:
            self._count += 1
            self._next = self._clock.monotonic() + PAUSE
            self._free.set()

    def _wants_words(self) -> bool:
        """Whether the journal is worth its price: something does not come up, and it was not asked a moment ago."""
        if self._looks is None or self._clock.monotonic() - self._start < WORDS_AFTER:
            return False
        components = self._looks.latest.components
        return self._count % WORDS_EVERY == 0 and not (components and all(component.runs for component in components))

    def _failure(self, found: Hopeless, seen: Seen) -> ComponentFailed:
        if not found.component:
            detail = telling.story(seen, {})
            return ComponentFailed(found.what, detail=detail, remedy=found.remedy)
        said = last_words(self._host, found.component)
        remedy = giving_up.remedy_of_component(said)
        return ComponentFailed(found.what, detail="\n".join(telling.last_lines(found.component, said)), remedy=remedy)

    def _story(self, seen: Seen) -> str:
        if seen.runtime:
            return telling.story(seen, {})
        return telling.story(seen, {name: last_words(self._host, name) for name in self._names})
