"""What the configuration kinds of the components have in common: shared structs of k8s.io/component-base, and how kubeadm defaults them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubewright.apis.amounts import AMOUNT
from kubewright.apis.scalars import FLAG, FLOAT32, INT32, LOG_SPAN, TEXT, UINT32, Kind
from kubewright.apis.schema import Field, List, Plain
from kubewright.base.records import dataclass

_ROUTING: Final = Plain((Field("splitStream", FLAG), Field("infoBufferSize", AMOUNT)))
_MODULE_LEVEL: Final = Plain((Field("filePattern", TEXT, keep=True), Field("verbosity", UINT32, keep=True)))

LOGGING: Final = Plain(
    (
        Field("format", TEXT),
        Field("flushFrequency", LOG_SPAN),
        Field("verbosity", UINT32, keep=True),
        Field("vmodule", List(_MODULE_LEVEL)),
        Field("options", Plain((Field("text", _ROUTING), Field("json", _ROUTING)))),
    ),
)
"""component-base logs/api/v1 LoggingConfiguration."""

CLIENT_CONNECTION: Final = Plain(
    (
        Field("kubeconfig", TEXT, keep=True),
        Field("acceptContentTypes", TEXT, keep=True),
        Field("contentType", TEXT, keep=True),
        Field("qps", FLOAT32, keep=True),
        Field("burst", INT32, keep=True),
    ),
)
"""component-base config/v1alpha1 ClientConnectionConfiguration."""


def fields_of(kind: Kind, names: str, *, keep: bool = False) -> tuple[Field, ...]:
    """Make a field of one kind for each name in a text."""
    return tuple(Field(name, kind, keep=keep) for name in names.split())


@dataclass(frozen=True)
class Default:
    """What kubeadm puts where a user left a field unset. Another value of the user's stays, with a warning if `warn`."""

    path: str
    value: Any
    warn: bool = True
    fill: bool = True


def fill(user: Mapping[str, Any], defaults: Iterable[Default], *, kind: str) -> tuple[dict[str, Any], list[str]]:
    """Return a decoded document with defaults put in, and the warnings."""
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
            warnings.append(f"{kind}: the recommended value for {default.path} is {_say(default.value)}; {_say(present)} is kept")
    return config, warnings


def _say(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) or "an empty list" if isinstance(value, tuple) else str(value)
