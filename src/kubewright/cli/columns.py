"""kubeadm's tables: Go's `text/tabwriter` with a least width of 10 and three blanks between columns, so that they are equal to the byte.

A column reaches over consecutive lines that have a cell in it and another one after; the last cell of a line is written as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

LEAST: Final = 10
PADDING: Final = 3


def lay_out(lines: Sequence[Sequence[str]]) -> str:
    """Return the lines as text. A line with one cell, or none, ends the columns above it."""
    out: list[str] = []
    _format(lines, [], out)
    return "".join(out)


def _format(lines: Sequence[Sequence[str]], widths: list[int], out: list[str]) -> None:
    """Write a block of lines whose first columns have known widths (Go: `tabwriter.Writer.format`)."""
    column, index, begin = len(widths), 0, 0
    while index < len(lines):
        if column >= len(lines[index]) - 1:
            index += 1
            continue
        _write(lines[begin:index], widths, out)
        begin = index
        while index < len(lines) and column < len(lines[index]) - 1:
            index += 1
        width = max(LEAST, *(len(line[column]) + PADDING for line in lines[begin:index]))
        _format(lines[begin:index], [*widths, width], out)
        begin = index
    _write(lines[begin:], widths, out)


def _write(lines: Sequence[Sequence[str]], widths: Sequence[int], out: list[str]) -> None:
    for line in lines:
        padded = (cell.ljust(widths[index]) if index < len(widths) else cell for index, cell in enumerate(line))
        out.append("".join(padded) + "\n")


def human_duration(seconds: float) -> str:
    """Say a length of time as Kubernetes does (apimachinery `duration.HumanDuration`): `364d`, `5h3m`, `<invalid>` if it is past."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    minutes, hours = whole // 60, whole // 3600
    if whole < 120:
        return f"{max(whole, 0)}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    return _days(hours)


def _days(hours: int) -> str:
    days = hours // 24
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d") if days < 8 * 365 else f"{days // 365}y"


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"


def short_duration(seconds: float) -> str:
    """Say a length of time in its largest unit only (apimachinery `duration.ShortHumanDuration`): `23h`, `1y`, `<invalid>` if it is past."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    units = ((365 * 86400, "y"), (86400, "d"), (3600, "h"), (60, "m"))
    return next((f"{whole // size}{unit}" for size, unit in units if whole >= size), f"{max(whole, 0)}s")
