"""What a machine has in use of its memory and its process ids, as the kubelet measures it (cAdvisor; pkg/kubelet/eviction; spec/node.md 6 and 20).

Pure over the reading verbs; text of the kernel that cannot be read counts as empty.
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
_MEMORY_CGROUP: Final = PurePosixPath("/sys/fs/cgroup/memory")
"""The root of the memory hierarchy of cgroup v1. v2 has one hierarchy, whose root has no figures of its own."""


@dataclass(frozen=True, kw_only=True)
class Amount:
    """How much there is of something, and how much of that is left."""

    capacity: int
    available: int


def meminfo(files: FileReader) -> dict[str, int]:
    """Return /proc/meminfo in bytes, by name."""
    rows = (line.partition(":") for line in _text(files, PurePosixPath("/proc/meminfo")).splitlines())
    return {name: _number(value) * 1024 for name, _, value in rows}


def memory(files: FileReader) -> Amount | None:
    """Return the machine's memory. What is in use is its working set: without the page cache that the kernel gives up first.

    None where /proc is not to be read.
    """
    info = meminfo(files)
    if "MemTotal" not in info:
        return None
    total = info["MemTotal"]
    return Amount(capacity=total, available=total - min(total, working_set(files, info)))


def working_set(files: FileReader, info: Mapping[str, int]) -> int:
    """Return the bytes in use: of the root of cgroup v1 where there is one, else of what `meminfo` says, as cAdvisor does for v2."""
    usage = _text(files, _MEMORY_CGROUP / "memory.usage_in_bytes")
    if usage.strip().isdigit():
        stat = dict(line.partition(" ")[::2] for line in _text(files, _MEMORY_CGROUP / "memory.stat").splitlines())
        return max(0, int(usage) - _number(stat.get("total_inactive_file", "")))
    return max(0, info["MemTotal"] - info.get("MemFree", 0) - info.get("Inactive(file)", 0))


def processor_seconds(files: FileReader) -> float | None:
    """Return the seconds that processors have worked since the boot; None where /proc is not to be read. Waiting for disks is no work."""
    lines = _text(files, PurePosixPath("/proc/stat")).splitlines()
    numbers = [int(word) for word in lines[0].split()[1:9] if word.isdigit()] if lines and lines[0].startswith("cpu ") else []
    if len(numbers) < len(_STATES):
        return None
    return sum(number for state, number in zip(_STATES, numbers, strict=False) if state not in _IDLE) / os.sysconf("SC_CLK_TCK")


def process_ids(files: FileReader) -> Amount | None:
    """Return the process ids of the machine; None where /proc is not to be read. Threads count."""
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
