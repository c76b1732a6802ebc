"""Alarms of etcd: one member raises an alarm, and all members report it until it is disarmed.

A member with an alarm is alive, and its vote counts. But while one is raised, no member accepts writes (NOSPACE), or
serves any data (CORRUPT) (etcd v3.6: server/etcdserver/apply/uber_applier.go, restoreAlarms). Members can still be
removed; the alarm of a removed member stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from kubewright.etcd.api import Alarm, Member, Status

_NO_SPACE: Final = "NOSPACE"
_CORRUPT: Final = "CORRUPT"
_REPORTED: Final = re.compile(r"memberID:([0-9]+) alarm:([A-Z]+)")
"""An alarm among the errors of a status (etcd v3.6, api/etcdserverpb: AlarmMember.String)."""
_EFFECTS: Final = {_NO_SPACE: "etcd accepts no writes", _CORRUPT: "etcd serves no data"}

REPLACE: Final = "replace the member whose data is wrong, on its machine: kubewright etcd member replace"


def is_alarm(error: str) -> bool:
    """Return whether an error of a status reports an alarm."""
    return _REPORTED.search(error) is not None


def reported(statuses: Iterable[Status]) -> list[Alarm]:
    """Return the alarms in the errors of statuses, each once."""
    found = [_REPORTED.search(text) for one in statuses for text in one.errors]
    return list(dict.fromkeys(Alarm(member_id=int(match[1]), kind=match[2]) for match in found if match))


def described(alarms: Iterable[Alarm], members: Iterable[Member]) -> list[str]:
    """Return a line for each alarm: which member has raised it, and its effect."""
    names = {one.id: one.shown for one in members}
    return [
        f"{names.get(one.member_id, f'the former member {one.member_id:x}')} has raised the alarm {one.kind}"
        + (f": until it is disarmed, {_EFFECTS[one.kind]}" if one.kind in _EFFECTS else "")
        for one in alarms
    ]


def remedy(alarms: Sequence[Alarm]) -> str:
    """Return what to do about alarms; empty if there are none of a known kind."""
    kinds = {one.kind for one in alarms}
    if _CORRUPT in kinds:  # nothing is replaced while it is raised
        return f"disarm the alarm (etcdctl alarm disarm), and then {REPLACE}"
    return "compact and defragment etcd, then disarm the alarm: etcdctl compaction, defrag, alarm disarm" if _NO_SPACE in kinds else ""
