"""Clusters whose first machine was made by one tool and whose other machines were joined by another one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cluster_kit import KUBEADM, KUBEWRIGHT, Cluster, at_once, begin, run
from machine_kit import SHARED, administer, eventually, kubectl, patiently
from testbed.bed import Bed

from kubewright import binaries
from kubewright.machines.machine import Ended, Machine
from kubewright.machines.parts import Parts

NEXT: Final = "kubeadm v1.37"
"""The kubeadm of the minor release after ours: it may join machines to our clusters."""
_NEXT_VERSION: Final = "v1.37.1"
_NEXT_PLACE: Final = "/opt/kubeadm-next"
"""Its path in machines."""
_NEXT_IMAGES: Final = {"etcd:3.6.8-0": "etcd:3.7.0-0", "coredns/coredns:v1.14.2": "coredns/coredns:v1.14.6"}
"""It uses images of its own release, which these machines cannot pull, so existing images are tagged with those names."""

FIRST, SECOND, WORKER = "first", "second", "worker"
_ADMINISTRATOR: Final = {"KUBECONFIG": "/etc/kubernetes/admin.conf"}
_COMMAND: Final = re.compile(r"(?:kubeadm|kubewright) join (?P<words>(?:[^\n\\]|\\\n)+)")


Cell = tuple[str, str]
"""The tool of the first machine, and that of the others."""


def next_kubeadm() -> Path:
    """Return the kubeadm of the next minor release, on the host."""
    environment = {
        name: value for name, value in os.environ.items() if name != "KUBEWRIGHT_BINARIES_DIR"
    }  # where the directory of binaries has our own version
    return Path(binaries.ensure(("kubeadm",), version=_NEXT_VERSION, sources=binaries.sources_from(environment))["kubeadm"].path)


class Mixed:
    """A cluster whose second control plane and worker were joined by another tool. `cell` names both tools."""

    def __init__(self, cell: Cell, *, parts: Parts) -> None:
        name = "-".join(("interop", *(tool.replace(" ", "").replace(".", "") for tool in cell)))
        self.joiner = cell[1]
        shared = {**SHARED, **({_NEXT_PLACE: next_kubeadm().parent} if self.joiner == NEXT else {})}
        self.cluster = Cluster(cell[0], Bed(FIRST, SECOND, WORKER, bed=name, parts=parts, shared=shared))

    @property
    def first(self) -> Machine:
        return self.cluster.bed[FIRST]

    def close(self) -> None:
        """Take the machines down."""
        self.cluster.bed.down()

    def call(self, name: str, tool: str, *arguments: str) -> Ended:
        """Run a command of a tool on one machine."""
        if tool == NEXT:
            return self.cluster.bed[name].run(f"{_NEXT_PLACE}/kubeadm", *arguments, env=_ADMINISTRATOR)
        return run(tool, self.cluster.bed[name], *arguments)

    def make(self) -> None:
        """Boot the machines, make the first one a control plane, and join the others at the same time.

        The join commands are those that `init` printed, in a configuration because flags cannot set timeouts.
        """
        self.cluster.bed.up()
        control_plane, worker = words_of(begin(self.cluster))
        if self.joiner == NEXT:
            for known, wanted in _NEXT_IMAGES.items():
                names = (f"registry.k8s.io/{name}" for name in (known, wanted))
                self.cluster.bed[SECOND].run("ctr", "-n", "k8s.io", "images", "tag", *names)
        at_once(lambda: self._join(SECOND, control_plane), lambda: self._join(WORKER, worker))

    def _join(self, name: str, words: Sequence[str]) -> None:
        self.call(name, self.joiner, *patiently(self.cluster.bed[name], words))


def words_of(said: str) -> list[list[str]]:
    """Extract the join commands from the output of `init`, as scripts do: that of control planes and that of workers."""
    return [found["words"].replace("\\\n", " ").split() for found in _COMMAND.finditer(said)]


class Line:
    """Clusters, made one after the other: the next one is made while one is used. `cells` are those that will be requested, in order."""

    def __init__(self, cells: Sequence[Cell], *, parts: Parts) -> None:
        self._cells = list(cells)
        self._parts = parts
        self._pool = ThreadPoolExecutor(1)
        self._begun: dict[Cell, tuple[Mixed, Future[None]]] = {}

    @contextmanager
    def take(self, cell: Cell) -> Iterator[tuple[Mixed, Future[None]]]:
        """Provide a cluster with the interval in which it was made, or the error that prevented it.

        It is removed at the end of the block.
        """
        place = self._cells.index(cell)
        for one in self._cells[place : place + 2]:
            if one not in self._begun:
                made = Mixed(one, parts=self._parts)
                self._begun[one] = made, self._pool.submit(made.make)
        try:
            yield self._begun[cell]
        finally:
            self._begun[cell][1].exception()
            self._begun.pop(cell)[0].cluster.bed.down()

    def close(self) -> None:
        """Remove clusters that were not requested."""
        self._pool.shutdown(cancel_futures=True)
        for made, _ in self._begun.values():
            made.cluster.bed.down()


def nodes(machine: Machine) -> Mapping[str, tuple[bool, bool]]:
    """Return every Node: whether it is ready, and whether it is a control plane."""
    return {
        node["metadata"]["name"]: (
            any(row["type"] == "Ready" and row["status"] == "True" for row in node["status"].get("conditions", [])),
            "node-role.kubernetes.io/control-plane" in node["metadata"]["labels"],
        )
        for node in kubectl(machine, "get", "nodes").get("items", [])
    }


def resolve(machine: Machine, *, node: str, service: str) -> None:
    """Run a pod on a node until it resolves the name of a Service."""
    container = {
        "name": "resolves",
        "image": "docker.io/library/busybox:test",
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", f"until nslookup {service}; do sleep 0.5; done"],
    }
    spec = {"nodeName": node, "restartPolicy": "Never", "containers": [container]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "resolves"}, "spec": spec}
    administer(machine, "create", "-f", "-", data=json.dumps(body))
    eventually(lambda: kubectl(machine, "get", "pod", "resolves").get("status", {}).get("phase") == "Succeeded", f"{service} to resolve")


def reset(tool: str, machine: Machine) -> None:
    """Reset a machine with a tool.

    kubeadm gives the runtime five times two seconds to stop a pod. It leaves the pod if that was not enough, as on a busy machine, and
    is run again.
    """
    for _ in range(20):
        run(tool, machine, "reset", "--force")
        if tool != KUBEADM or not machine.run("ctr", "-n", "k8s.io", "containers", "list", "-q").out:
            break


def left(machine: Machine) -> Sequence[str]:
    """Name what should no longer exist on a machine that was reset: files and containers."""
    places = "/etc/kubernetes /etc/kubernetes/manifests /etc/kubernetes/pki /var/lib/kubelet /var/lib/etcd"
    found = machine.run("sh", "-c", f"find {places} -mindepth 1 -not -type d 2>/dev/null; ctr -n k8s.io containers list -q", check=False)
    return found.out.split()


OTHER: Final = {KUBEADM: KUBEWRIGHT, KUBEWRIGHT: KUBEADM, NEXT: KUBEWRIGHT}
"""The tool that resets a machine, by the tool that made it."""
