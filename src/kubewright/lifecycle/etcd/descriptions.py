"""Descriptions of snapshots and backups, which are read from files that may contain anything.

Only the fields that a restore uses are checked. Each of them may be missing: other versions of kubewright, and people,
write descriptions too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from kubewright.base.versions import Version

if TYPE_CHECKING:
    from kubewright.base.clock import Clock


def is_valid(value: object) -> bool:
    """Return whether a value is a description whose known fields have the form with which they are saved."""
    return isinstance(value, dict) and all(has_form(value[name]) for name, has_form in _FIELDS.items() if name in value)


def saved_at(description: Mapping[str, Any]) -> datetime | None:
    """Return when a snapshot or backup was saved; None if its valid description has no time."""
    return _moment(description["time"]) if "time" in description else None


def seconds_since(description: Mapping[str, Any], clock: Clock) -> float:
    """Return the age of a snapshot or backup in seconds; 0 if its valid description has no time."""
    saved = saved_at(description)
    return 0.0 if saved is None else max(0.0, (clock.now() - saved).total_seconds())


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(_moment(value))
    except (ValueError, OverflowError):
        return False


def _is_version(value: object) -> bool:
    """Whether it is a version of etcd, or empty if that was unknown."""
    if value == "":
        return True
    try:
        return isinstance(value, str) and bool(Version.parse(f"v{value}"))
    except ValueError:
        return False


def _is_names(value: object) -> bool:
    """Whether it is a list of names, or null if they were unknown. They are shown to the user."""
    return value is None or (isinstance(value, list) and all(isinstance(one, str) and one.isprintable() for one in value))


_FIELDS: Final[Mapping[str, Callable[[object], bool]]] = {
    "time": _is_time,
    "etcdVersion": _is_version,
    "members": _is_names,
    "nodes": _is_names,
    "revision": lambda value: isinstance(value, int),
}
