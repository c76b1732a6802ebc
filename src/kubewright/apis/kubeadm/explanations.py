"""Explanations of the fields of the configuration kinds: type, default, version, meaning; and replacements for unknown fields.

They are derived from the tables that decode the fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubewright.apis import kubelet, kubeproxy
from kubewright.apis.kubeadm import node_types, removed, types
from kubewright.apis.scalars import Kind
from kubewright.apis.schema import Field, List, Map, Only, Plain, Pointer, Struct
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass

ROOTS: Final[Mapping[str, Struct[Any]]] = {
    struct.make.__name__: struct for struct in (types.INIT, types.CLUSTER, node_types.JOIN, node_types.RESET, node_types.UPGRADE)
}
COMPONENTS: Final[Mapping[str, Plain]] = {kubelet.KIND: kubelet.KUBELET, kubeproxy.KIND: kubeproxy.KUBE_PROXY}
KINDS: Final = (*ROOTS, *COMPONENTS)
"""All kinds whose fields can be explained."""

_OLDER: Final = "v1beta1 or before"
_OF_V1BETA1: Final = ("InitConfiguration", "ClusterConfiguration", "JoinConfiguration")
_ALWAYS: Final = "Kubernetes 1.18 or before"
_INDEX: Final = Pattern(r"\[[^\]]*\]")
_NUMBER: Final = Pattern(r"\d+")

_MOST: Final = 3
"""If more fields than this have a name, it is not sufficient for a suggestion."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The explanation of a field. `children` are those of the fields below it."""

    kind: str
    path: str
    type: str
    default: str
    since: str
    meaning: str
    children: tuple[str, ...] = ()


def explain(text: str) -> list[Explanation]:
    """Explain a field in all kinds that have it: `etcd.local.dataDir`, or in one kind: `ClusterConfiguration.etcd`. [] if there is none.

    Indexes may be omitted and are ignored. A kind alone stands for its top-level fields; the end of a path finds all
    matching fields.
    """
    wanted = _INDEX.sub("", text).strip(".")
    head, _, rest = wanted.partition(".")
    if head in KINDS:
        return [found for found in every(head) if (found.path == rest if rest else "." not in found.path)]
    exact = [found for kind in KINDS for found in every(kind) if found.path == wanted]
    return exact or [found for kind in KINDS for found in every(kind) if found.path.endswith(f".{wanted}")]


def every(kind: str) -> Iterator[Explanation]:
    """Explain all fields of a kind, in the order of its table."""
    if kind in COMPONENTS:
        return _below(kind, COMPONENTS[kind], "", _ALWAYS)
    return _below(kind, ROOTS[kind], "", _OLDER if kind in _OF_V1BETA1 else types.V1BETA4)


def _below(kind: str, struct: Struct[Any] | Plain, prefix: str, oldest: str) -> Iterator[Explanation]:
    """Explain the fields of a struct and those below them.

    A field is at least as new as its parent, which was added in `oldest`.
    """
    record = struct.make() if isinstance(struct, Struct) else None
    for field in struct.fields:
        path, inner = f"{prefix}{field.name}", _struct_of(field.kind)
        since = max(oldest, _version(field.since), key=_numbers)
        yield Explanation(
            kind=kind,
            path=path,
            type=_type(field.kind),
            default=field.default or ("" if inner or record is None else _default(field, record)),
            since=since,
            meaning=field.meaning,
            children=tuple(child.name for child in inner.fields) if inner else (),
        )
        if inner:
            yield from _below(kind, inner, f"{path}.", since)


def _version(since: str) -> str:
    """Format a version; tables of components have only its numbers."""
    return f"Kubernetes {since}" if since[:1].isdigit() else since


def _numbers(since: str) -> list[int]:
    return list(map(int, _NUMBER.findall(since)))


def _struct_of(kind: Kind) -> Struct[Any] | Plain | None:
    if isinstance(kind, Pointer | List | Map | Only):
        return _struct_of(kind.inner)
    return kind if isinstance(kind, Struct | Plain) else None


def _type(kind: Kind) -> str:
    if isinstance(kind, Pointer):
        return _type(kind.inner)
    if isinstance(kind, List):
        return f"list of {_type(kind.inner)}"
    if isinstance(kind, Map):
        return f"map to {_type(kind.inner)}"
    return kind.expected.removeprefix("a ").removeprefix("an ") or "map"


def _default(field: Field, record: object) -> str:
    """Format the default in a record; '' for none."""
    value = getattr(record, field.attribute)
    if value is None:
        return ""
    encoded = field.kind.encode(value)
    if isinstance(encoded, bool):
        return "true" if encoded else "false"
    if isinstance(encoded, list):
        return ", ".join(map(str, encoded))
    return "" if isinstance(encoded, dict) else str(encoded)


def unknown_field(kind: str, path: str, meant: str) -> str:
    """Return the reason of an error; `meant` is the sibling with the nearest name, or ''.

    The document may be of a version without the field.
    """
    plain = _INDEX.sub("", path)
    later = next((found.since for found in every(kind) if found.path == plain), "")
    if later:
        return f"it exists since {later}"
    gone = removed.field_hint(plain, component=kind in COMPONENTS)
    if gone or meant:
        return gone or f'did you mean "{meant}"?'
    return _elsewhere(kind, plain.rpartition(".")[2])


def _elsewhere(kind: str, name: str) -> str:
    """Return where a name exists: in the same kind, or else in others."""
    places = _paths(kind, name)
    if not places:
        elsewhere = [(path, other) for other in KINDS if other != kind for path in _paths(other, name)]
        at_the_top = [(path, other) for path, other in elsewhere if "." not in path]
        places = [f"{path} of {other}" for path, other in at_the_top or elsewhere]
    return f"did you mean {' or '.join(places)}?" if 0 < len(places) <= _MOST else ""


def _paths(kind: str, name: str) -> list[str]:
    return [field.path for field in every(kind) if field.path.rpartition(".")[2] == name]
