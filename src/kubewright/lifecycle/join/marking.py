"""The phase `control-plane-join/mark-control-plane`: labels and taints of this machine's Node, and a right of its API server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Change
from kubewright.base.events import Waited
from kubewright.kube import objects
from kubewright.lifecycle.steps import node_marking
from kubewright.manifests import rbac

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext

_KUBELETS: Final = "kubeadm:apiserver-kubelet-client"
"""What lets API servers talk to kubelets. Clusters that were made before it was known lack it (kubeadm#3310)."""


def mark_control_plane(ctx: JoinContext) -> Iterable[Change | Waited]:
    """Mark the Node once it is registered, through the cluster's endpoint: the API server of this machine may not be up yet."""
    yield from node_marking.mark(ctx, look=ctx.admin, write=ctx.api)
    for body in rbac.grants(rbac.Purpose.JOINING):
        if body["metadata"]["name"] == _KUBELETS:
            yield objects.ensure_object(ctx.api, objects.DesiredObject(body))
