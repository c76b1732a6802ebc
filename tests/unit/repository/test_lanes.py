"""Which tests run beside which, and which skips CI takes: the rules of tests/lanes.py and tests/skips.py."""

from __future__ import annotations

from pathlib import Path

import pytest

import lanes
import skips
from lanes import TOGETHER

pytest_plugins = ["pytester"]
TESTS = Path(skips.__file__).parent

ONE, TWO, THREE = (f"tests/machines/{name}" for name in ("test_kill_init.py", "test_reset_machines.py", "test_testbed.py"))
LIGHT = "tests/unit/x/test_x.py"


@pytest.mark.parametrize(
    ("waiting", "others", "chosen"),
    [
        ([LIGHT, THREE, TOGETHER], [], TOGETHER),
        ([LIGHT, THREE, TWO, ONE], [TOGETHER], ONE),
        ([LIGHT, THREE, TWO], [TOGETHER, ONE], TWO),
        ([LIGHT, THREE], [ONE, TWO], LIGHT),
        ([THREE], [ONE, TWO], None),
        ([THREE], [ONE, LIGHT], THREE),
    ],
)
def test_two_files_on_whole_machines_run_at_a_time_and_the_longest_begin(waiting: list[str], others: list[str], chosen: str | None) -> None:
    assert lanes.choose(waiting, others) == chosen


def test_a_file_stays_together_and_so_do_the_tests_that_share_an_api_server() -> None:
    assert lanes.scope("tests/machines/test_kill_init.py::TestInit::test_x[1]") == ONE
    assert {lanes.scope(f"tests/controlplane/test_{name}.py::test_x") for name in "ab"} == {TOGETHER}


def test_the_files_that_take_long_exist() -> None:
    assert [name for name in lanes.LONG if not (TESTS / "machines" / name).is_file()] == []


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
    assert len({worker for worker, name, _ in rows if "controlplane" in name}) == 1


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
