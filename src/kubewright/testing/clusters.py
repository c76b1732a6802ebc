"""The cluster behind the fixture: one for a test run, started by whichever of its processes asks first."""

from __future__ import annotations

from kubewright.base.clock import SystemClock
from kubewright.base.errors import Locked, UsageError
from kubewright.base.events import Reporter
from kubewright.base.waiting import PollingWaiter
from kubewright.local import status
from kubewright.local.cluster import LocalCluster
from kubewright.local.down import forget
from kubewright.local.places import Places
from kubewright.testing.runs import Run, abandoned
from kubewright.testing.settings import Settings

WITHIN = 1800.0
"""Seconds for another process of the run to bring the cluster up: it may have to build the programs first."""


def obtain(run: Run, wanted: Settings, *, reporter: Reporter) -> LocalCluster:
    """Return the run's cluster, started if nobody has done so; waits while another process of the run starts it.

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
        owner=run.owner,
        reporter=reporter,
    )
    waiter = PollingWaiter(clock=SystemClock(), reporter=reporter)
    waiter.until(lambda: _bring_up(cluster, run), within=WITHIN, saying="the test cluster", every=0.1, at_most=0.5)
    return cluster


def _bring_up(cluster: LocalCluster, run: Run) -> str | None:
    """Start the cluster unless it is up. Returns why that must wait: another process is at it."""
    try:
        if not _is_up(cluster.places):
            for left in abandoned(run.state_dir):
                forget(left)
            cluster.up()
    except Locked as error:
        return str(error)
    return None


def _is_up(where: Places) -> bool:
    return where.record.exists() and status.status(where)["state"] == "Ready"


def finish(run: Run) -> None:
    """Remove the run's cluster if there is one."""
    if run.places.root.exists():
        forget(run.places)
