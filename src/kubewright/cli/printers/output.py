"""The output of results: JSON, YAML, tables for people, kubeadm's tables, and colours on a terminal.

kubeadm's tables are Go's `text/tabwriter` with a minimum width of 10 and three spaces between columns, byte for byte: a
column extends over consecutive lines that have a cell in it and another one after it; the last cell of a line is
written unpadded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kubewright.base import yaml
from kubewright.base.messages import each_text, one_line, printable

if TYPE_CHECKING:
    from typing import Any

    from kubewright.cli.parsing.parser import Parsed
    from kubewright.cli.printers.choosing import Printer
    from kubewright.workflow.runner import Plan

Paint = Callable[[str, str], str]
"""Decorates a text for a position: the key of a column, or a name of `_STYLES`.

Decorations have no width on the screen.
"""

OUTPUT_VERSION = "output.kubeadm.k8s.io/v1alpha3"
"""The API version of kubeadm's output kinds."""


def write_result(result: object, *, form: str) -> None:
    """Write a result to stdout as `json` (four spaces, kubeadm's indentation) or `yaml`."""
    import json

    shown = each_text(result, printable)
    if form == "yaml":
        sys.stdout.write(yaml.dump(each_text(json.loads(json.dumps(shown, default=_text)), yaml.writable, keys=True)))
    else:
        sys.stdout.write(json.dumps(shown, indent=4, default=_text) + "\n")


def write_output(data: object, text: str, *, form: str) -> None:
    """Write the result of a command to stdout: `text` for people, or `data` as `write_result` does."""
    if form == "text":
        sys.stdout.write(text)
    else:
        write_result(data, form=form)


def _text(value: object) -> str:
    return printable(str(value))


def write_plan(plan: Plan, *, form: str) -> None:
    """Write a plan to stdout: as data, or as text."""
    write_output(plan.as_list(), plan.text(), form=form)


def write_documents(documents: Sequence[Mapping[str, Any]], *, form: str) -> None:
    """Write documents to stdout in the form of `documents_text`."""
    sys.stdout.write(documents_text(documents, form=form))


def documents_text(documents: Sequence[Mapping[str, Any]], *, form: str) -> str:
    """Return documents as YAML with separators between them, or as JSON, one after the other."""
    if form == "json":
        import json

        return "".join(json.dumps(document, indent=4, default=str) + "\n" for document in documents)
    return yaml.dump_all(documents)


def printer(parsed: Parsed) -> Printer | None:
    """Return the printer for the flags PRINTED; None for text, which is the command's own. Raises UsageError."""
    from kubewright.cli.printers import choosing

    return choosing.choose(parsed.text("output"), allow_missing=parsed.flag("allow-missing-template-keys"))


def write_rows(rows: Sequence[Mapping[str, object]], *, columns: Sequence[tuple[str, str]], form: str, none: str = "") -> None:
    """Write rows to stdout: as data, or as a table.

    If there are none, the text `none` is written to stderr for people.
    """
    if form != "text":
        write_result(rows, form=form)
    elif not rows and none:
        sys.stderr.write(f"{none}\n")
    else:
        sys.stdout.write(table(rows, columns=columns))


def table(rows: Sequence[Mapping[str, object]], *, columns: Sequence[tuple[str, str]], paint: Paint | None = None) -> str:
    """Return a table of rows with headings, three spaces between columns.

    `columns` are pairs of key and heading; `paint` decorates cells. Every cell is put on one line, because it may
    contain text from elsewhere.
    """
    keys = [key for key, _ in columns]
    cells = [[heading for _, heading in columns], *([_shown(row.get(key)) for key in keys] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    return "".join(_line(line, widths, ["heading"] * len(keys) if line is cells[0] else keys, paint) for line in cells)


def _line(cells: Sequence[str], widths: Sequence[int], places: Sequence[str], paint: Paint | None) -> str:
    """Join cells. The padding of a cell is not decorated, and the last cell has none."""
    padding = [" " * (width - len(cell)) for cell, width in zip(cells, widths, strict=True)]
    painted = [paint(place, cell) for place, cell in zip(places, cells, strict=True)] if paint else cells
    return "   ".join(cell + blanks for cell, blanks in zip(painted, padding, strict=True)).rstrip() + "\n"


def _shown(value: object) -> str:
    if value is None or value == "":
        return "-"
    return one_line(str(value))


LEAST_WIDTH: Final = 10
PADDING: Final = 3
"""For kubeadm's tables: `tabwriter.NewWriter(out, 10, 4, 3, ' ', 0)`."""


def kubeadm_table(lines: Sequence[Sequence[str]]) -> str:
    """Return the lines in kubeadm's layout.

    A line with at most one cell ends the columns above it. Cells contain no newlines.
    """
    out: list[str] = []
    _format_block([[one_line(cell) for cell in line] for line in lines], [], out)
    return "".join(out)


def _format_block(lines: Sequence[Sequence[str]], widths: list[int], out: list[str]) -> None:
    """Write a block of lines whose first columns have known widths (Go: `tabwriter.Writer.format`)."""
    column, index, begin = len(widths), 0, 0
    while index < len(lines):
        if column >= len(lines[index]) - 1:
            index += 1
            continue
        _write_cells(lines[begin:index], widths, out)
        begin = index
        while index < len(lines) and column < len(lines[index]) - 1:
            index += 1
        width = max(LEAST_WIDTH, *(len(line[column]) + PADDING for line in lines[begin:index]))
        _format_block(lines[begin:index], [*widths, width], out)
        begin = index
    _write_cells(lines[begin:], widths, out)


def _write_cells(lines: Sequence[Sequence[str]], widths: Sequence[int], out: list[str]) -> None:
    for line in lines:
        padded = (cell.ljust(widths[index]) if index < len(widths) else cell for index, cell in enumerate(line))
        out.append("".join(padded) + "\n")


def human_duration(seconds: float) -> str:
    """Format a duration as Kubernetes does (apimachinery `duration.HumanDuration`): `364d`, `5h3m`, `<invalid>` if it is negative."""
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
    """Format a duration in its largest unit only (apimachinery `duration.ShortHumanDuration`): `23h`, `1y`, `<invalid>` if it is negative."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    units = ((365 * 86400, "y"), (86400, "d"), (3600, "h"), (60, "m"))
    return next((f"{whole // size}{unit}" for size, unit in units if whole >= size), f"{max(whole, 0)}s")


GREEN: Final = "32"
YELLOW: Final = "33"
RED: Final = "31"
FAINT: Final = "2"
BOLD: Final = "1"

_STATES: Final[Mapping[str, str]] = {
    "Ready": GREEN,
    "Running": YELLOW,
    "Starting": YELLOW,
    "Waiting": FAINT,
    "Stopped": FAINT,
    "NotReady": RED,
    "CrashLoop": RED,
    "Unhealthy": RED,
    "Refused": RED,
}
_STYLES: Final[Mapping[str, str]] = {"heading": BOLD, "faint": FAINT}
_STATE_COLUMNS: Final = frozenset({"state", "phase"})


class Stream(Protocol):
    """An output stream."""

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        ...


def painter(stream: Stream, environment: Mapping[str, str] = os.environ) -> Paint:
    """Return the decoration of a stream's text: none unless it is a terminal with colours."""
    return _paint if takes_colours(stream, environment) else _plain


def takes_colours(stream: Stream, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a stream is a terminal whose user wants colours: NO_COLOR is not set, and TERM is not `dumb`."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def _plain(_: str, text: str) -> str:
    return text


def _paint(place: str, text: str) -> str:
    code = _STATES.get(text) if place in _STATE_COLUMNS else _STYLES.get(place)
    return f"\x1b[{code}m{text}\x1b[0m" if code else text
