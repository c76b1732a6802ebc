"""What `import kubewright` exports: a sorted list without leaks, documented, typed, and loaded only when it is used."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import kubewright

SOURCE = Path(kubewright.__file__)
NAMES = [name for name in kubewright.__all__ if name != "__version__"]


def test_the_list_is_sorted_without_duplicates():
    assert kubewright.__all__ == sorted(set(kubewright.__all__))
    assert len(NAMES) == 17


@pytest.mark.parametrize("name", NAMES)
def test_every_name_exists_and_has_a_docstring(name):
    found = getattr(kubewright, name)
    assert callable(found)
    documentation = inspect.getdoc(found)
    assert documentation
    assert documentation[0].isupper()


def test_type_checkers_see_the_names_that_programs_get():
    """The imports for type checkers and the table are two lists of the same names."""
    tree = ast.parse(SOURCE.read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.asname or alias.name: f"{found.module}:{alias.name}"
        for found in ast.walk(block)
        if isinstance(found, ast.ImportFrom)
        for alias in found.names
    }
    table = {name: getattr(kubewright, name) for name in NAMES}
    assert typed.keys() == table.keys()
    for name, home in typed.items():
        module, _, attribute = home.partition(":")
        assert getattr(sys.modules[module], attribute) is table[name]


def test_nothing_leaks():
    public = {name for name in dir(kubewright) if not name.startswith("_") and not inspect.ismodule(getattr(kubewright, name))}
    assert public == set(NAMES)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'kubewright' has no attribute 'launch_rocket'"):
        _ = kubewright.launch_rocket  # type: ignore[attr-defined]


def test_importing_the_package_loads_nothing():
    program = "import sys\nbefore = set(sys.modules)\nimport kubewright\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(SOURCE.parents[1])}
    )
    assert done.stdout.split() == ["kubewright"]


def test_the_guide_names_everything_that_is_exported():
    guide = (SOURCE.parents[2] / "docs" / "guide" / "library.md").read_text()
    assert [name for name in NAMES if f"`{name}" not in guide] == []
