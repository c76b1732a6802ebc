"""`init` on a fresh machine until its add-ons are available, with milestones, and `reset` of that control plane."""

from __future__ import annotations

from typing import Any, Final

from tests.bench.machines_running import KUBEADM, KUBEWRIGHT, TOOLS, Field, after, field, init, pairs, reset
from tests.bench.machines_watching import Probe, Watch, available, condition_available, exists, nodes_ready, processes
from tests.bench.model import MEBIBYTES, MOST, Figure, Result, figure, ratios
from tests.bench.results import result
from tests.bench.setup import Setup

TARGET_WALL: Final = 0.62
TARGET_ADD_ONS: Final = 0.6
TARGET_MEMORY: Final = 80.0
TARGET_RESET: Final = 1.0
MACHINE: Final = "one"

PROCESSES: Final = ("kubelet", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns")
PROBES: Final[dict[str, Probe]] = {
    "etcd listens": lambda look: look.port(2379),
    "API answers": lambda look: look.serves(),
    "readyz": exists("/readyz"),
    "controller-manager healthy": lambda look: look.answers("https://127.0.0.1:10257/healthz"),
    "scheduler healthy": lambda look: look.answers("https://127.0.0.1:10259/livez"),
    "Node registered": exists(f"/api/v1/nodes/{MACHINE}"),
    "Node Ready": nodes_ready(MACHINE),
    "default service account": exists("/api/v1/namespaces/default/serviceaccounts/default"),
    "kube-proxy available": available("daemonsets", "kube-proxy"),
    "CoreDNS available": condition_available("coredns"),
    "all CoreDNS pods": available("deployments", "coredns"),
}
AFTER: Final = {
    "API answers": "etcd listens",
    **dict.fromkeys(("readyz", "Node registered", "controller-manager healthy", "scheduler healthy"), "API answers"),
    **dict.fromkeys(
        ("Node Ready", "default service account", "kube-proxy available", "CoreDNS available", "all CoreDNS pods"), "Node registered"
    ),
}
ADD_ONS: Final = ("kube-proxy available", "CoreDNS available")


def run(setup: Setup, rounds: int) -> Result:
    """Measure this many pairs."""
    with field() as ground:
        rows = pairs(setup, "machines-init", rounds, lambda tool: _measure(ground, tool), tell="Wall")
    courses = {tool: [row.pop(f"{tool}Course") for row in rows] for tool in TOOLS}
    return result("machines-init", _figures(rows), rows, extra={"courses": courses})


def _measure(ground: Field, tool: str) -> dict[str, Any]:
    with ground.fresh(MACHINE) as bed:
        machine = bed[MACHINE]
        watch = Watch(machine, PROBES, after=AFTER)
        watch.start()
        used = init(tool, machine).wait()
        seen = watch.wait()
        started = processes(machine, PROCESSES)
        found = {
            "Wall": used.seconds,
            "AddOns": max(seen[name] for name in ADD_ONS) - used.began,
            "AllPods": max(seen.values()) - used.began,
            "Cpu": used.cpu,
            "Peak": used.peak,
            "Reset": reset(tool, machine).wait().seconds,
        }
    course = {"command": used.seconds, "seen": after(seen, used.began), "started": after(started, used.began)}
    return {**found, "Course": course}


def _figures(rows: list[dict[str, Any]]) -> tuple[Figure, ...]:
    ours, theirs = KUBEWRIGHT, KUBEADM
    return (
        ratios("`init`, relative to kubeadm", rows, f"{ours}Wall", f"{theirs}Wall", target=TARGET_WALL),
        figure("`kubewright init`", rows, f"{ours}Wall"),
        figure("`kubeadm init`", rows, f"{theirs}Wall"),
        ratios(
            "`init` until the add-ons are available, relative to kubeadm", rows, f"{ours}AddOns", f"{theirs}AddOns", target=TARGET_ADD_ONS
        ),
        figure("`kubewright init` until the add-ons are available", rows, f"{ours}AddOns"),
        figure("`kubeadm init` until the add-ons are available", rows, f"{theirs}AddOns"),
        ratios("`init` until all pods of the add-ons are ready, relative to kubeadm", rows, f"{ours}AllPods", f"{theirs}AllPods"),
        figure("`kubewright init` until all pods of the add-ons are ready", rows, f"{ours}AllPods"),
        figure("`kubeadm init` until all pods of the add-ons are ready", rows, f"{theirs}AllPods"),
        figure("`kubewright init`: peak memory", rows, f"{ours}Peak", unit=MEBIBYTES, target=TARGET_MEMORY, statistic=MOST),
        figure("`kubeadm init`: peak memory", rows, f"{theirs}Peak", unit=MEBIBYTES, statistic=MOST),
        figure("`kubewright init`: CPU time", rows, f"{ours}Cpu"),
        figure("`kubeadm init`: CPU time", rows, f"{theirs}Cpu"),
        ratios("`reset` of a control plane, relative to kubeadm", rows, f"{ours}Reset", f"{theirs}Reset", target=TARGET_RESET),
        figure("`kubewright reset` of a control plane", rows, f"{ours}Reset"),
        figure("`kubeadm reset` of a control plane", rows, f"{theirs}Reset"),
    )
