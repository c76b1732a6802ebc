"""Read more about a component's process from /proc than `host.processes`: its purpose, its age, its usage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kubewright.base.records import dataclass
from kubewright.host.processes import Identity, RealProcesses, environment
from kubewright.local.mark import Mark

MACHINE: Final = "KUBEWRIGHT_MACHINE"
COMPONENT: Final = "KUBEWRIGHT_COMPONENT"
MANIFEST: Final = "KUBEWRIGHT_MANIFEST"
LAUNCH: Final = "KUBEWRIGHT_LAUNCH"

_PROC: Final = Path("/proc")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class ProcessStat:
    """The fields of /proc/PID/stat (proc_pid_stat(5)), also of a process that has ended and was not reaped."""

    group: int
    session: int
    start_time: int
    cpu_seconds: float
    rss_bytes: int


@dataclass(frozen=True, kw_only=True)
class ComponentProcess:
    """A component's process of a cluster, and its purpose."""

    identity: Identity
    group: int
    leader: bool
    """Whether it leads its session: the supervisor started it; the others are its descendants."""
    machine: str
    component: str
    manifest: str
    launch: str


def stat_of(pid: int) -> ProcessStat | None:
    """Read the kernel's data about a process; None if it does not exist."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("ascii", "replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name in parentheses may contain any characters
    return ProcessStat(
        group=int(fields[2]),
        session=int(fields[3]),
        start_time=int(fields[19]),
        cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
        rss_bytes=int(fields[21]) * _PAGE,
    )


def identity_of_child(pid: int) -> Identity:
    """Return the identity of an unreaped child process, which keeps its pid even if it has ended."""
    facts = stat_of(pid)
    boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
    return Identity(pid=pid, start_time=facts.start_time if facts is not None else 0, boot_id=boot)


def age(identity: Identity) -> float:
    """Return the seconds since a process of this boot was started."""
    uptime = float((_PROC / "uptime").read_text("ascii").split()[0])
    return max(0.0, uptime - identity.start_time / _TICKS)


def find_components(mark: Mark) -> list[ComponentProcess]:
    """Find every living component process of a cluster, on any of its machines."""
    marked = RealProcesses().marked(mark.variables, shared=mark.shared)
    return [found for identity in marked if (found := _component_process(identity)) is not None]


def _component_process(identity: Identity) -> ComponentProcess | None:
    facts = stat_of(identity.pid)
    content = environment(identity.pid).decode("utf-8", "replace")
    env = dict(part.split("=", 1) for part in content.split("\0") if "=" in part)
    if facts is None or not env.get(COMPONENT):
        return None
    return ComponentProcess(
        identity=identity,
        group=facts.group,
        leader=facts.session == identity.pid,
        machine=env.get(MACHINE, ""),
        component=env[COMPONENT],
        manifest=env.get(MANIFEST, ""),
        launch=env.get(LAUNCH, ""),
    )
