"""The record of what an `ensure` found and did to one target."""

from __future__ import annotations

import enum

from kubewright.base.records import dataclass


class Action(enum.Enum):
    """The action that a target needs, or that was taken."""

    NONE = "unchanged"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class Lifetime(enum.Enum):
    """Whether a target is long-lived. Drift ignores ephemeral targets."""

    DURABLE = "durable"
    EPHEMERAL = "ephemeral"


@dataclass(frozen=True, kw_only=True)
class Change:
    """The record of what an `ensure` found and did to one target.

    `target` is a kind and a name: `file /etc/kubernetes/manifests/etcd.yaml`, `configmap kube-system/kubeadm-config`.
    `diff` is a unified diff with secrets masked, empty for NONE. `reason` gives the reason if the diff does not show
    it.
    """

    target: str
    action: Action
    diff: str = ""
    reason: str = ""
    lifetime: Lifetime = Lifetime.DURABLE

    def __bool__(self) -> bool:
        """A change is true if the target differs from what is desired."""
        return self.action is not Action.NONE

    def as_map(self) -> dict[str, object]:
        """Return the form that `-o json` prints."""
        return {
            "target": self.target,
            "action": self.action.value,
            "diff": self.diff,
            "reason": self.reason,
            "lifetime": self.lifetime.value,
        }


def unified_diff(before: str, after: str, *, name: str) -> str:
    """Return a unified diff with three lines of context and without time stamps; empty if nothing differs."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    heads = (f"{name} (found)", f"{name} (desired)")
    if new and not old:  # most targets are new
        count = "" if len(new) == 1 else f",{len(new)}"
        return "".join((f"--- {heads[0]}\n+++ {heads[1]}\n@@ -0,0 +1{count} @@\n", *(f"+{line}" for line in new)))
    import difflib

    return "".join(difflib.unified_diff(old, new, *heads))
