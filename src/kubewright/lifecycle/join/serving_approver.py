"""The hidden phase of `join --control-plane` in clusters with strict serving certificates."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.base.change import Change
from kubewright.kube import core
from kubewright.lifecycle.join.context import JoinContext
from kubewright.lifecycle.steps import serving_approver
from kubewright.manifests import node_policy, pods


def run(ctx: JoinContext) -> Iterable[Change]:
    """List this machine in the policy before its kubelet requests a certificate, and run the approver here too.

    Does nothing in a cluster without a policy.
    """
    found = serving_approver.stored(ctx.api)
    if found is None:
        return
    row = serving_approver.own_row(ctx.configuration, ctx.detected, token=ctx.join.discovery.tls_bootstrap_token)
    yield from serving_approver.policy(ctx.configuration, [row], api=ctx.api)
    image = (core.metadata(found).get("annotations") or {}).get(node_policy.IMAGE)
    if not image or ctx.external_ca:
        return
    inputs = pods.Inputs(configuration=ctx.configuration, layout=ctx.layout, addresses=ctx.addresses, detected=ctx.detected)
    yield from serving_approver.static_pod(
        inputs, image=str(image), host=ctx.host, written=ctx.kubeconfigs, certificates=ctx.certificates, issuing=ctx.issuing
    )
