"""The state of components: the values that the supervisor takes and gives, and what it keeps of them on disk.

A record says to the next daemon how often a component was started and since when it runs. It is a hint beside the mark in the process's own
environment, which decides: a missing or torn record loses counts, never a process.
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
    """What a static pod may ask about its machine: `fieldRef` resolves from here, and probes without a host go to `ip`."""

    name: str
    ip: str


@dataclass(frozen=True, kw_only=True)
class ProbeIdentity:
    """The client certificate that HTTPS probes show at some ports. Read when used, and again when it changes.

    A local etcd serves its health to nobody else. Other components answer 401 to a certificate that they do not know, hence the ports.
    """

    certificate: Path
    key: Path
    ports: frozenset[int]


class ComponentPhase(enum.Enum):
    """How a component is. The words are those of `local status`."""

    WAITING = "Waiting"
    """No process: it waits for another component, for its back-off, or its manifest cannot be used. `reason` says which."""
    RUNNING = "Running"
    """The process runs and has not been ready yet."""
    READY = "Ready"
    UNHEALTHY = "Unhealthy"
    """The process runs and was ready, and its readiness or liveness probe fails now."""
    CRASH_LOOP = "CrashLoop"
    """It ended at least twice in a row before it was well, and waits to be started again. `reason` has what it said last."""
    STOPPED = "Stopped"
    """It was stopped, or is being stopped, because it is not wanted any more."""


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
    """One container of one static pod, as of now.

    `name` is the pod's name, or `POD/CONTAINER` where a pod has several. `manifest_hash` is that of the running process
    (32 hexadecimal digits over the decoded manifest and the node's name: comments and order do not count).
    `restarts` counts over the life of the manifest, also across daemons. `rss_bytes` and `cpu_seconds` are 0 without a process.
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
    """When the present process was started."""
    changed_at: datetime | None = None
    """When `phase` became what it is."""
    reason: str = ""
    manifest_hash: str = ""
    adopted: bool = False
    """The process was started by an earlier daemon."""
    last_exit: LastExit | None = None

    @property
    def ready(self) -> bool:
        """Whether the component serves."""
        return self.phase is ComponentPhase.READY


@dataclass(frozen=True, kw_only=True)
class ComponentRecord:
    """One component's process; `started_at` is RFC 3339. Failures in a row are not kept: a new daemon tries again at once."""

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
        """Which process this is about."""
        return Identity(pid=self.pid, start_time=self.start_time, boot_id=self.boot_id)

    @property
    def started(self) -> datetime:
        """When the process was started."""
        return datetime.fromisoformat(self.started_at)


def slug(component: str) -> str:
    """Return a component's name as a file name: `_` is in no pod's name, so two components never meet."""
    return component.replace("/", "_")


class RecordStore:
    """One small JSON file per component, replaced as a whole. Not synced to disk: after a power cut no process is left to describe."""

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
        """Forget a component."""
        self._path(component).unlink(missing_ok=True)

    def _path(self, component: str) -> Path:
        return self._run / f"{slug(component)}.json"
