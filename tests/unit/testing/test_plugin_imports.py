"""An installed plugin costs nothing: the modules that it imports are counted, not the time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kubewright

SOURCE = str(Path(kubewright.__file__).parents[1])


def loaded(program: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": SOURCE, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    return set(done.stdout.rpartition("LOADED ")[2].split())


def test_importing_the_plugin_loads_nothing_but_itself():
    program = "import pytest, sys\nbefore = set(sys.modules)\nimport kubewright.testing.plugin\nprint('LOADED', *sorted(set(sys.modules) - before))"
    assert loaded(program) == {"kubewright", "kubewright.testing", "kubewright.testing.plugin"}


def test_a_run_without_our_fixtures_imports_only_the_plugin(tmp_path):
    (tmp_path / "test_one.py").write_text("def test_one():\n    pass\n")
    program = (
        "import pytest, sys\n"
        f"assert pytest.main(['-q', '-p', 'no:cacheprovider', '-p', 'kubewright.testing.plugin', {str(tmp_path)!r}]) == 0\n"
        "print('LOADED', *sorted(name for name in sys.modules if name.startswith('kubewright')))"
    )
    assert loaded(program) == {"kubewright", "kubewright.testing", "kubewright.testing.plugin"}
