"""The tree of reset, as data: names, order and flags are kubeadm's (kubeadm v1.36: cmd/reset.go, cmd/phases/reset).

What a phase does is named, not imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubewright.workflow.phases import Phase, Phases

if TYPE_CHECKING:
    from kubewright.lifecycle.reset.context import ResetContext

_HERE: Final = "kubewright.lifecycle.reset"
_IGNORED: Final = "ignored"
"""The names of positional arguments that kubeadm accepts and ignores."""

PHASES: Final[Phases[ResetContext]] = Phases(
    Phase(
        "preflight",
        "Run the checks before reset",
        aliases=("pre-flight",),
        run=lambda ctx: ctx.bound.preflight(ctx),
        flags="dry-run force ignore-preflight-errors",
        argument=_IGNORED,
    ),
    Phase(
        "delete-node",
        "Delete the Node of this machine",
        run=f"{_HERE}.membership:delete_node",
        condition=f"{_HERE}.membership:node_stays",
        hidden=True,
    ),
    Phase(
        "remove-etcd-member",
        "Remove this machine's member from the local etcd cluster",
        run=f"{_HERE}.membership:remove_etcd_member",
        flags="dry-run kubeconfig",
        argument=_IGNORED,
    ),
    Phase(
        "cleanup-node",
        "Stop the kubelet, and unmount and delete the cluster's files on this machine",
        aliases=("cleanupnode",),
        run=lambda ctx: ctx.clean(),
        flags="cert-dir cleanup-tmp-dir cri-socket dry-run",
        argument=_IGNORED,
    ),
)
