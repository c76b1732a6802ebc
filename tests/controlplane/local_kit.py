"""Local clusters for tests that disturb them: a state directory, commands as a user runs them, and a check for leftovers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kubewright import binaries
from kubewright.base.errors import BinariesError, KubewrightError
from kubewright.base.events import RecordingReporter, Reporter
from kubewright.host.network.interfaces import RealNetwork
from kubewright.host.processes import Identity, RealProcesses
from kubewright.kube.client import KubeClient
from kubewright.local import daemon_process, record
from kubewright.local.cluster import status
from kubewright.local.cluster.cluster import LocalCluster
from kubewright.local.cluster.down import down
from kubewright.local.cluster.up import up
from kubewright.local.paths import ClusterPaths
from kubewright.local.up_options import UpOptions, UpResult

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
LIMIT = 900.0
"""Seconds after which a command counts as hanging. Speed is measured by the benchmarks, not here."""


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Bench:
    """One state directory. `close` removes every cluster in it, also after a failed test."""

    root: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="kw-")))
    _spawned: list[subprocess.Popen[str]] = field(default_factory=list)

    def paths(self, name: str = "one") -> ClusterPaths:
        return ClusterPaths(self.root / name)

    def argv(self, *words: str) -> list[str]:
        """A command line; commands that need a cluster get the state directory and the name `one`, unless they name another.

        `up` may take long on a busy machine. It gives up before it counts as hanging, and says what it has waited for.
        """
        patience = ("--wait", "14m") if words[0] == "up" else ()
        program = [sys.executable, "-m", "kubewright", *words, *patience, "--state-dir", str(self.root)]
        return program if "--name" in words or words[:2] == ("local", "list") else [*program, "--name", "one"]

    def run(self, *words: str, timeout: float = LIMIT, **environment: str) -> Ran:
        done = subprocess.run(
            self.argv(*words), capture_output=True, text=True, timeout=timeout, check=False, env={**os.environ, **environment}
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def spawn(self, *words: str) -> subprocess.Popen[str]:
        """Start a command; `ended` waits for it. If a test fails, `close` ends what is left of it."""
        process = subprocess.Popen(self.argv(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._spawned.append(process)
        return process

    def ended(self, process: subprocess.Popen[str], *, within: float = LIMIT) -> Ran:
        """Wait until a command ends. One that hangs is killed; the failure shows the end of its output."""
        try:
            out, err = process.communicate(timeout=within)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            pytest.fail(f"{process.args} hung for {within:.0f} s; the last that it said:\n{err[-2000:]}", pytrace=False)
        return Ran(process.returncode, out, err)

    def up(self, name: str = "one", *, reporter: Reporter | None = None, **wish: Any) -> UpResult:
        """Start a cluster in this process, with one worker unless the test says otherwise."""
        where = self.paths(name)
        if not where.record.exists():
            wish.setdefault("nodes", 1)
        wish.setdefault("within", LIMIT)
        return up(where, UpOptions(**wish), sources=sources(), reporter=reporter or RecordingReporter())

    def cluster(self, name: str = "one") -> LocalCluster:
        return LocalCluster(name, state_dir=self.root)

    @contextlib.contextmanager
    def client(self, name: str = "one") -> Iterator[KubeClient]:
        client = KubeClient(self.cluster(name).access, timeout=LIMIT)
        try:
            yield client
        finally:
            client.close()

    def status(self, name: str = "one") -> dict[str, Any]:
        return status.status(self.paths(name))

    def components(self, name: str = "one") -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in self.status(name)["machines"][0]["components"]}

    def daemon(self, name: str = "one") -> Identity:
        found = daemon_process.identity(self.paths(name))
        assert found is not None, "no daemon runs"
        return found

    def kill_daemon(self, name: str = "one") -> Identity:
        found = self.daemon(name)
        os.kill(found.pid, signal.SIGKILL)
        eventually(lambda: not RealProcesses().alive(found), "the daemon to die")
        return found

    def ready(self, name: str = "one") -> bool:
        return self.status(name)["state"] == "Ready"

    def close(self) -> None:
        for process in self._spawned:
            process.kill()
            process.communicate()
        for place in {self.root / "one", *self.root.glob("*")}:  # clusters whose files were removed may still run
            with contextlib.suppress(KubewrightError):
                down(ClusterPaths(place))
            for left in daemon_process.marked_processes(ClusterPaths(place)):
                RealProcesses().signal(left, signal.SIGKILL)  # unless it has just ended
        shutil.rmtree(self.root, ignore_errors=True)


def bench() -> Iterator[Bench]:
    """The body of the fixtures: a state directory that is emptied at the end."""
    if not has_programs():
        pytest.skip("no component binaries: run `kubewright binaries fetch`, or set KUBEWRIGHT_BINARIES_DIR")
    made = Bench()
    try:
        yield made
    finally:
        made.close()


def sources() -> binaries.BinarySources:
    return binaries.sources_from(os.environ)


def has_programs() -> bool:
    try:
        return not binaries.locate((*COMPONENTS, "kubectl"), version=binaries_version(), sources=sources()).missing
    except BinariesError:
        return False


def binaries_version() -> str:
    from kubewright.base.level import KUBERNETES

    return KUBERNETES


def program(name: str) -> str:
    """Return the path of a component's binary."""
    found = binaries.locate((name,), version=binaries_version(), sources=sources())
    if found.missing:
        pytest.skip(f"no {name}: run `kubewright binaries fetch {name}`, or set KUBEWRIGHT_BINARIES_DIR")
    return str(found.found[name].path)


def eventually(condition: Callable[[], object], what: str, *, within: float = LIMIT) -> None:
    """Wait until a condition holds. It is tested less and less often: many conditions make requests or start programs."""
    end, pause = time.monotonic() + within, 0.05
    while not condition():
        assert time.monotonic() < end, f"waited {within:.0f} s in vain for {what}"
        time.sleep(pause)
        pause = min(1.1 * pause, 0.2)


def leftovers(root: Path, address: str = "") -> list[str]:
    """Name every process, mount, socket and file that belongs to a cluster: what `down` has to remove."""
    found = [f"process {one.pid} is marked" for one in daemon_process.marked_processes(ClusterPaths(root))]
    found += [f"process {pid} uses {used}" for pid, used in _using(root)]
    found += [f"mount {line.split()[1]}" for line in Path("/proc/mounts").read_text().splitlines() if str(root) in line]
    if address:
        found += [f"listener {one.address}:{one.port}" for one in RealNetwork().listeners() if one.address == address]
    found += [f"socket {line.split()[-1]}" for line in Path("/proc/net/unix").read_text().splitlines() if str(root) in line]
    return [
        *found,
        *(f"file {directory}/{name}" for directory, directories, files in os.walk(root) for name in (".", *directories, *files)),
    ]


def _using(root: Path) -> Iterator[tuple[str, str]]:
    """Find processes, other than ours, whose arguments, working directory or open files are below a directory."""
    for entry in Path("/proc").glob("[0-9]*"):
        if entry.name == str(os.getpid()):
            continue
        with contextlib.suppress(OSError):
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace")
            links = [str(link.readlink()) for link in (entry / "cwd", *(entry / "fd").iterdir()) if link.is_symlink()]
            yield from ((entry.name, used) for used in (arguments, *links) if f"{root}/" in f"{used}/")


def address_of(paths: ClusterPaths) -> str:
    found = record.load(paths.record)
    assert found is not None
    return found.control_plane.address


def fingerprint(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of every file that only changes with the cluster; files that components write all the time are left out."""
    moving = ("etcd/member", "/logs/", "one/daemon.", "/lock", "control.sock", "launch.json")
    return {
        str(path.relative_to(root)): (path.stat().st_mode, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file() and not any(part in str(path) for part in moving)
    }


def config_map(name: str, data: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": dict(data or {"text": "kept"}),
    }
