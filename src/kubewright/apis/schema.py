"""API structs as tables of fields, and the one walker that decodes and encodes all of them.

A field has its JSON name, a kind, Go's `omitempty`, and its explanation for `config explain`. `Struct` decodes into a
record, whose class is the table: each attribute is created with `member`. `Plain` decodes into a map of the same shape
as the Go struct, including zero values. Upstream rules mirrored: encoding/json as sigs.k8s.io/json uses it (names are
case-sensitive; null is the zero value; `omitempty` omits "", 0, false, null, empty lists and maps, but never a struct).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, dataclass_transform

from kubewright.apis.findings import Place
from kubewright.apis.scalars import SCALARS, Kind
from kubewright.base import records
from kubewright.base.records import dataclass

T = TypeVar("T")


@dataclass(frozen=True)
class Field:
    """A field. `attribute` is its name in the record that a `Struct` decodes into."""

    name: str
    kind: Kind
    attribute: str = ""
    keep: bool = False
    """Written even when empty: Go's tag has no `omitempty`."""
    meaning: str = ""
    default: str = ""
    """The default to show if it depends on the machine or on other fields, or is not ours.

    Otherwise the record's default is shown.
    """
    since: str = ""
    """The version that added it; empty: it is as old as the struct that contains it."""


Fields = Sequence[Field]


class _Member(records.Field):
    """A field of a record that is also a field of documents."""

    __slots__ = ("row",)

    def __init__(self, *, default: Any, default_factory: Any, row: Callable[[str], Field]) -> None:
        super().__init__(default=default, default_factory=default_factory, repr=True, compare=True, kw_only=True)
        self.row = row


def member(
    kind: Kind,
    meaning: str,
    *,
    default: Any = records.MISSING,
    default_factory: Callable[[], Any] = records.MISSING,
    name: str = "",
    keep: bool = False,
    since: str = "",
    explained: str = "",
) -> Any:
    """Create an attribute of a struct that is a field of its documents: the only place for its properties.

    `name` is its name there, by default the attribute's in camel case. `explained` is the default to show if the value
    alone is not sufficient. The others as in `Field`.
    """

    def row(attribute: str) -> Field:
        return Field(name or camel_case(attribute), kind, attribute, keep, meaning, explained, since)

    return _Member(default=default, default_factory=default_factory, row=row)


@functools.cache
def camel_case(attribute: str) -> str:
    """Return the name of a JSON field for an attribute: `pod_cidr` becomes `podCidr`."""
    first, *others = attribute.split("_")
    return first + "".join(map(str.capitalize, others))


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(member, records.field))
def struct(cls: type[T]) -> type[T]:
    """Make a class a frozen record whose attributes may be created with `member`."""
    return dataclass(frozen=True, kw_only=True)(cls)


def members(make: type) -> tuple[Field, ...]:
    """Return the document fields of a class that `struct` created, in the order of its attributes, inherited ones first."""
    return tuple(one.row(one.name) for one in records.fields(make) if isinstance(one, _Member))


@functools.cache
def _attributes(make: type) -> Mapping[str, str]:
    return {field.name: field.attribute for field in members(make)}


def value_at(record: object, path: str) -> Any:
    """Return the value of a record at a dotted path of document names; the record for '', None below None.

    Raises KeyError.
    """
    value: Any = record
    for name in filter(None, path.split(".")):
        value = None if value is None else getattr(value, _attributes(value.__class__)[name])
    return value


class Pointer(Kind):
    """A Go pointer: None is null or not given; a given zero value is kept and written."""

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
        """Return the given fields by JSON name; record the unknown ones."""
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
    """A Go struct that is decoded into a record. Fields that are not given keep the record's own default.

    The fields are those of the class, or `fields` for another version of the API.
    """

    def __init__(self, make: type[T], fields: Fields | None = None) -> None:
        super().__init__(members(make) if fields is None else fields)
        self.make = make

    def read(self, value: Any, at: Place) -> T:
        found = self._walk(value, at)
        given = ((field, found[field.name]) for field in self.fields if field.name in found)
        return self.make(**{field.attribute: element for field, element in given if not field.kind.unset(element)})

    def zero(self) -> T:
        return self.make()

    def encode(self, value: Any) -> dict[str, Any]:
        pairs = ((field, getattr(value, field.attribute)) for field in self.fields)
        return {field.name: field.kind.encode(element) for field, element in pairs if field.keep or not field.kind.empty(element)}


class Plain(_Object):
    """A Go struct that is decoded into a map with all its fields, including zero values."""

    def read(self, value: Any, at: Place) -> dict[str, Any]:
        return {**self.zero(), **self._walk(value, at)}

    def zero(self) -> dict[str, Any]:
        return {field.name: field.kind.zero() for field in self.fields}

    def encode(self, value: Any) -> dict[str, Any]:
        pairs = ((field, value[field.name]) for field in self.fields)
        return {field.name: field.kind.encode(element) for field, element in pairs if field.keep or not field.kind.empty(element)}


def kind_of(type: str, named: Callable[[str], Kind]) -> Kind:
    """Parse a type in a table: `?` is a pointer, `[]` a list, `{}` a map; the rest is a name that `named` resolves."""
    for prefix, make in (("?", Pointer), ("[]", List), ("{}", Map)):
        if type.startswith(prefix):
            return make(kind_of(type.removeprefix(prefix), named))
    return named(type)


def table(rows: str, **structs: Plain) -> Plain:
    """Parse a table of fields. One line is one field: path | type | default | since | meaning.

    Types are those of `kind_of`, with the names of scalars and of `structs`; the fields of a `struct` follow below it
    in the same table. A `!` means that the field is written even when empty. An empty default is the zero value, an
    empty version that of the parent. Raises KeyError for unknown types.
    """
    below: dict[str, list[tuple[str, ...]]] = {}
    for line in rows.strip().splitlines():
        row = tuple(part.strip() for part in line.split("|", 4))
        below.setdefault(row[0].rpartition(".")[0], []).append(row)

    def plain(path: str) -> Plain:
        return Plain(tuple(field(*row) for row in below[path]))

    def field(path: str, type: str, default: str, since: str, meaning: str) -> Field:
        kind = kind_of(type.removesuffix("!"), lambda name: plain(path) if name == "struct" else structs.get(name) or SCALARS[name])
        return Field(path.rpartition(".")[2], kind, keep=type.endswith("!"), meaning=meaning, default=default, since=since)

    return plain("")


class Normalised(Kind):
    """A struct of another API that is kept as JSON, in the form that Go would write."""

    is_struct = True

    def __init__(self, plain: Plain) -> None:
        self._plain = plain

    def read(self, value: Any, at: Place) -> Any:
        return self._plain.encode(self._plain.decode(value, at))

    def zero(self) -> dict[str, Any]:
        return self._plain.encode(self._plain.zero())


class Only(Kind):
    """A pointer to a struct with a single string field that is kept as that string; the empty string means no struct."""

    def __init__(self, inner: Struct[Any]) -> None:
        self.inner = inner
        (self._field,) = inner.fields

    def read(self, value: Any, at: Place) -> str:
        return str(getattr(self.inner.decode(value, at), self._field.attribute))

    def encode(self, value: Any) -> dict[str, Any]:
        return {self._field.name: value}

    def zero(self) -> str:
        return ""
