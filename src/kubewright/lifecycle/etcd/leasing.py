"""The Lease of the cluster for operations that stop a member of etcd: one machine at a time, as in upgrades.

A restore does not require the Lease, because the API server may not work without the restore.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

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


def given_back(ctx: MemberContext[Any], api: KubeAPI | None) -> None:
    """Release the lease if a run of this machine that was killed still holds it. Does nothing if no API server is ready (`api` is None).

    A run releases it after its checkpoint is done, so the same command finds nothing to change, but the lease held.
    """
    if api is not None:
        lease = operation_lease.OperationLease(api, identity=ctx.member.name, clock=ctx.clock, waiter=ctx.waiter)
        lease.give_back()


def taken(ctx: MemberContext[Any]) -> AbstractContextManager[None]:
    """Hold the lease during a block; without it, and with a warning, if no API server is ready.

    Raises WaitTimeout as `OperationLease` does.
    """
    return operation_lease.held_if_ready(ctx.lease_api, identity=ctx.member.name, clock=ctx.clock, waiter=ctx.waiter, reporter=ctx.reporter)
