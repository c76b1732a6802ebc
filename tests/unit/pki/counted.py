"""Bytes that count the operations on them, so that tests can distinguish linear work from quadratic without a clock."""

from __future__ import annotations

from typing import Any, Final

_CUTS: Final = ("removesuffix", "removeprefix", "rstrip", "lstrip", "strip", "translate", "replace")
_SEARCHES: Final = ("find", "rfind", "count")
_FREE: Final = ("decode", "endswith", "startswith")
"""Their cost is that of a label or an end."""


class Counted(bytes):
    """What is copied from it and skipped in it is added to `work[0]`; slices of it continue to count."""

    work: list[int]

    def __new__(cls, content: bytes, work: list[int] | None = None) -> Counted:
        made = super().__new__(cls, content)
        made.work = [0] if work is None else work
        return made

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        return self._cut(found) if isinstance(found, bytes) else found

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in _CUTS:
            return lambda *arguments: self._cut(found(*arguments))
        if name in _SEARCHES:
            return lambda *arguments: self._searched(found, *arguments)
        assert name in {"work", "_cut", "_searched", *_FREE} or name.startswith("__"), f"{name} is not counted"
        return found

    def _cut(self, content: bytes) -> Counted:
        self.work[0] += len(content)
        return Counted(content, self.work)

    def _searched(self, search: Any, wanted: bytes, start: int = 0, end: int | None = None) -> int:
        end = len(self) if end is None else end
        found: int = search(wanted, start, end)
        stopped = {"find": (start, found), "rfind": (found, end)}.get(search.__name__, (start, end)) if found >= 0 else (start, end)
        self.work[0] += max(0, stopped[1] - stopped[0])
        return found
