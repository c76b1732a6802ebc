"""The phases `etcd/local` and `control-plane/*` of init, which call the shared steps with the values of this run."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.base.change import Change
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps import static_pods


def only_local_etcd(ctx: InitContext) -> str | None:
    """Return why a phase of etcd is skipped: it is only for a local member."""
    return None if ctx.cluster.etcd.external is None else "etcd is external"


def etcd(ctx: InitContext) -> Iterable[Change]:
    """Create etcd's data directory and write its manifest."""
    return static_pods.etcd(ctx.inputs, host=ctx.host, patched=ctx.patched, manifests=ctx.bound.manifests, reporter=ctx.reporter)


def manifest_directory(ctx: InitContext) -> Iterable[Change]:
    """Report the directory of manifests, and create it."""
    return static_pods.manifest_directory(ctx.cluster, ctx.layout, host=ctx.host, reporter=ctx.reporter)


def component(ctx: InitContext, name: str) -> Iterable[Change]:
    """Write the manifest of a component."""
    return static_pods.component(name, ctx.inputs, host=ctx.host, patched=ctx.patched, manifests=ctx.bound.manifests, reporter=ctx.reporter)
