"""What join says at its end (spec/kubeadm.md 12.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubewright.lifecycle.connections import Mode

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext

_LOOK = "Run 'kubectl get nodes' on a control plane to see it."


def say(ctx: JoinContext) -> None:
    """Say what has become of this machine, where something was done to it."""
    if ctx.bound.whole and ctx.bound.mode is Mode.APPLY:
        ctx.tell("\n".join(_control_plane(ctx) if ctx.control_plane else _worker(ctx)))


def _worker(ctx: JoinContext) -> list[str]:
    return [
        f"This machine has joined the cluster as the node {ctx.node_name}:",
        "* its certificate signing request was sent to the API server, and answered",
        "* the kubelet uses the certificate",
        "",
        _LOOK,
    ]


def _control_plane(ctx: JoinContext) -> list[str]:
    admin = ctx.layout.kubeconfig("admin")
    member = ["* the etcd cluster has a new member on it"] if ctx.cluster.etcd.local is not None else []
    return [
        f"This machine has joined the cluster as the control plane {ctx.node_name}:",
        "* its certificate signing request was sent to the API server, and answered",
        "* the kubelet uses the certificate",
        "* the Node has the label and the taint of a control plane",
        "* the components of the control plane run on it",
        *member,
        "",
        "To use the cluster from here as an ordinary user:",
        "",
        "  mkdir -p $HOME/.kube",
        f"  sudo cp -i {admin} $HOME/.kube/config",
        "  sudo chown $(id -u):$(id -g) $HOME/.kube/config",
        "",
        _LOOK,
    ]
