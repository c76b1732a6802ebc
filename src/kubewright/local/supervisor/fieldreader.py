"""Reading typed values out of a decoded document while collecting every field error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubewright.base.fields import FieldError, FieldErrorType, FieldPath

ROOT = FieldPath()


class FieldReader:
    """Looks into maps and lists. A wrong type is noted with its path and read as if it were absent."""

    def __init__(self, source: str) -> None:
        self.errors: list[FieldError] = []
        self._source = source

    def refuse(self, path: FieldPath, reason: str, *, type: FieldErrorType = FieldErrorType.INVALID, value: object = None) -> None:
        """Note one error."""
        self.errors.append(FieldError(path=path, type=type, reason=reason, value=value, source=self._source))

    def required(self, path: FieldPath, reason: str) -> None:
        """Note that a field is missing."""
        self.refuse(path, reason, type=FieldErrorType.REQUIRED)

    def forbidden(self, path: FieldPath, reason: str) -> None:
        """Note that a field must not be there."""
        self.refuse(path, reason, type=FieldErrorType.FORBIDDEN)

    def mapping(self, parent: Mapping[str, Any], name: str, path: FieldPath) -> Mapping[str, Any]:
        """Read a map; empty if absent."""
        value = self._typed(parent, name, path, dict, "an object")
        return value if value is not None else {}

    def items(self, parent: Mapping[str, Any], name: str, path: FieldPath) -> Iterator[tuple[FieldPath, Mapping[str, Any]]]:
        """Yield the maps of a list with their paths."""
        for index, item in enumerate(self._typed(parent, name, path, list, "a list") or ()):
            where = (path / name)[index]
            if isinstance(item, Mapping):
                yield where, item
            else:
                self.refuse(where, "has to be an object", type=FieldErrorType.TYPE, value=item)

    def texts(self, parent: Mapping[str, Any], name: str, path: FieldPath) -> tuple[str, ...]:
        """Read a list of strings."""
        found = []
        for index, item in enumerate(self._typed(parent, name, path, list, "a list") or ()):
            if isinstance(item, str):
                found.append(item)
            else:
                self.refuse((path / name)[index], "has to be a string", type=FieldErrorType.TYPE, value=item)
        return tuple(found)

    def text(self, parent: Mapping[str, Any], name: str, path: FieldPath, default: str = "") -> str:
        """Read a string."""
        value = self._typed(parent, name, path, str, "a string")
        return default if value is None else str(value)

    def number(self, parent: Mapping[str, Any], name: str, path: FieldPath, default: int, *, least: int) -> int:
        """Read a whole number that is at least `least`."""
        value = self._typed(parent, name, path, int, "a whole number")
        if value is None:
            return default
        if value < least:
            self.refuse(path / name, f"has to be at least {least}", value=value)
        return int(value)

    def flag(self, parent: Mapping[str, Any], name: str, path: FieldPath) -> bool:
        """Read a boolean; false if absent."""
        return bool(self._typed(parent, name, path, bool, "true or false"))

    def _typed(self, parent: Mapping[str, Any], name: str, path: FieldPath, kind: type, said: str) -> Any:
        value = parent.get(name)
        if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
            return value
        self.refuse(path / name, f"has to be {said}", type=FieldErrorType.TYPE, value=value)
        return None
