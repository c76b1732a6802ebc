"""Checks of a local machine before a control plane is started on it: a table whose failures are reported together."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from kubewright.base.checks import Check, Finding, run_checks
from kubewright.base.clock import Clock
from kubewright.base.errors import CheckFailed
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.host.readers import Network
from kubewright.local.paths import ClusterPaths
from kubewright.local.programs import COMPONENTS
from kubewright.local.record import ClusterRecord, LocalMachineRecord

SPACE: Final = 256 * 1024 * 1024
"""Bytes that a control plane writes in its first minutes: etcd preallocates 64 MB for each of two logs, the rest is logs."""

PORTS: Final = "ports"
PORT_LOOKS, PORT_PAUSE = 10, 0.1
"""How often busy ports are checked, and the seconds in between: a killed process releases its ports slightly after it seems to be gone."""

PORT_USERS: Final[Mapping[str, str]] = {
    "api_server": "kube-apiserver",
    "etcd_client": "etcd",
    "etcd_peer": "etcd",
    "etcd_metrics": "etcd",
    "controller_manager": "kube-controller-manager",
    "scheduler": "kube-scheduler",
    "kubelet": "the node agents",
    "kubelet_health": "the node agents",
}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The subject of the checks.

    `running` means that components of this cluster already use its own ports; `fresh` machines have none yet.
    """

    paths: ClusterPaths
    record: ClusterRecord
    programs: Mapping[str, Path]
    network: Network
    running: bool
    fresh: frozenset[str] = frozenset()


def run(subject: Subject, *, clock: Clock) -> None:
    """Run every check. Raises CheckFailed with every failure."""
    errors = run_checks(CHECKS, subject, in_order=True).errors
    for _ in range(PORT_LOOKS):
        if {name for name, _ in errors} != {PORTS}:
            break
        clock.sleep(PORT_PAUSE)
        errors = run_checks(CHECKS, subject, in_order=True).errors
    if errors:
        raise CheckFailed(
            f"this machine is not ready for the cluster {quoted(subject.record.name)}",
            detail="\n".join(f"{name}: {found}" for name, found in errors),
            remedy="fix the listed problems, then run the same command again",
        )


def _system(_: Subject) -> Iterable[Finding]:
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in {"x86_64", "aarch64"}:
        yield Finding(text=f"kubewright runs on Linux on amd64 and arm64, not on {sys.platform} on {machine}")


def _programs(subject: Subject) -> Iterable[Finding]:
    for name in COMPONENTS:
        path = subject.programs.get(name)
        if path is None or not os.access(path, os.X_OK):
            yield Finding(text=f"{name} is missing", remedy=f"get it with `kubewright binaries fetch {name}`")


def _ports(subject: Subject) -> Iterable[Finding]:
    for machine in subject.record.machines:
        if not subject.running or machine.name in subject.fresh:
            yield from _held(subject, machine)


def _held(subject: Subject, machine: LocalMachineRecord) -> Iterable[Finding]:
    for name, component in PORT_USERS.items():
        owner = subject.network.owner_of_port(machine.address, machine.ports[name])
        if owner is not None:
            stop = f"`kill {owner.pid}`" if owner.pid is not None else "find it as root with `ss -ltnp`"
            yield Finding(
                text=f"port {machine.ports[name]} at {machine.address}, for {component}, is held by {owner}", remedy=f"stop it ({stop})"
            )


def _space(subject: Subject) -> Iterable[Finding]:
    free, needed = shutil.disk_usage(subject.paths.root).free, SPACE * len(subject.record.machines)
    if free < needed:
        yield Finding(
            text=f"{subject.paths.root} has {free // 1_000_000} MB left, {needed // 1_000_000} MB are needed",
            remedy="free some space or choose --state-dir",
        )


def _descriptors(subject: Subject) -> Iterable[Finding]:
    needed = 256 + 4 * subject.record.total
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < needed:
        yield Finding(
            text=f"{subject.record.total} nodes need {needed} open files, the hard limit is {most}", remedy="raise it with `ulimit -Hn`"
        )


CHECKS: Final = (
    Check(name="system", find=_system, passes_errors_on=True),
    Check(name="binaries", find=_programs, passes_errors_on=True),
    Check(name=PORTS, find=_ports, passes_errors_on=True),
    Check(name="disk", find=_space, passes_errors_on=True),
    Check(name="open-files", find=_descriptors, passes_errors_on=True),
)
