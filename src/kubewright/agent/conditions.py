"""The four conditions of a Node that its agent owns (kubelet v1.36: pkg/kubelet/nodestatus).

The pressure conditions change only on a flip: a reason or message that somebody else wrote stays. Ready rewrites both each time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from kubewright.base.records import dataclass

JsonMap = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Pressure:
    """One pressure condition: reason and message when True, and when False."""

    type: str
    bad: tuple[str, str]
    good: tuple[str, str]


PRESSURES: Final = (
    Pressure(
        type="MemoryPressure",
        bad=("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        good=("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ),
    Pressure(
        type="DiskPressure",
        bad=("KubeletHasDiskPressure", "kubelet has disk pressure"),
        good=("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ),
    Pressure(
        type="PIDPressure",
        bad=("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        good=("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ),
)

READY: Final = "Ready"
_REQUIRED_CAPACITY: Final = ("cpu", "memory", "pods", "ephemeral-storage")

NO_POD_CIDR: Final = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:the Node has no podCIDR yet"
)


def set_pressures(conditions: list[JsonMap], *, now: str, under: Collection[str] = ()) -> None:
    """Bring the pressure conditions of the list up to date, in place; `under` names those that are True."""
    for row in PRESSURES:
        status = "True" if row.type in under else "False"
        reason, message = row.bad if row.type in under else row.good
        found = find(conditions, row.type)
        if found is None:
            found = {"type": row.type, "status": "Unknown"}
            conditions.append(found)
        if found.get("status") != status:
            found.update(status=status, reason=reason, message=message, lastTransitionTime=now)
        found["lastHeartbeatTime"] = now


def set_ready(conditions: list[JsonMap], errors: Sequence[str], *, now: str) -> None:
    """Bring the Ready condition of the list up to date, in place; it is True if there are no errors."""
    status = "False" if errors else "True"
    old = find(conditions, READY)
    new = {
        "type": READY,
        "status": status,
        "lastHeartbeatTime": now,
        "lastTransitionTime": old["lastTransitionTime"] if old and old.get("status") == status else now,
        "reason": "KubeletNotReady" if errors else "KubeletReady",
        "message": join_errors(errors) if errors else "kubelet is posting ready status",
    }
    if old is None:
        conditions.append(new)
    else:
        conditions[conditions.index(old)] = new


def ready_errors(*, capacity: Mapping[str, str], network: Iterable[str]) -> list[str]:
    """Return why a node is not ready, in the kubelet's order: network, then capacity."""
    missing = [name for name in _REQUIRED_CAPACITY if name not in capacity]
    return [*network, *([f"missing node capacity for resources: {', '.join(missing)}"] if missing else [])]


def join_errors(errors: Sequence[str]) -> str:
    """Return one error as it is, several as `[a, b]` without duplicates."""
    unique = list(dict.fromkeys(errors))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def find(conditions: Iterable[JsonMap], kind: str) -> JsonMap | None:
    """Return the condition of a type, or None."""
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def is_true(holder: Mapping[str, Any], kind: str) -> bool:
    """Whether the object's status has this condition with status True."""
    found = find(holder.get("status", {}).get("conditions") or (), kind)
    return found is not None and found.get("status") == "True"
