"""The two pictures of docs/performance.md: how far each figure is from its target, and the timeline of one `up`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.bench.model import Figure
from tests.bench.report import number
from tests.bench.svg import FAINT, INK, Picture
from tests.bench.timeline import COMPONENT, NODE, PHASE

_ROW: Final = 26
_LABELS: Final = 560
_WIDTH: Final = 1200
_RIGHT: Final = 80
_TOP: Final = 40

_GOOD: Final = "#2da44e"
_BAD: Final = "#cf222e"
_COLORS: Final = {PHASE: "#54aeff", COMPONENT: "#bf8700", NODE: "#2da44e"}
_HEADINGS: Final = {PHASE: "phases of up", COMPONENT: "processes, from start to service", NODE: "nodes, from registered to Ready"}


def targets(figures: Sequence[Figure]) -> str:
    """Draw each figure that has a target relative to it: a bar for its value, a dot for each round."""
    rows = [one for one in figures if one.target]
    picture = Picture(_WIDTH, _TOP + _ROW * len(rows) + 30, title="Measured figures relative to their targets")
    most = max([1.25, *(max(one.samples) / (one.target or 1) for one in rows)])
    scale = (_WIDTH - _LABELS - _RIGHT) / most
    bottom = _TOP + _ROW * len(rows)
    for part in [0.25 * step for step in range(int(most / 0.25) + 1)]:
        picture.line(_LABELS + part * scale, _TOP - 8, _LABELS + part * scale, bottom)
        picture.text(_LABELS + part * scale, bottom + 16, f"{part:.0%}", color=FAINT, anchor="middle")
    for place, one in enumerate(rows):
        _target_row(picture, one, y=_TOP + _ROW * place, scale=scale)
    picture.line(_LABELS + scale, _TOP - 12, _LABELS + scale, bottom, color=INK)
    picture.text(_LABELS + scale, _TOP - 18, "target", anchor="middle")
    return str(picture)


def _target_row(picture: Picture, one: Figure, *, y: float, scale: float) -> None:
    share = one.share or 0
    picture.text(_LABELS - 8, y + 15, one.name.replace("`", ""), anchor="end")
    picture.rectangle(
        _LABELS, y + 4, share * scale, _ROW - 10, fill=_GOOD if one.met else _BAD, hint=f"{one.name}: {number(one, one.value)}"
    )
    for sample in one.samples:
        picture.dot(_LABELS + sample / (one.target or 1) * scale, y + _ROW / 2 - 1, color=INK, hint=number(one, sample))
    picture.text(_WIDTH - 8, y + 15, number(one, one.value), anchor="end")


def course(timeline: Mapping[str, Any]) -> str:
    """Draw the timeline of one `up`: phases, processes, nodes, and milestones."""
    bars: list[Mapping[str, Any]] = timeline["bars"]
    rows = len(bars) + len(_HEADINGS)
    bottom = _TOP + 18 * rows + 8
    longest = max([timeline["total"], *(bar["end"] for bar in bars)])
    scale = (_WIDTH - _LABELS - _RIGHT) / longest
    picture = Picture(_WIDTH, bottom + 30, title="The course of one up")
    step = 0.5 if longest < 7 else 1.0
    for tick in range(math.floor(longest / step) + 1):
        x = _LABELS + tick * step * scale
        picture.line(x, _TOP - 8, x, bottom)
        picture.text(x, bottom + 16, f"{tick * step:g} s", color=FAINT, anchor="middle")
    y = float(_TOP)
    for kind, heading in _HEADINGS.items():
        picture.text(8, y + 13, heading, color=FAINT)
        y += 18
        for bar in bars:
            if bar["kind"] == kind:
                _course_row(picture, bar, y=y, scale=scale)
                y += 18
    for place, (name, moment) in enumerate(sorted(timeline["marks"].items(), key=lambda item: item[1])):
        x = _LABELS + moment * scale
        picture.line(x, _TOP - 8, x, bottom, color=INK, dashes="4 3")
        picture.text(x, _TOP - 12 - 12 * (place % 2), f"{name} {moment:.2f} s", anchor="end" if place == 0 else "middle")
    return str(picture)


def _course_row(picture: Picture, bar: Mapping[str, Any], *, y: float, scale: float) -> None:
    start, end = bar["start"], bar["end"]
    picture.text(_LABELS - 8, y + 13, bar["label"], anchor="end")
    hint = f"{bar['label']}: {start:.2f} to {end:.2f} s"
    picture.rectangle(_LABELS + start * scale, y + 3, max((end - start) * scale, 1.5), 12, fill=_COLORS[bar["kind"]], hint=hint)
    picture.text(_LABELS + end * scale + 5, y + 13, f"{end - start:.2f}", color=FAINT)
