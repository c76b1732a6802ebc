"""Whose turn it is on a machine that becomes a further control plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kubewright.lifecycle.starting.turns import Turn

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext


def further_control_plane(ctx: JoinContext) -> Mapping[str, Turn]:
    """Return the turns: the API server's with that etcd that stays, the others' when the API server answers."""

    def etcd_starts() -> bool:
        return ctx.cluster.etcd.external is not None or ctx.host.state(ctx.layout.manifest("etcd")) is not None

    def api_server_answers() -> bool:
        return ctx.host.state(ctx.layout.manifest("kube-apiserver")) is not None and bool(ctx.probe.raw("GET", "/livez"))

    return {"kube-apiserver": etcd_starts, "kube-controller-manager": api_server_answers, "kube-scheduler": api_server_answers}
