"""The hidden phase of `init --serving-certificates strict`: the approver of kubelets' serving certificates."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.apis.kubeadm.serving_certificates import STRICT
from kubewright.base.change import Change
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps import serving_approver


def only_strict(ctx: InitContext) -> str | None:
    """Leave the phase out where kubelets sign their own certificates."""
    return None if ctx.request.serving_certificates == STRICT else "kubelets sign their own certificates"


def run(ctx: InitContext) -> Iterable[Change]:
    """Store the policy, and run the approver."""
    ctx.say(
        "serving-approver",
        "Running the approver of serving certificates, with the policy in ConfigMap kubewright-node-policy of namespace kube-system",
    )
    yield from serving_approver.rights(ctx.api)
    yield from serving_approver.policy(ctx, ctx.api, serving_approver.own_nodes(ctx), image=ctx.request.controllers_image)
    yield from serving_approver.static_pod(ctx, ctx.request.controllers_image)
