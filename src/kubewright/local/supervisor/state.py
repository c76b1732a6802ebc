"""The state of components: the supervisor's input and output values, and its records on disk.

A record tells the next daemon how often a component was started and since when it runs. It only supplements the mark in
the process's own environment, which decides: a missing or damaged record loses counts, never a process.
"""

from __future__ import annotations

import enum
import json
import os
from datetime import datetime
from pathlib import Path

from kubewright.base.records import asdict, dataclass
from kubewright.host.processes import Identity


@dataclass(frozen=True, kw_only=True)
class NodeAddress:
    """The values of a machine for its static pods: for `fieldRef`, and `ip` for probes without a host."""

    name: str
    ip: str


@dataclass(frozen=True, kw_only=True)
class ProbeIdentity:
    """The client certificate of HTTPS probes at some ports. Read when used, and again when it changes.

    A local etcd serves its health only to clients with it. Other components answer 401 to an unknown certificate, hence
    the ports.
    """

    certificate: Path
    key: Path
    ports: frozenset[int]


class ComponentPhase(enum.Enum):
    """The phase of a component. The words are those of `local status`."""

    WAITING = "Waiting"
    """No process: it waits for another component or its back-off, or its manifest cannot be used.

    `reason` says which.
    """
    RUNNING = "Running"
    """The process is running and has not been ready yet."""
    READY = "Ready"
    UNHEALTHY = "Unhealthy"
    """The process is running and was ready, and its readiness or liveness probe currently fails."""
    CRASH_LOOP = "CrashLoop"
    """It ended at least twice in a row before it was stable, and waits for its restart.

    `reason` has its last message.
    """
    STOPPED = "Stopped"
    """It was stopped, or is being stopped, because it is no longer wanted."""


@dataclass(frozen=True, kw_only=True)
class LastExit:
    """How the previous process ended. `code` is None if it could not be determined (an adopted process)."""

    code: int | None
    signal: int | None
    started_at: datetime
    finished_at: datetime
    reason: str
    """One line: `exit code 1`, `killed by SIGKILL`, `liveness probe failed: ...`."""
    last_lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ComponentState:
    """The current state of a container of a static pod.

    `name` is the pod's name, or `POD/CONTAINER` if a pod has several. `manifest_hash` is that of the running process
    (32 hexadecimal digits over the decoded manifest and the node's name: comments and order do not count). `restarts`
    counts over the life of the manifest, also across daemons. `rss_bytes` and `cpu_seconds` are 0 without a process.
    """

    name: str
    pod: str
    container: str
    phase: ComponentPhase
    pid: int | None = None
    restarts: int = 0
    rss_bytes: int = 0
    cpu_seconds: float = 0.0
    started_at: datetime | None = None
    """When the current process was started."""
    reason: str = ""
    manifest_hash: str = ""
    adopted: bool = False
    """Whether an earlier daemon started the process."""
    last_exit: LastExit | None = None

    @property
    def ready(self) -> bool:
        """Whether the component serves."""
        return self.phase is ComponentPhase.READY


@dataclass(frozen=True, kw_only=True)
class ComponentRecord:
    """One component's process; `started_at` is RFC 3339.

    Consecutive failures are not stored: a new daemon tries again at once.
    """

    name: str
    argv0: str
    pid: int
    start_time: int
    boot_id: str
    manifest_hash: str
    restarts: int
    started_at: str

    @property
    def identity(self) -> Identity:
        """The identity of the process."""
        return Identity(pid=self.pid, start_time=self.start_time, boot_id=self.boot_id)

    @property
    def started(self) -> datetime:
        """When the process was started."""
        return datetime.fromisoformat(self.started_at)


def slug(component: str) -> str:
    """Return a component's name as a file name: names of pods never contain `_`, so names do not collide."""
    return component.replace("/", "_")


class RecordStore:
    """One small JSON file per component, replaced atomically.

    Not synced to disk: after a power cut there are no processes to describe.
    """

    def __init__(self, run: Path) -> None:
        self._run = run

    def read(self, component: str) -> ComponentRecord | None:
        """Return a component's record; None if there is none or it cannot be used."""
        try:
            record = ComponentRecord(**json.loads(self._path(component).read_bytes()))
            aware = record.started.tzinfo is not None
        except (OSError, ValueError, TypeError):
            return None
        return record if aware else None

    def write(self, record: ComponentRecord) -> None:
        """Replace a component's record. Raises OSError."""
        path = self._path(record.name)
        temporary = path.with_suffix(".tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, json.dumps(asdict(record), indent=1).encode())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def remove(self, component: str) -> None:
        """Remove a component's record."""
        self._path(component).unlink(missing_ok=True)

    def _path(self, component: str) -> Path:
        return self._run / f"{slug(component)}.json"
