"""The tree of reset, as data: names and order are kubeadm's (spec/kubeadm.md 2.4). What a phase does is named, not imported."""

from __future__ import annotations

from typing import Final

from kubewright.lifecycle.reset.context import ResetContext
from kubewright.workflow.phases import Phase, Phases

_HERE: Final = "kubewright.lifecycle.reset"

PHASES: Final[Phases[ResetContext]] = Phases(
    Phase("preflight", "Run the checks before reset", aliases=("pre-flight",), run=lambda ctx: ctx.bound.preflight(ctx)),
    Phase("delete-node", "Delete the Node of this machine", run=f"{_HERE}.node:run", condition=f"{_HERE}.node:not_wanted", hidden=True),
    Phase("remove-etcd-member", "Remove this machine's member from the local etcd cluster", run=f"{_HERE}.etcd_member:run"),
    Phase(
        "cleanup-node",
        "Stop the kubelet, unmount and delete what is on this machine",
        aliases=("cleanupnode",),
        run=f"{_HERE}.cleaning:run",
    ),
)
