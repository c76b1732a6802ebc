"""API structs as tables of fields, and the one walker that reads and writes all of them.

A field has the name it has in JSON, a kind, and Go's `omitempty`. `Struct` reads into a record, `Plain` into a map of the same
shape as the Go struct, zero values included. Upstream rules mirrored: encoding/json as sigs.k8s.io/json uses it (names are
case-sensitive; null is the zero value; `omitempty` leaves out "", 0, false, null, empty lists and maps, but never a struct).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from kubewright.apis.findings import Place
from kubewright.apis.scalars import Kind
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass

T = TypeVar("T")
_HUMP: Final = Pattern(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True)
class Field:
    """One field. `attribute` is its name in the record, by default the JSON name in snake case."""

    name: str
    kind: Kind
    attribute: str = ""
    keep: bool = False
    """Written even when empty: Go's tag has no `omitempty`."""

    @property
    def target(self) -> str:
        """The attribute that the field is read into."""
        return self.attribute or _HUMP.sub("_", self.name).lower()


Fields = Sequence[Field]


class Pointer(Kind):
    """A Go pointer: None is null or not given; a zero value that is given is kept and written."""

    def __init__(self, inner: Kind) -> None:
        self.inner = inner

    def read(self, value: Any, at: Place) -> Any:
        before = len(at.findings.errors)
        found = self.inner.decode(value, at)
        return found if len(at.findings.errors) == before else None

    def encode(self, value: Any) -> Any:
        return None if value is None else self.inner.encode(value)


class List(Kind):
    """A Go slice: None is null or not given."""

    expected = "a list"
    holds_others = True

    def __init__(self, inner: Kind) -> None:
        self.inner = inner

    def read(self, value: Any, at: Place) -> Any:
        if not isinstance(value, list | tuple):
            return super().read(value, at)
        return tuple(self.inner.decode(element, at[index]) for index, element in enumerate(value))

    def encode(self, value: Any) -> Any:
        return None if value is None else [self.inner.encode(element) for element in value]

    def empty(self, value: Any) -> bool:
        return not value


class Map(Kind):
    """A Go map with string keys: None is null or not given."""

    expected = "a map"
    holds_others = True

    def __init__(self, inner: Kind) -> None:
        self.inner = inner

    def read(self, value: Any, at: Place) -> Any:
        if not isinstance(value, Mapping):
            return super().read(value, at)
        return {str(name): self.inner.decode(element, at.key(str(name))) for name, element in value.items()}

    def encode(self, value: Any) -> Any:
        return None if value is None else {name: self.inner.encode(element) for name, element in value.items()}

    def empty(self, value: Any) -> bool:
        return not value


class _Object(Kind):
    expected = "a map"
    is_struct = True

    def __init__(self, fields: Fields) -> None:
        self.fields = tuple(fields)
        self._by_name = {field.name: field for field in self.fields}

    def _walk(self, value: Any, at: Place) -> dict[str, Any]:
        """Return the fields that are given, by JSON name; note the unknown ones."""
        if not isinstance(value, Mapping):
            at.wrong_type(self.expected, value, hide=True)
            return {}
        known: dict[str, Any] = {}
        for name, element in value.items():
            field = self._by_name.get(name)
            if field is None:
                at.unknown(str(name), known=self._by_name)
            else:
                known[name] = field.kind.decode(element, at / name)
        return known


class Struct(_Object, Generic[T]):
    """A Go struct that is read into a record. Fields that are not given keep the Struct's own default."""

    def __init__(self, make: type[T], fields: Fields) -> None:
        super().__init__(fields)
        self.make = make

    def read(self, value: Any, at: Place) -> T:
        found = self._walk(value, at)
        given = {field.target: found[field.name] for field in self.fields if field.name in found}
        kinds = {field.target: field.kind for field in self.fields}
        return self.make(**{target: element for target, element in given.items() if not kinds[target].unset(element)})

    def zero(self) -> T:
        return self.make()

    def encode(self, value: Any) -> dict[str, Any]:
        pairs = ((field, getattr(value, field.target)) for field in self.fields)
        return {field.name: field.kind.encode(element) for field, element in pairs if field.keep or not field.kind.empty(element)}


class Plain(_Object):
    """A Go struct that is read into a map with all its fields, zero values included."""

    def read(self, value: Any, at: Place) -> dict[str, Any]:
        return {**self.zero(), **self._walk(value, at)}

    def zero(self) -> dict[str, Any]:
        return {field.name: field.kind.zero() for field in self.fields}

    def encode(self, value: Any) -> dict[str, Any]:
        pairs = ((field, value[field.name]) for field in self.fields)
        return {field.name: field.kind.encode(element) for field, element in pairs if field.keep or not field.kind.empty(element)}


class Normalised(Kind):
    """A struct of somebody else's API that is kept as JSON, in the form that Go would write."""

    is_struct = True

    def __init__(self, plain: Plain) -> None:
        self._plain = plain

    def read(self, value: Any, at: Place) -> Any:
        return self._plain.encode(self._plain.decode(value, at))

    def zero(self) -> dict[str, Any]:
        return self._plain.encode(self._plain.zero())


class Only(Kind):
    """A pointer to a struct with a single string field that is kept as that string; the empty string is no struct at all."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self._plain = Plain([field])

    def read(self, value: Any, at: Place) -> str:
        return str(self._plain.decode(value, at)[self.field.name])

    def encode(self, value: Any) -> dict[str, Any]:
        return {self.field.name: value}

    def zero(self) -> str:
        return ""
