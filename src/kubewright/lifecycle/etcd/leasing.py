"""The Lease of the cluster for operations that stop a member of etcd: one machine at a time, as in upgrades.

A restore does not require the Lease, because the API server may not work without the restore.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kubewright.base.events import Warned
from kubewright.lifecycle.steps import operation_lease

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.etcd.context import MemberContext


def awaited(ctx: MemberContext[Any]) -> None:
    """Wait until no other machine holds the lease.

    This precedes the checks of members, because one that is being replaced has no vote for a while. Does nothing if no
    API server is ready. Raises WaitTimeout as `OperationLease` does.
    """
    if ctx.lease_api is not None:
        with taken(ctx):
            pass


@contextmanager
def taken(ctx: MemberContext[Any]) -> Iterator[None]:
    """Hold the lease during a block; without it, and with a warning, if no API server is ready.

    Raises WaitTimeout as `OperationLease` does.
    """
    api: KubeAPI | None = ctx.lease_api
    if api is None:
        text = "no API server is ready, so other machines are not kept from being changed at the same time"
        ctx.reporter.emit(Warned(text=text))
        yield
        return
    with operation_lease.held(api, identity=ctx.member.name, clock=ctx.clock, waiter=ctx.waiter, reporter=ctx.reporter):
        yield
