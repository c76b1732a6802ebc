"""Machine objects of Cluster API or OpenShift, which contain the addresses that the infrastructure has given to each machine.

A Machine belongs to the Node that its status refers to (`nodeRef`). Before that is set, it belongs to the node whose
name is one of its own names. Two Machines that claim the same Node give it nothing: one of the references is wrong.

Cluster API sets the reference to the Node that has the Machine's provider id (cluster-api, internal/controllers/machine/
machine_controller_noderef.go). A kubelet chooses that id when it registers its Node, so the first Node with the id of a
new machine gets its addresses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis import formats
from kubewright.apis.node_sources import MachinesSource
from kubewright.base import untyped
from kubewright.controllers.serving.evidence import Answer
from kubewright.controllers.serving.sources.interface import MOST_NAMES, NoEvidence, Question, Tools
from kubewright.kube import core, resources
from kubewright.kube.core import Object
from kubewright.kube.kubeconfigs import load_access

FRESH: Final = 10.0
"""Seconds for which a list of Machines is used: a thousand nodes that join together cost a few lists."""
_NAMES: Final = frozenset({"Hostname", "InternalDNS", "ExternalDNS"})
_ADDRESSES: Final = frozenset({"InternalIP", "ExternalIP"})
_CLUSTER: Final = "cluster.x-k8s.io/cluster-name"
"""The label of all objects of a Cluster."""


class MachineIndex:
    """The Machines of one cluster at one time."""

    def __init__(self, machines: Iterable[Object]) -> None:
        self._owned: dict[str, list[frozenset[str]]] = {}
        self._owners: dict[str, set[str]] = {}
        for machine in machines:
            names, addresses = _values(machine, _NAMES), _values(machine, _ADDRESSES)
            for node in _nodes(machine, names):
                self._owned.setdefault(node, []).append(names | addresses)
                for value in names | addresses:
                    self._owners.setdefault(value, set()).add(node)

    def answer(self, source: str, question: Question) -> Answer:
        """Answer a question. Raises NoEvidence if several Machines claim the Node."""
        found = self._owned.get(question.node, [])
        if len(found) > 1:
            raise NoEvidence(f"{len(found)} Machines refer to the Node {question.node}", remedy="correct their status")
        own = found[0] if found else frozenset()
        foreign = {san: min(self._owners[san]) for san in question.sans - own if san in self._owners}
        shared = {san: min(self._owners[san] - {question.node}) for san in question.sans & own if len(self._owners[san]) > 1}
        return Answer(source=source, gives=question.sans & own, foreign={**shared, **foreign})


class Machines:
    """Lists the Machines for a question if the last list is older than `FRESH`."""

    def __init__(self, source: MachinesSource, tools: Tools) -> None:
        self._resource = resources.named("Machine", api_version=source.api_version)
        self._namespace = source.namespace
        self._selector = f"{_CLUSTER}={source.cluster}" if source.cluster else ""
        self._kubeconfig = PurePosixPath(source.kubeconfig)
        self._tools = tools
        self._access = load_access(self._kubeconfig, read=tools.read)
        self._api = tools.connect(self._access)
        self._index: MachineIndex | None = None
        self._read_at = 0.0
        self._lock = asyncio.Lock()

    async def changes(self) -> int:
        return 0

    async def ask(self, question: Question) -> Answer:
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._index is None or now - self._read_at > FRESH:
                self._index = None  # a list that cannot be read now is not replaced by an old one
                await self._reconnect()
                self._index = MachineIndex(await self._api.list(self._resource, self._namespace, label_selector=self._selector))
                self._read_at = now
            index = self._index
        return index.answer("machines", question)

    async def close(self) -> None:
        await self._api.close()

    async def _reconnect(self) -> None:
        """Use the kubeconfig as it is now: its token or certificate may have been renewed."""
        access = load_access(self._kubeconfig, read=self._tools.read)
        if access != self._access:
            await self._api.close()
            self._access, self._api = access, self._tools.connect(access)


def _nodes(machine: Object, names: frozenset[str]) -> frozenset[str]:
    """Return the nodes that a Machine may be: the one that it refers to, or those with one of its names."""
    if core.metadata(machine).get("deletionTimestamp"):
        return frozenset()
    referred = untyped.mapping(untyped.mapping(machine.get("status")).get("nodeRef")).get("name")
    return frozenset({str(referred)}) if referred else names


def _values(machine: Object, kinds: frozenset[str]) -> frozenset[str]:
    rows = untyped.items(untyped.mapping(machine.get("status")).get("addresses"))[:MOST_NAMES]
    texts = (str(row.get("address") or "") for row in untyped.mappings(rows) if row.get("type") in kinds)
    return frozenset(str(formats.address(text) or text.lower().rstrip(".")) for text in texts if text)
