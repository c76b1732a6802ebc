"""The leader election of kube-controller-manager and kube-scheduler, after they were replaced.

A leader starts its controllers only when it has been elected, so that a component which cannot start them is healthy
until then. If the leader is on another machine, its work says nothing about the component of this one. The Lease
cannot be handed over: the identity with which a waiting process would take it has a random part that it does not
publish (cmd/kube-controller-manager/app/controllermanager.go, Run), the present leader renews a Lease without a
holder before most others try to take it, and a leader that loses its Lease exits. kube-controller-manager does not
release its Lease when it is stopped (v1.36: cmd/kube-controller-manager/app/controllermanager.go, the gate
ControllerManagerReleaseLeaderElectionLockOnExit is off), so its successor would wait until that expires, 15 seconds
later.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import APIError, NotFound
from kubewright.kube import lease_rules
from kubewright.kube.resources import LEASE
from kubewright.lifecycle.steps.detected_cluster import read_static_pod
from kubewright.lifecycle.upgrade.planning.versions import CONTROL_PLANE

if TYPE_CHECKING:
    from kubewright.kube.core import Object
    from kubewright.lifecycle.upgrade.context import UpgradeContext

ELECTING: Final = CONTROL_PLANE[1:]
"""The components that elect a leader."""
AT_WORK: Final = 3.0
"""Seconds for which a new leader must have been active: one that cannot start its controllers ends at once."""


def led(ctx: UpgradeContext, name: str, since: float) -> str | None:
    """Return why no leader is known to have been active since a time; None if one is, or if the component elects none.

    The leader may be on another machine.
    """
    try:
        found = _lease(ctx, name)
    except APIError as error:
        return str(error)
    if found is None:
        return None
    spec = found.get("spec") or {}
    if lease_rules.moment(spec, "renewTime") < since:
        return "no leader has been elected since it was started"
    elected = lease_rules.moment(spec, "acquireTime")
    seconds = ctx.clock.now().timestamp() - elected
    return f"the leader was elected {seconds:.0f} s ago" if elected >= since and seconds < AT_WORK else None


def give_back(ctx: UpgradeContext, name: str, since: float) -> None:
    """Give back the Lease of a former process of this machine, as it would have done itself (client-go: ReleaseOnCancel).

    `since` is when the container that has taken its place was created. A Lease that was renewed later has a living
    holder, and one of another machine is left alone. If this fails, the Lease expires.
    """
    with suppress(APIError):
        found = _lease(ctx, name)
        if found is not None and lease_rules.is_orphaned(found, [ctx.host.facts.detected.host_name], since=since):
            ctx.probe.update(lease_rules.given_back(found))


def _lease(ctx: UpgradeContext, name: str) -> Object | None:
    """Return the Lease with which a component elects its leader; None if it has none."""
    found = read_static_pod(ctx.host, ctx.host.layout.manifest(name))
    lease = None if found is None else found.leader_lease(name)
    if lease is None:
        return None
    try:
        return ctx.probe.get(LEASE, *lease)
    except NotFound:
        return None
