"""The commands of README about local clusters, and of the guide to binaries, run in order, with the output that they show."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from plugin_kit import require_programs
from typed import ROOT, Reader, Terminal, environment, steps


def test_the_commands_of_the_readme_about_local_clusters_work(tmp_path: Path) -> None:
    require_programs()
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    env = environment(HOME=str(tmp_path), XDG_CACHE_HOME=cache, XDG_STATE_HOME=str(tmp_path / "state"))
    here = Terminal(["bash", "--noprofile", "--norc"], cwd=ROOT, env=env)
    reader = Reader({"here": here})
    try:
        reader.follow(step for step in steps(ROOT / "README.md") if step.terminal == "here")
    finally:
        here.type("for name in default ha ours; do kubewright down --name $name; done")
        here.close()
    assert (reader.done[0], reader.done[-1], len(reader.done)) == (
        "make up      # set up, get the component binaries, start a cluster",
        "make down",
        14,
    )
    assert list((tmp_path / "state").rglob("cluster.json")) == []
    assert "kubewright" not in (tmp_path / ".kube" / "config").read_text()


def test_a_reader_of_the_guide_to_binaries_lists_fetches_and_verifies_programs_that_are_there() -> None:
    require_programs(("kubeadm", "runc"))
    here = Terminal(
        ["bash", "--noprofile", "--norc"], cwd=ROOT, env=environment(PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    )
    reader = Reader({"here": here})
    try:
        reader.follow(steps(ROOT / "docs" / "guide" / "binaries.md"))
    finally:
        here.close()
    assert len(reader.done) == 4
