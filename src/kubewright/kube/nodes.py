"""What init and join set on a Node that its kubelet registered: labels, taints, annotations (kubeadm.md 7.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubewright.base.change import Action, Change
from kubewright.base.records import dataclass, field
from kubewright.kube import comparing, resources
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Object
from kubewright.kube.patches import NODE_LISTS, strategic_diff


@dataclass(frozen=True, kw_only=True)
class NodeMarks:
    """What a Node should carry. Taints come first, then those that are there already; a label or annotation of None is removed."""

    name: str
    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    taints: Sequence[Mapping[str, Any]] = ()


def marked(node: Mapping[str, Any], marks: NodeMarks) -> Object:
    """Return a Node with its marks. Pure; the same object where it has them."""
    metadata, spec = dict(node.get("metadata") or {}), dict(node.get("spec") or {})
    for key, given in (("labels", marks.labels), ("annotations", marks.annotations)):
        merged = {**(metadata.get(key) or {}), **given}
        if given:
            metadata[key] = {name: value for name, value in merged.items() if value is not None}
    present = list(spec.get("taints") or [])
    if any(not _has(present, taint) for taint in marks.taints):
        spec["taints"] = [*marks.taints, *(taint for taint in present if not _has(marks.taints, taint))]
    return {**node, "metadata": metadata, "spec": spec}


def ensure_node_marks(api: KubeAPI, marks: NodeMarks) -> Change:
    """Patch a Node so that it carries its marks, and say what that took. Raises NotFound while it has not registered."""
    found = api.get(resources.NODE, marks.name)
    wanted = marked(found, marks)
    body = strategic_diff(found, wanted, lists=NODE_LISTS)
    target = f"node {marks.name}"
    if not body:
        return Change(target=target, action=Action.NONE)
    api.patch(resources.NODE, marks.name, body, type="strategic")
    return Change(target=target, action=Action.UPDATE, diff=comparing.difference(found, wanted, name=target))


def _has(taints: Sequence[Mapping[str, Any]], taint: Mapping[str, Any]) -> bool:
    return any(comparing.contains(one, taint) and comparing.contains(taint, one) for one in taints)
