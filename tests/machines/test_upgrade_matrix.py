"""Either tool upgrades a cluster of three control planes and a worker that either tool made: the cluster is the same afterwards.

In each cell, one tool runs `upgrade apply`, and each tool runs `upgrade node` on a control plane; both must leave the same files. The cell of a
maker in which kubeadm runs `apply` is what the other one is compared with. Its state is kept in build, so that single cells can be run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product

import pytest
from cluster_kit import KUBEADM, KUBEWRIGHT, Cluster, at_once, begin
from interop_kit import nodes, words_of
from level_kit import IGNORED, NEXT, apply, changes
from machine_kit import SHARED, administer, eventually, gone, kubewright, patiently, ready
from state_kit import State, require_same, votes
from testbed import patch_level
from testbed.bed import Bed
from upgrade_cells import (
    Cell,
    alike,
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
from typed import ROOT

FIRST, SECOND, THIRD, WORKER = NAMES = ("first", "second", "third", "worker")
CONTROL_PLANES = NAMES[:3]
CELLS = [Cell(*tools) for tools in product((KUBEADM, KUBEWRIGHT), repeat=2)]
STATES = ROOT / "build" / "upgrade-matrix"
BINDING = ("clusterrolebinding", "kubeadm:apiserver-kubelet-client")
"""A permission that kubeadm v1.36 has added to clusters. It does so with `upgrade apply` only; kubewright also with `upgrade node`."""


def expected(cell: Cell, found: State) -> State:
    """Return what a cell must have left: what the cell of its maker did in which kubeadm ran `apply`."""
    kept = STATES / f"{cell.made}.json"
    if cell.applied == KUBEADM:
        STATES.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(found), encoding="utf-8")
    assert kept.exists(), f"run `{Cell(cell.made, KUBEADM)}` first"
    told: State = json.loads(kept.read_text(encoding="utf-8"))
    return told


@pytest.fixture
def cluster(cell: Cell, parts: Parts) -> Iterator[Cluster]:
    with Bed(*NAMES, bed="upgrade-matrix", parts=parts, shared=SHARED) as bed:
        made = Cluster(cell.made, bed)
        control_plane, worker = words_of(begin(made))

        def join(name: str, words: Sequence[str]) -> None:
            made.call(bed[name], *patiently(bed[name], words))

        join(SECOND, control_plane)
        at_once(partial(join, THIRD, control_plane), partial(join, WORKER, worker))
        levels = patch_level.images(of_release(parts.base), KUBERNETES, NEXT)
        at_once(*(partial(patch_level.give, bed[name], levels) for name in NAMES))
        eventually(lambda: ready(bed[FIRST], "deployment", "coredns"), "CoreDNS: a Job is done first")
        yield made


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_both_tools_leave_the_same_cluster(cluster: Cluster, cell: Cell, matrix: Callable[[str], Matrix]) -> None:
    machines = [cluster.bed[name] for name in NAMES]
    first, second, third, worker = machines
    record, row = matrix("upgrade"), f"made by {cell.made}"
    with record.cell(row, f"{cell.applied} apply, {cell.applied} node"), record.cell(row, f"{cell.applied} apply, {cell.other} node"):
        for node in (SECOND, WORKER):
            workload(first, node)
        works = [container_of(first, node) for node in (SECOND, WORKER)]
        applied(cell.applied, first)
        upgraded(cell.applied, second)
        administer(first, "delete", *BINDING)
        at_once(partial(upgraded, cell.other, third), partial(upgraded, cell.other, worker))
        for machine in (first, second, third):
            require_next(machine)
        assert [container_of(first, node) for node in (SECOND, WORKER)] == works
        require_same(alike(second), alike(third))
        lacks = [BINDING[1]] if cell.other == KUBEADM else []
        assert gone(first, *BINDING) is bool(lacks)
        again = changes(kubewright(second, "upgrade", "node", IGNORED, "-o", "json"))
        assert [target.rpartition(" ")[2] for target in again] == lacks
        assert votes(first) == dict.fromkeys(CONTROL_PLANES, True)
        wanted = {**dict.fromkeys(CONTROL_PLANES, (True, True)), WORKER: (True, False)}
        eventually(lambda: nodes(first) == wanted, "all Nodes to be ready")
        found = states(machines)
        require_same(expected(cell, found), found)
        require_usable(first)
        assert changes(apply(first, "-o", "json")) == []
        for machine in (third, worker):
            require_unchanged(machine)
        for tool, machine in ((cell.applied, third), (cell.other, worker)):
            require_reset(tool, machine)
