"""The tree of `etcd restore`, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubewright.workflow.phases import Phase, Phases

if TYPE_CHECKING:
    from kubewright.lifecycle.etcd.context import RestoreContext

_FLAGS: Final = "from-this-member fence unfence peers-are-gone etcdutl yes"

PHASES: Final[Phases[RestoreContext]] = Phases(
    Phase(
        "preflight",
        "Check the data and the other members, and ask",
        run=lambda ctx: ctx.bound.preflight(ctx),
        flags=_FLAGS,
        argument="file",
    ),
    Phase(
        "restore",
        "Replace the data of etcd, and prove that it serves",
        run="kubewright.lifecycle.etcd.restore:carried_out",
        flags=_FLAGS,
        argument="file",
    ),
)
