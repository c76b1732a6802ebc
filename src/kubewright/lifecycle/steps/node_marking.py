"""Marking this machine's Node as a control plane, for `init` and `join` (spec/kubeadm.md 7.7)."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.base.change import Change
from kubewright.base.errors import APIError
from kubewright.base.events import Waited
from kubewright.kube.api import KubeAPI
from kubewright.kube.objects import NodeMarks, ensure_node_marks
from kubewright.kube.resources import NODE
from kubewright.lifecycle.context import MachineContext
from kubewright.manifests import kubelet, objects

TOPIC = "mark-control-plane"


def mark(ctx: MachineContext, *, look: KubeAPI, write: KubeAPI) -> Iterable[Change | Waited]:
    """Label and taint this machine's Node, once its kubelet has registered it. `look` tries each request once."""
    registration, timeouts = ctx.configuration.init.node_registration, ctx.configuration.init.timeouts
    yield ctx.waiter.until(
        lambda: _unregistered(look, ctx.node_name),
        within=timeouts.kubernetes_api_call.seconds,
        saying=f"Node {ctx.node_name} to register",
        every=0.02,
        at_most=0.1,
    )
    taints = registration.taints or ()
    ctx.say(TOPIC, f"Marking the Node {ctx.node_name} as a control plane with the labels [{' '.join(objects.LABELS)}]")
    if taints:
        ctx.say(TOPIC, f"Marking the Node {ctx.node_name} with the taints [{' '.join(map(kubelet.taint, taints))}]")
    yield ensure_node_marks(write, NodeMarks(name=ctx.node_name, labels=dict.fromkeys(objects.LABELS, ""), taints=taints))


def _unregistered(api: KubeAPI, name: str) -> str | None:
    try:
        found = api.get(NODE, name)
    except APIError as error:
        return str(error)
    labels = found.get("metadata", {}).get("labels", {})
    return None if "kubernetes.io/hostname" in labels else "it has no label kubernetes.io/hostname yet"
