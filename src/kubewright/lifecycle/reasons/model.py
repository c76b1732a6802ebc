"""What a wait for a part of this machine asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kubewright.base.wait import Condition
from kubewright.host.seam import Host

LINES = 10
"""Last lines of a component that a diagnosis has."""


class Reasons(Protocol):
    """What stands behind one wait."""

    def beside(self, condition: Condition, /) -> Condition:
        """Return the condition with a better reason. It raises ComponentFailed where waiting is pointless."""
        ...

    def diagnose(self) -> str:
        """Return all that can be said when the wait has failed."""
        ...


class LastWords:
    """Reasons where somebody else watches the components: a failure shows their last words."""

    def __init__(self, names: Sequence[str], *, host: Host) -> None:
        self._names = tuple(names)
        self._host = host

    def beside(self, condition: Condition, /) -> Condition:
        return condition

    def diagnose(self) -> str:
        from kubewright.lifecycle.reasons import telling  # nothing has failed so far

        return "\n".join(
            line for name in self._names for line in telling.last_lines(name, self._host.runtime.last_lines(name, count=LINES))
        )
