"""The clusters of the guides work as shown: the library's examples and the example project."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from guide import GUIDE, examples, run
from plugin_kit import Project, remove_all, require_programs


def test_the_examples_of_the_library_guide_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_programs()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shown = [example for example in examples("library.md") if example.needs_cluster]
    assert len(shown) == 2
    for example in shown:
        assert run(example, {}).split() == example.output.split(), example.place
    assert list((tmp_path / "state").rglob("*/cluster.json")) == []


def test_the_example_project_passes(tmp_path: Path) -> None:
    require_programs()
    shutil.copytree(GUIDE / "example-pytest", tmp_path / "example")
    project = Project(tmp_path / "example")
    try:
        done = project.run("-m", "not kubewright")  # tests/machines has the test that needs machines
        assert done.code == 0, done.out
        assert done.counts() == {"passed": 5}
        assert project.left() == []
    finally:
        remove_all(project)
