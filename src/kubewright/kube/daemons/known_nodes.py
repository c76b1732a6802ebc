"""The names and addresses of a tenant's Nodes and API servers: no other node gets a certificate for them.

There are two kinds of evidence. The name of a Node is certain, because the API server gives it only to the Node's own
user. So is everything about a control plane, which can do anything in the cluster anyway. Addresses and host names of
any other Node are only reported by that Node (kubelets write their own status): they count, unless the hub's own record
says that a name or an address belongs to the requesting node. Otherwise a node could take names from others by claiming
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubewright.apis import formats
from kubewright.apis.kubeadm.types import CONTROL_PLANE_LABEL
from kubewright.base import untyped
from kubewright.base.records import dataclass
from kubewright.kube import core
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.core import Object

_HOST_NAME: Final = "kubernetes.io/hostname"
_ROLES: Final = (CONTROL_PLANE_LABEL, "node-role.kubernetes.io/master")
"""Labels of control planes. A kubelet may not set them itself (NodeRestriction)."""
_MOST_ADDRESSES: Final = 256
"""Addresses that count per Node: far more than a machine has, and few enough to read cheaply."""


@dataclass(frozen=True, kw_only=True)
class Claims:
    """The names and addresses of one Node: those that are certain, and those that it only reports."""

    certain: frozenset[str]
    reported: frozenset[str] = frozenset()


class _Owners:
    """The Nodes that have a name, possibly several. Safe to read from other threads while it changes."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[str, ...]] = {}

    def add(self, node: str, names: Iterable[str]) -> None:
        for name in names:
            self._nodes[name] = (*self._nodes.get(name, ()), node)

    def remove(self, node: str, names: Iterable[str]) -> None:
        for name in names:
            left = tuple(one for one in self._nodes.pop(name) if one != node)
            if left:
                self._nodes[name] = left

    def others(self, names: Iterable[str], node: str) -> dict[str, str]:
        """Return those of these names that another node has, with one such node."""
        found = ((name, next((one for one in self._nodes.get(name, ()) if one != node), None)) for name in names)
        return {name: owner for name, owner in found if owner is not None}


class KnownNodes:
    """Kept up to date with the events of informers. `api_servers` are the addresses of the API servers."""

    def __init__(self) -> None:
        self.api_servers: frozenset[str] = frozenset()
        self._claims: dict[str, Claims] = {}
        self._certain = _Owners()
        self._reported = _Owners()

    def changed(self, event: WatchEvent) -> None:
        """Record the new state of a Node."""
        node, _ = core.identity_of(event.object)
        before = self._claims.pop(node, None)
        if before is not None:
            self._certain.remove(node, before.certain)
            self._reported.remove(node, before.reported)
        if event.type is not EventType.DELETED:
            self._claims[node] = claims = claims_of(event.object)
            self._certain.add(node, claims.certain)
            self._reported.add(node, claims.reported)

    def api_servers_changed(self, event: WatchEvent) -> None:
        """Record the new state of the API servers' Endpoints."""
        gone = event.type is EventType.DELETED
        self.api_servers = frozenset() if gone else addresses_of(event.object)

    def __contains__(self, node: str) -> bool:
        return node in self._claims

    def foreign(self, names: Iterable[str], node: str, *, held: frozenset[str] = frozenset()) -> dict[str, str]:
        """Return those of these names that another node has, with that node.

        `held` are names that the hub's record gives to this one.
        """
        names = list(names)
        return {**self.reported((name for name in names if name not in held), node), **self._certain.others(names, node)}

    def certain(self, names: Iterable[str], node: str) -> dict[str, str]:
        """Return those of these names that certainly belong to another node or an API server."""
        names = list(names)
        return {**{name: "" for name in names if name in self.api_servers}, **self._certain.others(names, node)}

    def reported(self, names: Iterable[str], node: str) -> dict[str, str]:
        """Return those of these names that another node only reports."""
        return self._reported.others(names, node)


def slim(node: Object) -> Object:
    """Return a Node without what nobody here reads, which is most of it: images, conditions, managed fields. Pure."""
    about = {key: value for key, value in core.metadata(node).items() if key != "managedFields"}
    addresses = untyped.mapping(node.get("status")).get("addresses")
    return {"apiVersion": "v1", "kind": "Node", "metadata": about, "status": {"addresses": addresses or []}}


def claims_of(node: Mapping[str, Any]) -> Claims:
    """Return a Node's name, its host names and the addresses that its kubelet reports, normalized for comparison. Pure."""
    name, _ = core.identity_of(node)
    labels = untyped.mapping(core.metadata(node).get("labels"))
    addresses = untyped.items(untyped.mapping(node.get("status")).get("addresses"))[:_MOST_ADDRESSES]
    reported = _texts([labels.get(_HOST_NAME), *(row.get("address") for row in untyped.mappings(addresses))])
    own = _texts([name])
    if any(role in labels for role in _ROLES):
        return Claims(certain=own | reported)
    return Claims(certain=own, reported=reported - own)


def addresses_of(endpoints: Mapping[str, Any]) -> frozenset[str]:
    """Return the addresses of Endpoints, ready or not. Pure."""
    kinds = ("addresses", "notReadyAddresses")
    subsets = untyped.mappings(endpoints.get("subsets"))
    rows = [row for subset in subsets for kind in kinds for row in untyped.mappings(subset.get(kind))]
    return _texts(row.get("ip") for row in rows)


def _texts(found: Iterable[object]) -> frozenset[str]:
    """Normalize names and addresses for comparison: `Db.Corp.` becomes `db.corp`."""
    texts = (str(one) for one in found if one)
    return frozenset(str(formats.address(one) or one.lower().rstrip(".")) for one in texts) - {""}
