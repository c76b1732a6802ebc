"""When a Node's status is sent, and what is sent (kubelet v1.36: tryUpdateNodeStatus). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kubewright.agent.resources import same_amounts
from kubewright.agent.timings import Timings
from kubewright.base.randomness import Random

JsonMap = dict[str, Any]

_AMOUNTS: Final = ("capacity", "allocatable")
_PLACE: Final = {"$patch": "replace"}


@dataclass(frozen=True, kw_only=True)
class Report:
    """When status was last sent. Moments are seconds of a clock that never goes backwards; None before the first report."""

    sent_at: float | None = None
    spread: float = 0.0

    def is_due(self, now: float, timings: Timings) -> bool:
        """Whether status has to be sent although nothing changed; always so before the first report."""
        return self.sent_at is None or now - self.sent_at >= timings.status_report + self.spread

    def attempted(self, *, changed: bool, timings: Timings, random: Random) -> Report:
        """Return the state just before a report is sent, failing ones included.

        After a change the next forced report is spread over 2.5 to 7.5 minutes, after a periodic one it comes exactly 5 minutes later.
        """
        spread = timings.status_report * (random.uniform() - 0.5) if changed or self.sent_at is None else 0.0
        return replace(self, spread=spread)

    def sent(self, now: float) -> Report:
        """Return the state after a report was accepted."""
        return replace(self, sent_at=now)


def status_changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two Node statuses differ in anything but heartbeat times."""
    if _settled_conditions(old) != _settled_conditions(new):
        return True
    if not all(same_amounts(old.get(name) or {}, new.get(name) or {}) for name in _AMOUNTS):
        return True
    return _others(old) != _others(new)


def labels_changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two Nodes have different labels."""
    return (old["metadata"].get("labels") or {}) != (new["metadata"].get("labels") or {})


def patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> JsonMap:
    """Return the strategic merge patch for `nodes/status` that turns one Node into the other; the spec is never part of it."""
    body: JsonMap = {}
    metadata = _difference(
        {key: old["metadata"].get(key) or {} for key in ("labels", "annotations")},
        {key: new["metadata"].get(key) or {} for key in ("labels", "annotations")},
    )
    status = _status_difference(old.get("status") or {}, new.get("status") or {})
    if metadata:
        body["metadata"] = metadata
    if status:
        body["status"] = status
    return body


def _status_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> JsonMap:
    listed = ("conditions", "addresses")
    body = _difference(_without(old, listed), _without(new, listed))
    if conditions := _condition_differences(old.get("conditions") or (), new.get("conditions") or ()):
        body["conditions"] = conditions
    if addresses := _address_difference(old.get("addresses") or [], new.get("addresses") or []):
        body["addresses"] = addresses
    return body


def _condition_differences(old: Sequence[JsonMap], new: Sequence[JsonMap]) -> list[JsonMap]:
    """Each entry holds its type and what differs: the list is merged by type."""
    before = {condition["type"]: condition for condition in old}
    differences = [(new_one["type"], _difference(before.get(new_one["type"], {}), new_one)) for new_one in new]
    return [{**difference, "type": kind} for kind, difference in differences if difference]


def _address_difference(old: Sequence[JsonMap], new: Sequence[JsonMap]) -> list[JsonMap]:
    """The whole list, as a replacement: merged by type, as the API declares, two InternalIPs would become one."""
    if list(old) == list(new):
        return []
    return [*new, _PLACE] if old else list(new)


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> JsonMap:
    """What differs, maps key by key and everything else as a whole; None for what is gone."""
    body: JsonMap = {}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := _difference(before, value):
                body[key] = inner
        elif before != value:
            body[key] = value
    return {**body, **{key: None for key in old if key not in new}}


def _settled_conditions(status: Mapping[str, Any]) -> list[str]:
    conditions = status.get("conditions") or ()
    return sorted(json.dumps(_without(condition, ("lastHeartbeatTime",)), sort_keys=True) for condition in conditions)


def _others(status: Mapping[str, Any]) -> JsonMap:
    """Everything but conditions and amounts; nil and empty are the same."""
    return {key: value for key, value in status.items() if value and key not in ("conditions", *_AMOUNTS)}


def _without(value: Mapping[str, Any], keys: Sequence[str]) -> JsonMap:
    return {key: item for key, item in value.items() if key not in keys}
