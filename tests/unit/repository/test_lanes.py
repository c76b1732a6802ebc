"""Which test files run at the same time, and which skips CI accepts: the rules of tests/lanes.py and tests/skips.py."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import lanes
import skips
from lanes import COSTS as ALL_COSTS
from lanes import PLUGIN_CLUSTER, REST, TOGETHER, Cost

pytest_plugins = ["pytester"]
TESTS = Path(skips.__file__).parent

BIG, SMALL = "tests/machines/test_faults_quorum.py", "tests/machines/test_testbed.py"
SEVERAL, ONE = "tests/controlplane/test_local_control_planes.py", "tests/controlplane/test_local_use.py"
LONG, LIGHT = "tests/compat/test_malformed_input.py", "tests/unit/x/test_x.py"


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that does not change with the suite."""
    costs = {BIG: (4, 140), SMALL: (3, 20), SEVERAL: (3, 60), ONE: (2, 10), LONG: (0, 100)}
    monkeypatch.setattr(lanes, "COSTS", {name: Cost(*cost) for name, cost in costs.items()})


@pytest.mark.parametrize(
    ("waiting", "others", "chosen"),
    [
        ([LIGHT, LONG, SMALL, BIG], [], BIG),  # files with a weight, the longest first
        ([LIGHT, LONG, SMALL, ONE], [BIG], ONE),  # the longest for which there is room
        ([LIGHT, LONG, SMALL, ONE], [BIG, ONE], LONG),  # files without a weight fill the other processes
        ([LIGHT, SMALL], [SMALL], SMALL),
        ([LIGHT, SMALL], [SMALL, ONE], LIGHT),
        ([SMALL], [SMALL, ONE], None),
        ([ONE], [ONE, ONE], ONE),
        ([LIGHT], [BIG, BIG], LIGHT),
    ],
)
def test_files_that_start_clusters_or_machines_run_while_there_is_room(waiting: list[str], others: list[str], chosen: str | None) -> None:
    assert lanes.choose(waiting, others, limit=6) == chosen
    assert lanes.choose(waiting[::-1], others, limit=6) == chosen


def test_two_files_that_boot_machines_and_one_that_starts_a_control_plane_fit_in_the_rest() -> None:
    assert lanes.choose([BIG], [BIG], limit=6) is None
    assert lanes.choose([BIG], [BIG], limit=REST) == BIG
    assert lanes.choose([BIG, ONE], [BIG, BIG], limit=10) == ONE
    assert lanes.choose([BIG, LIGHT], [BIG, BIG], limit=10) == LIGHT


def test_the_rest_runs_the_longest_file_next_whether_it_has_a_weight_or_not() -> None:
    assert lanes.choose([LIGHT, LONG, SEVERAL, SMALL], [BIG], limit=10, mixed=True) == LONG
    assert lanes.choose([LIGHT, LONG, SEVERAL, SMALL], [BIG], limit=10) == SEVERAL
    assert lanes.choose([BIG, LONG, SMALL], [], limit=10, mixed=True) == BIG


def test_a_file_stays_together_and_so_do_the_files_that_share_the_cluster_of_the_plugin() -> None:
    assert lanes.scope("tests/machines/test_kill_init.py::TestInit::test_x[1]") == "tests/machines/test_kill_init.py"
    assert lanes.scope("tests/controlplane/test_local_use.py::test_x") == ONE
    assert {lanes.scope(f"tests/controlplane/test_{name}.py::test_x") for name in TOGETHER} == {PLUGIN_CLUSTER}
    assert lanes.cost("tests/controlplane/test_new.py") == lanes.FOLDERS["tests/controlplane/"]
    assert ALL_COSTS[PLUGIN_CLUSTER].weight == lanes.FOLDERS["tests/controlplane/"].weight


def test_the_files_that_share_the_cluster_of_the_plugin_are_those_that_ask_for_it() -> None:
    found = {path.stem.removeprefix("test_") for path in (TESTS / "controlplane").glob("test_*.py") if _asked_for(path) & FIXTURES}
    assert found == set(TOGETHER)


FIXTURES = {"kubewright_cluster", "kubewright_namespace", "controlplane"}


def _asked_for(path: Path) -> set[str]:
    """Return the fixtures that the functions of a file request."""
    functions = [one for one in ast.parse(path.read_text()).body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {argument.arg for function in functions for argument in function.args.args}


def test_the_files_of_the_table_exist_and_fit_next_to_another_one() -> None:
    assert [name for name in ALL_COSTS if name != PLUGIN_CLUSTER and not (TESTS.parent / name).is_file()] == []
    assert [name for name, cost in ALL_COSTS.items() if 2 * cost.weight > REST] == []


NOTES = """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(4))
def test_it(number):
    with (pathlib.Path(__file__).parents[2] / "ran").open("a") as ran:
        ran.write(f"{os.environ['PYTEST_XDIST_WORKER']} {pathlib.Path(__file__).name} {number}\\n")
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    return pytester.runpytest_subprocess


@pytest.mark.parametrize("workers", [1, 3])
def test_every_test_runs_once_and_a_file_in_one_process(pytester: pytest.Pytester, run, workers: int) -> None:
    folders = {"machines": 5, "unit": 2, "controlplane": 2}
    for folder, count in folders.items():
        place = pytester.mkdir("tests") if not (pytester.path / "tests").exists() else pytester.path / "tests"
        (place / folder).mkdir()
        for number in range(count):
            (place / folder / f"test_{folder}_{number}.py").write_text(NOTES)
    result = run("-p", "xdist", "-p", "lanes", "-n", str(workers), "tests")
    result.assert_outcomes(passed=4 * sum(folders.values()))
    rows = [line.split() for line in (pytester.path / "ran").read_text().splitlines()]
    assert len(rows) == len({(name, number) for _, name, number in rows}) == 4 * sum(folders.values())
    assert len({(worker, name) for worker, name, _ in rows}) == sum(folders.values())


SKIPS = """
import pytest

@pytest.mark.skipif(True, reason="there is no such program")
def test_marked():
    pass

def test_called():
    pytest.skip("no luck")

def test_allowed():
    pytest.skip("root may write anywhere")

@pytest.mark.xfail(strict=True)
def test_expected():
    assert False
"""


def test_in_ci_a_skip_whose_reason_is_not_listed_is_a_failure(pytester: pytest.Pytester, run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(SKIPS)
    monkeypatch.delenv("CI", raising=False)
    run("-p", "skips").assert_outcomes(skipped=3, xfailed=1)
    monkeypatch.setenv("CI", "true")
    for processes in ((), ("-p", "xdist", "-n", "1")):
        result = run("-p", "skips", *processes)
        result.assert_outcomes(skipped=1, failed=1, errors=1, xfailed=1)
        assert result.stdout.str().count("the reason is not on the list of tests/skips.py: no luck") >= 1


def test_the_list_of_skips_is_short_and_has_no_dead_row() -> None:
    texts = [path.read_text() for path in TESTS.rglob("*.py") if path.name != "skips.py"]
    assert len(skips.ALLOWED) < 6
    assert [reason for reason in skips.ALLOWED if not any(f'"{reason}"' in text for text in texts)] == []
