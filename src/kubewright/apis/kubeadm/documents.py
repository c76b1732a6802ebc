"""Which documents a configuration file may hold, and which of them `init` works from (spec/kubeadm.md 3.1, 15.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import DocumentError

if TYPE_CHECKING:
    from kubewright.base.yaml import Document

GROUP: Final = "kubeadm.k8s.io"
API_VERSION: Final = f"{GROUP}/v1beta4"
META: Final = ("apiVersion", "kind")

INIT: Final = "InitConfiguration"
CLUSTER: Final = "ClusterConfiguration"
KUBELET: Final = "KubeletConfiguration"
KUBE_PROXY: Final = "KubeProxyConfiguration"

_KINDS: Final = (INIT, CLUSTER, "JoinConfiguration", "ResetConfiguration", "UpgradeConfiguration")
COMPONENT_GROUPS: Final = {
    "kubelet.config.k8s.io": ("v1beta1", KUBELET),
    "kubeproxy.config.k8s.io": ("v1alpha1", KUBE_PROXY),
}
LAST_MIGRATOR: Final = {"v1alpha1": "v1.11", "v1alpha2": "v1.12", "v1alpha3": "v1.14", "v1beta1": "v1.15", "v1beta2": "v1.22"}
"""The last kubeadm that could migrate an old version."""

_REMEDY: Final = f"give each document an apiVersion and a kind that are supported: {API_VERSION} with {', '.join(_KINDS)}"


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The documents of one file by their role; None where there is none. `ignored` are others, each with what is said about it."""

    by_kind: Mapping[str, Document] = field(default_factory=dict)
    ignored: Sequence[str] = ()

    def get(self, kind: str) -> Document | None:
        """Return the document of a kind."""
        return self.by_kind.get(kind)


def select(documents: Sequence[Document], *, strict: bool) -> Selection:
    """Sort documents by kind.

    Raises DocumentError with every reason at once: no kind or apiVersion, a kind given twice, a version that cannot be read; with
    `strict` also kinds that nobody knows, which otherwise are ignored.
    """
    problems: list[str] = []
    ignored: list[str] = []
    found: dict[str, Document] = {}
    for document in documents:
        gvk = _identify(document)
        if isinstance(gvk, str):
            problems.append(f"{document.where()}: {gvk}")
        elif gvk.kind in found:
            problems.append(f"{document.where()}: kind {gvk.kind} is given twice, first in {found[gvk.kind].where()}")
        else:
            found[gvk.kind] = document
            problem, note = _verdict(gvk)
            problems += [f"{document.where()}: {text}" for text in (problem, note if strict and not gvk.known else "") if text]
            ignored += [f"{document.where()}: {note}"] if note else []
    if problems:
        source = documents[0].source or "the configuration"
        raise DocumentError(f"{source} cannot be read", detail="\n".join(problems), remedy=_REMEDY)
    return Selection(by_kind=found, ignored=tuple(ignored))


def require_init(selection: Selection, *, source: str) -> None:
    """Refuse a file that has neither of the kinds that `init` works from. Raises DocumentError."""
    if selection.get(INIT) is None and selection.get(CLUSTER) is None:
        raise DocumentError(
            f"{source or 'the configuration'} holds no {INIT} and no {CLUSTER}", remedy=f"add one with apiVersion {API_VERSION}"
        )


def given(document: Document | None, path: str) -> object | None:
    """Return the raw value at a dotted path of a document; None if it is not there or empty, so that a default takes its place."""
    value: object = document.value if document else None
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value or None


@dataclass(frozen=True, kw_only=True)
class _GVK:
    group: str
    version: str
    kind: str

    @property
    def known(self) -> bool:
        return self.group == GROUP and self.version == "v1beta4" and self.kind in _KINDS


def _identify(document: Document) -> _GVK | str:
    """Return what a document is, or why that cannot be told."""
    if not isinstance(document.value, Mapping):
        return "a document must be a map with apiVersion and kind"
    api_version, kind = document.value.get("apiVersion"), document.value.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str) or not kind:
        return "apiVersion and kind must be given, and be strings"
    group, slash, version = api_version.partition("/")
    if not slash or not group or not version or "/" in version:
        return f"apiVersion {api_version!r} must be a group and a version, such as {API_VERSION}"
    return _GVK(group=group, version=version, kind=kind)


def _verdict(gvk: _GVK) -> tuple[str, str]:
    """Return what is wrong with a kind, and what is said when it is ignored."""
    if gvk.group == GROUP and gvk.version in LAST_MIGRATOR:
        last = LAST_MIGRATOR[gvk.version]
        return f"{GROUP}/{gvk.version} is too old; kubeadm {last} is the last one that can migrate it (`kubeadm config migrate`)", ""
    if gvk.group == GROUP and gvk.version == "v1beta3":
        return f"{GROUP}/v1beta3 is not supported yet; `kubeadm config migrate` rewrites it as {API_VERSION}", ""
    if gvk.group in COMPONENT_GROUPS:
        return _component_verdict(gvk), ""
    if gvk.known:
        return "", "" if gvk.kind in {INIT, CLUSTER} else f"{gvk.kind} is ignored here"
    return "", f"{gvk.group}/{gvk.version} {gvk.kind} is an unknown kind"


def _component_verdict(gvk: _GVK) -> str:
    version, kind = COMPONENT_GROUPS[gvk.group]
    if gvk.version != version:
        return f"{gvk.group}/{gvk.version} is not supported; convert the document to {gvk.group}/{version} by hand"
    return "" if gvk.kind == kind else f"of {gvk.group}/{version} only {kind} can be used, not {gvk.kind}"
