"""What is written down about a component, so that the next daemon knows how often it was started and since when it runs.

A hint beside the mark in the process's own environment, which decides: a missing or torn record loses counts, never a process.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

from kubewright.base.records import asdict, dataclass
from kubewright.host.processes import Identity


@dataclass(frozen=True, kw_only=True)
class Record:
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


class Records:
    """One small JSON file per component, replaced as a whole. Not synced to disk: after a power cut no process is left to describe."""

    def __init__(self, run: Path) -> None:
        self._run = run

    def read(self, component: str) -> Record | None:
        """Return a component's record; None if there is none or it cannot be used."""
        try:
            record = Record(**json.loads(self._path(component).read_bytes()))
            aware = record.started.tzinfo is not None
        except (OSError, ValueError, TypeError):
            return None
        return record if aware else None

    def write(self, record: Record) -> None:
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

    def any(self) -> bool:
        """Whether anything was ever started here and not forgotten."""
        return any(self._run.glob("*.json"))

    def _path(self, component: str) -> Path:
        return self._run / f"{slug(component)}.json"
