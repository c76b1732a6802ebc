"""The daemon of a cluster as a process: starting it, checking whether it is alive, and finding all processes of its cluster.

The daemon has its own session, so that neither Ctrl-C nor a closed terminal ends it. Its settings are in a file, not in
its arguments; it writes its own identity (pid, start time, boot), and holds a lock as long as it lives.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.base.errors import HostError
from kubewright.base.messages import reason_of
from kubewright.base.records import dataclass, field
from kubewright.host.desired import File
from kubewright.host.detached import DetachedProcess
from kubewright.host.filesystem.files import Files
from kubewright.host.processes import Identity, RealProcesses
from kubewright.local import record
from kubewright.local.mark import Mark
from kubewright.local.paths import ClusterPaths

MODULE: Final = "kubewright.local.daemon.daemon"
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "PYTHONPATH")


NO_HOST_TRUST: Final = {"SSL_CERT_FILE": "/dev/null", "SSL_CERT_DIR": "/nonexistent"}
"""The daemon trusts its cluster's CA and nothing else; aiohttp would load the host's store when it is imported (40 ms)."""


@dataclass(frozen=True, kw_only=True)
class DaemonSettings:
    """The daemon's settings. `owner` is the process that it must not outlive, '' if it may."""

    programs: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""

    @classmethod
    def of(cls, programs: Mapping[str, Path], *, owner: str) -> DaemonSettings:
        """Return the settings of a daemon with these programs."""
        return cls(programs={name: str(path) for name, path in programs.items()}, owner=owner)


def write_settings(settings: DaemonSettings, paths: ClusterPaths) -> None:
    """Write the settings of the next daemon."""
    content = json.dumps({"programs": dict(settings.programs), "owner": settings.owner}).encode()
    Files(durable=False).write(File(path=PurePosixPath(_settings_file(paths)), content=content, mode=0o600))


def read_settings(paths: ClusterPaths) -> DaemonSettings:
    """Read the settings of the daemon. Raises HostError."""
    try:
        return DaemonSettings(**json.loads(_settings_file(paths).read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise HostError(f"cannot read {_settings_file(paths)}", detail=reason_of(error), remedy="run `kubewright up` again") from error


def _settings_file(paths: ClusterPaths) -> Path:
    return paths.root / "launch.json"


def reap(identity: Identity) -> None:
    """Reap a process that has ended, if it is a child of ours."""
    with suppress(ChildProcessError):
        os.waitpid(identity.pid, os.WNOHANG)


def spawn(paths: ClusterPaths, module: str = MODULE, *arguments: str, before: Sequence[str] = ()) -> DetachedProcess:
    """Start the daemon and return at once. Its output is written to the daemon's log.

    `before` are the words of a program that becomes the daemon.
    """
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    if "PYTHONPATH" in environment:  # it may be relative, and the daemon runs in another directory
        environment["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in environment["PYTHONPATH"].split(os.pathsep))
    with paths.daemon_log.open("ab") as log:
        os.fchmod(log.fileno(), 0o600)
        return DetachedProcess(
            [*before, sys.executable, "-P", "-m", module, str(paths.root), *arguments],  # -P: nothing is imported from the state directory
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            close_fds=True,
            cwd=paths.root,
            env={**environment, **NO_HOST_TRUST, **mark_of(paths).variables},
        )


def identity(paths: ClusterPaths) -> Identity | None:
    """Return the daemon's identity if it is alive.

    One in a copy of the directory, or in another namespace, is not this cluster's.
    """
    try:
        found = Identity.parse(paths.daemon_record.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    mark = mark_of(paths)
    return found if RealProcesses().carries(found, mark.variables, shared=mark.shared) else None


def write_identity(paths: ClusterPaths) -> None:
    """Record this process as the daemon."""
    mine = Identity.of(os.getpid())
    Files(durable=False).write(File(path=PurePosixPath(paths.daemon_record), content=f"{mine}\n".encode(), mode=0o600))


def last_lines(path: Path, *, lines: int = 15) -> list[str]:
    """Return the last lines of a log; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 16384))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def mark_of(paths: ClusterPaths) -> Mark:
    """Return the mark of a cluster.

    Without a readable record, it has no id, and any process of its directory is its own.
    """
    try:
        found = record.load(paths.record)
    except HostError:
        found = None
    return Mark(directory=str(paths.root), id=found.id if found is not None else "")


def marked_processes(paths: ClusterPaths) -> list[Identity]:
    """Find every living process of a cluster, including its daemon."""
    mark = mark_of(paths)
    return RealProcesses().marked(mark.variables, shared=mark.shared)
