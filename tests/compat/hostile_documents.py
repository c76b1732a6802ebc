"""Documents below the size limit that are as expensive as possible: for each field of each kind, long, many, deep or odd values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

from kubewright.apis.kubeadm import older_versions
from kubewright.apis.kubeadm.explanations import COMPONENTS, ROOTS
from kubewright.apis.scalars import Kind
from kubewright.apis.schema import List, Map, Normalised, Only, Plain, Pointer, Struct

SIZES = (60_000, 700_000, 3_000_000)
PUMPS = (
    "a", "-", "0", "9", "9e", ".", "a.", "1.", ":", "0:", "/", "a/", ",", "1,", "10.0.0.0/8,", "%", "%25", "@", "://a:", "[", "{", '\\"', "'",
    " ", "\\n", "\\0", "é", "_", "=", "1h", "0.1s", "eyJ-", "eyJa.", "token: ", "abcdef.", "-----BEGIN PRIVATE KEY-----", "name: A_KEY ",
    "value: ", "*.", "system:bootstrappers:", "unix://", "sha256:", "ci/", "v1.36.", "latest-", "stable", "0-1,", "A", "…",
)  # fmt: skip
"""The parts of long texts: what various patterns begin with, or backtrack over."""

Make = Callable[[str, int], Iterator[str]]


def _fields(kind: Kind, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Kind]]:
    """Every field with its path; `[]` stands for an element of a list or map."""
    while isinstance(kind, Pointer | Normalised):
        kind = kind.inner if isinstance(kind, Pointer) else kind._plain
    if path:
        yield path, kind
    if isinstance(kind, List | Map):
        yield from _fields(kind.inner, (*path, "[]"))
    elif isinstance(kind, Struct | Plain):
        for field in kind.fields:
            yield from _fields(field.kind, (*path, field.name))
    elif isinstance(kind, Only):
        yield from (((*path, field.name), field.kind) for field in kind.inner.fields)


_OLD: dict[str, Kind] = dict(older_versions.kinds("v1beta3"))
_VERSIONS = {"KubeletConfiguration": "kubelet.config.k8s.io/v1beta1", "KubeProxyConfiguration": "kubeproxy.config.k8s.io/v1alpha1"}
PLACES: list[tuple[str, str, tuple[str, ...]]] = [
    (version, kind, path)
    for version, kinds in (("v1beta4", {**ROOTS, **COMPONENTS}), ("v1beta3", _OLD))
    for kind, root in kinds.items()
    for path, _ in _fields(root)
]
"""Version, kind and path of every field that is read."""


def _text(pump: str, size: int) -> str:
    return '"' + pump * (size // max(1, len(pump))) + '"'


def _values(pump: str, size: int) -> dict[str, str]:
    """Values of about this size, as flow YAML."""
    short = f'"{pump}"'
    many = size // (len(short) + 2)
    wide = size // 60
    return {
        "a text": _text(pump, size),
        "texts": f"[{', '.join([short] * many)}]",
        "other texts": f"[{', '.join(f'{chr(34)}{pump}{number}{chr(34)}' for number in range(size // (len(pump) + 10)))}]",
        "long texts": f"[{', '.join([_text(pump, 10_000)] * (size // 10_000))}]",
        "maps": f"[{', '.join(['{}'] * (size // 4))}]",
        "a map": "{" + ", ".join(f'"{pump}{number}": {short}' for number in range(size // (2 * len(pump) + 16))) + "}",
        "a map of switches": "{" + ", ".join(f'"{pump}{number}": true' for number in range(size // (len(pump) + 18))) + "}",
        "named": "["
        + ", ".join(f'{{name: "{pump}{number}", value: {short}, effect: {short}, pathType: {short}}}' for number in range(wide))
        + "]",
        "nested": "[" * 150 + "]" * 150,
        "a number": "9" * size,
        "numbers": f"[{', '.join(['1e308', '-9223372036854775808', '1e-7'] * (size // 40))}]",
        "quantities": "{" + ", ".join(f"k{number}: 9e{number % 999}" for number in range(size // 16)) + "}",
        "many aliases": f"[&x {_text(pump, 3000)}, {', '.join(['*x'] * (900 if size > 100_000 else 300))}]",
        "small aliases": f"[&x {short}, {', '.join(['*x'] * (size // 8))}]",
        "aliases of maps": f"[&x {{name: {_text(pump, 200)}, key: {short}}}, {', '.join(['*x'] * (size // 300))}]",
    }


WAYS = tuple(_values("a", 100))


def at(place: tuple[str, str, tuple[str, ...]], value: str) -> str:
    """Put a value into a field."""
    version, kind, path = place
    text = value
    for step in reversed(path):
        text = f"[{text}]" if step == "[]" else f"{{{step}: {text}}}"
    api_version = _VERSIONS.get(kind, f"kubeadm.k8s.io/{version}")
    head = f"apiVersion: {api_version}\nkind: {kind}\n"
    name, _, rest = text[1:-1].partition(": ")
    more = (
        "" if kind not in _VERSIONS else "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.3\n"
    )
    return f"{head}{name}: {rest}\n{more}"


@st.composite
def fields(draw: st.DrawFn) -> str:
    """A document with one field that is large."""
    place, way = draw(st.sampled_from(PLACES)), draw(st.sampled_from(WAYS))
    return at(place, _values(draw(st.sampled_from(PUMPS)), draw(st.sampled_from(SIZES)))[way])


_HEAD = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.3\n"


def _whole(pump: str, size: int) -> dict[str, str]:
    line = pump if pump.strip() and pump[0].isalnum() and ":" not in pump else "a"
    return {
        "unknown fields": _HEAD + "".join(f"{line}{number}: 1\n" for number in range(size // (len(line) + 10))),
        "fields given twice": _HEAD + "x: 1\n" * (size // 5),
        "unknown kinds": "".join(f"apiVersion: a/v1\nkind: InitConfiguratio{number}\n---\n" for number in range(size // 60)),
        "kinds given twice": (_HEAD + "---\n") * (size // 90),
        "documents": "a\n---\n" * (size // 6),
        "empty documents": "\n---\n" * (size // 5),
        "directives": "".join(f"%TAG !a{number}! x\n" for number in range(size // 20)) + "---\n" + _HEAD,
        "anchors": _HEAD + "".join(f"k{number}: &a{number} x\n" for number in range(size // 24)),
        "merges": _HEAD + "x: &x {a: 1, b: 2}\n" + "".join(f"k{number}: {{<<: *x}}\n" for number in range(size // 24)),
        "a merge of many": _HEAD + f"x: &x {{a: 1}}\ny: {{<<: [{', '.join(['*x'] * (size // 5))}]}}\n",
        "a long key above many": _HEAD + f'? "{"k" * (size // 2)}"\n: [{", ".join(["[]"] * (size // 10))}]\n',
        "long keys given twice": _HEAD + f'? "{"k" * (size // 20)}"\n: 1\n' * 18,
        "long keys alike": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nevictionHard:\n"
        + "".join(f"  ? {'0' * 900}{number}\n  : x\n" for number in range(size // 920))
        + "---\n" + _HEAD,
        "deep lists": _HEAD + "x: " + "[" * (size // 2),
        "comments": _HEAD + "# x\n" * (size // 4),
        "blanks": _HEAD + "clusterName:" + " " * size + "x\n",
        "JSON": '{"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration", "x": [' + "1.5e3, " * (size // 8) + "1]}",
        "JSON and more": '{"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration"}' + '{"a": 1}' * (size // 8),
    }  # fmt: skip


@st.composite
def wholes(draw: st.DrawFn) -> str:
    """A file that is odd as a whole."""
    way = draw(st.sampled_from(tuple(_whole("a", 100))))
    return _whole(draw(st.sampled_from(PUMPS)), draw(st.sampled_from(SIZES)))[way]


def hostile() -> st.SearchStrategy[Any]:
    """Any of them, cut to the size limit."""
    return st.one_of(fields(), fields(), wholes()).map(lambda text: text.encode()[: 3 * 1024 * 1024].decode(errors="ignore"))
