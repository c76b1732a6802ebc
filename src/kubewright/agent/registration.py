"""Registration: the Node that an agent creates, and its corrections to an existing one. Pure.

Source: kubelet v1.36: kubelet_node_status.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubewright.agent.status import resources
from kubewright.agent.status.facts import RECONCILED, SIMULATED, NodeFacts, default_labels
from kubewright.agent.status.setters import Failed, compute, copied, ignore_failure
from kubewright.agent.status.snapshot import Snapshot
from kubewright.kube.core import Object

ATTACH_DETACH: Final = "volumes.kubernetes.io/controller-managed-attach-detach"
_RESOURCE_MAPS: Final = ("capacity", "allocatable")


def first_node(
    facts: NodeFacts, *, now: str, snapshot: Snapshot | None = None, storage: str = "", failed: Failed = ignore_failure
) -> Object:
    """Return the Node object that registration sends, complete status included; further arguments as for `setters.compute`."""
    profile = facts.profile
    own = default_labels(host_name=facts.name, operating_system=profile.operating_system, architecture=profile.architecture)
    marks = {ATTACH_DETACH: "true" if facts.attach_detach else "", SIMULATED: profile.simulated}
    node: Object = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": facts.name,
            "labels": {**own, **dict(facts.labels)},
            "annotations": {key: mark for key, mark in marks.items() if mark},
        },
        "spec": {},
    }
    if facts.taints:
        node["spec"]["taints"] = [{"key": key, "value": value, "effect": effect} for key, value, effect in facts.taints]
    if facts.provider_id:
        node["spec"]["providerID"] = facts.provider_id
    return compute(node, facts, now=now, snapshot=snapshot, storage=storage, failed=failed)


def reconcile(existing: Mapping[str, Any], first: Mapping[str, Any], facts: NodeFacts) -> Object | None:
    """Return the existing Node with our corrections, or None if it needs none.

    Taints, other labels, providerID, unschedulable, pod range, other annotations and conditions are left alone.
    """
    new: Object = copied(dict(existing))
    changed = [rule(new, first, facts) for rule in RULES]
    return new if any(changed) else None


def _attach_detach(new: Object, first: Mapping[str, Any], _facts: NodeFacts) -> bool:
    annotations = new.setdefault("metadata", {}).setdefault("annotations", {})
    wanted = first["metadata"].get("annotations", {}).get(ATTACH_DETACH)
    if annotations.get(ATTACH_DETACH) == wanted:
        return False
    _put(annotations, ATTACH_DETACH, wanted)
    return True


def _default_labels(new: Object, first: Mapping[str, Any], _facts: NodeFacts) -> bool:
    labels = new.setdefault("metadata", {}).setdefault("labels", {})
    ours = first["metadata"].get("labels", {})
    stale = [key for key in RECONCILED if key in ours and labels.get(key, "") != ours[key]]
    for key in stale:
        _put(labels, key, ours[key] or None)
    return bool(stale)


def _resource_maps(new: Object, first: Mapping[str, Any], _facts: NodeFacts) -> bool:
    status = new.setdefault("status", {})
    missing = [name for name in _RESOURCE_MAPS if not status.get(name)]
    for name in missing:
        status[name] = dict(first["status"].get(name) or {})
    return any(status[name] for name in missing)


def _extended_resources(new: Object, _first: Mapping[str, Any], facts: NodeFacts) -> bool:
    """Reset extended resources on a machine that was recreated: whatever provides them reports them again."""
    found = [name for name in new["status"]["capacity"] if resources.is_extended(name)] if facts.recreated else []
    for name in found:
        for amounts in _RESOURCE_MAPS:
            new["status"][amounts][name] = "0"
    return bool(found)


def _huge_pages(new: Object, first: Mapping[str, Any], _facts: NodeFacts) -> bool:
    """Correct the amounts for the page sizes that the machine has, and remove other sizes from the Node's capacity."""
    sizes = [key for key in first["status"].get("capacity") or {} if resources.is_huge_page(key)]
    gone = [key for key in new["status"]["capacity"] if resources.is_huge_page(key) and key not in sizes]
    changed = bool(gone)
    for name in _RESOURCE_MAPS:
        found, wanted = new["status"][name], first["status"].get(name) or {}
        wrong = [key for key in sizes if not resources.same_amounts(_only(found, key), _only(wanted, key))]
        for key in (*gone, *wrong):
            _put(found, key, wanted.get(key))
        changed = changed or bool(wrong)
    return changed


def _only(amounts: Mapping[str, str], name: str) -> dict[str, str]:
    return {name: amounts[name]} if name in amounts else {}


def _put(target: dict[str, str], key: str, value: str | None) -> None:
    if value is None:
        target.pop(key, None)
    else:
        target[key] = value


RULES: Final[tuple[Callable[[Object, Mapping[str, Any], NodeFacts], bool], ...]] = (
    _attach_detach,
    _default_labels,
    _resource_maps,
    _extended_resources,
    _huge_pages,
)
"""All of them are applied, in this order."""
