"""Starting the daemon of a cluster, and knowing whether it lives.

The daemon is its own session, so that neither Ctrl-C nor a closed terminal ends it. What it needs to know lies in a file, not in its
arguments; its identity (pid, start time, boot) is written by itself, and it holds a lock for as long as it lives.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.base.errors import HostError
from kubewright.base.records import dataclass, field
from kubewright.host.desired import File
from kubewright.host.files import Files
from kubewright.host.processes import Identity, RealProcesses
from kubewright.local import marks
from kubewright.local.places import Places

MODULE: Final = "kubewright.local.daemon"
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "PYTHONPATH")


_NO_HOST_TRUST: Final = {"SSL_CERT_FILE": "/dev/null", "SSL_CERT_DIR": "/nonexistent"}
"""The daemon trusts its cluster's CA and nothing else; aiohttp would load the host's store when it is imported (40 ms)."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What the daemon is told. `owner` is the process that it must not outlive, '' if it may."""

    programs: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""


def write_launch(launch: Launch, places: Places) -> None:
    """Write what the next daemon is told."""
    content = json.dumps({"programs": dict(launch.programs), "owner": launch.owner}).encode()
    Files(durable=False).write(File(path=PurePosixPath(_launch_file(places)), content=content, mode=0o600))


def read_launch(places: Places) -> Launch:
    """Read what the daemon is told. Raises HostError."""
    try:
        return Launch(**json.loads(_launch_file(places).read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise HostError(f"cannot read {_launch_file(places)}", detail=str(error), remedy="run `kubewright up` again") from error


def _launch_file(places: Places) -> Path:
    return places.root / "launch.json"


class Started(subprocess.Popen[bytes]):
    """A process that is meant to outlive this object and whoever made it."""

    def __del__(self) -> None:
        """Collect it if it has ended; do not warn if it has not, as the parent class would. An interrupt may have come before its start."""
        if getattr(self, "pid", None) is not None:
            self.poll()


def reap(identity: Identity) -> None:
    """Collect a process that has ended, if it is a child of ours."""
    with suppress(ChildProcessError):
        os.waitpid(identity.pid, os.WNOHANG)


def spawn(places: Places) -> Started:
    """Start the daemon and return at once. Its output goes to the daemon's log."""
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    if "PYTHONPATH" in environment:  # it may be relative, and the daemon runs in another directory
        environment["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in environment["PYTHONPATH"].split(os.pathsep))
    with places.daemon_log.open("ab") as log:
        os.fchmod(log.fileno(), 0o600)
        return Started(
            [sys.executable, "-P", "-m", MODULE, str(places.root)],  # -P: nothing is imported from the state directory
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            close_fds=True,
            cwd=places.root,
            env={**environment, **_NO_HOST_TRUST, **marks.of(places).variables},
        )


def identity(places: Places) -> Identity | None:
    """Return the daemon's identity if it is alive. One that a copy of the directory names, or another namespace, is not this cluster's."""
    try:
        found = Identity.parse(places.daemon_record.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    mark = marks.of(places)
    return found if RealProcesses().carries(found, mark.variables, shared=mark.shared) else None


def sign(places: Places) -> None:
    """Write this process down as the daemon."""
    mine = Identity.of(os.getpid())
    Files(durable=False).write(File(path=PurePosixPath(places.daemon_record), content=f"{mine}\n".encode(), mode=0o600))


def last_lines(path: Path, *, lines: int = 15) -> list[str]:
    """Return the last lines of a log; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 16384))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []
