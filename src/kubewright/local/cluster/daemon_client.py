"""The daemon as its clients see it: its control socket, starting it, and waiting for it.

Uses only the standard library, because `local status` has to answer at once.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from kubewright.base.errors import APIError, ComponentFailed, HostError, Locked, Unreachable
from kubewright.base.messages import quoted
from kubewright.base.wait import Waiter
from kubewright.host.detached import DetachedProcess
from kubewright.http import unix
from kubewright.local import daemon_process
from kubewright.local.paths import ClusterPaths

Reply = dict[str, Any]
STOP_WITHIN: Final = 15.0
"""Seconds in which a healthy daemon has ended its components: each of four stages has its grace, and the sum of them is 3 s."""
LISTENS_WITHIN: Final = 60.0
"""Seconds after which a daemon that does not listen hangs; on an idle machine it does within half a second."""
END_WITHIN: Final = 60.0
"""Seconds after which terminating machines count as hung: unlike with `stop`, only the daemon terminates them."""

REMEDIES: Final = (
    ("no space left on device", "free some space (`df -h` and `df -i` show it)"),
    ("the disk is full", "free some space (`df -h` and `df -i` show it)"),
    ("address already in use", "stop the process that uses the port (`ss -ltnp` shows it)"),
    ("cannot run as a process", "correct extraVolumes of the configuration"),
    ("permission denied", "see the owner and the mode of the file that it names"),
)
"""A text in the last lines of a process that died, in lower case, and the remedy; the first row that matches."""


class ControlClient:
    """The requests to a daemon. All raise Unreachable if it does not listen."""

    def __init__(self, paths: ClusterPaths) -> None:
        self._paths = paths

    def status(self) -> Reply:
        """Return the current components, nodes and timings."""
        return self._call("GET", "/status", timeout=5.0)

    def nodes(self, *, within: float) -> Reply:
        """Return how many nodes are ready; first waits up to `within` seconds for all of them."""
        return self._call("GET", f"/nodes?within={within}")

    def join(self, *, nodes: Sequence[str], server: str, token: str, pins: Sequence[str]) -> Reply:
        """Make nodes join that have not joined yet; returns at once.

        The token is sent through the socket, never in arguments or files.
        """
        return self._call("POST", "/join", {"nodes": list(nodes), "server": server, "token": token, "pins": list(pins)})

    def leave(self, *, nodes: Sequence[str]) -> Reply:
        """Stop nodes and delete their certificates; the caller handles their Node objects."""
        return self._call("POST", "/leave", {"nodes": list(nodes)})

    def restart(self, *, nodes: Sequence[str]) -> Reply:
        """Make nodes register again whose Node objects were deleted."""
        return self._call("POST", "/restart", {"nodes": list(nodes)})

    def begin(self, machine: str) -> Reply:
        """Start a machine of the record, with its static pods and its node; a running one is left alone.

        Returns at once.
        """
        return self._call("POST", "/begin", {"machine": machine})

    def rest(self, machine: str) -> Reply:
        """Stop the node of a machine, but not its static pods; returns when it has stopped."""
        return self._call("POST", "/rest", {"machine": machine})

    def end(self, *, machines: Sequence[str]) -> Reply:
        """Stop the node and every process of some machines, and forget them; returns when they have stopped."""
        return self._call("POST", "/end", {"machines": list(machines)}, timeout=END_WITHIN)

    def retry(self) -> Reply:
        """Start components in back-off at once, and forget their earlier failures."""
        return self._call("POST", "/retry", {}, timeout=2.0)

    def stop(self) -> Reply:
        """Stop every component and the daemon; returns when the components have stopped."""
        return self._call("POST", "/stop", {}, timeout=STOP_WITHIN)

    @contextmanager
    def logs(self, component: str, *, machine: str = "", tail: int | None, follow: bool) -> Iterator[Iterator[bytes]]:
        """Yield the lines of a component's log piece by piece; of the first machine, unless another is named.

        Raises HostError if the component does not exist.
        """
        query = urlencode({"machine": machine, "tail": -1 if tail is None else tail, "follow": int(follow)})
        target = f"/logs/{component}?{query}"
        with unix.stream("GET", self._paths.socket, target) as (status, _, chunks):
            if status != 200:
                raise HostError(b"".join(chunks).decode(errors="replace").strip(), remedy="`kubewright local status` lists the components")
            yield chunks

    def answers(self) -> bool:
        """Return whether the daemon listens."""
        try:
            self._call("GET", "/ping", timeout=2.0)
        except (Unreachable, HostError):
            return False
        return True

    def _call(self, method: str, target: str, body: Mapping[str, object] | None = None, *, timeout: float = 10.0) -> Reply:
        content = b"" if body is None else json.dumps(body).encode()
        answer = unix.request(method, self._paths.socket, target, body=content, timeout=timeout)
        if answer.status != 200:
            raise HostError(
                f"the daemon of cluster {quoted(self._paths.name)} refused {method} {target.partition('?')[0]}",
                detail=answer.body.decode(errors="replace").strip(),
                remedy=f"see {self._paths.daemon_log}",
            )
        found: Reply = json.loads(answer.body)
        return found


class Daemon:
    """The cluster's daemon, as `up` uses it: started early, needed late."""

    def __init__(self, paths: ClusterPaths, *, control: ControlClient | None = None) -> None:
        self._paths = paths
        self._control = control or ControlClient(paths)
        self._process: DetachedProcess | None = None
        self._retry_is_due = False

    @property
    def log(self) -> Path:
        """Its log file."""
        return self._paths.daemon_log

    @property
    def runs(self) -> bool:
        """Whether it was started here and is alive, or was already running."""
        if self._process is not None and self._process.poll() != Locked.exit_code:  # the other one: it was already running
            return self._process.poll() is None
        return daemon_process.identity(self._paths) is not None

    def start(self) -> None:
        """Start it, unless it is running."""
        if not self.runs:
            self._process = daemon_process.spawn(self._paths)

    def retry(self) -> None:
        """Start components in back-off at once: missing files may now exist."""
        self._retry_is_due = True
        self.retried()

    def retried(self) -> bool:
        """Whether it has received the last `retry`, which is sent again if it did not answer.

        Until then, components fail for old reasons.
        """
        if self._retry_is_due:
            try:
                self._control.retry()
            except APIError:  # it is not listening yet, or it hangs: its waiter will report that
                return False
            except HostError:  # it refuses because it is an older version
                pass
            self._retry_is_due = False
        return True

    def require_alive(self) -> None:
        """Raise ComponentFailed, with its last lines, if it has ended."""
        if not self.runs:
            code = "" if self._process is None else _ending_of(self._process.returncode)
            lines = daemon_process.last_lines(self._paths.daemon_log)
            raise ComponentFailed(
                f"the daemon of cluster {quoted(self._paths.name)} ended{code}",
                detail="\n".join(lines),
                remedy=f"{remedy_for(lines, f'see {self._paths.daemon_log}')}, then run `kubewright up` again",
            )

    def serving(self, *, waiter: Waiter) -> ControlClient:
        """Wait until it listens on its control socket.

        Raises ComponentFailed with its last lines if it ends before that.
        """

        def ready() -> str | None:
            self.require_alive()
            return None if self._control.answers() else "it does not listen yet"

        there = daemon_process.identity(self._paths)
        remedy = (
            f"kill it (`kill -9 {there.pid}`; the components keep running), then run `kubewright up` again" if there is not None else ""
        )
        waiter.until(ready, within=LISTENS_WITHIN, saying="the cluster's daemon", every=0.01, at_most=0.1, remedy=remedy)
        return self._control


def _ending_of(code: int) -> str:
    return f" with exit code {code}" if code >= 0 else f", killed by {signal.Signals(-code).name}"


def remedy_for(lines: Iterable[str], default: str) -> str:
    """Return the remedy that matches the last lines of a process that died."""
    said = "\n".join(lines).lower()
    return next((remedy for text, remedy in REMEDIES if text in said), default)
