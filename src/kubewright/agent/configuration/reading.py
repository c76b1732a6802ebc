"""Read the kubelet's flags and files into one KubeletConfiguration.

Sources: kubelet v1.36, cmd/kubelet/app/server.go; kubelet.config.k8s.io/v1beta1. `--config` comes first, with its
defaults; then the drop-ins, each a JSON merge patch (RFC 7396: maps are merged, lists replaced, null deletes); then
flags, each of which replaces its field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kubewright.agent.configuration import fields
from kubewright.agent.configuration.flags import FLAGS, KubeletFlag, reason_ignored
from kubewright.agent.status.pressures import HARD_EVICTION, threshold_errors
from kubewright.apis import kubelet_rules
from kubewright.apis.components import ValueRule, value_at
from kubewright.apis.findings import Findings
from kubewright.apis.kubelet import API_VERSION, KIND, KUBELET
from kubewright.base.errors import DocumentError, UsageError, ValidationError
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.base.messages import quoted
from kubewright.base.quantity import Quantity
from kubewright.base.records import dataclass
from kubewright.base.yaml import Document

_EVICTION: Final = ("evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim")
_HARD: Final = "evictionHard"
_UPDATE: Final = "nodeStatusUpdateFrequency"
_REPORT: Final = "nodeStatusReportFrequency"
_OFTEN: Final[Mapping[str, str]] = {_UPDATE: "10s", _REPORT: "5m0s"}
_DEFAULTS: Final[Mapping[str, object]] = {
    "evictionPressureTransitionPeriod": "5m0s",
    "healthzBindAddress": "127.0.0.1",
    "maxPods": 110,
    "nodeLeaseDurationSeconds": 40,
    **_OFTEN,
    "port": 10250,
    "runtimeRequestTimeout": "2m0s",
}
"""The meaning of a zero value in a file. A zero given by a flag means zero."""
_RESERVABLE: Final = ("cpu", "memory", "ephemeral-storage", "pid")
"""What systemReserved and kubeReserved may contain (kubelet v1.36: cmd/kubelet/app/server.go, parseResourceList)."""
_LASTING: Final = (_UPDATE, "runtimeRequestTimeout")
"""Intervals for which the agent refuses values that would make it spin, or time out every call.

A kubelet accepts them.
"""
_META: Final = ("apiVersion", "kind")
_BY_NAME: Final = {flag.name: flag for flag in FLAGS}


@dataclass(frozen=True, kw_only=True)
class AgentConfiguration:
    """The result of reading files and flags.

    `kubelet` has every field, decoded; `notes` say what is ignored and why, one line per reason.
    """

    kubelet: Mapping[str, Any]
    notes: Sequence[str] = ()


def read(config: Document | None, flags: Mapping[str, object], *, drop_ins: Sequence[Document] = ()) -> AgentConfiguration:
    """Read all sources.

    These are the document of `--config`, those of `--config-dir` in their order, and the values of the flags that were
    given, by name.

    Raises DocumentError for a file of the wrong kind, UsageError for a flag that cannot be read, ValidationError for
    all fields that are wrong or refused.
    """
    merged = with_defaults(_content(config)) if config is not None else {}
    if drop_ins:
        merged = {**_OFTEN, **merged}
    for document in drop_ins:
        merged = _merged(merged, _content(document))
    if config is not None or drop_ins:
        merged = _settled(merged, hard_is_given=config is not None)
    merged |= {name: value for name, value in _DEFAULTS.items() if not _is_set(merged.get(name))}
    given = [_BY_NAME[name] for name in flags if name in _BY_NAME]
    for flag in given:
        if flag.field and not reason_ignored(flag):
            _put(merged, flag.field.split("."), _VALUES.get(flag.kind, _plain)(flag, flags[flag.name]))
    documents = [*([config] if config is not None else []), *drop_ins]
    findings = Findings(locate=_locator(documents))
    found = dict(KUBELET.decode(merged, findings.root))
    if errors := [*findings.errors, *_errors(found)]:
        raise ValidationError("the configuration of the kubelet is not valid", errors, remedy="correct the fields named above")
    return AgentConfiguration(kubelet=found, notes=(*map(str, findings.surplus), *_notes(merged, given)))


def with_defaults(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return `--config` with the defaults that depend on other fields.

    The kubelet applies them before it looks at drop-ins.
    """
    found = _reporting(content)
    hard = found.get(_HARD)
    if hard is None:
        found[_HARD] = dict(HARD_EVICTION)
    elif found.get("mergeDefaultEvictionSettings") is True and isinstance(hard, Mapping):
        found[_HARD] = {**HARD_EVICTION, **hard}
    return found


def _settled(merged: Mapping[str, Any], *, hard_is_given: bool) -> dict[str, Any]:
    """Apply the kubelet's values for fields that drop-ins have deleted."""
    found = _reporting(merged)
    if hard_is_given and found.get(_HARD) is None:
        found[_HARD] = {}
    return found


def _reporting(content: Mapping[str, Any]) -> dict[str, Any]:
    """If only nodeStatusUpdateFrequency is configured, nodeStatusReportFrequency follows it."""
    if _is_set(content.get(_REPORT)):
        return dict(content)
    return {**content, _REPORT: content[_UPDATE] if _is_set(content.get(_UPDATE)) else _OFTEN[_REPORT]}


def _content(document: Document) -> Mapping[str, Any]:
    found = document.value
    if not isinstance(found, Mapping) or (found.get("apiVersion"), found.get("kind")) != (API_VERSION, KIND):
        raise DocumentError(f"{document.where()} is not a {KIND}", remedy=f"begin it with apiVersion: {API_VERSION} and kind: {KIND}")
    return {name: value for name, value in found.items() if name not in _META}


def _locator(documents: Sequence[Document]) -> Callable[[FieldPath, object], str]:
    """Return a function that names the file of a field: the last one that sets it."""

    def locate(path: FieldPath, _: object) -> str:
        holders = [document for document in documents if document.at(path.text) is not None]
        return holders[-1].where(path.text) if holders else ""

    return locate


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a JSON merge patch."""
    found = {name: value for name, value in below.items() if above.get(name, value) is not None}
    for name, value in above.items():
        if isinstance(value, Mapping):
            under = found.get(name)
            found[name] = _merged(under if isinstance(under, Mapping) else {}, value)
        elif value is not None:
            found[name] = value
    return found


def _put(target: dict[str, Any], path: Sequence[str], value: object) -> None:
    *parents, name = path
    for parent in parents:
        target[parent] = dict(target.get(parent) or {})
        target = target[parent]
    target[name] = value


def _errors(found: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield what is refused: fields that must be empty, values that the kubelet refuses for honoured fields, and thresholds."""
    for name, reason in fields.REFUSED.items():
        if found[name]:
            yield FieldError(path=FieldPath(name), type=FieldErrorType.FORBIDDEN, reason=reason)
    for row in kubelet_rules.ROWS:
        if row.path in fields.HONOURED and (problem := _problem(row, found)):
            yield FieldError(path=FieldPath(row.path), type=FieldErrorType.INVALID, value=value_at(found, row.path), reason=problem)
    for taint, problem in kubelet_rules.taints(found):
        yield FieldError(path=FieldPath(taint), type=FieldErrorType.INVALID, reason=problem)
    for name in ("systemReserved", "kubeReserved"):
        for resource, text in (found[name] or {}).items():
            path = FieldPath(name).key(resource)
            if resource not in _RESERVABLE:
                yield FieldError(
                    path=path, type=FieldErrorType.UNSUPPORTED, value=resource, reason=f"must be one of {', '.join(_RESERVABLE)}"
                )
            elif problem := _amount_problem(text):
                yield FieldError(path=path, type=FieldErrorType.INVALID, value=text, reason=problem)
    if not found["port"]:
        yield FieldError(path=FieldPath("port"), type=FieldErrorType.INVALID, value=0, reason="must be between 1 and 65535")
    for name in _LASTING:
        if found[name].seconds <= 0:
            yield FieldError(path=FieldPath(name), type=FieldErrorType.INVALID, value=str(found[name]), reason="must be more than 0")
    yield from threshold_errors({name: found[name] or {} for name in _EVICTION})


def _problem(row: ValueRule, found: Mapping[str, Any]) -> str:
    value = value_at(found, row.path)
    return row.check(value) if value is not None and (row.zero or value not in ("", 0, (), {})) else ""


def _amount_problem(text: str) -> str:
    try:
        return "" if Quantity.parse(text).nanos >= 0 else "must not be negative"
    except ValueError as error:
        return str(error)


def _is_set(value: object) -> bool:
    return value not in (None, "", 0, False, [], {}, "0s")


def _notes(merged: Mapping[str, Any], given: Iterable[KubeletFlag]) -> Iterator[str]:
    """Return what is ignored, one line per reason."""
    by_reason: dict[str, list[str]] = {}
    for name, value in merged.items():
        if name in fields.IGNORED and _is_set(value):
            by_reason.setdefault(fields.IGNORED[name], []).append(name)
    for flag in given:
        if reason := reason_ignored(flag):
            by_reason.setdefault(reason, []).append(f"--{flag.name}")
    for reason, names in by_reason.items():
        yield f"ignored, because {reason}: {', '.join(names)}"


def _plain(_: KubeletFlag, value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _pairs(flag: KubeletFlag, value: object, separator: str = "=") -> dict[str, str]:
    """Parse `name=value,…` as the parser split it.

    Empty parts are dropped; without a pair the result is an empty map.
    """
    found = {}
    for part in filter(None, value if isinstance(value, tuple) else ()):
        name, sign, text = part.partition(separator)
        if not sign:
            raise UsageError(f"--{flag.name}: {quoted(part)} is not a pair", remedy=f"write name{separator}value,…")
        found[name.strip()] = text.strip()
    return found


def _less(flag: KubeletFlag, value: object) -> dict[str, str]:
    return _pairs(flag, value, "<")


def _taints(flag: KubeletFlag, value: object) -> list[dict[str, str]]:
    """Parse `key=value:effect`; the value and its `=` may be omitted.

    A trailing `-` removes a taint, and is dropped because there are none yet.
    """
    found: list[dict[str, str]] = []
    for text in str(value).split(",") if value else ():
        if text.endswith("-"):
            continue
        head, colon, effect = text.rpartition(":")
        key, _, own = head.partition("=")
        if not colon or not key:
            raise UsageError(
                f"--{flag.name}: {quoted(text)} is not a taint", remedy="write key=value:effect, such as example.com/only=x:NoSchedule"
            )
        if any((one["key"], one["effect"]) == (key, effect) for one in found):
            raise UsageError(f"--{flag.name}: {key} has the effect {effect} twice", remedy="use each key with an effect once")
        found.append({"key": key, "value": own, "effect": effect})
    return found


_VALUES: Final[Mapping[str, Callable[[KubeletFlag, object], object]]] = {"pairs": _pairs, "less": _less, "taints": _taints}
"""How a flag's values become a field's value, by the flag's kind; other kinds are used as they are."""
