"""Separate test runs, as users start them, for the tests of the pytest plugin: a project, a state directory, and leftovers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from kubewright import binaries
from kubewright.base.level import KUBERNETES
from kubewright.local.programs import COMPONENTS

LIMIT = 1800.0
"""Seconds after which a run counts as hanging."""


def plugin_arguments() -> list[str]:
    """Name the plugin on the command line if kubewright is not installed, but only on the path."""
    installed = any(found.name == "kubewright" for found in entry_points(group="pytest11"))
    return [] if installed else ["-p", "kubewright.testing.plugin"]


@dataclass(frozen=True)
class Ended:
    """The result of a run."""

    code: int
    out: str

    def counts(self) -> dict[str, int]:
        """Return the counts in the last line of the run, as `{"passed": 2, "failed": 1}`."""
        return {
            word.rstrip("s") if word == "errors" else word: int(number)
            for number, word in re.findall(r"(\d+) (passed|failed|errors?)\b", self.out)
        }


@dataclass(frozen=True)
class Project:
    """A project directory with tests, and a state directory."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def clusters(self) -> list[Path]:
        return sorted((self.state / "kubewright" / "clusters").glob("*"))

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def argv(self, *arguments: str) -> list[str]:
        # Without the cache plugin, only the cluster can leave files; the other plugins are disabled because their
        # start takes time.
        return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:looptime", *plugin_arguments(), "-v", *arguments]

    def environment(self, **changed: str) -> dict[str, str]:
        import kubewright

        source = str(Path(kubewright.__file__).parents[1])
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return {**kept, "XDG_STATE_HOME": str(self.state), "PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1", **changed}

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.argv(*arguments),
            cwd=self.root,
            env=self.environment(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, **environment: str) -> Ended:
        return ended(self.start(*arguments, **environment))

    def running(self) -> list[str]:
        """Name the processes that are marked with one of our clusters' directories."""
        marked = f"KUBEWRIGHT_CLUSTER={self.state}/".encode()
        return [f"process {entry.name}" for entry in Path("/proc").glob("[0-9]*") if marked in _environ(entry)]

    def left(self) -> list[str]:
        """Name the leftovers of clusters: files and processes."""
        return [*map(str, self.clusters), *self.running()]


def ended(process: subprocess.Popen[str]) -> Ended:
    """Wait for a run to end."""
    try:
        out, _ = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        process.wait()
    return Ended(process.returncode, out)


def eventually(condition: Callable[[], object], what: str, *, within: float = LIMIT) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"waited {within:.0f} s in vain for {what}"
        time.sleep(0.05)


def require_programs(names: Sequence[str] = COMPONENTS) -> None:
    """Skip if there are no component binaries."""
    if binaries.locate(names, version=KUBERNETES, sources=binaries.sources_from(os.environ)).missing:
        pytest.skip("no component binaries: run `kubewright binaries fetch`, or set KUBEWRIGHT_BINARIES_DIR")


def remove_all(project: Project) -> None:
    """Remove what a failed test may have left."""
    from kubewright.host.processes import RealProcesses
    from kubewright.local import daemon_process
    from kubewright.local.cluster.down import forget
    from kubewright.local.paths import ClusterPaths

    for root in project.clusters:
        forget(ClusterPaths(root))
        for left in daemon_process.marked_processes(ClusterPaths(root)):
            RealProcesses().signal(left, signal.SIGKILL)  # unless it has just ended


def _environ(entry: Path) -> bytes:
    try:
        return (entry / "environ").read_bytes()
    except OSError:
        return b""
