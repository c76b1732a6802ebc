"""Combinations of both tools: clusters that kubeadm and kubewright made together, and the commands of each on machines of the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from cluster_kit import KUBEADM, KUBEWRIGHT
from interop_kit import FIRST, NEXT, OTHER, SECOND, WORKER, Cell, Line, Mixed, left, nodes, reset, resolve
from machine_kit import eventually, kubectl
from state_kit import votes

from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts
from matrices import Matrix

CELLS: list[Cell] = [
    (KUBEWRIGHT, KUBEWRIGHT),
    (KUBEWRIGHT, KUBEADM),
    (KUBEADM, KUBEWRIGHT),
    (KUBEADM, KUBEADM),
    (KUBEWRIGHT, NEXT),
]
"""The tool of the first control plane, and the tool of the second one and of the worker."""


@pytest.fixture(scope="module")
def line(parts: Parts, request: pytest.FixtureRequest) -> Iterator[Line]:
    wanted = [item.callspec.params["cell"] for item in request.session.items if item.path == request.path]  # type: ignore[attr-defined]
    found = Line(wanted, parts=parts)
    yield found
    found.close()


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: "-".join(cell).replace(" ", "-"))
def test_machines_of_both_tools_form_one_cluster(line: Line, cell: Cell, matrix: Callable[[str], Matrix]) -> None:
    told, row = matrix("interop"), "{} first, then {}".format(*cell)
    with line.take(cell) as (cluster, made):
        with told.cell(row, "Nodes"):
            made.result()
            wanted = {FIRST: (True, True), SECOND: (True, True), WORKER: (True, False)}
            eventually(lambda: nodes(cluster.first) == wanted, "all Nodes to be ready")
        with told.cell(row, "etcd votes"):
            assert votes(cluster.first) == {FIRST: True, SECOND: True}
        with told.cell(row, "Service name"):
            resolve(cluster.first, node=WORKER, service="kubernetes.default.svc.cluster.local")
        for tool in (KUBEADM, KUBEWRIGHT):
            with told.cell(row, f"commands of {tool}"):
                commands_work(cluster, tool)
        if cell[1] == NEXT:
            with told.cell(row, "upgrade plan v1.37"):
                assert "kubeadm upgrade apply v1.37.1" in cluster.call(FIRST, NEXT, "upgrade", "plan", "v1.37.1").out
        with told.cell(row, "reset by the other tool"):
            for name, maker in ((WORKER, cell[1]), (SECOND, cell[1]), (FIRST, cell[0])):
                reset_works(cluster, name, OTHER[maker])


def commands_work(cluster: Mixed, tool: str) -> None:
    """List and renew tokens and certificates, on machines of either tool, and plan an upgrade."""
    assert '"abcdef.0123456789abcdef"' in cluster.call(FIRST, tool, "token", "list", "-o", "json").out
    for name, missing in ((FIRST, []), (SECOND, ["super-admin.conf"])):
        expiration = json.loads(cluster.call(name, tool, "certs", "check-expiration", "-o", "json").out)
        certificates = {one["name"]: one.get("missing", False) for one in expiration["certificates"]}
        assert len(certificates) == 11
        assert [one for one, gone in certificates.items() if gone] == missing
        assert cluster.call(name, tool, "certs", "renew", "all").out.count(" renewed\n") == 11 - len(missing)
        assert nodes(cluster.cluster.bed[name]).keys() == {FIRST, SECOND, WORKER}  # with the renewed administrator's certificate
    before = completed_jobs(cluster.first)

    def planned() -> bool:
        """Plan, and return whether the Job was done in the minute that both tools give it, which is not enough on a busy machine."""
        said = cluster.call(SECOND, tool, "upgrade", "plan", "v1.36.3", "--ignore-preflight-errors=CreateJob")
        assert "v1.36.3" in said.out
        return "CreateJob" not in said.err

    eventually(planned, "the Job of the health check")
    eventually(lambda: bool(completed_jobs(cluster.first) - before), "its Event")


def completed_jobs(machine: Machine) -> set[str]:
    """Return the Jobs of health checks that were ever done: a Job disappears a minute after its end."""
    chosen = "--field-selector=involvedObject.kind=Job,reason=Completed"
    events = kubectl(machine, "-n", "kube-system", "get", "events", chosen).get("items", [])
    names = {str(event["involvedObject"]["name"]) for event in events}
    return {name for name in names if name.startswith("upgrade-health-check-")}


def reset_works(cluster: Mixed, name: str, tool: str) -> None:
    """Reset a machine with a tool: nothing is left on it, and the others continue without it."""
    reset(tool, cluster.cluster.bed[name])
    assert left(cluster.cluster.bed[name]) == []
    if name != FIRST:
        assert votes(cluster.first).keys() == ({FIRST, SECOND} if name == WORKER else {FIRST})
