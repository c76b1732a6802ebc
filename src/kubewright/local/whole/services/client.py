"""The daemon of a cluster of machines from the outside: starting it, setting its desired state, and stopping it."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kubewright.base.clock import SystemClock
from kubewright.base.errors import APIError, ComponentFailed, DocumentError, HostError, KubewrightError, Locked, PortInUse, UsageError
from kubewright.base.events import SilentReporter
from kubewright.base.messages import quoted
from kubewright.base.wait import PollingWaiter, Waiter
from kubewright.host.detached import DetachedProcess
from kubewright.host.processes import RealProcesses
from kubewright.http import unix
from kubewright.local import daemon_process
from kubewright.local.paths import ClusterPaths
from kubewright.local.published import PublishedPort
from kubewright.local.whole.services.places import MODE, MODULE, RUN, runtime
from kubewright.machines import scopes

_LISTENS_WITHIN: Final = 60.0
"""Seconds after which a daemon that does not listen counts as hanging; on an idle machine it listens within half a second."""
_LOADS_WITHIN: Final = 1800.0
"""Seconds for gigabytes on a slow disk."""
_CHANGES_WITHIN: Final = 1200.0
"""Seconds for the start of a machine, or until another command has released the cluster's lock."""
_ERRORS: Final[Mapping[int, type[KubewrightError]]] = {400: UsageError, 409: PortInUse, 422: DocumentError}
"""The errors that the daemon reports, by status; others are HostErrors."""
_GRACE: Final = 5.0
_ENDS_WITHIN: Final = 120.0
"""Seconds after which a daemon that was asked to end is killed, and after which that is an error."""


def status(paths: ClusterPaths) -> dict[str, Any]:
    """Return what the daemon reports, nothing if none runs."""
    try:
        return _call(paths, "GET", "/status", timeout=5.0)
    except (APIError, HostError):
        return {}


def absent(paths: ClusterPaths) -> HostError:
    """Return the error for a daemon that is needed but does not run."""
    return HostError(
        f"the daemon of cluster {quoted(paths.name)} does not run", remedy=f"`sudo kubewright up --name {paths.name}` starts it"
    )


def start(paths: ClusterPaths, *, owner: int, outlived: str = "") -> DetachedProcess | None:
    """Start the daemon and return at once; None if it runs. `owner` is the user who may call it besides root.

    `outlived` is the identity of a process that the cluster must not outlive, '' if there is none.
    """
    own = runtime(paths)
    if daemon_process.identity(own):
        return None
    stop(paths)  # one whose record was lost would keep its ports
    for directory in (RUN, own.root):
        directory.mkdir(mode=MODE, exist_ok=True)
        directory.chmod(MODE)
    before = scopes.apart(f"kubewright: daemon of cluster {paths.name}")
    return daemon_process.spawn(own, MODULE, str(paths.root), str(owner), outlived, before=before)


def ready(paths: ClusterPaths, process: DetachedProcess | None, *, waiter: Waiter) -> None:
    """Wait until the daemon listens.

    Raises ComponentFailed with its last lines if the process that was started ends, HostError if none was started, because
    a daemon ran, and this one has ended.
    """

    def listens() -> str | None:
        if process is not None and process.poll() not in {None, Locked.exit_code}:  # the other one: it was already running
            raise ComponentFailed(
                f"the daemon of cluster {quoted(paths.name)} ended with exit code {process.returncode}",
                detail="\n".join(daemon_process.last_lines(runtime(paths).daemon_log)),
                remedy=f"`sudo kubewright up --name {paths.name}` starts it again",
            )
        if status(paths):
            return None
        if process is None and not daemon_process.identity(runtime(paths)):
            raise absent(paths)
        return "it does not listen yet"

    waiter.until(listens, within=_LISTENS_WITHIN, saying="the cluster's daemon", every=0.02, at_most=0.1)


def expect(paths: ClusterPaths, addresses: Mapping[str, Sequence[str]]) -> None:
    """Set the machines that the daemon watches. Needs root."""
    _call(paths, "PUT", "/machines", {"machines": dict(addresses)})


def publish(paths: ClusterPaths, ports: Sequence[PublishedPort]) -> None:
    """Make the daemon listen on exactly these ports. Raises PortInUse, with the owner; the previous ports are kept then."""
    _call(paths, "PUT", "/ports", {"ports": [str(port) for port in ports]})


def load(paths: ClusterPaths, archive: Path) -> dict[str, Any]:
    """Make the daemon load an archive of images that this user can read; returns the images and the machines.

    Raises DocumentError for anything but an archive, HostError with containerd's message, or if the daemon is not running.
    """
    if not status(paths):
        raise absent(paths)
    return _call(paths, "PUT", "/images", {"archive": str(archive)}, timeout=_LOADS_WITHIN)


def change(paths: ClusterPaths, verb: str, machine: str, *, form: str) -> dict[str, Any]:
    """Make the daemon run `local machine VERB`, one of `commands.CHANGES`, as root; returns its exit code and outputs.

    Raises HostError if the daemon is not running.
    """
    if not status(paths):
        raise absent(paths)
    return _call(paths, "PUT", "/machine", {"change": verb, "machine": machine, "form": form}, timeout=_CHANGES_WITHIN)


def stop(paths: ClusterPaths) -> None:
    """Stop the daemon, and remove its files. Changes nothing if there is none."""
    own, clock, processes = runtime(paths), SystemClock(), RealProcesses()
    found, start = daemon_process.marked_processes(own), clock.monotonic()
    for one in found:
        processes.signal(one, signal.SIGTERM)

    def ended() -> str | None:
        left = [one for one in found if processes.alive(one)]
        for one in left:
            if clock.monotonic() - start > _GRACE:
                processes.signal(one, signal.SIGKILL)
        return f"pid {left[0].pid} still runs" if left else None

    waiter = PollingWaiter(clock=clock, reporter=SilentReporter())
    waiter.until(ended, within=_ENDS_WITHIN, saying="the cluster's daemon to end", every=0.01, at_most=0.05)
    for one in found:
        daemon_process.reap(one)
    shutil.rmtree(own.root, ignore_errors=True)
    with suppress(OSError):  # there is none, or other clusters are there
        RUN.rmdir()


def _call(
    paths: ClusterPaths, method: str, target: str, body: Mapping[str, object] | None = None, *, timeout: float = 30.0
) -> dict[str, Any]:
    content = b"" if body is None else json.dumps(body).encode()
    answer = unix.request(method, runtime(paths).socket, target, body=content, timeout=timeout)
    if answer.status == 200:
        return dict(json.loads(answer.body))
    try:
        found = json.loads(answer.body)
        raise _ERRORS.get(answer.status, HostError)(found["what"], detail=found["detail"], remedy=found["remedy"])
    except (ValueError, KeyError, TypeError):
        said = answer.body.decode(errors="replace").strip()
        raise HostError(f"the daemon of cluster {quoted(paths.name)} refused {method} {target}", detail=said) from None
