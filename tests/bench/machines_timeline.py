"""The picture of where the time of `init` goes: both tools on one scale, each milestone at the median of all rounds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.bench.machines_running import KUBEADM, KUBEWRIGHT
from tests.bench.svg import FAINT, INK, Picture

_WIDTH: Final = 1040
_LABELS: Final = 310
_RIGHT: Final = 70
_TOP: Final = 46
_ROW: Final = 20

_COLORS: Final = {KUBEADM: "#8c959f", KUBEWRIGHT: "#2da44e"}

COMMAND: Final = "the command"
ROWS: Final[tuple[tuple[str, str, str], ...]] = (
    (COMMAND, "", "command"),
    ("kubelet, to its first process", "kubelet", "etcd"),
    ("etcd, process to open port", "etcd", "etcd listens"),
    ("API server, process to first answer", "kube-apiserver", "API answers"),
    ("API server, first answer to readyz", "API answers", "readyz"),
    ("Node, registered to Ready", "Node registered", "Node Ready"),
    ("controller manager, process to health", "kube-controller-manager", "controller-manager healthy"),
    ("controller manager, from there to its first pod", "controller-manager healthy", "kube-proxy"),
    ("scheduler, process to health", "kube-scheduler", "scheduler healthy"),
    ("kube-proxy, process to available", "kube-proxy", "kube-proxy available"),
    ("CoreDNS, process to available", "coredns", "CoreDNS available"),
    ("CoreDNS, to all its pods", "CoreDNS available", "all CoreDNS pods"),
)
"""The rows: a label, and the milestones between which its bar is drawn. A program's name is the start of its process, "" that of the command.
"""

Course = Mapping[str, Any]


def medians(courses: Sequence[Course]) -> dict[str, float]:
    """Return each milestone's median; the start of a process is the latest start under its name, so that restarts count."""
    gathered: dict[str, list[float]] = {}
    for course in courses:
        moments = {"": 0.0, "command": course["command"], **course["started"], **course["seen"]}
        for name, moment in moments.items():
            gathered.setdefault(name, []).append(moment)
    return {name: statistics.median(found) for name, found in gathered.items()}


def picture(courses: Mapping[str, Sequence[Course]]) -> str:
    """Draw both tools, row by row: kubeadm above, kubewright below."""
    found = {tool: medians(courses[tool]) for tool in (KUBEADM, KUBEWRIGHT)}
    longest = max(moment for one in found.values() for moment in one.values())
    height = _TOP + len(ROWS) * (2 * _ROW + 6)
    scale = (_WIDTH - _LABELS - _RIGHT) / longest
    drawing = Picture(_WIDTH, height + 56, title="Where the seconds of init go")
    for tick in range(math.floor(longest) + 1):
        x = _LABELS + tick * scale
        drawing.line(x, _TOP - 8, x, height)
        if tick % 2 == 0:
            drawing.text(x, height + 16, f"{tick} s", color=FAINT, anchor="middle")
    for number, (label, start, end) in enumerate(ROWS):
        y = _TOP + number * (2 * _ROW + 6)
        drawing.text(_LABELS - 8, y + _ROW + 2, label, anchor="end")
        for place, tool in enumerate((KUBEADM, KUBEWRIGHT)):
            if start in found[tool] and end in found[tool]:
                _bar(drawing, tool, found[tool][start], found[tool][end], y=y + place * (_ROW - 2), scale=scale)
    _legend(drawing, courses)
    return str(drawing)


def _bar(drawing: Picture, tool: str, start: float, end: float, *, y: float, scale: float) -> None:
    end = max(start, end)
    hint = f"{tool}: {start:.2f} to {end:.2f} s"
    drawing.rectangle(_LABELS + start * scale, y + 2, max((end - start) * scale, 1.5), _ROW - 6, fill=_COLORS[tool], hint=hint)
    drawing.text(_LABELS + end * scale + 5, y + 13, f"{end - start:.2f}", color=FAINT)


def _legend(drawing: Picture, courses: Mapping[str, Sequence[Course]]) -> None:
    for place, tool in enumerate((KUBEADM, KUBEWRIGHT)):
        x = _LABELS + place * 160
        drawing.rectangle(x, 12, 14, 14, fill=_COLORS[tool])
        drawing.text(x + 20, 24, f"{tool} init", color=INK)
    drawing.text(_LABELS + 330, 24, f"seconds since its start, medians of {len(courses[KUBEADM])} rounds", color=FAINT)
