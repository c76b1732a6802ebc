"""The tree of `backup restore`, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubewright.workflow.phases import Phase, Phases

if TYPE_CHECKING:
    from kubewright.lifecycle.etcd.context import BackupContext

_FLAGS: Final = "key-file peers-are-gone etcdutl yes"

PHASES: Final[Phases[BackupContext]] = Phases(
    Phase(
        "preflight",
        "Check the machine, and ask",
        run=lambda ctx: ctx.bound.preflight(ctx),
        flags=_FLAGS,
        argument="file",
    ),
    Phase(
        "restore",
        "Write the files and the data of etcd, and start the kubelet",
        run="kubewright.lifecycle.etcd.backup_restore:carried_out",
        flags=_FLAGS,
        argument="file",
    ),
)
