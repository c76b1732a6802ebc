"""The examples of a run (tests/examples.py): they depend on the test alone, and on a seed that was asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import examples

pytest_plugins = ["pytester"]

GENERATED = """\
from hypothesis import given, strategies as st

tried = []

@given(st.text(max_size=9), st.integers())
def test_one(text, number):
    tried.append((text, number))

def teardown_module():
    print("tried", len(tried), ascii(tried))
"""
CONSTANTS = 'KNOWN = [("one", "two", "three", "four", "five"), (1_234_567, 2_345_678, 3_456_789)]\n'


@pytest.fixture
def suite(pytester: pytest.Pytester) -> Path:
    (pytester.path / "conftest.py").write_text('pytest_plugins = ["examples"]\n')
    (pytester.path / "test_one.py").write_text(GENERATED)
    return pytester.path


def test_a_run_tries_the_examples_of_the_run_before(suite: Path) -> None:
    assert tried(suite, hash_seed=1) == tried(suite, hash_seed=2)


def test_constants_of_other_modules_change_no_example(suite: Path) -> None:
    before = tried(suite)
    (suite / "another.py").write_text(CONSTANTS)
    (suite / "test_another.py").write_text("import another\n\ndef test_another(): pass\n")
    assert tried(suite) == before


def test_a_seed_gives_other_examples(suite: Path) -> None:
    found = [tried(suite, *seed) for seed in ((), ("--hypothesis-seed=1",), ("--hypothesis-seed=2",))]
    assert len(set(found)) == 3


def tried(suite: Path, *options: str, hash_seed: int = 0) -> str:
    """Run the tests of a suite, and return the examples that they tried."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--rootdir", str(suite), "-p", "_hypothesis_pytestplugin", "-s", *options],
        cwd=suite,
        env={"PYTHONPATH": str(Path(examples.__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    [found] = [line for line in done.stdout.splitlines() if "tried 100 [" in line]
    return found
