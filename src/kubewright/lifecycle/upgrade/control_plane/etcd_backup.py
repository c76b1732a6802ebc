"""The snapshot of etcd before the first static pod is replaced (kubeadm v1.36: phases/upgrade/staticpods.go).

kubeadm copies the data directory while etcd writes to it, so its copy may be inconsistent. The directory of the backup
has the same name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import APIError, DocumentError, HostError, Unreachable
from kubewright.etcd.snapshots import Checker, reported
from kubewright.host.desired import Directory, Streamed
from kubewright.lifecycle import stacked_etcd

if TYPE_CHECKING:
    from pathlib import PurePosixPath

    from kubewright.etcd.api import Status
    from kubewright.lifecycle.upgrade.context import UpgradeContext

SPARE: Final = 256 << 20
"""Bytes that must remain free after a snapshot, because etcd and the kubelet may use the same file system."""
_TOPIC: Final = "upgrade/etcd"
_PRIVATE: Final = 0o700


def save(ctx: UpgradeContext) -> None:
    """Save a snapshot of this machine's member, or of a healthy one if that does not answer.

    Raises HostError or DiskFull if that is impossible; nothing has been replaced then.
    """
    status = _source(ctx)
    directory = ctx.host.layout.kubernetes / "tmp" / f"kubeadm-backup-etcd-{ctx.bound.started:%Y-%m-%d-%H-%M-%S}"
    path = directory / "snapshot.db"
    made = ctx.host.ensure(Directory(path=directory, mode=_PRIVATE))
    try:
        ctx.host.ensure(Streamed(path=path, pieces=lambda: _pieces(ctx, status, path), size=status.size, spare=SPARE))
    except BaseException as error:
        if made:
            ctx.host.remove(directory)
        if isinstance(error, APIError):
            raise _refused(str(error)) from error
        raise
    ctx.say(_TOPIC, f'Saved a snapshot of etcd to "{path}"')


def _source(ctx: UpgradeContext) -> Status:
    """Choose the member. Raises HostError if none answers."""
    own = ctx.etcd.status(stacked_etcd.client_url(ctx.addresses))
    if not own.problem:
        return own
    found = next((one for one in ctx.members.statuses() if one.serves and not one.learner), None)
    if found is None:
        raise _refused(own.reason)
    return found


def _refused(why: str) -> HostError:
    remedy = "find out why etcd on this machine does not answer, or keep the present etcd with --etcd-upgrade=false"
    return HostError("no snapshot of etcd could be saved, so nothing is upgraded", detail=why, remedy=remedy)


def _pieces(ctx: UpgradeContext, status: Status, path: PurePosixPath) -> Iterator[bytes]:
    """Yield the snapshot as it arrives. Raises Unreachable if it is incomplete."""
    checker = Checker(str(path))
    with closing(ctx.etcd.snapshot(status.endpoint)) as pieces:
        for piece in reported(pieces, task="etcd snapshot", size=status.size, clock=ctx.clock, reporter=ctx.reporter):
            yield checker.take(piece)
    try:
        checker.finish()
    except DocumentError as error:
        raise Unreachable("the snapshot is incomplete", detail=error.detail) from error
