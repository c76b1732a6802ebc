"""Rules of the house that no linter has: length of files and functions, docstrings, names that must not appear."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MOST_LINES = 500
MOST_FUNCTION_LINES = 60


def functions(path):
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_files_are_short():
    assert len(SOURCES) > 100
    assert [str(path.relative_to(ROOT)) for path in SOURCES if len(path.read_text().splitlines()) > MOST_LINES] == []


def test_functions_are_short():
    lengths = [(path, node, (node.end_lineno or 0) - node.lineno + 1) for path in SOURCES for node in functions(path)]
    assert len(lengths) > 1000
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name} ({length})" for path, node, length in lengths if length > MOST_FUNCTION_LINES
    ]
    assert long == []


def test_every_module_and_public_class_has_a_docstring():
    lacking = []
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        nodes = [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))]
        lacking += [f"{path.relative_to(ROOT)} {getattr(node, 'name', '')}" for node in nodes if not ast.get_docstring(node)]
    assert lacking == []


def test_nothing_goes_around_the_clock_and_the_random_numbers():
    around = re.compile(r"\btime\.(sleep|time|monotonic)\(|\bdatetime\.now\(|\bos\.urandom\(|\brandom\.(random|randint)\(|\bsecrets\.token")
    allowed = {"src/kubewright/base/clock.py", "src/kubewright/base/randomness.py"}
    found = [str(path.relative_to(ROOT)) for path in SOURCES if around.search(path.read_text())]
    assert sorted(set(found) - allowed) == []


def test_classes_of_values_are_records():
    """Made by base.records, which costs nothing when a module is imported (docs/decisions/0011-records-without-generated-code.md)."""
    imports = re.compile(r"^(?:from dataclasses import (?!KW_ONLY$)|import dataclasses)", re.MULTILINE)
    assert [str(path.relative_to(ROOT)) for path in SOURCES if imports.search(path.read_text())] == []


def test_helpers_of_the_tests_have_names_of_their_own():
    """Pytest puts the directory of every test on the path: of two modules with one name, a whole run imports the first only."""
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path.name not in {"conftest.py", "__init__.py"}]
    on_the_path = {path.parent for path in tests if path.name.startswith("test_")} | {ROOT / "tests"}
    names = Counter(path.name for path in tests if path.parent in on_the_path)
    assert len(names) > 200
    assert [name for name, count in names.items() if count > 1] == []


def test_locks_name_no_index_and_hash_everything():
    locks = sorted(ROOT.glob("requirements*.lock"))
    assert [lock.name for lock in locks] == ["requirements-build.lock", "requirements-test.lock", "requirements.lock"]
    for lock in locks:
        text = lock.read_text()
        assert "://" not in text
        pinned = re.findall(r"^[A-Za-z0-9._-]+(?:\[[a-z0-9, ]+\])?==", text, re.MULTILINE)
        assert len(pinned) > 5
        assert all(re.search(rf"^{re.escape(name)}[^\n]*\\\n\s+--hash=sha256:", text, re.MULTILINE) for name in pinned)


def test_what_is_installed_can_talk_to_a_container_runtime_and_builds_nothing():
    """`make up`'s environment and the archive of `make bundle` have what requirements.lock names: enough for `init`, and no tools."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["cri"]]
    pinned = set(re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    assert len(wanted) >= 11
    assert {re.split("[^A-Za-z0-9_-]", name)[0].lower() for name in wanted} <= pinned
    assert not pinned & {"hatchling", "editables", "pytest"}


def test_no_tracked_file_is_a_binary():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout: a source archive has only what was packed")
    names = [name for name in listed.stdout.decode().split("\0") if name and not name.endswith((".png", ".svg"))]
    binary = [name for name in names if (ROOT / name).is_file() and b"\0" in (ROOT / name).read_bytes()[:4096]]
    assert names
    assert binary == []
