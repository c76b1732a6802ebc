"""Matrices of test outcomes, printed as tables at the end of the run.

A test that requests the fixture `matrix` records cells; a cell that raises is shown as FAILED:

    def test_a_worker_joins(matrix, ...):
        with matrix("interop").cell("first by kubeadm", "worker by kubewright"):
            ...                                           # the cell says ok, or FAILED

        with matrix("faults").cell("port taken", "init") as cell:
            ...
            cell.says("exit 4 in 0.6 s")                  # the cell says this instead of ok

A cell that is recorded several times shows counts: `ok ×8`, or `FAILED 1 of 8`. Rows and columns are in the order of their first appearance.
Cells are passed on in the `user_properties` of test reports, so that tests may run in several processes (pytest-xdist)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pytest

OK: Final = "ok"
FAILED: Final = "FAILED"
_PROPERTY: Final = "matrix"


@dataclass
class Cell:
    """One outcome, while its test is running."""

    outcome: str = OK

    def says(self, outcome: str) -> None:
        """Show this instead of `ok`."""
        self.outcome = outcome


@dataclass(frozen=True)
class Matrix:
    """One matrix, as seen by a test. `properties` are those of the test."""

    name: str
    properties: list[tuple[str, object]]

    @contextmanager
    def cell(self, row: str, column: str) -> Iterator[Cell]:
        """Record the outcome of the block."""
        cell = Cell()
        try:
            yield cell
        except BaseException:
            cell.outcome = FAILED
            raise
        finally:
            self.record(row, column, cell.outcome)

    def record(self, row: str, column: str, outcome: str = OK) -> None:
        """Record a known outcome."""
        self.properties.append((_PROPERTY, [self.name, row, column, outcome]))


@pytest.fixture
def matrix(request: pytest.FixtureRequest):
    """Give a test access to the matrices by name: `matrix("interop")`."""
    properties = request.node.user_properties
    return lambda name: Matrix(name, properties)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print every matrix of which a test of this run recorded a cell."""
    for name, cells in sorted(_collect(terminalreporter).items()):
        terminalreporter.section(f"matrix: {name}")
        for line in table(cells):
            terminalreporter.write_line(line)


Recorded = dict[tuple[str, str], list[str]]


def _collect(terminalreporter: pytest.TerminalReporter) -> dict[str, Recorded]:
    reports = [report for found in terminalreporter.stats.values() for report in found if isinstance(report, pytest.TestReport)]
    # each report of a test contains what was recorded so far; the last one contains everything
    last = {report.nodeid: report.user_properties for report in reports if report.when != "setup"}
    matrices: dict[str, Recorded] = {}
    for properties in last.values():
        for name, row, column, outcome in (value for key, value in properties if key == _PROPERTY):
            matrices.setdefault(name, {}).setdefault((row, column), []).append(outcome)
    return matrices


def table(cells: Recorded) -> list[str]:
    """Render a matrix: a line for each row, aligned columns, `-` for cells that were not recorded."""
    rows, columns = list(dict.fromkeys(row for row, _ in cells)), list(dict.fromkeys(column for _, column in cells))
    lines = [["", *columns]]
    lines += [[row, *(_told(cells.get((row, column), ())) for column in columns)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(_padded(line, widths)).rstrip() for line in lines]


def _padded(line: Sequence[str], widths: Sequence[int]) -> Iterable[str]:
    return (text.ljust(width) for text, width in zip(line, widths, strict=True))


def _told(outcomes: Sequence[str]) -> str:
    if not outcomes:
        return "-"
    failed = sum(outcome == FAILED for outcome in outcomes)
    if failed:
        return FAILED if len(outcomes) == 1 else f"{FAILED} {failed} of {len(outcomes)}"
    told = ", ".join(dict.fromkeys(outcomes))
    return told if len(outcomes) == 1 else f"{told} ×{len(outcomes)}"
