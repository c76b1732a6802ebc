"""The compatibility pages: every test that a row names exists, and the page of removed features names all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubewright.apis.kubeadm import removed
from kubewright.cli.parsing.removed_flags import COMMANDS, FLAGS

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
def test_every_test_named_by_a_page_exists(page, defined):
    assert [name for name in _named(page) if not _exists(name, defined)] == []


def test_pages_name_their_tests():
    assert sum(len(_named(page)) for page in PAGES) > 150


def _rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading."""
    text = (ROOT / "docs" / "compat" / page).read_text()
    table = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_every_defect_of_kubeadm_has_a_test_or_belongs_to_a_later_command():
    rows = _rows("kubeadm.md", "Defects of kubeadm v1.36 and what happens here")
    assert len(rows) == 32
    repaired = [row for row in rows if "test_" in row[2]]
    assert len(repaired) >= 23
    assert [row for row in rows if row not in repaired and not row[1].startswith("comes with ")] == []


def _gone() -> list[tuple[str, str]]:
    """Name and release of everything that was removed, as the page writes them."""
    flags = [((f"`{owner} --{name}`" if owner else f"`{'-' if len(name) == 1 else '--'}{name}`"), since) for owner, name, since, _ in FLAGS]
    versions = [(f"{removed.GROUP}/{version}", f"after {last}") for version, last in removed.LAST_MIGRATOR.items()]
    fields = [(path, since) for path, (since, _) in (*removed.FIELDS.items(), *removed.COMPONENT_FIELDS.items())]
    gates = [(gate, since) for gate, (since, _) in removed.GATES.items()]
    arguments = [(f"{component} --{name}", since) for (component, name), (since, _) in removed.ARGUMENTS.items()]
    checks = [(check, since or "not on record") for check, since in removed.CHECKS.items()]
    kinds = [(kind, text.partition(":")[0].rpartition(" ")[2]) for kind, text in (*removed.KINDS.items(), *removed.COMPONENT_KINDS.items())]
    return [*flags, *versions, *fields, *gates, *arguments, *checks, *kinds, *((f"`{command}`", since) for command, since, _ in COMMANDS)]


def test_the_page_of_classic_kubeadm_has_a_row_for_every_removal():
    text = (ROOT / "docs" / "compat" / "classic.md").read_text()
    gone = _gone()
    assert len(gone) > 140
    assert [(name, since) for name, since in gone if f"\n| {name} | {since} | " not in text] == []


def test_every_row_of_classic_features_has_a_state():
    text = (ROOT / "docs" / "compat" / "classic.md").read_text().partition("\n## Removed\n")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| earlier kubeadm")]
    assert len(rows) > 50
    untested = [row for row in rows if "test_" not in row]
    assert [row for row in untested if "comes with `join`" not in row] == []


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("Feature gates", [*removed.GATES]),
        ("Fields of kubeadm's documents", [*removed.FIELDS]),
        ("Fields of component documents", [*removed.COMPONENT_FIELDS]),
        ("Flags of components in extraArgs and kubeletExtraArgs", [f"{component} --{name}" for component, name in removed.ARGUMENTS]),
        ("Preflight checks", [*removed.CHECKS]),
        ("Commands of kubeadm", [f"`{command}`" for command, _, _ in COMMANDS]),
        ("Flags of kubeadm", [f"`{f'{owner} ' if owner else ''}{'-' if len(name) == 1 else '--'}{name}`" for owner, name, _, _ in FLAGS]),
    ],
)
def test_the_tables_of_removals_equal_the_page(heading, names):
    """A row that is removed from a table fails here: users of the feature would get no answer."""
    text = (ROOT / "docs" / "compat" / "classic.md").read_text()
    lines = text.partition(f"\n### {heading}\n")[2].partition("\n### ")[0].splitlines()
    rows = [line.strip("|").split(" | ")[0].strip() for line in lines if line.startswith("| ")][1:]
    assert len(rows) > 5
    assert rows == names
