"""Plans: the changes of a run against overlays, told as text or as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kubewright.base.change import Action, Change, Lifetime
from kubewright.base.records import dataclass


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run would change, in its order; targets that stay as they are do not count. False if it would change nothing."""

    changes: tuple[Change, ...]

    @classmethod
    def of(cls, changes: Iterable[Change], *, ephemeral: bool = True) -> Plan:
        """Make a plan of what a run reports. Without `ephemeral` it holds drift only: nothing that is short-lived by its nature."""
        return cls(changes=tuple(change for change in changes if change and (ephemeral or change.lifetime is Lifetime.DURABLE)))

    def __bool__(self) -> bool:
        return bool(self.changes)

    def settled(self) -> Plan:
        """Return this plan, or an empty one where all of it is short-lived: a run would make a token anew, and nothing would differ."""
        return self if any(change.lifetime is Lifetime.DURABLE for change in self.changes) else Plan(changes=())

    def as_list(self) -> list[dict[str, object]]:
        """Return the form that `-o json` prints."""
        return [change.as_map() for change in self.changes]

    def text(self) -> str:
        """Return the form for a person, each change with its diff and a sum at the end; empty if nothing differs."""
        if not self.changes:
            return ""
        return "".join(_told(change) for change in self.changes) + f"\nplan: {self.summary()}\n"

    def summary(self) -> str:
        """Return the numbers of changes by kind: `2 to create, 1 to update`."""
        counts = Counter(change.action for change in self.changes)
        return ", ".join(f"{counts[action]} to {action.value}" for action in Action if counts[action]) or "nothing to change"


def _told(change: Change) -> str:
    reason = f" ({change.reason})" if change.reason else ""
    diff = "".join(f"  {line}\n" for line in change.diff.splitlines())
    return f"{change.action.value} {change.target}{reason}\n{diff}"
