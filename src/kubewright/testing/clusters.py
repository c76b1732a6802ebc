"""The cluster behind the fixture: one for a test run, whichever of its processes asks first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kubewright.base.clock import SystemClock
from kubewright.base.errors import UsageError
from kubewright.base.events import SilentReporter
from kubewright.base.waiting import PollingWaiter
from kubewright.host.processes import Identity
from kubewright.local import status
from kubewright.local.cluster import LocalCluster
from kubewright.local.down import forget
from kubewright.local.places import Places, places

if TYPE_CHECKING:
    import pytest

WITHIN = 300.0
"""Seconds for another process of the run to bring the cluster up: it may have to get the binaries first."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The cluster of a run. `run` is the process id of the controlling pytest: the cluster ends with it."""

    run: int
    nodes: int
    kubernetes_version: str = ""
    config: Path | None = None


def wanted(config: pytest.Config, *, run: int) -> Wanted:
    """Read the ini settings. Raises UsageError for a number of nodes that is none."""
    nodes = str(config.getini("kubewright_nodes"))
    file = str(config.getini("kubewright_config"))
    if not nodes.isdigit():
        raise UsageError(f"kubewright_nodes = {nodes!r} is not a number of nodes", remedy="write 0 or more")
    return Wanted(
        run=run,
        nodes=int(nodes),
        kubernetes_version=str(config.getini("kubewright_version")),
        config=config.rootpath / file if file else None,
    )


def obtain(wish: Wanted) -> LocalCluster:
    """Return the run's cluster, started if nobody has done so; waits while another process of the run starts it."""
    cluster = LocalCluster(
        _name(wish.run),
        nodes=wish.nodes,
        kubernetes_version=wish.kubernetes_version or None,
        config=wish.config.read_text(encoding="utf-8") if wish.config else None,
        owner=str(Identity.of(wish.run)),
    )
    clock = SystemClock()
    waiter = PollingWaiter(clock=clock, reporter=SilentReporter())
    waiter.until(lambda: _bring_up(cluster), within=WITHIN, saying="the test cluster", every=0.1, at_most=0.5)
    return cluster


def _bring_up(cluster: LocalCluster) -> str | None:
    from kubewright.base.errors import Locked

    try:
        if _is_up(cluster.places):
            return None
        cluster.up()
    except Locked as error:
        return str(error)
    return None


def _is_up(where: Places) -> bool:
    return where.record.exists() and status.status(where)["state"] == "Ready"


def finish(run: int, *, keep: bool) -> None:
    """Remove the run's cluster if there is one."""
    where = places(_name(run))
    if where.root.exists() and not keep:
        forget(where)


def _name(run: int) -> str:
    return f"pytest-{run}"
