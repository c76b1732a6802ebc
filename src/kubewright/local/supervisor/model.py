"""The values that the supervisor takes and gives. Nothing here does anything."""

from __future__ import annotations

import enum
from datetime import datetime
from pathlib import Path

from kubewright.base.records import dataclass


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """What a static pod may ask about its machine: `fieldRef` resolves from here, and probes without a host go to `ip`."""

    name: str
    ip: str


@dataclass(frozen=True, kw_only=True)
class ProbeIdentity:
    """The client certificate that HTTPS probes show at some ports. Read when used, again when it changes.

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
    """It ended at least twice in a row before it was well, and waits to be started again. `reason` has its last words."""
    STOPPED = "Stopped"
    """It was stopped, or is being stopped, because it is not wanted any more."""


@dataclass(frozen=True, kw_only=True)
class LastExit:
    """How the process before the present one ended. `code` is None if nobody could collect it (an adopted process)."""

    code: int | None
    signal: int | None
    started_at: datetime
    finished_at: datetime
    reason: str
    """One line: `exit code 1`, `killed by SIGKILL`, `liveness probe failed: ...`."""
    last_words: tuple[str, ...] = ()


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
