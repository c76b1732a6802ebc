"""The cluster behind the fixture: one per test run, started by the first of its processes that needs it, with a namespace for each test.

Its start is not shown, unless its programs must be fetched or built first.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from kubewright.base import events
from kubewright.base.clock import SystemClock
from kubewright.base.errors import APIError, Locked, NotFound, UsageError
from kubewright.base.events import Reporter, SilentReporter
from kubewright.base.wait import PollingWaiter
from kubewright.kube.client import KubeClient
from kubewright.kube.resources import named
from kubewright.local.cluster import status
from kubewright.local.cluster.cluster import LocalCluster
from kubewright.local.cluster.down import forget
from kubewright.local.paths import ClusterPaths
from kubewright.testing.runs import Run, abandoned
from kubewright.testing.settings import Settings

if TYPE_CHECKING:
    import pytest

EVERY: Final = 10.0
"""Seconds between two lines about one task."""
WITHIN: Final = 1800.0
"""Seconds to wait for another process of the run to start the cluster: it may have to build the programs first."""


def obtain(run: Run, wanted: Settings, *, reporter: Reporter) -> LocalCluster:
    """Return the run's cluster, starting it if necessary; waits while another process of the run starts it.

    Raises what `up` raises, and UsageError on another machine than the run's.
    """
    if not run.is_here:
        raise UsageError("the tests run on another machine than pytest", remedy="use workers of this machine (pytest -n)")
    cluster = LocalCluster(
        run.name,
        state_dir=run.state_dir,
        nodes=wanted.nodes,
        control_planes=wanted.control_planes,
        kubernetes_version=wanted.kubernetes_version,
        config=wanted.config,
        binaries_dir=wanted.binaries_dir,
        within=wanted.within,
        machines=wanted.machines,
        owner=run.owner,
        reporter=reporter,
    )
    waiter = PollingWaiter(clock=SystemClock(), reporter=reporter)
    waiter.until(lambda: _bring_up(cluster, run), within=WITHIN, saying="the test cluster", every=0.1, at_most=0.5)
    return cluster


def _bring_up(cluster: LocalCluster, run: Run) -> str | None:
    """Start the cluster unless it is up. Returns why it must wait: another process is starting it."""
    try:
        if not _is_up(cluster.paths):
            for left in abandoned(run.state_dir):
                forget(left)
            cluster.up()
    except Locked as error:
        return str(error)
    return None


def _is_up(where: ClusterPaths) -> bool:
    return where.record.exists() and status.status(where)["state"] == "Ready"


def finish(run: Run) -> None:
    """Remove the run's cluster if there is one."""
    if run.paths.root.exists():
        forget(run.paths)


@contextmanager
def fresh_namespace(client: KubeClient, *, test: str) -> Iterator[str]:
    """Create a namespace named after a test, wait until pods can be created in it, and delete it afterwards without waiting."""
    made = client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": f"{prefix(test)}-"}})
    name = str(made["metadata"]["name"])
    try:
        waiter = PollingWaiter(clock=SystemClock(), reporter=SilentReporter())
        waiter.until(lambda: _account(client, name), within=300, saying="the default service account", every=0.01, at_most=0.1)
        yield name
    finally:
        with suppress(
            APIError
        ):  # the test may have stopped the API server or deleted the namespace; the cluster's removal removes everything
            client.delete(named("Namespace"), name, propagation="Background")


def prefix(test: str) -> str:
    """Convert the name of a test to a prefix of a namespace's name (RFC 1123 label), which the API server then completes."""
    return re.sub(r"[^a-z0-9]+", "-", test.lower()).strip("-")[:40].strip("-") or "test"


def _account(client: KubeClient, namespace: str) -> str | None:
    try:
        client.get(named("ServiceAccount"), "default", namespace)
    except NotFound:
        return "it does not exist yet"
    return None


class TerminalLines:
    """A reporter that writes progress and warnings past pytest's capturing; silent in workers, which have no terminal."""

    def __init__(self, config: pytest.Config) -> None:
        self._terminal = config.pluginmanager.getplugin("terminalreporter")
        self._capture = config.pluginmanager.getplugin("capturemanager")
        self._clock = SystemClock()
        self._written: dict[str, float] = {}
        self._lock = threading.Lock()

    def emit(self, event: events.Event, /) -> None:
        if isinstance(event, events.Warned):
            self._write(f"warning: {event.text}")
        elif isinstance(event, events.Progress) and self._due(event.task):
            share = f" {100 * event.done / event.total:.0f} %" if event.total else ""
            self._write(f"{event.task}{share}")

    def _due(self, task: str) -> bool:
        now = self._clock.monotonic()
        with self._lock:
            if now - self._written.get(task, -EVERY) < EVERY:
                return False
            self._written[task] = now
            return True

    def _write(self, text: str) -> None:
        if self._terminal is None:
            return
        with self._lock:
            if self._capture is None:
                self._terminal.write_line(f"kubewright: {text}")
                return
            with self._capture.global_and_fixture_disabled():
                self._terminal.ensure_newline()
                self._terminal.write_line(f"kubewright: {text}")
