"""Which names and addresses the Nodes of a tenant have, whoever let them in: no other node gets a certificate for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubewright.apis import formats
from kubewright.kube import core
from kubewright.kube.answers import EventType, WatchEvent

_HOST_NAME: Final = "kubernetes.io/hostname"


class KnownNodes:
    """Kept up to date by the events of an informer."""

    def __init__(self) -> None:
        self._names: dict[str, frozenset[str]] = {}
        self._owners: dict[str, list[str]] = {}
        """Several, where more than one says that a name is its own: the first one counts."""

    def changed(self, event: WatchEvent) -> None:
        """Take note of what has become of a Node."""
        node, _ = core.identity_of(event.object)
        for name in self._names.pop(node, ()):
            self._owners[name].remove(node)
            if not self._owners[name]:
                del self._owners[name]
        if event.type is not EventType.DELETED:
            self._names[node] = names_of(event.object)
            for name in self._names[node]:
                self._owners.setdefault(name, []).append(node)

    def __contains__(self, node: str) -> bool:
        return node in self._names

    def others(self, node: str) -> frozenset[str]:
        """Return the names and addresses that other nodes have."""
        return frozenset(name for name, owners in self._owners.items() if owners[0] != node)

    def owners(self, names: Iterable[str]) -> dict[str, str]:
        """Return which nodes have these names and addresses; those that nobody has are left out."""
        return {name: self._owners[name][0] for name in names if name in self._owners}


def names_of(node: Mapping[str, Any]) -> frozenset[str]:
    """Return a Node's own name, its host name, and the addresses that its kubelet reports, in the form in which names are compared. Pure."""
    name, _ = core.identity_of(node)
    labels = core.metadata(node).get("labels") or {}
    reported = (row.get("address") for row in (node.get("status") or {}).get("addresses") or ())
    found = (str(one) for one in (name, labels.get(_HOST_NAME), *reported) if one)
    return frozenset(str(formats.address(one) or one.lower()) for one in found)
