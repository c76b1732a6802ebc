"""What a field of the configuration kinds is: type, default, since when, meaning; and for one that does not exist: what became of it, what was meant.

Read from the tables that decode the fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubewright.apis import component_meanings, kubelet, kubeproxy
from kubewright.apis.kubeadm import fields, node_fields, removed
from kubewright.apis.kubeadm.meanings import MEANINGS, OLDER, SINCE
from kubewright.apis.kubeadm.node_types import Patches, UpgradeConfiguration
from kubewright.apis.kubelet_fields import KUBELET
from kubewright.apis.kubeproxy import KUBE_PROXY
from kubewright.apis.scalars import Kind
from kubewright.apis.schema import Field, Fields, List, Map, Only, Plain, Pointer, Struct
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass

ROOTS: Final[dict[str, Struct[Any]]] = {
    struct.make.__name__: struct for struct in (fields.INIT, fields.CLUSTER, node_fields.JOIN, node_fields.RESET, node_fields.UPGRADE)
}
COMPONENTS: Final = {
    kubelet.KIND: (KUBELET, component_meanings.KUBELET),
    kubeproxy.KIND: (KUBE_PROXY, component_meanings.KUBE_PROXY),
}
KINDS: Final = (*ROOTS, *COMPONENTS)
"""Every kind whose fields can be explained."""

_ALWAYS: Final = "Kubernetes 1.18 or before"
_INDEX: Final = Pattern(r"\[[^\]]*\]")
# Defaults that depend on the machine or on other fields, which the structs therefore do not hold.
_COMPUTED: Final = {
    "bootstrapTokens": "one random token",
    "bootstrapTokens.token": "random",
    "bootstrapTokens.ttl": "24h0m0s, unless expires is set",
    "nodeRegistration.name": "the host's name",
    "nodeRegistration.criSocket": "the socket that is found, else containerd's",
    "criSocket": "the socket that is found, else containerd's",
    "localAPIEndpoint.advertiseAddress": "the address of the default route",
    "controlPlane.localAPIEndpoint.advertiseAddress": "the address of the default route",
    "kubernetesVersion": "stable-1",
    "etcd.local": "given, unless external is",
    "etcd.external.httpEndpoints": "the endpoints",
    "discovery.tlsBootstrapToken": "bootstrapToken.token",
}


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One field. `children` are the fields below it."""

    kind: str
    path: str
    type: str
    default: str
    since: str
    meaning: str
    children: tuple[str, ...] = ()


def explain(text: str) -> list[Explanation]:
    """Explain a field of every kind that has it: `etcd.local.dataDir`, or one kind's: `ClusterConfiguration.etcd`. [] if there is none.

    Indexes are left out or ignored. A kind alone means its uppermost fields; the end of a path finds all fields that it fits.
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
        fields, meanings = COMPONENTS[kind]
        yield from _of_component(kind, fields, "", component_meanings.rows(meanings))
    else:
        yield from _below(kind, ROOTS[kind], "")


def _of_component(kind: str, struct: Plain, prefix: str, rows: Mapping[str, tuple[str, str, str]]) -> Iterator[Explanation]:
    for field in struct.fields:
        path, inner = f"{prefix}{field.name}", _plain_of(field.kind)
        default, since, meaning = rows[path]
        yield Explanation(
            kind=kind,
            path=path,
            type=_type(field.kind),
            default=default,
            since=f"Kubernetes {since}" if since else _ALWAYS,
            meaning=meaning,
            children=tuple(child.name for child in inner.fields) if inner else (),
        )
        if inner:
            yield from _of_component(kind, inner, f"{path}.", rows)


def _plain_of(kind: Kind) -> Plain | None:
    if isinstance(kind, Pointer | List | Map):
        return _plain_of(kind.inner)
    return kind if isinstance(kind, Plain) else None


def _below(kind: str, struct: Struct[Any], prefix: str, older: str = OLDER) -> Iterator[Explanation]:
    """Explain the fields of a struct and those below them. A field is no older than the one that holds it, which is `older`."""
    zero = struct.make()
    for field in struct.fields:
        path = f"{prefix}{field.name}"
        inner = Struct(Patches, _fields_of(field.kind)) if isinstance(field.kind, Only) else _struct_of(field.kind)
        since = SINCE.get(struct.make, {}).get(field.name, older)
        yield Explanation(
            kind=kind,
            path=path,
            type=_type(field.kind),
            default=_computed(kind, path) or _default(field, zero),
            since=since,
            meaning=MEANINGS[struct.make][field.name],
            children=tuple(child.name for child in _fields_of(field.kind)),
        )
        if inner:
            yield from _below(kind, inner, f"{path}.", since)


def _computed(kind: str, path: str) -> str:
    return _COMPUTED.get(path, "") if kind != UpgradeConfiguration.__name__ else ""


def _struct_of(kind: Kind) -> Struct[Any] | None:
    if isinstance(kind, Pointer | List | Map):
        return _struct_of(kind.inner)
    return kind if isinstance(kind, Struct) else None


def _fields_of(kind: Kind) -> Fields:
    if isinstance(kind, Only):
        return (kind.field,)
    inner = _struct_of(kind)
    return inner.fields if inner else ()


def _type(kind: Kind) -> str:
    if isinstance(kind, Pointer):
        return _type(kind.inner)
    if isinstance(kind, List):
        return f"list of {_type(kind.inner)}"
    if isinstance(kind, Map):
        return f"map to {_type(kind.inner)}"
    return kind.expected.removeprefix("a ").removeprefix("an ") or "map"


def _default(field: Field, zero: object) -> str:
    """Write the default that a struct holds; '' for none, and for what has fields of its own."""
    value = getattr(zero, field.target)
    if value is None or _fields_of(field.kind):
        return ""
    encoded = field.kind.encode(value)
    if isinstance(encoded, bool):
        return "true" if encoded else "false"
    if isinstance(encoded, list):
        return ", ".join(map(str, encoded))
    return "" if isinstance(encoded, dict) else str(encoded)


_MOST: Final = 3
"""A name that more fields than this have says too little about where it belongs."""


def unknown_field(kind: str, path: str, meant: str) -> str:
    """Return the reason of an error; `meant` is the sibling with the nearest name, or ''."""
    plain = _INDEX.sub("", path)
    gone = removed.field_hint(plain, component=kind in COMPONENTS)
    if gone or meant:
        return gone or f'did you mean "{meant}"?'
    return _elsewhere(kind, plain.rpartition(".")[2])


def _elsewhere(kind: str, name: str) -> str:
    """Say where a name belongs: in the same kind, else in others."""
    same = [found.path for found in every(kind) if found.path.rpartition(".")[2] == name]
    if same:
        return f"did you mean {' or '.join(same)}?" if len(same) <= _MOST else ""
    others = [(found.path, other) for other in KINDS if other != kind for found in every(other) if found.path.rpartition(".")[2] == name]
    others = [(path, other) for path, other in others if "." not in path] or others
    return f"did you mean {' or '.join(f'{path} of {other}' for path, other in others)}?" if 0 < len(others) <= _MOST else ""
