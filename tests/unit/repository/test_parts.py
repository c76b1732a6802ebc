"""The parts of the suite (tests/parts.py): every test is in one of them, and the first has a fifth of the generated examples."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import parts
from parts import CASES, EXAMPLES, FIRST, REST, SOAK, TABLE

pytest_plugins = ["pytester"]
TESTS = Path(parts.__file__).parent


@pytest.mark.parametrize(
    ("nodeid", "part"),
    [
        ("tests/unit/x/test_x.py::test_x", FIRST),
        ("tests/machines/test_new.py::TestX::test_x[a/b::c]", REST),
        ("tests/controlplane/test_local_down.py::test_down_of_a_missing_cluster_is_no_error", FIRST),
        ("tests/controlplane/test_local_down.py::test_down_leaves_nothing[_litter]", REST),
        ("tests/machines/test_kill_worker.py::TestWorkerJoin::test_killed_at_a_boundary_between_phases[0]", FIRST),
        ("tests/machines/test_kill_worker.py::TestWorkerJoin::test_killed_at_a_boundary_between_phases[1]", SOAK),
        ("tests/machines/test_kill_init.py::TestInit::test_killed_at_a_boundary_between_phases[3]", SOAK),
        ("tests/compat/test_command_lines.py::test_x[a]", CASES),
        ("tests/compat/test_config_differential.py::test_broken_files_are_treated_as_by_kubeadm", EXAMPLES),
    ],
)
def test_the_most_specific_row_counts(nodeid: str, part: parts.Part) -> None:
    assert parts.part_of(nodeid) is part


def test_a_row_names_something_that_exists_and_does_not_repeat_the_row_above_it() -> None:
    assert len(TABLE) > 40
    assert [row for row in TABLE if not _exists(*row.partition("[")[0].split("::"))] == []
    above = {row: next((one for one in parts.prefixes(row)[1:] if one != row and one in TABLE), None) for row in TABLE}
    assert [row for row, other in above.items() if other and TABLE[row] is TABLE[other]] == []


def _exists(path: str, *names: str) -> bool:
    """Whether there is a folder or a file, and in it a function or class; methods may be inherited."""
    place = TESTS.parent / path
    if not names or not place.is_file():
        return place.exists() and not names
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(one, kinds) and one.name == names[0] for one in ast.parse(place.read_text()).body)


EXAMPLE = "tests/compat/test_config_differential.py"
SUITE = {
    "tests/unit/test_a.py": "import pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_a(n): pass\n",
    "tests/machines/test_init_machines.py": "def test_a(): pass\ndef test_b(): pass\n",
    "tests/machines/test_b.py": "class TestB:\n    def test_b(self): pass\n",
    "tests/machines/test_whole_kills.py": "def test_k(): pass\n",
    "tests/compat/test_d.py": "import pytest\n@pytest.mark.parametrize('n', range(7))\ndef test_d(n): pass\ndef test_e(): pass\n",
    EXAMPLE: "import parts\ndef test_c(): print('examples', parts.examples(300), parts.seed(7))\n",
}
COUNTS = {"first": (8, "examples 60 7"), "rest": (6, "examples 60 8"), "soak": (1, "examples 180 9"), "": (15, "examples 300 7")}
"""How many tests without generated examples a part has, and what the one with examples prints."""


def test_each_test_is_in_one_part_and_examples_and_cases_are_divided(suite: Path) -> None:
    ran = {part: _ran(suite, part) for part in COUNTS}
    assert sorted(ran["first"] + ran["rest"] + ran["soak"]) == ran[""]
    assert [name.partition("::")[2] for name in ran["first"] if "compat" in name] == ["test_d[0]", "test_d[5]", "test_e"]
    assert (suite / "build" / "first.txt").read_text().startswith("first part: 9 passed")
    seconds = [line.split() for line in (suite / "build" / "first-files.txt").read_text().splitlines()]
    assert sorted(name for _, name in seconds) == sorted({name.partition("::")[0] for name in ran["first"]} | {EXAMPLE})
    assert [float(took) for took, _ in seconds] == sorted((float(took) for took, _ in seconds), reverse=True)


def test_processes_of_one_run_have_the_same_part(suite: Path) -> None:
    _ran(suite, "first", "-p", "xdist", "-n", "2")


@pytest.fixture
def suite(pytester: pytest.Pytester) -> Path:
    for name, text in SUITE.items():
        (pytester.path / name).parent.mkdir(parents=True, exist_ok=True)
        (pytester.path / name).write_text(text)
    (pytester.path / "conftest.py").write_text('pytest_plugins = ["parts", "seconds"]\n')
    return pytester.path


def _ran(suite: Path, part: str, *options: str) -> list[str]:
    """Run a part, require as many tests and examples as it has, and return the names of the tests that have no examples."""
    tests, said = COUNTS[part]
    result = _run(suite, "-rA", *(("--part", part) if part else ()), *options)
    names = [line.split()[1] for line in result.splitlines() if line.startswith("PASSED ")]
    found = sorted(name for name in names if "differential" not in name)
    assert (len(found), len(names) - len(found)) == (tests, 1)
    assert said in result
    return found


def _run(root: Path, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--rootdir", str(root), *arguments, "tests"],
        cwd=root,
        env={"PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


GENERATED = """\
from hypothesis import given, settings, strategies as st

import parts

tried = []

@given(st.integers())
def test_default(number):
    tried.append(number)

@settings(max_examples=parts.given(30))
@given(st.integers())
def test_thirty(number):
    tried.append(number)

def teardown_module():
    print("examples", len(tried))
"""


def test_tests_with_given_are_in_both_parts_and_try_a_fifth_of_their_examples_in_the_first(pytester: pytest.Pytester) -> None:
    (pytester.path / "tests/unit").mkdir(parents=True)
    (pytester.path / "tests/unit/test_generated.py").write_text(GENERATED)
    (pytester.path / "conftest.py").write_text('pytest_plugins = ["parts", "seconds"]\n')
    assert "examples 26" in _run(pytester.path, "-s", "--part", "first")
    assert "examples 130" in _run(pytester.path, "-s", "--part", "rest")


def test_a_row_of_a_case_that_its_test_does_not_have_is_an_error(pytester: pytest.Pytester) -> None:
    path = pytester.path / "tests/machines/test_kill_worker.py"
    path.parent.mkdir(parents=True)
    path.write_text("class TestWorkerJoin:\n    def test_killed_at_a_boundary_between_phases(self): pass\n")
    (pytester.path / "conftest.py").write_text('pytest_plugins = ["parts", "seconds"]\n')
    assert "rows for cases that do not exist" in _run(pytester.path, "--part", "first", code=4)


@pytest.mark.parametrize(("number", "found"), [(5, [1, 1, 3]), (6, [2, 2, 2]), (60, [12, 12, 36]), (300, [60, 60, 180])])
def test_each_example_of_any_number_is_in_one_part(number: int, found: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    divided = []
    for part in (FIRST, REST, SOAK):
        monkeypatch.setattr(parts, "_chosen", part)
        divided.append(parts.examples(number))
    assert divided == found
