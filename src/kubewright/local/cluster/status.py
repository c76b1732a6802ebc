"""The state of a local cluster, from its record, its daemon and its logs. Read-only."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from kubewright import binaries
from kubewright.base.errors import APIError, HostError, KubewrightError, UsageError
from kubewright.base.messages import quoted
from kubewright.local import daemon_process, flags, programs, record
from kubewright.local.cluster.daemon_client import ControlClient
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.supervisor.procfs import find_components, stat_of

SIMULATED: Final = (
    "containers of pods are not run: their pods get an address and become Running and Ready; their logs and exec report this",
    "worker machines: the cores and memory that their Nodes report are invented",
    "Services are not routed and have no endpoints behind host-network pods; the kubernetes Service has no endpoints",
)
"""The simulated parts of a local cluster; docs/compat/kubelet.md has the details."""


def status(paths: ClusterPaths) -> dict[str, Any]:
    """Return all data of `local status`. Raises UsageError if the cluster does not exist."""
    cluster = require(paths)
    if cluster.is_whole:
        from kubewright.local.whole import status as whole

        return whole.status(paths, cluster)
    live = _live(paths)
    components = live.get("components") or _orphans(paths)
    nodes = live.get("nodes", {"ready": 0, "total": cluster.total})
    return {
        "name": cluster.name,
        "kind": cluster.kind,
        "state": _state(paths, components, nodes, running=bool(live)),
        "problem": _problem(paths, components, running=bool(live)),
        "kubernetesVersion": cluster.kubernetes_version,
        "kubeconfig": str(kubeconfig(paths, cluster)),
        "stateDirectory": str(paths.root),
        "daemon": {"pid": live.get("pid"), "rssBytes": live.get("rssBytes", 0), "cpuSeconds": live.get("cpuSeconds", 0.0)},
        "machines": [_machine(machine, components) for machine in cluster.machines],
        "nodes": nodes,
        "timings": read_timings(paths),
        "changedFlags": _changed_flags(cluster),
        "simulated": list(SIMULATED),
    }


def _machine(machine: LocalMachineRecord, components: list[dict[str, Any]]) -> dict[str, Any]:
    mine = [{key: value for key, value in row.items() if key != "machine"} for row in components if row["machine"] == machine.name]
    found = {"name": machine.name, "address": machine.address, "role": machine.role, "components": mine}
    return {**found, "leaving": True} if machine.leaving else found


def _changed_flags(cluster: ClusterRecord) -> list[dict[str, str]]:
    """Return the changed flags, with the values of the first machine."""
    addresses = cluster.control_plane.addresses
    return [
        {"component": row.component, "flag": row.flag, "value": row.value(addresses), "reason": row.reason}
        for row in flags.rows(alone=cluster.alone, own_controllers=cluster.own_controllers)
    ]


def require(paths: ClusterPaths, *, start: str = "kubewright up") -> ClusterRecord:
    """Return a cluster's record. Raises UsageError that lists the existing clusters if it does not exist, and names the command to `start` it."""
    found = record.load(paths.record)
    if found is None:
        others = [path.parent.name for path in sorted(paths.root.parent.glob("*/cluster.json"))]
        raise UsageError(
            f"there is no cluster {quoted(paths.name)} in {paths.root.parent}",
            remedy=f"start it with `{start} --name {paths.name}`" + (f"; there are: {', '.join(others)}" if others else ""),
        )
    return found


def kubeconfig(paths: ClusterPaths, cluster: ClusterRecord) -> Path:
    """Return the administrator's kubeconfig."""
    return paths.admin_kubeconfig(cluster.control_plane.name)


def rows(clusters: Iterable[ClusterPaths]) -> list[dict[str, object]]:
    """Return one row for each cluster; the state of an unreadable one is the reason."""
    listed: list[dict[str, object]] = []
    for paths in clusters:
        try:
            found = status(paths)
        except KubewrightError as error:
            listed.append({"name": paths.name, "state": f"unreadable: {error}"})
            continue
        listed.append(
            {
                "name": found["name"],
                "state": found["state"],
                "nodes": f"{found['nodes']['ready']}/{found['nodes']['total']}",
                "kubernetesVersion": found["kubernetesVersion"],
                "address": found["machines"][0]["address"],
            }
        )
    return listed


def environment(paths: ClusterPaths) -> dict[str, str]:
    """Return the variables for a shell: KUBECONFIG, and the directory of a kubectl of the right version, if there is one.

    It is searched next to the programs that the cluster was started with, and where `up` would.
    """
    cluster = require(paths)
    values = {"KUBECONFIG": str(kubeconfig(paths, cluster))}
    for sources in _sources(paths):
        found = programs.find_kubectl(cluster.kubernetes_version, sources=sources)
        if found is not None:
            return {**values, "PATH": str(found.parent)}
    return values


def _sources(paths: ClusterPaths) -> Iterator[binaries.BinarySources]:
    usual = binaries.sources_from(os.environ)
    try:
        server = Path(daemon_process.read_settings(paths).programs["kube-apiserver"])
    except (HostError, KeyError):  # it has been stopped
        server = usual.cache
    if not server.is_relative_to(usual.cache):
        yield binaries.sources_from(os.environ, directory=server.parent)
    yield usual


def log(paths: ClusterPaths, component: str, *, machine: str = "", tail: int | None = None, follow: bool = False) -> Iterator[bytes]:
    """Yield the log of a component, or the daemon's. Without a name it is the first machine's.

    If the daemon is not running, the component's log file is read.
    """
    cluster = require(paths)
    if cluster.is_whole:
        from kubewright.local.whole import logs as whole

        yield from whole.log(paths, cluster, component, machine=machine, tail=tail, follow=follow)
        return
    if machine and cluster.machine(machine) is None:
        known = ", ".join(one.name for one in cluster.machines)
        raise UsageError(f"there is no machine {quoted(machine)} with components", remedy=f"the machines are: {known}")
    machine = machine or cluster.control_plane.name
    if not component:
        yield from _file(paths.daemon_log, tail)
        return
    try:
        with ControlClient(paths).logs(component, machine=machine, tail=tail, follow=follow) as chunks:
            yield from chunks
    except APIError:
        path = paths.logs(machine) / f"{component}.log"
        if not path.is_file():
            raise UsageError(
                f"there is no component {quoted(component)}", remedy="`kubewright local status` lists the components"
            ) from None
        yield from _file(path, tail)


def _file(path: Path, tail: int | None) -> Iterator[bytes]:
    lines = daemon_process.last_lines(path, lines=tail) if tail is not None else None
    yield ("\n".join(lines) + "\n").encode() if lines is not None else (path.read_bytes() if path.exists() else b"")


def _live(paths: ClusterPaths) -> dict[str, Any]:
    try:
        return ControlClient(paths).status()
    except (APIError, HostError):
        return {}


def _orphans(paths: ClusterPaths) -> list[dict[str, Any]]:
    """Return the components that run without a daemon."""
    return [
        {
            "machine": one.machine,
            "name": one.component,
            "pid": one.identity.pid,
            "state": "Running",
            "restarts": 0,
            "rssBytes": facts.rss_bytes,
            "reason": "",
        }
        for one in sorted(find_components(daemon_process.mark_of(paths)), key=lambda one: one.component)
        if one.leader and (facts := stat_of(one.identity.pid)) is not None
    ]


def _problem(paths: ClusterPaths, components: list[dict[str, Any]], *, running: bool) -> str:
    """Return why a cluster cannot maintain itself, and the remedy; '' if it can, or is stopped."""
    if running:
        return ""
    name = paths.name
    if (daemon := daemon_process.identity(paths)) is not None:
        return f"its daemon (pid {daemon.pid}) does not answer; run `kill -9 {daemon.pid}`, then `kubewright up --name {name}`"
    return f"its daemon is not running, so nothing is restarted; `kubewright up --name {name}` starts one" if components else ""


def _state(paths: ClusterPaths, components: list[dict[str, Any]], nodes: dict[str, int], *, running: bool) -> str:
    if not running:
        return "NoAnswer" if daemon_process.identity(paths) is not None else "NoDaemon" if components else "Stopped"
    healthy = bool(components) and all(component["state"] == "Ready" for component in components)
    return "Ready" if healthy and nodes["ready"] == nodes["total"] else "NotReady"


def read_timings(paths: ClusterPaths) -> dict[str, float]:
    """Return the seconds that the last `up` with changes took to reach each milestone; empty before the first."""
    try:
        found = json.loads(paths.timings.read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(name): float(seconds) for name, seconds in found.items()} if isinstance(found, dict) else {}
