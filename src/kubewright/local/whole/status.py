"""The state of a cluster of whole machines, from its record, the host's cgroups and the API. Read-only, and needs no root."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.base.errors import KubewrightError
from kubewright.host.filesystem.files import Files
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.resources import named
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import CONTROL_PLANE, ClusterRecord
from kubewright.local.whole import members, ports
from kubewright.local.whole.services import client

READY: Final = "Ready"
_UNKNOWN: Final = "Unknown"
_WITHIN: Final = 3.0
"""Seconds for an answer of the API server: one whose machine was killed does not refuse connections."""


def status(paths: ClusterPaths, cluster: ClusterRecord) -> dict[str, Any]:
    """Return all data of `local status`, with the fields of a cluster of processes."""
    running = {name: bool(members.machine_of(paths, cluster, name).leader) for name in members.members(cluster)}
    nodes, problem = _nodes(paths, cluster) if running[cluster.control_plane.name] else ({}, "")
    daemon = client.status(paths)
    stopped = [name for name, runs in running.items() if not runs]
    if stopped and any(running.values()):
        problem = f"stopped: {', '.join(stopped)}; `sudo kubewright up --name {cluster.name}` starts them"
    if not daemon and any(running.values()):
        problem = f"its daemon does not run, which forwards ports; `sudo kubewright up --name {cluster.name}` starts one"
    states = {name: nodes.get(name, _UNKNOWN) if runs else _UNKNOWN for name, runs in running.items()}  # its Node is Ready for a while
    listed = [{"name": name, "phase": state, "ready": state == READY} for name, state in states.items()]
    ready = sum(bool(node["ready"]) for node in listed)
    return {
        "name": cluster.name,
        "kind": cluster.kind,
        "state": "Stopped" if not any(running.values()) else READY if ready == len(listed) else "NotReady",
        "problem": problem,
        "kubernetesVersion": cluster.kubernetes_version,
        "kubeconfig": str(paths.admin_kubeconfig(cluster.control_plane.name)),
        "stateDirectory": str(paths.root),
        "machines": [
            {"name": name, "address": address, "role": role, "state": "Running" if running[name] else "Stopped", "components": []}
            for name, address, role in _machines(cluster)
        ],
        "daemon": {"pid": daemon.get("pid")},
        "ports": ports.rows(cluster.published, daemon),
        "mounts": [{"source": str(one.source), "target": str(one.target), "readOnly": one.read_only} for one in cluster.mounted],
        "nodes": {"ready": ready, "total": len(listed), "list": listed},
        "timings": {},
        "changedFlags": [],
        "simulated": [],
    }


def access(paths: ClusterPaths, cluster: ClusterRecord) -> Access:
    """Return the cluster's location and the administrator's identity."""
    return load_access(PurePosixPath(paths.admin_kubeconfig(cluster.control_plane.name)), read=Files().read)


def node_states(nodes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return whether Nodes are ready, by name."""
    return {str(node["metadata"]["name"]): READY if _is_ready(node) else "NotReady" for node in nodes}


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(one.get("type") == READY and one.get("status") == "True" for one in conditions)


def _nodes(paths: ClusterPaths, cluster: ClusterRecord) -> tuple[dict[str, str], str]:
    """Return the states of the Nodes, and why they are unknown."""
    try:
        client = KubeClient(access(paths, cluster), timeout=_WITHIN)
        try:
            return node_states(client.list(named("Node"))), ""
        finally:
            client.close()
    except KubewrightError as error:
        return {}, f"the API server does not answer: {error}"


def _machines(cluster: ClusterRecord) -> Iterable[tuple[str, str, str]]:
    first = cluster.control_plane
    yield first.name, first.address, CONTROL_PLANE
    for name in cluster.workers:
        yield name, members.address(cluster, name), "worker"
