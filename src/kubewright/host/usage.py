"""A machine's usage of memory and process ids, as the kubelet measures it (cAdvisor; kubelet v1.36: pkg/kubelet/eviction).

Pure over the reading verbs; kernel files that cannot be read count as empty.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import HostError
from kubewright.base.records import dataclass
from kubewright.host.readers import FileReader

_STATES: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_IDLE: Final = ("idle", "iowait")
_V1: Final = PurePosixPath("/sys/fs/cgroup/memory")
"""The root of the memory hierarchy of cgroup v1."""
_V2: Final = PurePosixPath("/sys/fs/cgroup")
"""The root of the only hierarchy of v2.

Its usage is anonymous plus cached memory, as in v1 (opencontainers/cgroups: fs2/memory.go).
"""


@dataclass(frozen=True, kw_only=True)
class Amount:
    """A total amount, and how much of it is available."""

    capacity: int
    available: int


def meminfo(files: FileReader) -> dict[str, int]:
    """Return /proc/meminfo in bytes, by name."""
    rows = (line.partition(":") for line in _text(files, PurePosixPath("/proc/meminfo")).splitlines())
    return {name: _number(value) * 1024 for name, _, value in rows}


def memory(files: FileReader) -> Amount | None:
    """Return the machine's memory. Usage is the working set: without the page cache that the kernel reclaims first.

    None if /proc cannot be read.
    """
    info = meminfo(files)
    if "MemTotal" not in info:
        return None
    total = info["MemTotal"]
    return Amount(capacity=total, available=total - min(total, working_set(files, info)))


def working_set(files: FileReader, info: Mapping[str, int]) -> int:
    """Return the bytes in use: from the machine's memory cgroup, v1 or v2, or from `meminfo` if there is none."""
    usage = _digits(files, _V1 / "memory.usage_in_bytes")
    if usage is not None:
        return max(0, usage - _stat(files, _V1).get("total_inactive_file", 0))
    stat = _stat(files, _V2)
    if "anon" in stat:
        current = _digits(files, _V2 / "memory.current")  # the root cgroup has no such file
        usage = stat["anon"] + stat.get("file", 0) if current is None else current
        return max(0, usage - stat.get("inactive_file", 0))
    return max(0, info["MemTotal"] - info.get("MemFree", 0) - info.get("Inactive(file)", 0))


def _stat(files: FileReader, cgroup: PurePosixPath) -> dict[str, int]:
    rows = (line.partition(" ") for line in _text(files, cgroup / "memory.stat").splitlines())
    return {name: _number(value) for name, _, value in rows}


def _digits(files: FileReader, path: PurePosixPath) -> int | None:
    text = _text(files, path).strip()
    return int(text) if text.isdigit() else None


def processor_seconds(files: FileReader) -> float | None:
    """Return the seconds that processors have worked since the boot; None if /proc cannot be read.

    Waiting for disks does not count.
    """
    lines = _text(files, PurePosixPath("/proc/stat")).splitlines()
    numbers = [int(word) for word in lines[0].split()[1:9] if word.isdigit()] if lines and lines[0].startswith("cpu ") else []
    if len(numbers) < len(_STATES):
        return None
    return sum(number for state, number in zip(_STATES, numbers, strict=False) if state not in _IDLE) / os.sysconf("SC_CLK_TCK")


def process_ids(files: FileReader) -> Amount | None:
    """Return the process ids of the machine; None if /proc cannot be read. Threads count."""
    limits = [_number(_text(files, PurePosixPath("/proc/sys/kernel") / name)) for name in ("pid_max", "threads-max")]
    load = _text(files, PurePosixPath("/proc/loadavg")).split()
    if not all(limits) or len(load) < 4:
        return None
    most = min(limits)
    return Amount(capacity=most, available=max(0, most - _number(load[3].partition("/")[2])))


def _text(files: FileReader, path: PurePosixPath) -> str:
    with suppress(HostError):
        return (files.read(path) or b"").decode("utf-8", errors="replace")
    return ""


def _number(text: str) -> int:
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    return int(first) if first.isdigit() else 0
