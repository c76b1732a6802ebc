"""The pages beside kubeadm: every test that a row names exists, and the page of what is gone names all that is gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests"
PAGES = sorted((ROOT / "docs" / "compat").glob("*.md"))
NAMED = re.compile(r"`(?:tests/)?((?:[\w/]*?test_\w+\.py)?(?:::)?(?:test_\w+)?)(?:\[[^\]`]*\])?`")
DEFINED = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


@pytest.fixture(scope="module")
def defined() -> dict[str, set[str]]:
    """The tests of each file, by its path below tests/."""
    return {str(path.relative_to(TESTS)): set(DEFINED.findall(path.read_text())) for path in TESTS.rglob("test_*.py")}


def _named(page: Path) -> list[str]:
    return [name for name in NAMED.findall(page.read_text()) if "test_" in name]


def _exists(name: str, defined: dict[str, set[str]]) -> bool:
    path, _, test = name.partition("::") if ".py" in name else ("", "", name)
    files = {file: tests for file, tests in defined.items() if not path or file == path or file.endswith(f"/{path}")}
    return bool(files) and (not test or any(test in tests for tests in files.values()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page, defined):
    assert [name for name in _named(page) if not _exists(name, defined)] == []


def test_pages_name_their_tests():
    assert sum(len(_named(page)) for page in PAGES) > 150
