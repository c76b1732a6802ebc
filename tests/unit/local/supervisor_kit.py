"""Tiny static pods and a supervisor on temporary directories, for the supervisor's tests."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from busy import HANGS
from kubewright.base.events import RecordingReporter
from kubewright.local.mark import Mark
from kubewright.local.supervisor.process import StopStage
from kubewright.local.supervisor.state import ComponentPhase, ComponentState, NodeAddress
from kubewright.local.supervisor.supervisor import Supervisor

NODE = NodeAddress(name="node1", ip="127.0.0.1")
PROGRAMS = {"sh": Path("/bin/sh"), "python": Path(sys.executable), "missing": Path("/nonexistent/program")}
AT_ONCE = (StopStage(grace=0.2),)


def pod(
    name: str = "etcd", *command: str, container: Mapping[str, Any] | None = None, spec: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a manifest with one container of the pod's name."""
    row = {"name": name, "command": list(command or ("sh", "-c", "exec sleep 1000")), **(container or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "kube-system", "labels": {"component": name}},
        "spec": {"hostNetwork": True, "containers": [row], "terminationGracePeriodSeconds": 1, **(spec or {})},
    }


def script(text: str, name: str = "etcd", **parts: Any) -> dict[str, Any]:
    """Return a manifest whose container runs a shell script."""
    return pod(name, "sh", "-c", text, **parts)


@dataclass
class Machine:
    """Directories and supervisors of one machine."""

    root: Path
    reporter: RecordingReporter = field(default_factory=RecordingReporter)

    @property
    def mark(self) -> Mark:
        return Mark(directory=str(self.root), id="1" * 32)

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def supervisor(self, **parts: Any) -> Supervisor:
        given = {"node": NODE, "mark": self.mark, "reporter": self.reporter, **parts}
        return Supervisor(self.root / "manifests", self.run, self.logs, PROGRAMS, **given)

    def write(self, manifest: Mapping[str, Any] | str, name: str | None = None) -> Path:
        """Write a manifest to the directory atomically: under another name first."""
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        path = self.root / "manifests" / f"{name or manifest['metadata']['name']}.yaml"  # type: ignore[index]
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}.new")
        hidden.write_text(text)
        hidden.rename(path)
        return path

    @contextlib.asynccontextmanager
    async def supervised(self, *manifests: Mapping[str, Any], **parts: Any) -> AsyncIterator[Supervisor]:
        """Start a supervisor, and stop everything at the end."""
        for manifest in manifests:
            self.write(manifest)
        supervisor = self.supervisor(**parts)
        await supervisor.start()
        try:
            yield supervisor
        finally:
            await supervisor.stop(AT_ONCE)


def state_of(supervisor: Supervisor, name: str = "etcd") -> ComponentState:
    found = [state for state in supervisor.snapshot() if state.name == name]
    assert len(found) == 1, supervisor.snapshot()
    return found[0]


async def until(
    supervisor: Supervisor, condition: Callable[[ComponentState], object], name: str = "etcd", *, within: float = HANGS
) -> ComponentState:
    """Wait for a state of a component."""
    async with asyncio.timeout(within):
        async for states in supervisor.changes():
            for state in states:
                if state.name == name and condition(state):
                    return state
    raise AssertionError(supervisor.snapshot())


async def ready(supervisor: Supervisor, *pods: str, within: float = HANGS) -> None:
    """Wait until pods are ready, by default etcd."""
    async with asyncio.timeout(within):
        async for states in supervisor.changes():
            found = [[state.ready for state in states if state.pod == pod] for pod in pods or ("etcd",)]
            if all(rows and all(rows) for rows in found):
                return
    raise AssertionError(supervisor.snapshot())


def is_ready(state: ComponentState) -> bool:
    return state.phase is ComponentPhase.READY


async def eventually(condition: Callable[[], object], *, within: float = HANGS) -> None:
    """Wait for something outside the supervisor."""
    async with asyncio.timeout(within):
        while not condition():  # it is outside: nothing notifies us
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def of_session(session: int) -> list[int]:
    """Return the living processes of a session."""
    found = []
    for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        with contextlib.suppress(OSError):
            if alive(pid) and os.getsid(pid) == session:
                found.append(pid)
    return found


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment with which a process was started."""
    content = Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(part.split("=", 1) for part in content.split("\0") if "=" in part)


def descriptors() -> int:
    """Return how many files this process has open, without those of unreachable objects."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))
