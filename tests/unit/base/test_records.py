"""Records behave like the standard library's data classes, as far as they go: both make the same class."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base import records


@records.dataclass(frozen=True, kw_only=True)
class Point:
    x: int
    y: int = 0
    tags: dict[str, str] = records.field(default_factory=dict, compare=False, repr=False)
    KIND: ClassVar[str] = "point"


@records.dataclass(frozen=True)
class Line:
    start: Point
    end: Point | None = None
    names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class StandardPoint:
    x: int
    y: int = 0
    tags: dict[str, str] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    KIND: ClassVar[str] = "point"


arguments = st.fixed_dictionaries({"x": st.integers()}, optional={"y": st.integers(), "tags": st.just({"a": "b"})})


@given(arguments, arguments)
def test_a_record_behaves_like_a_data_class(one: dict[str, Any], other: dict[str, Any]):
    mine, theirs = Point(**one), StandardPoint(**one)
    assert repr(mine) == repr(theirs).removeprefix("Standard")
    assert (mine == Point(**other)) == (theirs == StandardPoint(**other))
    assert hash(mine) == hash(theirs)
    assert records.asdict(mine) == dataclasses.asdict(theirs)
    changed = records.replace(mine, **other)
    assert records.asdict(changed) == dataclasses.asdict(dataclasses.replace(theirs, **other))
    assert copy.deepcopy(mine) == mine
    assert pickle.loads(pickle.dumps(mine)) == mine


def test_fields_keep_their_order_and_other_attributes_are_left_out():
    assert [field.name for field in records.fields(Point)] == ["x", "y", "tags"]
    assert [field.type for field in records.fields(Point(x=1))] == ["int", "int", "dict[str, str]"]


def test_every_record_has_its_own_value_of_a_factory():
    assert Point(x=1).tags is not Point(x=1).tags


def test_records_inside_of_records_become_maps_too():
    line = Line(Point(x=1), names=("a",))
    assert records.asdict(line) == {"start": {"x": 1, "y": 0, "tags": {}}, "end": None, "names": ("a",)}
    assert records.shallow(line) == {"start": line.start, "end": None, "names": ("a",)}


@pytest.mark.parametrize(
    ("positional", "named", "words"),
    [
        ((), {}, r"Line\(\) needs start"),
        ((1, 2, 3, 4), {}, "takes 3 positional"),
        ((1,), {"start": 2}, "start twice"),
        ((1,), {"stop": 2}, r"Line\(\) has no stop"),
        ((), {"stop": 2}, "needs start and has no stop"),
    ],
)
def test_wrong_arguments_are_reported(positional, named, words):
    with pytest.raises(TypeError, match=words):
        Line(*positional, **named)


def test_only_keywords_are_accepted_if_the_class_says_so():
    with pytest.raises(TypeError, match="takes 0 positional"):
        Point(1)


def test_replace_refuses_unknown_fields():
    with pytest.raises(TypeError, match="has no z"):
        records.replace(Point(x=1), z=1)


def test_a_frozen_record_does_not_change():
    point = Point(x=1)
    with pytest.raises(records.FrozenInstanceError, match=r"Point\.x"):
        point.x = 2
    with pytest.raises(records.FrozenInstanceError, match=r"Point\.x"):
        del point.x
    assert point == Point(x=1)


def test_a_record_that_is_not_frozen_changes_and_has_no_hash():
    @records.dataclass()
    class Counter:
        count: int = 0

    counter = Counter()
    counter.count += 1
    assert counter == Counter(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)


def test_records_of_different_classes_are_not_equal():
    @records.dataclass(frozen=True, kw_only=True)
    class Other:
        x: int

    assert Other(x=1) != Point(x=1)


def test_records_without_equality_are_only_equal_to_themselves():
    @records.dataclass(frozen=True, eq=False)
    class Thing:
        x: int

    one = Thing(1)
    assert one == one  # noqa: PLR0124
    assert one != Thing(1)
    assert hash(one) == object.__hash__(one)


def test_fields_are_inherited_and_may_be_changed():
    @records.dataclass(frozen=True, kw_only=True)
    class Solid(Point):
        z: int = 0
        y: int = 5

    assert Solid(x=1) == Solid(x=1, y=5, z=0)
    assert [field.name for field in records.fields(Solid)] == ["x", "y", "tags", "z"]


def test_own_methods_of_the_class_stay_and_post_init_runs():
    @records.dataclass(frozen=True)
    class Even:
        value: int

        def __post_init__(self) -> None:
            if self.value % 2:
                raise ValueError(self.value)

        def __repr__(self) -> str:
            return "even"

    assert repr(Even(2)) == "even"
    for make in (lambda: Even(3), lambda: records.replace(Even(2), value=1)):
        with pytest.raises(ValueError, match=r"\d"):
            make()


def test_a_mutable_default_is_refused():
    with pytest.raises(ValueError, match="default_factory"):

        @records.dataclass()
        class Shared:
            values: list[int] = []  # noqa: RUF012


def test_positional_patterns_match():
    match Line(Point(x=1)):
        case Line(Point(x=found), end):
            assert (found, end) == (1, None)
