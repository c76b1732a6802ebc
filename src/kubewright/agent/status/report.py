"""Decides when a Node's status is sent (kubelet v1.36: tryUpdateNodeStatus). Pure; `kube.patches.node_status_patch` makes the patch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from kubewright.agent.dependencies import Timings
from kubewright.agent.status.resources import same_amounts
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, replace
from kubewright.kube.core import Object

_AMOUNTS: Final = ("capacity", "allocatable")


@dataclass(frozen=True, kw_only=True)
class ReportSchedule:
    """When a status was last sent. Times are seconds of a monotonic clock; None before the first report."""

    sent_at: float | None = None
    spread: float = 0.0

    def is_due(self, now: float, timings: Timings) -> bool:
        """Whether status has to be sent although nothing changed; always so before the first report."""
        return self.sent_at is None or now - self.sent_at >= timings.status_report + self.spread

    def attempted(self, *, changed: bool, timings: Timings, random: Random) -> ReportSchedule:
        """Return the state just before a report is sent, including failing ones.

        After a change the next forced report is spread over 2.5 to 7.5 minutes; after a periodic one it comes exactly
        5 minutes later.
        """
        spread = timings.status_report * (random.uniform() - 0.5) if changed or self.sent_at is None else 0.0
        return replace(self, spread=spread)

    def sent(self, now: float) -> ReportSchedule:
        """Return the state after a report was accepted."""
        return replace(self, sent_at=now)


def status_changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two Node statuses differ in anything but heartbeat times."""
    if _settled_conditions(old) != _settled_conditions(new):
        return True
    if not all(same_amounts(old.get(name) or {}, new.get(name) or {}) for name in _AMOUNTS):
        return True
    return _others(old) != _others(new)


def metadata_changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two Nodes have different labels or annotations."""
    return any((old["metadata"].get(name) or {}) != (new["metadata"].get(name) or {}) for name in ("labels", "annotations"))


def _settled_conditions(status: Mapping[str, Any]) -> list[str]:
    conditions = status.get("conditions") or ()
    return sorted(json.dumps(_settled({**row, "lastHeartbeatTime": None}), sort_keys=True) for row in conditions)


def _others(status: Mapping[str, Any]) -> Object:
    """Everything except conditions and amounts."""
    found: Object = _settled({key: value for key, value in status.items() if key not in ("conditions", *_AMOUNTS)})
    return found


def _settled(value: Any) -> Any:
    """Return a value without its empty parts, which Go omits in some fields and writes in others."""
    if isinstance(value, Mapping):
        return {key: item for key, found in value.items() if (item := _settled(found))}
    return [_settled(item) for item in value] if isinstance(value, list) else value
