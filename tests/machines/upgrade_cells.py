"""Clusters that one tool made, and of which either tool upgrades machines: what a cell of the matrix does, and what all cells must leave alike."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cluster_kit import KUBEADM, KUBEWRIGHT, run
from interop_kit import left, reset
from level_kit import COMPONENTS, IGNORED, NEXT, apply, changes, files_made, running, state
from machine_kit import administer, eventually, kubectl, kubewright
from state_kit import State
from testbed import patch_level

from kubewright.base.level import KUBERNETES
from kubewright.machines.machine import Machine

ETCD = "/etc/kubernetes/manifests/etcd.yaml"
"""The file in which the tools differ: kubeadm removes the other members from it, and restarts etcd for that."""


@dataclass(frozen=True)
class Cell:
    """The tools that made a cluster and ran `upgrade apply`. Either tool runs `upgrade node` on some of its machines."""

    made: str
    applied: str

    @property
    def other(self) -> str:
        """The tool that did not run `upgrade apply`."""
        return KUBEWRIGHT if self.applied == KUBEADM else KUBEADM

    def __str__(self) -> str:
        return f"made by {self.made}, {self.applied} apply"


def applied(tool: str, machine: Machine) -> None:
    """Upgrade the first control plane with a tool."""
    if tool == KUBEADM:
        patch_level.install(machine, KUBEADM, KUBERNETES, NEXT)
        run(KUBEADM, machine, "upgrade", "apply", NEXT, "--yes", IGNORED)
    else:
        apply(machine)


def upgraded(tool: str, machine: Machine) -> None:
    """Upgrade a further machine with a tool."""
    if tool == KUBEADM:
        patch_level.install(machine, KUBEADM, KUBERNETES, NEXT)
    run(tool, machine, "upgrade", "node", IGNORED)


def require_next(machine: Machine) -> None:
    """Require that the components of a control plane get to the new version. kubeadm does not wait until they answer."""
    eventually(lambda: running(machine) == dict.fromkeys(COMPONENTS, NEXT), "the components to report the new version")


def workload(first: Machine, node: str) -> None:
    """Run a pod on a node, which no upgrade should restart."""
    container = {
        "name": "works",
        "image": "docker.io/library/busybox:test",
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", "while true; do sleep 1; done"],
    }
    spec = {"nodeName": node, "containers": [container]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"works-{node}"}, "spec": spec}
    administer(first, "create", "-f", "-", data=json.dumps(body))
    eventually(lambda: container_of(first, node)[0] != "", "the pod to run")


def container_of(first: Machine, node: str) -> tuple[str, int]:
    """Return the container of the pod on a node, '' if it is not running, and how often it was restarted."""
    found: list[dict[str, Any]] = kubectl(first, "get", "pod", f"works-{node}").get("status", {}).get("containerStatuses", [])
    return (found[0].get("containerID", ""), found[0]["restartCount"]) if found and "running" in found[0]["state"] else ("", 0)


def alike(machine: Machine) -> State:
    """Return the files of a further machine in a form in which two machines with other names can be compared."""
    told: State = json.loads(json.dumps(_files(machine)).replace(machine.name, "NAME"))
    return told


def _files(machine: Machine) -> State:
    """Return the files that both tools write alike."""
    return {name: one for name, one in files_made(machine).items() if name != ETCD}


def states(machines: Iterable[Machine]) -> State:
    """Return the state of a whole cluster, the first control plane first, without addresses and etcd's manifests."""
    every = list(machines)
    found: State = {machine.name: _files(machine) for machine in every}
    found["objects"] = state(every[0])["objects"]
    text = json.dumps(found)
    for machine in sorted(every, key=lambda one: -len(one.address)):
        text = text.replace(machine.address, f"ADDRESS of {machine.name}")
    told: State = json.loads(text)
    return told


def require_usable(first: Machine, version: str = NEXT) -> None:
    """Require that the read-only commands of both tools work after an upgrade."""
    administer(first, "get", "nodes")
    for tool in (KUBEADM, KUBEWRIGHT):
        run(tool, first, "certs", "check-expiration")
        run(tool, first, "upgrade", "plan", version, IGNORED, "--allow-experimental-upgrades")


def require_unchanged(machine: Machine) -> None:
    """Require that another `upgrade node` of ours changes nothing."""
    assert changes(kubewright(machine, "upgrade", "node", IGNORED, "-o", "json")) == []


def require_reset(tool: str, machine: Machine) -> None:
    """Reset a machine with a tool, and require that nothing is left but for the backups of upgrades, which both tools leave."""
    reset(tool, machine)
    assert [one for one in left(machine) if not one.startswith("/etc/kubernetes/tmp/")] == []
