"""The scripts of action.yml and of the GitLab template, run as the services run them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from guide import GUIDE

ROOT = GUIDE.parents[1]
OUTPUTS = ("GITHUB_PATH", "GITHUB_ENV", "GITHUB_OUTPUT")
"""Variables of GitHub that name files."""


class Template(yaml.SafeLoader):
    """Reads templates of GitLab: `!reference [JOB, KEY]` becomes a tuple."""


Template.add_constructor("!reference", lambda loader, node: tuple(loader.construct_sequence(node)))


def bash(script: str, environment: Mapping[str, str], directory: Path) -> str:
    done = subprocess.run(["bash", "-c", script], env=dict(environment), cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_action(
    inputs: Mapping[str, str], environment: Mapping[str, str], place: Path, *, clone: Path = ROOT, steps: int = 2
) -> dict[str, Path]:
    """Run the first steps of the action in a directory; returns the files for its outputs."""
    action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    given = {**{name: row["default"] for name, row in action["inputs"].items()}, **inputs}
    files = {name: place / name for name in OUTPUTS}
    outer = {**environment, "RUNNER_TEMP": str(place), "GITHUB_ACTION_PATH": str(clone)} | {name: str(path) for name, path in files.items()}
    rows = action["runs"]["steps"]
    assert [row["shell"] for row in rows] == ["bash", "bash"]
    for step in rows[:steps]:
        values = {name: given[text.removeprefix("${{ inputs.").removesuffix(" }}")] for name, text in step.get("env", {}).items()}
        bash(step["run"], outer | values, place)
    return files


def jobs() -> dict[str, Any]:
    """Return the jobs of the GitLab template."""
    return dict(yaml.load((GUIDE / "gitlab-ci.yml").read_text(), Loader=Template))


def lines(script: list[str | tuple[str, str]]) -> Iterator[str]:
    """Yield the lines of a script, with those to which it refers."""
    for row in script:
        if isinstance(row, tuple):
            yield from lines(jobs()[row[0]][row[1]])
        else:
            yield row
