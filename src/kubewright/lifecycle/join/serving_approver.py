"""The hidden phase of `join --control-plane` in clusters with strict serving certificates."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.base.change import Change
from kubewright.kube import core
from kubewright.lifecycle.join.context import JoinContext
from kubewright.lifecycle.steps import serving_approver
from kubewright.manifests import node_policy


def run(ctx: JoinContext) -> Iterable[Change]:
    """List this machine in the policy before its kubelet requests a certificate, and run the approver here too.

    Does nothing in a cluster without a policy.
    """
    found = serving_approver.stored(ctx.api)
    if found is None:
        return
    yield from serving_approver.policy(ctx, ctx.api, serving_approver.own_nodes(ctx))
    image = (core.metadata(found).get("annotations") or {}).get(node_policy.IMAGE)
    if image and not ctx.external_ca:
        yield from serving_approver.static_pod(ctx, str(image))
