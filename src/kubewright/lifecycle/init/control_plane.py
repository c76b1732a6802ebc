"""The phases of init that write a control plane's files: the shared steps, with what this run has."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.base.change import Change
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps import static_pods


def etcd(ctx: InitContext) -> Iterable[Change]:
    """Make etcd's data directory and write its manifest."""
    return static_pods.etcd(ctx.inputs, host=ctx.host, patched=ctx.patched, manifests=ctx.bound.manifests, reporter=ctx.reporter)


def manifest_directory(ctx: InitContext) -> Iterable[Change]:
    """Say where manifests go, and make the directory."""
    return static_pods.manifest_directory(ctx.cluster, ctx.layout, host=ctx.host, reporter=ctx.reporter)


def component(ctx: InitContext, name: str) -> Iterable[Change]:
    """Write the manifest of a component."""
    return static_pods.component(name, ctx.inputs, host=ctx.host, patched=ctx.patched, manifests=ctx.bound.manifests, reporter=ctx.reporter)
