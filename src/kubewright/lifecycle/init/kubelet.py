"""The phases of init for this machine's kubelet and its Node, which call the shared steps with the values of this run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from kubewright.base.change import Change
from kubewright.base.events import Waited
from kubewright.base.records import replace
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps import kubelet
from kubewright.manifests import kubelet as manifests
from kubewright.manifests import patches


def start(ctx: InitContext) -> Iterable[Change]:
    """Write the kubelet's files and start it."""
    ctx.bound.begin(ctx.layout)
    files = manifests.files(ctx.configuration, ctx.layout, ctx.detected, patch=lambda body: ctx.patched(patches.KUBELET, body))
    usual, current = ctx.layout.kubelet_client_current, _rotated_certificate(ctx)
    made = tuple(replace(file, path=current) if file.path == usual else file for file in ctx.bound.kubelet_makes)
    yield from kubelet.start(files, host=ctx.host, layout=ctx.layout, stand_ins=made, reporter=ctx.reporter)


def finalize(ctx: InitContext) -> Iterable[Change]:
    """Make kubelet.conf refer to the certificate that the kubelet rotates."""
    return kubelet.finalize(_rotated_certificate(ctx), ctx.layout, host=ctx.host, reporter=ctx.reporter)


def _rotated_certificate(ctx: InitContext) -> PurePosixPath:
    return kubelet.rotated_certificate(ctx.configuration.init.node_registration, ctx.layout)


def mark_control_plane(ctx: InitContext) -> Iterable[Change | Waited]:
    """Label and taint this machine's Node, once its kubelet has registered it."""
    yield from ctx.admission
    init = ctx.configuration.init
    within = ctx.timeouts.kubernetes_api_call.seconds
    yield from kubelet.mark(
        init.node_registration, look=ctx.probe, write=ctx.api, components=ctx.components, within=within, reporter=ctx.reporter
    )
