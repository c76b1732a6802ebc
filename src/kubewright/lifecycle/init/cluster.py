"""The phases that store configuration in the cluster and mark the Node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubewright.base.change import Change
from kubewright.kube import ensure
from kubewright.lifecycle.init.context import InitContext
from kubewright.manifests import objects


def upload_kubeadm(ctx: InitContext) -> Iterable[Change]:
    """Let the administrators' group administrate, and store the ClusterConfiguration with the rights to read it."""
    ctx.say("upload-config", "Storing the configuration in ConfigMap kubeadm-config of namespace kube-system")
    yield from apply(ctx, objects.cluster_admins())
    yield from apply(ctx, objects.kubeadm_config(ctx.configuration))


def upload_kubelet(ctx: InitContext) -> Iterable[Change]:
    """Store the kubelet's configuration for the machines that join."""
    ctx.say("kubelet", "Storing the kubelet's configuration in ConfigMap kubelet-config of namespace kube-system")
    yield from apply(ctx, objects.kubelet_config(ctx.configuration))


def apply(ctx: InitContext, wanted: Iterable[Mapping[str, Any]]) -> Iterable[Change]:
    """Ensure objects in order, one change each."""
    for body in wanted:
        yield ensure.ensure_object(ctx.api, ensure.Object(body))
