"""The node lifecycle controller and our nodes: when it stops evicting, and whose clocks it trusts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_cluster import AgentCluster, agent_cluster
from zone_borders import SILENT, borders, inhabitants
from zone_nodes import zones

GRACE, STARTUP = 20, 10
"""Seconds. The grace period must be longer than 160 leases take on a busy machine."""
RATES = ("--node-eviction-rate=4", "--secondary-node-eviction-rate=0.4", f"--node-startup-grace-period={STARTUP}s")
"""Forty times the usual rates; the thresholds are kube-controller-manager's own."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[AgentCluster]:
    with agent_cluster(tmp_path, grace=f"{GRACE}s", manager=RATES) as running:
        yield running


async def test_evictions_slow_down_at_55_percent_and_stop_in_zones_of_fifty_or_if_all_are_silent(cluster: AgentCluster) -> None:
    log = cluster.place / "kube-controller-manager.log"
    async with zones(cluster, inhabitants, every=2.0) as ground:
        counts = await borders(ground, log=log.read_text, grace=GRACE, startup=STARTUP, within=600)
    assert counts["below"] == SILENT["below"]
