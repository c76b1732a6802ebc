"""The hidden phase of `init --serving-certificates strict`: the approver of kubelets' serving certificates."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.apis.kubeadm.serving_certificates import STRICT
from kubewright.apis.node_approval import FileRow
from kubewright.base.change import Change
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps import serving_approver
from kubewright.manifests import node_policy, pods


def only_strict(ctx: InitContext) -> str | None:
    """Skip the phase if kubelets sign their own certificates."""
    return None if ctx.request.serving_certificates == STRICT else "kubelets sign their own certificates"


def run(ctx: InitContext) -> Iterable[Change]:
    """Store the policy, and run the approver."""
    ctx.say(
        "serving-approver",
        "Running the approver of serving certificates, with the policy in ConfigMap kubewright-node-policy of namespace kube-system",
    )
    yield from serving_approver.rights(ctx.api)
    image, rows = ctx.request.controllers_image, [serving_approver.own_row(ctx.configuration, ctx.detected)]
    if ctx.request.node_cidrs:
        rows.append(FileRow(node=node_policy.ANY_NODE, addresses=ctx.request.node_cidrs))
    strict = ctx.request.client_certificates == STRICT
    yield from serving_approver.policy(ctx.configuration, rows, api=ctx.api, image=image, strict_clients=strict)
    inputs = pods.Inputs(configuration=ctx.configuration, layout=ctx.layout, addresses=ctx.addresses, detected=ctx.detected)
    yield from serving_approver.static_pod(
        inputs, image=image, host=ctx.host, written=ctx.kubeconfigs, certificates=ctx.certificates, issuing=ctx.issuing
    )
