"""Generated documents of the kubelet and kube-proxy: values of the right types for any of their fields, from the tables of fields."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from kubewright.apis import scalars
from kubewright.apis.kubelet import KUBELET
from kubewright.apis.kubeproxy import KUBE_PROXY
from kubewright.apis.scalars import Amount, Kind
from kubewright.apis.schema import List, Map, Plain, Pointer

TEXTS = st.sampled_from(
    (
        "a",
        "b",
        "/etc/a",
        "x y",
        "10.96.0.10",
        "",
        "1",
        "true",
        "null",
        "~",
        "0x1f",
        "1e3",
        "a: b",
        "# c",
        "- d",
        "ü€",
        "'q'",
        '"',
        "\\n",
        "a\nb\n",
    )
) | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufeff\u2028\u2029"), max_size=12)
_SPANS = st.sampled_from(("0s", "1m", "90s", "1h30m", "1.5s", "100ms", "2160h", "-5s", "1us"))
_AMOUNTS = st.sampled_from(("0", "1", "100Mi", "1.5Gi", "250m", "2k", "1e3", "0.5", "10Ei"))
_MOMENTS = st.sampled_from(("2030-01-01T00:00:00Z", "2030-01-01T02:00:00+02:00"))
_SCALARS: dict[type[Kind], st.SearchStrategy[Any]] = {
    scalars.Text: TEXTS,
    scalars.Flag: st.booleans(),
    scalars.Span: _SPANS,
    scalars.LogSpan: _SPANS,
    scalars.Moment: _MOMENTS,
    Amount: _AMOUNTS,
    scalars.Float: st.sampled_from((0, 0.5, 1, 1.25, 1e-7, 100000)),
}


@cache
def values_of(kind: Kind) -> st.SearchStrategy[Any]:
    """Values that a field of this kind accepts."""
    match kind:
        case Pointer():
            return values_of(kind.inner)
        case List():
            return st.lists(values_of(kind.inner), max_size=3)
        case Map():
            return st.dictionaries(
                st.sampled_from(("cpu", "memory", "nodefs.available", "a-b", "X", "1")), values_of(kind.inner), max_size=3
            )
        case Plain():
            return some_of(kind, most=3)
        case scalars.Integer():
            return st.sampled_from((0, 1, 10, 8080, 10250, 2**31 - 1))
    return _SCALARS[type(kind)]


def some_of(plain: Plain, *, most: int) -> st.SearchStrategy[dict[str, Any]]:
    """Maps with a few of the fields of a struct."""
    one = st.sampled_from(plain.fields).flatmap(lambda field: st.tuples(st.just(field.name), values_of(field.kind)))
    return st.lists(one, max_size=most, unique_by=lambda pair: pair[0]).map(dict)


def kubelets() -> st.SearchStrategy[dict[str, Any]]:
    return some_of(KUBELET, most=8).map(
        lambda body: {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **body}
    )


def proxies() -> st.SearchStrategy[dict[str, Any]]:
    return some_of(KUBE_PROXY, most=8).map(
        lambda body: {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", **body}
    )
