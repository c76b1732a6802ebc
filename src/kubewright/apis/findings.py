"""The position of a strict walk through a document, and its findings so far. Independent of the kinds of fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.base.masking import mask
from kubewright.base.messages import closest, did_you_mean
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass, field

__all__ = ["HIDDEN", "MOST_SHOWN", "Findings", "Place", "Problems", "closest", "did_you_mean", "related", "shortened", "shown", "type_name"]

Problems = Iterator[tuple[str, object]]
"""The findings of a check: reasons, each with the value to show."""

HIDDEN: Final = "(hidden)"
MOST_SHOWN: Final = 150
"""The maximum number of errors, unknown fields and warnings shown for a document: no one reads more, and locating their lines takes time."""
_SHOWN: Final = 80
_SEARCHED: Final = 1000
"""The longest text that is searched for secrets, so that its beginning can be shown."""
_NAME: Final = 253
_QUOTED: Final = Pattern(r'"(?:[^"\\]|\\.)*"')
_SUGGESTIONS: Final = 50
"""How many unknown fields get a suggestion: comparing names costs about a millisecond each."""


@dataclass()
class Findings:
    """Everything wrong with one document, in the order of the walk.

    `errors` make the document unusable; `surplus` are unknown and repeated fields, which the caller may turn into
    warnings; `warnings` have no effect.
    `locate` converts a field path into the name, line and column of the document; it also gets the invalid value, which
    may be one entry of the field. `is_cut`: there are more findings than are shown. `hint` returns the remedy for an
    unknown field, given its path and the sibling that was probably meant.
    """

    locate: Callable[[FieldPath, object], str] = lambda _path, _value: ""
    hint: Callable[[FieldPath, str], str] = lambda _path, meant: f'did you mean "{meant}"?' if meant else ""
    errors: list[FieldError] = field(default_factory=list)
    surplus: list[FieldError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    is_cut: bool = False

    @property
    def has_enough_errors(self) -> bool:
        """Whether further errors would not be shown."""
        return len(self.errors) >= MOST_SHOWN

    @property
    def has_enough_warnings(self) -> bool:
        """Whether further warnings would not be shown."""
        return len(self.warnings) >= MOST_SHOWN

    @property
    def root(self) -> Place:
        """The place where the walk starts."""
        return Place(FieldPath(), self)


@dataclass(frozen=True)
class Place:
    """One point of the walk."""

    path: FieldPath
    findings: Findings

    def __truediv__(self, name: str) -> Place:
        """Step into a named field."""
        return Place(self.path / name, self.findings)

    def __getitem__(self, index: int) -> Place:
        """Step into a list element."""
        return Place(self.path[index], self.findings)

    def key(self, name: str) -> Place:
        """Step into a map entry."""
        return Place(self.path.key(name if len(name) <= _NAME else f"{name[:_NAME]}…"), self.findings)

    def wrong_type(self, expected: str, found: object, *, hide: bool = False) -> None:
        """Record that a value's type differs from its field's; `hide`: it may be a secret."""
        self._error(FieldErrorType.TYPE, f"expected {expected}, found {type_name(found)}", HIDDEN if hide else shown(found))

    def invalid(self, reason: str, found: object) -> None:
        """Record a value of the right type that is invalid for its field."""
        self._error(FieldErrorType.INVALID, reason, found if found == HIDDEN else shown(found))

    def unknown(self, name: str, *, known: Iterable[str]) -> None:
        """Record an unknown field, with its replacement or the field that was probably meant."""
        if len(self.findings.surplus) >= MOST_SHOWN:
            self.findings.is_cut = True
            return
        path = self.path / (name if len(name) <= _NAME else f"{name[:_NAME]}…")
        reason = self.findings.hint(path, closest(name, known)) if len(self.findings.surplus) < _SUGGESTIONS else ""
        self._surplus(path, FieldErrorType.UNKNOWN, reason)

    def repeated(self) -> None:
        """Record a field that is given more than once."""
        self._surplus(self.path, FieldErrorType.DUPLICATE, "the field is given more than once")

    def required(self, reason: str) -> None:
        """Record a missing value."""
        self._error(FieldErrorType.REQUIRED, reason, None)

    def warn(self, text: str) -> None:
        """Record a warning."""
        if not self.findings.has_enough_warnings:
            self.findings.warnings.append(text)

    def warn_about(self, reason: str, found: object = None) -> None:
        """Record a warning about this value, with its place."""
        if self.findings.has_enough_warnings:
            return
        reason, where = shortened(reason), self.findings.locate(self.path, found)
        self.warn(f"{where}: {self.path}: {reason}" if where else f"{self.path}: {reason}")

    def _error(self, kind: FieldErrorType, reason: str, value: object) -> None:
        if self.findings.has_enough_errors:
            self.findings.is_cut = True
            return
        source = self.findings.locate(self.path, value)
        self.findings.errors.append(FieldError(path=self.path, type=kind, reason=_masked(shortened(reason)), value=value, source=source))

    def _surplus(self, path: FieldPath, kind: FieldErrorType, reason: str) -> None:
        value = path.text.rpartition(".")[2] if kind is FieldErrorType.DUPLICATE else None
        error = FieldError(path=path, type=kind, reason=reason, value=value, source=self.findings.locate(path, None))
        self.findings.surplus.append(error)


def type_name(value: object) -> str:
    """Return the JSON type of a value for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, Mapping):
        return "a map"
    return "a list" if isinstance(value, list | tuple) else "something else"


def shown(value: object) -> object:
    """Return the part of a value that errors show: a scalar, masked and shortened if it is long; of maps and lists only the type."""
    if isinstance(value, str) and len(value) > _SEARCHED:
        return f"a string of {len(value)} characters"
    if isinstance(value, str):
        value = _masked(value)
        return value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"
    return value if value is None or isinstance(value, bool | int | float) else type_name(value)


def shortened(reason: str) -> str:
    """Return a message about a value, which may quote all of it: if it is long, masked, shortened, and without the long texts in it."""
    if len(reason) <= _SEARCHED:
        return reason
    plain = _QUOTED.sub(lambda found: found[0] if len(found[0]) <= _SHOWN else f"a string of {len(found[0]) - 2} characters", reason)
    return _masked(plain[: 2 * _SEARCHED])[:_SEARCHED]  # a word that is cut at the end of the searched part is not shown


def _masked(text: str) -> str:
    return mask(text)


def related(one: FieldPath, other: FieldPath) -> bool:
    """Return whether two paths are equal, or one is a prefix of the other."""
    shorter, longer = sorted((one.text, other.text), key=len)
    return not shorter or longer == shorter or longer.startswith((f"{shorter}.", f"{shorter}["))
