"""The state of a cluster of whole machines, from its record, the host's cgroups and the API. Read-only, and needs no root."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from kubewright.base.errors import KubewrightError
from kubewright.kube.client import KubeClient
from kubewright.kube.resources import named
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import CONTROL_PLANE, NO_CNI, ClusterRecord
from kubewright.local.whole import endpoints, members, ports
from kubewright.local.whole.services import client as daemon_client
from kubewright.machines.machine import Machine

READY: Final = "Ready"
NO_NETWORK: Final = "NetworkPluginNotReady"
"""The state of a Node that lacks only a network plugin."""
RUNNING: Final = "Running"
PAUSED: Final = "Paused"
STOPPED: Final = "Stopped"
_NOT_READY: Final = "NotReady"
_UNKNOWN: Final = "Unknown"
_ONLY_NETWORK: Final = f"container runtime network not ready: NetworkReady=false reason:{NO_NETWORK} "
"""The beginning of a kubelet's message about this fault alone: several faults are in brackets (kubernetes v1.36: pkg/kubelet/kubelet.go)."""
_SECONDS: Final = len("2026-01-01T00:00:00")
_WITHIN: Final = 15.0
"""Seconds for an answer of the API server, which a busy host may delay by some seconds; machines that do not run are not asked."""


def status(paths: ClusterPaths, cluster: ClusterRecord) -> dict[str, Any]:
    """Return all data of `local status`, with the fields of a cluster of processes."""
    machines = {name: state_of(members.machine_of(paths, cluster, name)) for name in members.members(cluster)}
    running = [name for name, state in machines.items() if state == RUNNING]
    nodes, unread = _nodes(paths, cluster) if any(one.name in running for one in cluster.machines) else ({}, "")
    states = {name: nodes.get(name, _UNKNOWN) if name in running else _UNKNOWN for name in machines}  # its Node is Ready for a while
    daemon, addresses = daemon_client.status(paths), members.addresses(cluster)
    listed = [{"name": name, "phase": state, "ready": state == READY} for name, state in states.items()]
    ready = sum(bool(node["ready"]) for node in listed)
    return {
        "name": cluster.name,
        "kind": cluster.kind,
        "state": STOPPED if set(machines.values()) == {STOPPED} else READY if ready == len(listed) else _NOT_READY,
        "problem": _problem(cluster, machines, states, unread=unread, has_daemon=bool(daemon)),
        "kubernetesVersion": cluster.kubernetes_version,
        "cni": cluster.cni,
        "kubeconfig": str(paths.admin_kubeconfig(cluster.control_plane.name)),
        "stateDirectory": str(paths.root),
        "machines": [
            {
                "name": name,
                "address": addresses[name][0],
                "addresses": list(addresses[name]),
                "role": role,
                "state": machines[name],
                "components": [],
            }
            for name, role in _roles(cluster).items()
        ],
        "daemon": {"pid": daemon.get("pid")},
        "ports": ports.rows(cluster.published, daemon),
        "mounts": [{"source": str(one.source), "target": str(one.target), "readOnly": one.read_only} for one in cluster.mounted],
        "nodes": {"ready": ready, "total": len(listed), "list": listed},
        "timings": {},
        "changedFlags": [],
        "simulated": [],
    }


def _problem(cluster: ClusterRecord, machines: Mapping[str, str], states: Mapping[str, str], *, unread: str, has_daemon: bool) -> str:
    """Return the most important problem, '' if there is none. `unread` is why the Nodes cannot be read."""
    others = {name: state for name, state in machines.items() if state != RUNNING}
    told = ", ".join(f"{name} is {state.lower()}" for name, state in others.items())
    if not has_daemon and len(others) < len(machines):
        return f"its daemon, which forwards ports, is not running; `sudo kubewright up --name {cluster.name}` starts one"
    if len(others) == 1 and has_daemon:
        [(name, state)] = others.items()
        return f"{told}; `kubewright local machine start {name}` {'lets it run again' if state == PAUSED else 'starts it'}"
    if others:
        return f"{told}; `sudo kubewright up --name {cluster.name}` starts {'them' if len(others) > 1 else 'it'}"
    lacking = [name for name, state in states.items() if state == NO_NETWORK]
    if lacking and cluster.cni == NO_CNI and not unread:
        return f"no network plugin runs on {', '.join(lacking)}: Nodes become Ready, and pods start, when you install one (--cni none)"
    return unread


def state_of(machine: Machine) -> str:
    """Return whether a machine runs."""
    return RUNNING if machine.runs else PAUSED if machine.leader else STOPPED


def node_states(
    nodes: Iterable[Mapping[str, Any]], *, leases: Iterable[Mapping[str, Any]] = (), since: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return whether Nodes are ready, and which of them lack only a network plugin, by name.

    `since` are times before which what a Node reports does not count: later, its kubelet must have renewed its Lease, or
    reported that it is ready. A kubelet that looks for its Lease before its Node exists creates it only ten seconds later
    (k8s.io/component-helpers v0.36, apimachinery/lease/controller.go); one that was only paused reports nothing new.
    """
    renewed = {str(lease["metadata"]["name"]): str(lease.get("spec", {}).get("renewTime", "")) for lease in leases}
    found = {}
    for node in nodes:
        name, condition = str(node["metadata"]["name"]), _ready_condition(node)
        begun, reported = since.get(name, ""), str(condition.get("lastHeartbeatTime", ""))
        current = renewed.get(name, "") >= begun or reported[:_SECONDS] > begun[:_SECONDS]  # reports have whole seconds
        found[name] = _state_in(condition) if current else _NOT_READY
    return found


def _ready_condition(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the condition that says whether a Node is ready, an empty one if there is none."""
    return next((one for one in node.get("status", {}).get("conditions", []) if one.get("type") == READY), {})


def _state_in(condition: Mapping[str, Any]) -> str:
    if condition.get("status") == "True":
        return READY
    only_network = condition.get("status") == "False" and str(condition.get("message", "")).startswith(_ONLY_NETWORK)
    return NO_NETWORK if only_network else _NOT_READY


def _nodes(paths: ClusterPaths, cluster: ClusterRecord) -> tuple[dict[str, str], str]:
    """Return the states of the Nodes, and why they are unknown."""
    try:
        client = KubeClient(endpoints.access(paths, cluster), timeout=_WITHIN)
        try:
            return node_states(client.list(named("Node"))), ""
        finally:
            client.close()
    except KubewrightError as error:
        return {}, f"the API server does not answer: {error}"


def _roles(cluster: ClusterRecord) -> dict[str, str]:
    return {machine.name: CONTROL_PLANE for machine in cluster.machines} | dict.fromkeys(cluster.workers, "worker")
