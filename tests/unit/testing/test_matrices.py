"""The tables at the end of a run: what tests record, shown as one matrix, even if tests fail or run in several processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import matrices

pytest_plugins = ["pytester"]

RECORDS = """
import pytest

@pytest.mark.parametrize("first", ["kubeadm", "kubewright"])
@pytest.mark.parametrize("worker", ["kubeadm", "kubewright"])
def test_joins(matrix, first, worker):
    with matrix("interop").cell(f"first {first}", f"worker {worker}"):
        assert (first, worker) != ("kubeadm", "kubewright"), "no such luck"

@pytest.mark.parametrize("moment", range(3))
def test_kills(matrix, moment):
    with matrix("kill").cell("init", "random") as cell:
        if moment == 1:
            cell.says("went on")

def test_alone(matrix):
    matrix("kill").record("join", "boundaries", "12 of 12")
"""
EXPECTED = [
    "*matrix: interop*",
    "                  worker kubeadm  worker kubewright",
    "first kubeadm     ok              FAILED",
    "first kubewright  ok              ok",
    "*matrix: kill*",
    "      random          boundaries",
    "init  ok, went on ×3  -",
    "join  -               12 of 12",
]


COUNTS = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_it(matrix, number):
    with matrix("m").cell("row", "column"):
        assert number
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(matrices.__file__).parent))

    def run(text: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(text)
        return pytester.runpytest_subprocess("-p", "matrices", *arguments)

    return run


def test_recorded_cells_are_printed_at_the_end(run: Callable[..., pytest.RunResult]) -> None:
    result = run(RECORDS)
    result.assert_outcomes(passed=7, failed=1)
    result.stdout.fnmatch_lines(EXPECTED)


def test_cells_of_several_processes_are_printed_once(run: Callable[..., pytest.RunResult]) -> None:
    result = run(RECORDS, "-p", "xdist", "-n", "2")
    result.assert_outcomes(passed=7, failed=1)
    text = result.stdout.str()
    assert [text.count(f"matrix: {name}") for name in ("interop", "kill")] == [1, 1]
    # it is unknown which test ends first, and therefore the order of the columns
    assert {"first kubeadm", "FAILED"} <= {part.strip() for line in text.splitlines() for part in line.split("  ")}
    assert text.count("12 of 12") == 1


def test_a_run_that_records_nothing_prints_nothing(run: Callable[..., pytest.RunResult]) -> None:
    assert "matrix:" not in run("def test_nothing():\n    pass\n").stdout.str()


def test_a_cell_counts_its_failures(run: Callable[..., pytest.RunResult]) -> None:
    run(COUNTS).stdout.fnmatch_lines(["row  FAILED 1 of 4"])
