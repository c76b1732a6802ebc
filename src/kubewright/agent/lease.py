"""The Lease of a Node: its records (kubelet v1.36: component-helpers/apimachinery/lease). Pure; `heartbeats` sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypedDict

JsonMap = dict[str, Any]

NAMESPACE: Final = "kube-node-lease"


class Terms(TypedDict):
    """What every renewal says: the duration in seconds, and the moment with exactly six fractional digits (the API refuses others)."""

    duration: int
    now: str


def new_lease(node: Mapping[str, Any], *, duration: int, now: str) -> JsonMap:
    """Return the Lease to create."""
    name = node["metadata"]["name"]
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": NAMESPACE, "ownerReferences": [owner_reference(node)]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": duration, "renewTime": now},
    }


def renewed(lease: Mapping[str, Any], node: Mapping[str, Any] | None, *, duration: int, now: str) -> JsonMap:
    """Return the Lease to put in place of `lease`.

    The holder is never corrected. The owner reference is added where there is none; `node` may be None otherwise.
    """
    metadata = dict(lease["metadata"])
    if not metadata.get("ownerReferences") and node is not None:
        metadata["ownerReferences"] = [owner_reference(node)]
    spec = {**lease.get("spec", {}), "leaseDurationSeconds": duration, "renewTime": now}
    return {**lease, "metadata": metadata, "spec": spec}


def has_owner(lease: Mapping[str, Any]) -> bool:
    """Whether the Lease is owned, so that it goes when its Node goes."""
    return bool(lease["metadata"].get("ownerReferences"))


def owner_reference(node: Mapping[str, Any]) -> JsonMap:
    """Return the reference from a Lease to its Node."""
    return {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
