"""The common parts of the components' configuration kinds: kubeadm's defaults, and the validation of values.

kubeadm decodes these documents strictly and validates no value; the components do when they start, and refuse to start.
What they would refuse is therefore a warning here. Only values that are given are checked: components replace empty
values with their own defaults.
"""

from __future__ import annotations

import copy
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kubewright.apis import formats
from kubewright.apis.findings import Place, did_you_mean, shortened
from kubewright.base.durations import Duration
from kubewright.base.fields import FieldPath
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.base.versions import OWN


@dataclass(frozen=True)
class Default:
    """A default that kubeadm sets in a field that the user left unset.

    Another value of the user's stays, with a warning if `warn`.
    """

    path: str
    value: Any
    warn: bool = True
    fill: bool = True


def fill(user: Mapping[str, Any], defaults: Iterable[Default], *, kind: str) -> tuple[dict[str, Any], list[str]]:
    """Return a decoded document with defaults filled in, and the warnings."""
    config, warnings = copy.deepcopy(dict(user)), []
    for default in defaults:
        *parents, name = default.path.split(".")
        target = config
        for parent in parents:
            target = target[parent]
        present = target[name]
        if default.fill and (present is None or present == ""):
            target[name] = default.value
        elif default.warn and present != default.value:
            warnings.append(f"{kind}: the recommended value for {default.path} is {_shown(default.value)}; {_shown(present)} is kept")
    return config, warnings


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) or "an empty list" if isinstance(value, tuple) else str(value)


_MAX_INT32: Final = (1 << 31) - 1
_CONSEQUENCE: Final = " (the component does not start with this)"

Check = Callable[[Any], str]
"""Returns the reason why a value is refused, or ''."""

Several = Callable[[Mapping[str, Any]], Iterator[tuple[str, str]]]
"""Yields path and reason of inconsistencies between fields of a document."""


@dataclass(frozen=True)
class ValueRule:
    """A dotted path, and the check of the value there.

    `zero`: 0 is checked too, because it does not mean the default.
    """

    path: str
    check: Check
    zero: bool = False


def warn(kind: str, document: Mapping[str, Any], at: Place, *, rows: Sequence[ValueRule], several: Sequence[Several]) -> None:
    """Warn about everything in a decoded document that its component would refuse."""
    for row in rows:
        value = value_at(document, row.path)
        given = value is not None and (row.zero or value not in ("", 0, (), {}))
        reason = row.check(value) if given else ""
        if reason:
            _note(kind, row.path, reason, at)
    for rule in several:
        for path, reason in rule(document):
            if at.findings.has_enough_warnings:
                return
            _note(kind, path, reason, at)


def _note(kind: str, path: str, reason: str, at: Place) -> None:
    where = at.findings.locate(FieldPath(path), None)
    at.warn(f"{where + ': ' if where else ''}{kind}: {path}: {shortened(reason)}{_CONSEQUENCE}")


def value_at(document: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path; None if a part of it is null."""
    value: Any = document
    for name in path.split("."):
        value = None if value is None else value[name]
    return value


def rows_of(names: str, check: Check, *, zero: bool = False) -> tuple[ValueRule, ...]:
    """Return a row with one check for each path in a text."""
    return tuple(ValueRule(path, check, zero) for path in names.split())


def within(low: float, high: float | None = None) -> Check:
    """Require a number within a range."""
    bounds = f"must be between {low} and {high}" if high is not None else f"must be at least {low}"
    return lambda value: "" if value >= low and (high is None or value <= high) else f"{value} {bounds}"


def lasting(low: int, high: int | None = None) -> Check:
    """Require a duration within a range, in nanoseconds."""
    bounds = f"must be between {Duration(low)} and {Duration(high)}" if high is not None else f"must be at least {Duration(low)}"
    return lambda value: "" if value >= low and (high is None or value <= high) else f"{value} {bounds}"


def one_of(*names: str) -> Check:
    """Require one of these texts."""
    return lambda value: "" if value in names else f"{quoted(value)} must be one of {', '.join(names)}{did_you_mean(value, names)}"


def each_of(*names: str) -> Check:
    """Require a list that contains only these texts, each once."""

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
            formats.subnets(value)
        except ValueError as error:
            return str(error)
    return ""


def absolute(value: str) -> str:
    """Require an absolute path."""
    return "" if value.startswith("/") else f"{quoted(value)} must be an absolute path"


def normalised(value: str) -> str:
    """Require an absolute path of ASCII characters, without empty parts, `.` and `..`."""
    if not value.isascii():
        return f"{quoted(value)} must contain ASCII characters only"
    return absolute(value) or (
        "" if posixpath.normpath(value) == value else f"{quoted(value)} must be written as {posixpath.normpath(value)}"
    )


def previous_minor(value: str) -> str:
    """Require the previous minor release of our own: metrics hidden in any other one cannot be shown."""
    wanted = f"{OWN.major}.{OWN.minor - 1}"
    return "" if value == wanted else f"{quoted(value)} must be {wanted}"


def log_rules(log: Mapping[str, Any], gates: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    """Check a `logging` section (component-base, logs/api/v1)."""
    frequency = log["flushFrequency"]
    if frequency < 0:
        yield "logging.flushFrequency", f"{frequency} must be greater than 0"
    if log["verbosity"] > _MAX_INT32:
        yield "logging.verbosity", f"{log['verbosity']} must be at most {_MAX_INT32}"
    if log["vmodule"] and log["format"] not in ("", "text"):
        yield "logging.vmodule", "it needs the format text"
    for index, item in enumerate(log["vmodule"] or ()):
        pattern = item["filePattern"]
        if not pattern or set("=,") & set(pattern):
            yield f"logging.vmodule[{index}].filePattern", f"{quoted(pattern)} must be a file's name without equal signs and commas"
    for name, options in log["options"].items():
        for option in ("splitStream", "infoBufferSize"):
            if options[option] not in (False, "0") and not gates.get("LoggingAlphaOptions", False):
                yield f"logging.options.{name}.{option}", "it needs the feature gate LoggingAlphaOptions"


def unset(_: object) -> str:
    """Require that a field is not given."""
    return "it is no longer supported"
