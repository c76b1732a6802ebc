"""How values of component documents are judged: rows of a path and a check, and rules about several fields.

kubeadm decodes these documents strictly and judges no value; the components do when they start, and refuse to. What they would refuse is
therefore a warning here. Only values that are given are looked at: components put their own defaults where a value is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubewright.apis import formats, subnets
from kubewright.apis.walking import Place, did_you_mean
from kubewright.base.durations import Duration
from kubewright.base.quoting import quoted

_CONSEQUENCE: Final = " (the component does not start with this)"

Check = Callable[[Any], str]
"""Gives the reason why a value is refused, or ''."""

Several = Callable[[Mapping[str, Any]], Iterator[tuple[str, str]]]
"""Gives path and reason of what is wrong between fields of a document."""


@dataclass(frozen=True)
class Row:
    """A dotted path, and what must hold for the value there."""

    path: str
    check: Check


def warn(kind: str, document: Mapping[str, Any], at: Place, *, rows: Sequence[Row], several: Sequence[Several]) -> None:
    """Warn about everything in a decoded document that its component would refuse."""
    for row in rows:
        value = value_at(document, row.path)
        reason = row.check(value) if value not in (None, "", 0, (), {}) else ""
        if reason:
            at.warn(f"{kind}: {row.path}: {reason}{_CONSEQUENCE}")
    for rule in several:
        for path, reason in rule(document):
            at.warn(f"{kind}: {path}: {reason}{_CONSEQUENCE}")


def value_at(document: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path; None where a part of it is null."""
    value: Any = document
    for name in path.split("."):
        value = None if value is None else value[name]
    return value


def rows_of(names: str, check: Check) -> tuple[Row, ...]:
    """Make a row with one check for each path in a text."""
    return tuple(Row(path, check) for path in names.split())


def within(low: float, high: float | None = None) -> Check:
    """Require a number of a range."""
    bounds = f"must lie between {low} and {high}" if high is not None else f"must be at least {low}"
    return lambda value: "" if value >= low and (high is None or value <= high) else f"{value} {bounds}"


def lasting(low: int, high: int | None = None) -> Check:
    """Require a duration of a range, in nanoseconds."""
    bounds = f"must lie between {Duration(low)} and {Duration(high)}" if high is not None else f"must be at least {Duration(low)}"
    return lambda value: "" if value >= low and (high is None or value <= high) else f"{value} {bounds}"


def one_of(*names: str) -> Check:
    """Require one of these texts."""
    return lambda value: "" if value in names else f"{quoted(value)} must be one of {', '.join(names)}{did_you_mean(value, names)}"


def each_of(*names: str) -> Check:
    """Require a list that holds these texts only, each once."""

    def check(values: Sequence[str]) -> str:
        wrong = [value for value in values if value not in names]
        if wrong:
            return f"{', '.join(map(quoted, wrong))} must be of {', '.join(names)}{did_you_mean(wrong[0], names)}"
        return "a value is given twice" if len(set(values)) != len(values) else ""

    return check


def address(value: str) -> str:
    """Require an IP address."""
    return "" if formats.address(value) is not None else f"{quoted(value)} must be an IP address"


def address_and_port(value: str) -> str:
    """Require `IP:port`."""
    try:
        host, port = formats.split_host_port(value)
    except ValueError:
        return f"{quoted(value)} must be an IP address and a port"
    return "" if formats.address(host) is not None and formats.is_port(port) else f"{quoted(value)} must be an IP address and a port"


def networks(values: Sequence[str]) -> str:
    """Require CIDRs."""
    for value in values:
        try:
            subnets.parse(value)
        except ValueError as error:
            return str(error)
    return ""


def absolute(value: str) -> str:
    """Require an absolute path."""
    return "" if value.startswith("/") else f"{quoted(value)} must be an absolute path"


def unset(_: object) -> str:
    """Require that a field is not given."""
    return "it is not supported any more"
