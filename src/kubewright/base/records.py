"""The part of the standard library's `dataclasses` that we use, for classes that take almost no time to create.

`dataclasses` generates and compiles up to seven functions for each class, which takes about 0.4 ms: a command that
imports a hundred classes would spend more time on this than on everything else. Here all classes share the same
functions, which look the fields up (docs/decisions/0011-records-without-generated-code.md). Not supported: slots,
order, InitVar, and fields that are not arguments. Annotations must be strings, as `from __future__ import
annotations` makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")

MISSING: Any = object()
"""Stands for a missing default."""
_SHAPE = "__record_shape__"


class FrozenInstanceError(AttributeError):
    """Raised on an attempt to change an attribute of a frozen value."""


class Field:
    """One field of a class, or what `field` specifies before the class exists."""

    __slots__ = ("compare", "default", "default_factory", "kw_only", "name", "repr", "type")

    def __init__(self, *, default: Any, default_factory: Any, repr: bool, compare: bool, kw_only: bool) -> None:
        self.name = ""
        self.type = ""
        self.default = default
        self.default_factory = default_factory
        self.repr = repr
        self.compare = compare
        self.kw_only = kw_only


def field(
    *,
    default: Any = MISSING,
    default_factory: Callable[[], Any] = MISSING,
    repr: bool = True,
    compare: bool = True,
    kw_only: bool = False,
) -> Any:
    """Specify more about a field than its default."""
    return Field(default=default, default_factory=default_factory, repr=repr, compare=compare, kw_only=kw_only)


class _Shape:
    """The fields of a class, in the forms that its functions need."""

    __slots__ = ("compared", "defaults", "factories", "fields", "finish", "positional", "shown")

    def __init__(self, fields: Mapping[str, Field], *, finish: bool) -> None:
        self.fields = fields
        self.defaults = {name: one.default for name, one in fields.items() if one.default is not MISSING}
        self.factories = {name: one.default_factory for name, one in fields.items() if one.default_factory is not MISSING}
        self.positional = tuple(name for name, one in fields.items() if not one.kw_only)
        self.compared = tuple(name for name, one in fields.items() if one.compare)
        self.shown = tuple(name for name, one in fields.items() if one.repr)
        self.finish = finish


@dataclass_transform(field_specifiers=(field,))
def dataclass(*, frozen: bool = False, kw_only: bool = False, eq: bool = True) -> Callable[[type[T]], type[T]]:
    """Turn a class of annotated fields into a value class: constructor, repr, comparison and, if frozen, hash and immutability."""

    def make(cls: type[T]) -> type[T]:
        inherited = {name: one for base in reversed(cls.__mro__[1:]) for name, one in _fields_of(base).items()}
        shape = _Shape({**inherited, **_own_fields(cls, kw_only=kw_only)}, finish=hasattr(cls, "__post_init__"))
        setattr(cls, _SHAPE, shape)
        members: dict[str, Any] = {"__init__": _init, "__repr__": _repr, "__match_args__": shape.positional}
        if eq:
            members |= {"__eq__": _eq}
            members |= {"__hash__": _hash if frozen else None}
        if frozen:
            members |= {"__setattr__": _refuse_setting, "__delattr__": _refuse_deleting}
        for name, member in members.items():
            if name not in cls.__dict__:
                setattr(cls, name, member)
        return cls

    return make


def _fields_of(cls: type) -> Mapping[str, Field]:
    shape: _Shape | None = cls.__dict__.get(_SHAPE)
    return shape.fields if shape is not None else {}


def _own_fields(cls: type, *, kw_only: bool) -> dict[str, Field]:
    found = {}
    for name, annotation in cls.__annotations__.items():
        if annotation == "KW_ONLY":
            kw_only = True
        if annotation == "KW_ONLY" or annotation.startswith("ClassVar"):
            continue
        given = cls.__dict__.get(name, MISSING)
        one = given if isinstance(given, Field) else field(default=given)
        one.name, one.type, one.kw_only = name, annotation, one.kw_only or kw_only
        if one.default is not MISSING and type(one.default).__hash__ is None:
            raise ValueError(f"{cls.__name__}.{name}: a default that can change would be shared; use default_factory")
        if isinstance(given, Field):
            if one.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, one.default)
        found[name] = one
    return found


def _shape_of(value: Any) -> _Shape:
    found: _Shape = value.__record_shape__
    return found


def _init(self: Any, /, *positional: Any, **given: Any) -> None:
    shape: _Shape = self.__record_shape__
    values = self.__dict__
    values.update(shape.defaults)
    if positional:
        values.update(_by_name(self, shape, positional, given))
    values.update(given)
    for name, factory in shape.factories.items():
        if name not in values:
            values[name] = factory()
    if values.keys() != shape.fields.keys():
        raise TypeError(_complaint(self, shape))
    if shape.finish:
        self.__post_init__()


def _by_name(self: object, shape: _Shape, positional: tuple[Any, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    named = dict(zip(shape.positional, positional, strict=False))
    if len(positional) > len(shape.positional):
        raise TypeError(f"{type(self).__name__}() takes {len(shape.positional)} positional arguments, not {len(positional)}")
    if twice := named.keys() & given.keys():
        raise TypeError(f"{type(self).__name__}() was given {', '.join(sorted(twice))} twice")
    return named


def _complaint(self: object, shape: _Shape) -> str:
    missing = [name for name in shape.fields if name not in self.__dict__]
    unknown = [name for name in self.__dict__ if name not in shape.fields]
    parts = [f"needs {', '.join(missing)}"] if missing else []
    parts += [f"has no {', '.join(unknown)}"] if unknown else []
    return f"{type(self).__name__}() {' and '.join(parts)}"


def _compared(self: object, shape: _Shape) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in shape.compared])


def _eq(self: object, other: object) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    shape = _shape_of(self)
    return _compared(self, shape) == _compared(other, shape)


def _hash(self: object) -> int:
    return hash(_compared(self, _shape_of(self)))


def _repr(self: object) -> str:
    shown = [name + "=" + repr(getattr(self, name)) for name in _shape_of(self).shown]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_setting(self: object, name: str, _: Any) -> None:
    raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be set: it is frozen")


def _refuse_deleting(self: object, name: str) -> None:
    raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be deleted: it is frozen")


def replace(value: T, /, **changes: Any) -> T:
    """Return a copy with some fields changed. The constructor checks the names, and `__post_init__` runs."""
    return type(value)(**(shallow(value) | changes))


def fields(value: Any) -> tuple[Field, ...]:
    """Return the fields of a class, or of a value of it, in their order."""
    return tuple(_shape_of(value).fields.values())


def asdict(value: object) -> dict[str, Any]:
    """Return the fields as a map, recursively."""
    return {name: _plain(getattr(value, name)) for name in _shape_of(value).fields}


def _plain(value: Any) -> Any:
    if hasattr(type(value), _SHAPE):
        return asdict(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {_plain(name): _plain(one) for name, one in value.items()}
    import copy

    return copy.deepcopy(value)


def shallow(value: object) -> dict[str, Any]:
    """Return the fields as a map, not recursively."""
    return {name: getattr(value, name) for name in _shape_of(value).fields}
