"""`reset --plan` and `reset --dry-run`: the phases against overlays of the machine, its cluster and its etcd."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kubewright.host.overlay import OverlayHost
from kubewright.lifecycle.reset import acting, calls, checks
from kubewright.lifecycle.reset.calls import Call, Outcome
from kubewright.lifecycle.reset.context import ResetContext, Voice, would
from kubewright.workflow.plan import Plan

if TYPE_CHECKING:
    from kubewright.etcd.api import Etcd
    from kubewright.kube.api import KubeAPI


def silent(_: str, __: str, /) -> None:
    """Say nothing: a plan tells its changes."""


def plan(call: Call) -> Plan:
    """Return what a run would change; nothing is written anywhere."""
    return Plan.of(_run(call, voice=silent, examine=checks.nothing).changes)


def dry_run(call: Call) -> Outcome:
    """Tell what a run would do, in kubeadm's form."""
    return _run(call, voice=would, examine=checks.checked)


def _run(call: Call, *, voice: Voice, examine: Callable[[ResetContext], None]) -> Outcome:
    host = OverlayHost(call.host)
    return calls.run(
        call,
        host,
        remains=call.remains.over(host),
        voice=voice,
        examine=examine,
        connect=lambda: _connect(call),
        reach_etcd=_reach_etcd,
    )


def _connect(call: Call) -> KubeAPI:
    from kubewright.kube.recording import RecordingKube  # most resets ask no cluster

    return RecordingKube(acting.connect(call))


def _reach_etcd(ctx: ResetContext, endpoints: tuple[str, ...]) -> Etcd:
    from kubewright.etcd.recording import RecordingEtcd

    return RecordingEtcd(acting.reach_etcd(ctx, endpoints))
