"""Every pair of tools upgrades a cluster of three control planes and a worker that either tool made: all cells leave the same state.

The first cell of each maker, in which kubeadm does everything, is what the others are compared with. `test_upgrade_cluster.py` has two cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import pytest
from cluster_kit import KUBEADM, KUBEWRIGHT, Cluster, at_once, begin
from interop_kit import members, nodes, words_of
from level_kit import NEXT
from machine_kit import SHARED, eventually, ready
from state_kit import State, require_same
from testbed import patch_level
from testbed.bed import Bed
from upgrade_cells import (
    Cell,
    applied,
    container_of,
    require_next,
    require_reset,
    require_unchanged,
    require_usable,
    states,
    upgraded,
    workload,
)

from kubewright.base.level import KUBERNETES
from kubewright.machines.images import of_release
from kubewright.machines.parts import Parts
from matrices import Matrix

FIRST, SECOND, THIRD, WORKER = NAMES = ("first", "second", "third", "worker")
TOOLS = (KUBEADM, KUBEWRIGHT)
CELLS = [Cell(*tools) for tools in product(TOOLS, TOOLS, TOOLS)]


@pytest.fixture(scope="module")
def expected() -> dict[str, State]:
    """The state of the first cell of each maker."""
    return {}


@pytest.fixture
def cluster(cell: Cell, parts: Parts) -> Iterator[Cluster]:
    with Bed(*NAMES, bed="upgrade-matrix", parts=parts, shared=SHARED) as bed:
        made = Cluster(cell.made, bed)
        control_plane, worker = words_of(begin(made))
        for name, words in ((SECOND, control_plane), (THIRD, control_plane), (WORKER, worker)):
            made.call(bed[name], "join", *words, "--ignore-preflight-errors", "SystemVerification")
        levels = patch_level.images(of_release(parts.base), KUBERNETES, NEXT)
        at_once(*(partial(patch_level.give, bed[name], levels) for name in NAMES))
        eventually(lambda: ready(bed[FIRST], "deployment", "coredns"), "CoreDNS: a Job is done first")
        yield made


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_all_pairs_of_tools_leave_the_same_cluster(
    cluster: Cluster, cell: Cell, expected: dict[str, State], matrix: Callable[[str], Matrix]
) -> None:
    machines = [cluster.bed[name] for name in NAMES]
    first, second, third, worker = machines
    with matrix("upgrade").cell(f"made by {cell.made}", f"{cell.applied} apply, {cell.nodes} node"):
        for node in (SECOND, WORKER):
            workload(first, node)
        works = [container_of(first, node) for node in (SECOND, WORKER)]
        applied(cell.applied, first)
        for machine in (second, third, worker):
            upgraded(cell.nodes, machine)
        for machine in (first, second, third):
            require_next(machine)
        assert [container_of(first, node) for node in (SECOND, WORKER)] == works
        assert members(first) == dict.fromkeys(NAMES[:3], True)
        wanted = {**dict.fromkeys(NAMES[:3], (True, True)), WORKER: (True, False)}
        eventually(lambda: nodes(first) == wanted, "all Nodes to be ready")
        found = states(machines)
        require_same(expected.setdefault(cell.made, found), found)
        require_usable(first)
        require_unchanged(worker)
        for tool, machine in ((KUBEADM, third), (KUBEWRIGHT, worker)):
            require_reset(tool, machine)
