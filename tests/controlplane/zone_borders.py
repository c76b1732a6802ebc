"""How the node lifecycle controller handles zones that fall silent, partly or as a whole, with a real kube-controller-manager.

Its rules are in kube-controller-manager v1.36: pkg/controller/nodelifecycle. A test uses short periods and high
rates, `make soak-agent` kube-controller-manager's own.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from zone_nodes import (
    ZONE,
    BackwardClock,
    BackwardLease,
    Nodes,
    StatusOnly,
    ZoneNode,
    Zones,
    effects,
    evicted,
    names,
    ready,
    statuses,
)

from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.resources import EVENT, NODE

SIZES: Final = {"fifty": 50, "fifty-one": 51, "below": 51, "three": 3, "whole": 3}
SILENT: Final = {"fifty": 28, "fifty-one": 29, "below": 28, "three": 2, "whole": 3}
"""56 % of fifty, 56.9 % and 54.9 % of fifty-one, two of three, and all."""
STATES: Final = {
    "fifty": "PartialDisruption",
    "fifty-one": "PartialDisruption",
    "below": "Normal",
    "three": "Normal",
    "whole": "FullDisruption",
}
AT_RATE: Final = ("below", "three", "whole")
"""Zones whose silent nodes are evicted one after the other at the full rate."""
PAUSE: Final = 2.0
"""Seconds in which no node may be evicted while all zones are silent.

Evictions remain that happened while kube-controller-manager removed the taints of the others, because it starts from
the Nodes as it knew them.
"""
BACKWARD: Final = "clocks-2"
"""A Node that is missed after the grace period, because each of its leases is older than the one before."""
FRESH: Final = "fresh-0"
"""A Node that was created by hand, and whose agent never starts."""


def inhabitants(api: AsyncKubeClient) -> Iterable[ZoneNode]:
    """Create the nodes of all zones, and three whose time goes backwards."""
    for zone, size in SIZES.items():
        yield from (ZoneNode(api, name, zone) for name in names(zone, size))
    yield StatusOnly(api, "clocks-0", "clocks", clock=BackwardClock())
    yield ZoneNode(api, "clocks-1", "clocks", clock=BackwardClock())
    yield BackwardLease(api, BACKWARD, "clocks", clock=BackwardClock())


async def borders(ground: Zones, *, log: Callable[[], str], grace: float, startup: float, within: float) -> dict[str, int]:
    """Run all steps; returns how many nodes of each zone were evicted when all those at the full rate were.

    `within` is a guard for each wait.
    """
    await ground.until(
        lambda nodes: not any(node["spec"].get("taints") for name, node in nodes.items() if name != BACKWARD),
        "Nodes without taints",
        within=within,
    )
    await ground.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": FRESH, "labels": {ZONE: "fresh"}}})
    quiet = [name for zone, count in SILENT.items() for name in names(zone, count)]
    await ground.fall_silent(quiet)
    renewed = {name: await ground.renewed_at(name) for name in quiet}
    others = set(ground.nodes) - set(quiet) - {BACKWARD}
    nodes = await ground.until(
        lambda nodes: (statuses(nodes, quiet), statuses(nodes, others)) == ({"Unknown"}, {"True"}),
        "silent nodes to be missed",
        within=within,
    )
    _assert_missed(nodes, renewed, grace=grace)
    nodes = await ground.until(lambda _: states(log()).items() >= STATES.items(), f"zones to be {STATES}", within=within)
    begun = {zone: evicted(nodes, zone) for zone in SIZES}

    nodes = await ground.until(
        lambda nodes: all(evicted(nodes, zone) == SILENT[zone] for zone in AT_RATE), "evictions at the full rate", within=within
    )
    counts = {zone: evicted(nodes, zone) for zone in SIZES}
    assert counts["fifty"] <= begun["fifty"] + 1 < SILENT["fifty"], (begun, counts)  # one was being written
    assert counts["fifty-one"] < SILENT["fifty-one"], (begun, counts)
    await ground.until(lambda nodes: evicted(nodes, "fifty-one") > begun["fifty-one"] + 1, "evictions at the lower rate", within=within)
    assert all("NoSchedule" in effects(nodes[name]) for name in quiet)
    await _assert_told(ground, quiet)
    await _assert_clocks_and_fresh(ground, startup=startup, within=within)
    await _all_silent_and_some_back(ground, log=log, within=within)
    return counts


def _assert_missed(nodes: Nodes, renewed: Mapping[str, datetime], *, grace: float) -> None:
    """The messages of the transition, which the controller writes after the grace period since the last renewal of each lease."""
    for name, last in renewed.items():
        row = ready(nodes[name])
        assert (row["reason"], row["message"]) == ("NodeStatusUnknown", "Kubelet stopped posting node status.")
        assert datetime.fromisoformat(row["lastTransitionTime"]) >= last.replace(microsecond=0) + timedelta(seconds=grace)
    kinds = Counter(row["status"] for row in nodes[next(iter(renewed))]["status"]["conditions"])
    assert kinds == {"Unknown": 4}


async def _assert_told(ground: Zones, quiet: list[str]) -> None:
    """One event about each of them."""
    rows = await ground.api.list(EVENT, "default", field_selector="reason=NodeNotReady")
    told = {row["involvedObject"]["name"]: row for row in rows if row["source"]["component"] == "node-controller"}
    assert told.keys() >= set(quiet)
    assert told[quiet[0]]["message"] == f"Node {quiet[0]} status is now: NodeNotReady"


async def _assert_clocks_and_fresh(ground: Zones, *, startup: float, within: float) -> None:
    """A heartbeat whose time decreases counts as a heartbeat, a lease whose time decreases does not.

    A Node that never had a heartbeat is unreachable after a separate timeout.
    """
    nodes = await ground.until(
        lambda nodes: (statuses(nodes, [BACKWARD, FRESH]), statuses(nodes, ["clocks-0", "clocks-1"])) == ({"Unknown"}, {"True"}),
        "a lease whose time decreases, and a new Node, to be unreachable, and two nodes with such clocks to be ready",
        within=within,
    )
    made = nodes[FRESH]["metadata"]["creationTimestamp"]
    rows = nodes[FRESH]["status"]["conditions"]
    assert {row["type"] for row in rows} == {"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"}
    for row in rows:
        assert (row["reason"], row["message"]) == ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
        assert row["lastHeartbeatTime"] == made
        assert datetime.fromisoformat(row["lastTransitionTime"]) >= datetime.fromisoformat(made) + timedelta(seconds=startup)


async def _all_silent_and_some_back(ground: Zones, *, log: Callable[[], str], within: float) -> None:
    """No node is evicted while all zones are silent; when one comes back, its nodes are ready at once, and the others are evicted again."""
    before = _all_evicted(await ground.shown())
    await ground.fall_silent(ground.nodes)
    await ground.until(
        lambda nodes: statuses(nodes, nodes) == {"Unknown"} and "Entering master disruption mode" in log(),
        "all to be missed",
        within=within,
    )
    first = await ground.until(lambda nodes: not before & _all_evicted(nodes), "evictions to be taken back", within=within)
    await asyncio.sleep(PAUSE)
    assert len(_all_evicted(await ground.shown()) - _all_evicted(first)) <= 1  # one was being written
    assert "Exiting master disruption mode" not in log()
    back = names("whole", SIZES["whole"])
    ground.silent -= set(back)
    for name in back:
        await ground.nodes[name].live()
        await ground.nodes[name].status.round()
    assert statuses({name: await ground.api.get(NODE, name) for name in back}, back) == {"True"}
    left = _all_evicted(await ground.shown())
    nodes = await ground.until(lambda nodes: bool(_all_evicted(nodes) - left), "evictions in other zones", within=within)
    assert "Exiting master disruption mode" in log()
    assert evicted(nodes, "whole") == 0


def _all_evicted(nodes: Nodes) -> set[str]:
    return {name for name, node in nodes.items() if "NoExecute" in effects(node)}


def states(log: str) -> dict[str, str]:
    """Return the state of each zone, from kube-controller-manager's log."""
    rows = re.findall(r'zone is now in new state" zone="(?:[^"]*?)([a-z-]+)" newState="(\w+)"', log)
    return dict(rows)
