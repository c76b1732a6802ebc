"""The phases of init that write a control plane's files and start its kubelet: the shared steps, with what this run has."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.base.change import Change
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps import kubelet, static_pods
from kubewright.manifests import kubelet as manifests
from kubewright.manifests import patches


def etcd(ctx: InitContext) -> Iterable[Change]:
    """Make etcd's data directory and write its manifest."""
    return static_pods.etcd(ctx.inputs, host=ctx.host, patched=ctx.patched, manifests=ctx.bound.manifests, reporter=ctx.reporter)


def manifest_directory(ctx: InitContext) -> Iterable[Change]:
    """Say where manifests go, and make the directory."""
    return static_pods.manifest_directory(ctx.cluster, ctx.layout, host=ctx.host, reporter=ctx.reporter)


def component(ctx: InitContext, name: str) -> Iterable[Change]:
    """Write the manifest of a component."""
    return static_pods.component(name, ctx.inputs, host=ctx.host, patched=ctx.patched, manifests=ctx.bound.manifests, reporter=ctx.reporter)


def start_kubelet(ctx: InitContext) -> Iterable[Change]:
    """Write the kubelet's files and start it."""
    files = manifests.files(ctx.configuration, ctx.layout, ctx.detected, patch=lambda body: ctx.patched(patches.KUBELET, body))
    yield from kubelet.start(files, host=ctx.host, layout=ctx.layout, stand_ins=ctx.bound.kubelet_makes, reporter=ctx.reporter)


def finalize_kubelet(ctx: InitContext) -> Iterable[Change]:
    """Let kubelet.conf name the certificate that the kubelet rotates."""
    return kubelet.finalize(ctx.layout, host=ctx.host, reporter=ctx.reporter)
