"""What differs between two documents that were defaulted: as changed fields, and as a unified diff. Pure; secrets never come out of it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kubewright.base import yaml
from kubewright.base.change import unified_diff
from kubewright.base.masking import MASK, mask
from kubewright.base.records import dataclass
from kubewright.lifecycle.config_sides import NAMESPACE, PLACES, Side

ANOTHER: Final = " (another)"
"""Follows a masked secret of the new side that is not the old side's."""
_SECRET_NAME: Final = re.compile(r"(?i)(?:password|passwd|secret|token|credentials?|(?:access|api|private|client)[-_]?key)$")
_SORTED_BY_NAME: Final = frozenset({"extraArgs"})
"""Lists whose order means nothing: kubeadm sorts arguments by name."""

Value = Any


@dataclass(frozen=True, kw_only=True)
class Change:
    """One field that differs. A side that does not have it is None; an empty path is the whole document."""

    path: str
    old: Value
    new: Value

    def as_map(self) -> dict[str, object]:
        """Return the form that `-o json` prints."""
        return {"path": self.path, "old": self.old, "new": self.new}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How one document differs: the cluster's is old, the file's is new."""

    kind: str
    place: str
    changes: tuple[Change, ...]
    diff: str

    def as_map(self) -> dict[str, object]:
        """Return the form that `-o json` prints."""
        return {"document": self.kind, "configMap": self.place, "changes": [change.as_map() for change in self.changes]}


def compare(cluster: Side, file: Side) -> list[Difference]:
    """Compare each document of the two sides, in the order of PLACES; those that are equal are left out."""
    found = []
    for kind, (name, _) in PLACES.items():
        old, new = (_ordered(side.documents[kind]) for side in (cluster, file))
        if old != new:
            found.append(_difference(kind, f"{NAMESPACE}/{name}", *_hidden(old, new)))
    return found


def _difference(kind: str, place: str, old: Value, new: Value) -> Difference:
    texts = ["" if one is None else yaml.dump(one) for one in (old, new)]
    diff = (
        unified_diff(*texts, name=kind)
        .replace(f"{kind} (found)", f"{kind} in {place}", 1)
        .replace(f"{kind} (desired)", f"{kind} of the file", 1)
    )
    return Difference(kind=kind, place=place, changes=tuple(_changes(old, new, "")), diff=diff)


def _ordered(value: Value, key: str = "") -> Value:
    """Return a copy in which lists whose order means nothing are sorted, and nulls, which mean nothing either, are left out."""
    if isinstance(value, Mapping):
        return {name: _ordered(part, name) for name, part in value.items() if part is not None}
    if not isinstance(value, list | tuple):
        return value
    found = [_ordered(part) for part in value]
    return sorted(found, key=lambda entry: str(entry["name"])) if key in _SORTED_BY_NAME and _names(found) else found


def _changes(old: Value, new: Value, path: str) -> Iterator[Change]:
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted({*old, *new}):
            yield from _changes(old.get(name), new.get(name), f"{path}.{name}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list) and (_names(old) or not old) and (_names(new) or not new):
        yield from _named_changes(old, new, path)
    else:
        yield Change(path=path, old=old, new=new)


def _named_changes(old: Sequence[Value], new: Sequence[Value], path: str) -> Iterator[Change]:
    """Compare entries that have names by their names; where only their order differs, the whole list is the change."""
    before, after = ({entry["name"]: entry for entry in entries} for entries in (old, new))
    if before == after:
        yield Change(path=path, old=old, new=new)
        return
    for name in dict.fromkeys([*before, *after]):
        place = f"{path}[{name}]"
        if name in before and name in after:
            yield from _changes(before[name], after[name], place)
        else:
            yield Change(path=place, old=before.get(name), new=after.get(name))


def _names(entries: Sequence[Value]) -> list[str]:
    """Return the names of entries where all have one of their own; else nothing."""
    names = [entry["name"] for entry in entries if isinstance(entry, Mapping) and isinstance(entry.get("name"), str)]
    return names if len(names) == len(entries) == len(set(names)) else []


# Secrets.


def _hidden(old: Value, new: Value) -> tuple[Value, Value]:
    """Return both sides without secrets. Two that differ still do."""
    hidden_old, hidden_new = _without_secrets(old), _without_secrets(new)
    return hidden_old, _told_apart(old, new, hidden_old, hidden_new)


def _without_secrets(value: Value, key: str = "") -> Value:
    if isinstance(value, Mapping):
        named = isinstance(value.get("name"), str) and _SECRET_NAME.search(value["name"])
        return {name: _without_secrets(part, str(value["name"]) if named and name == "value" else name) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(part) for part in value]
    if isinstance(value, str) and value:
        return MASK if _SECRET_NAME.search(key) else mask(value)
    return copy.copy(value)


def _told_apart(old: Value, new: Value, hidden_old: Value, hidden_new: Value) -> Value:
    """Mark the secrets of the new side that differ from the old side's at the same place."""
    if old == new or not (isinstance(old, type(new)) or isinstance(new, type(old))):
        return hidden_new
    if isinstance(new, Mapping):
        return {name: _told_apart(old.get(name), new[name], hidden_old.get(name), part) for name, part in hidden_new.items()}
    if isinstance(new, list):
        by_name = {entry["name"]: place for place, entry in enumerate(old)} if _names(old) and _names(new) else {}
        places = (
            [by_name.get(entry["name"], -1) for entry in new]
            if by_name
            else [place if place < len(old) else -1 for place in range(len(new))]
        )
        return [
            part if at < 0 else _told_apart(old[at], new[place], hidden_old[at], part)
            for place, (part, at) in enumerate(zip(hidden_new, places, strict=True))
        ]
    return hidden_new + ANOTHER if hidden_new == hidden_old and isinstance(new, str) else hidden_new
