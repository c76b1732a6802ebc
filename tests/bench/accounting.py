"""What processes have used, from /proc. Reads procfs itself, because the figures must not depend on the code that they judge."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.running import BenchmarkFailed

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_KIB: Final = 1024


@dataclass(frozen=True, kw_only=True)
class Used:
    """One process: its parent, CPU seconds (user and system) since its start, its peak memory, and its current memory."""

    pid: int
    parent: int
    name: str
    cpu_seconds: float
    started: float
    """Seconds on the clock that `time.clock_gettime(CLOCK_BOOTTIME)` reads, with a resolution of 10 ms."""
    peak_bytes: int
    resident_bytes: int


def used_by(pid: int) -> Used:
    """Read one process. Raises OSError if there is none."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()  # starting at the third field of proc(5)
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    peak, resident = (next((line.split()[1] for line in status if line.startswith(name)), "0") for name in ("VmHWM:", "VmRSS:"))
    return Used(
        pid=pid,
        parent=int(fields[1]),
        name=name,
        cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
        started=int(fields[19]) / _TICKS,
        peak_bytes=int(peak) * _KIB,
        resident_bytes=int(resident) * _KIB,
    )


def children_of(pid: int) -> list[Used]:
    """Return the living children of a process, oldest first."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            one = used_by(int(entry.name))
        except OSError:  # it ended in the meantime
            continue
        if one.parent == pid:
            found.append(one)
    return sorted(found, key=lambda one: (one.started, one.pid))


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The daemon of a cluster and its components."""

    daemon: Used
    components: tuple[Used, ...]

    @property
    def component_cpu(self) -> float:
        """CPU seconds of all components."""
        return sum(one.cpu_seconds for one in self.components)


COMPONENTS: Final = 4


def cluster_of(root: Path) -> Cluster:
    """Read a cluster from its daemon's record. Raises BenchmarkFailed unless the four components run below it."""
    pid = int((root / "daemon.json").read_text(encoding="ascii").split(":")[0])
    found = Cluster(daemon=used_by(pid), components=tuple(children_of(pid)))
    if len(found.components) != COMPONENTS:
        raise BenchmarkFailed(f"{len(found.components)} components run below the daemon, not {COMPONENTS}")
    return found
