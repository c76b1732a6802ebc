"""Figures as a table: on the terminal, and between two marks in docs/performance.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tests.bench.model import MEBIBYTES, RATE, RATIO, SECONDS, Figure, Result

BEGIN: Final = "<!-- figures: made by `make bench`, not by hand -->"
END: Final = "<!-- end of figures -->"

_HEADER: Final = ("figure", "target", "measured", "range", "rounds", "met")


def number(one: Figure, value: float) -> str:
    """Write a value with its unit."""
    if one.unit == RATIO:
        return f"{value:.2f} ×"
    if one.unit == MEBIBYTES:
        return f"{value:.0f} MiB"
    if one.unit == RATE:
        return f"{value:.0f}/s"
    if one.unit == SECONDS and abs(value) < 0.1:
        return f"{value * 1000:.1f} ms"
    return f"{value:.2f} s" if value < 100 else f"{value:.0f} s"


def row(one: Figure) -> tuple[str, ...]:
    """Return the cells of one figure."""
    target = "" if one.target is None else f"≤ {number(one, one.target)}"
    met = "" if one.target is None else "yes" if one.met else "**no**"
    spread = f"{number(one, min(one.samples))} to {number(one, max(one.samples))}"
    value = number(one, one.value) + (" (maximum)" if one.statistic == "max" else "")
    return (one.name, target, value, spread, str(len(one.samples)), met)


def text(results: Iterable[Result]) -> str:
    """Return the table for a terminal."""
    rows = [_HEADER, *(row(one) for found in results for one in found.figures)]
    plain = [[cell.replace("`", "").replace("**", "") for cell in cells] for cells in rows]
    widths = [max(len(cells[column]) for cells in plain) for column in range(len(_HEADER))]
    return "".join("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() + "\n" for cells in plain)


def markdown(results: Sequence[Result]) -> str:
    """Return one table per benchmark, with the commit, date and machine of the measurement."""
    parts = []
    for found in results:
        machine = found.machine
        lines = [_HEADER, tuple("---" for _ in _HEADER), *(row(one) for one in found.figures)]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        where = (
            f"{found.commit}, {found.taken[:10]}, {machine['cores']} cores ({machine['processor'] or machine['architecture']}), "
            f"{machine['memoryMiB'] / 1024:.0f} GiB, Linux {machine['kernel']}, Python {machine['python']}, Kubernetes {machine['kubernetes']}"
        )
        parts.append(f"### {found.benchmark}\n\n{where}\n\n{table}\n")
    return "\n".join(parts)


def fill(document: Path, results: Sequence[Result]) -> None:
    """Replace the text between the marks of the document. Raises ValueError if it has no marks."""
    before, begin, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{document} lacks {BEGIN} or {END}")
    document.write_text(f"{before}{BEGIN}\n\n{markdown(results)}\n{END}{after}", encoding="utf-8")
