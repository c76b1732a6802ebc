"""The phases that write to the cluster: its configuration, the permissions of machines that join, and the add-ons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kubewright.base import untyped, yaml
from kubewright.base.change import Change
from kubewright.kube.objects import NodeMarks, ensure_node_marks
from kubewright.kube.resources import NODE, POD
from kubewright.lifecycle.steps import addons, cluster_objects, serving_approver
from kubewright.lifecycle.steps.detected_cluster import API_SERVER
from kubewright.lifecycle.upgrade.kubelet import SOCKET_ANNOTATION
from kubewright.lifecycle.upgrade.planning.versions import NAMESPACE, node_of
from kubewright.manifests import rbac

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext


def upload_kubeadm(ctx: UpgradeContext) -> Iterable[Change]:
    """Store the ClusterConfiguration with the new version."""
    return cluster_objects.kubeadm_config(ctx.configuration, api=ctx.api, say=partial(ctx.say, "upload-config"))


def upload_kubelet(ctx: UpgradeContext) -> Iterator[Change]:
    """Store the configuration of the kubelets."""
    yield from cluster_objects.kubelet_config(ctx.configuration, api=ctx.api, say=partial(ctx.say, "kubelet"))
    yield ensure_node_marks(ctx.api, NodeMarks(name=ctx.node_name, annotations={SOCKET_ANNOTATION: None}))


def joining(ctx: UpgradeContext) -> Iterator[Change]:
    """Update the permissions of machines that join to those of this release."""
    strict = serving_approver.has_strict_clients(ctx.api)
    yield from cluster_objects.joining(api=ctx.api, say=partial(ctx.say, "upgrade/bootstrap-token"), strict_clients=strict)
    yield from cluster_objects.apply(ctx.api, rbac.grants(rbac.Purpose.CLUSTER_INFO))


def add_ons_wait(ctx: UpgradeContext) -> str | None:
    """Return why add-ons are not upgraded yet: the names of control planes with another version; None for the last one."""
    manifest = yaml.load(ctx.host.read(ctx.layout.manifest(API_SERVER)) or b"", source=API_SERVER)
    own = _image(manifest)
    pods = ctx.api.list(POD, NAMESPACE, label_selector=f"component={API_SERVER},tier=control-plane")
    others = {node_of(pod) for pod in pods if _image(pod) != own} - {ctx.node_name}
    if not others:
        return None
    nodes = {node["metadata"]["name"]: node for node in ctx.api.list(NODE) if node["metadata"]["name"] in others}
    dead = {name for name, node in nodes.items() if _is_dead(node)}
    waits = nodes.keys() - dead.intersection(ctx.request.skip_dead)
    if not waits:
        return None
    reason = f"kube-apiserver has another image on {', '.join(sorted(waits))}: add-ons are upgraded with the last control plane"
    gone = sorted(waits & dead)
    return f"{reason} ({', '.join(gone)} does not respond: --skip-dead {','.join(gone)} upgrades them without it)" if gone else reason


def _is_dead(node: Mapping[str, Any]) -> bool:
    """Whether the kubelet of a Node has stopped reporting: the node controller then sets its conditions to Unknown."""
    conditions = untyped.mappings(untyped.mapping(node.get("status")).get("conditions"))
    return any(one.get("type") == "Ready" and one.get("status") == "Unknown" for one in conditions)


def _image(pod: Any) -> str:
    containers = untyped.mappings(untyped.mapping(untyped.mapping(pod).get("spec")).get("containers"))
    return next((untyped.text(one.get("image")) for one in containers if one.get("name") == API_SERVER), "")


def coredns(ctx: UpgradeContext) -> Iterable[Change]:
    """Upgrade CoreDNS."""
    return addons.coredns(ctx.configuration, api=ctx.api, patched=ctx.patched, say=partial(ctx.say, "addons"))


def kube_proxy(ctx: UpgradeContext) -> Iterable[Change]:
    """Upgrade kube-proxy."""
    return addons.kube_proxy(
        ctx.configuration, ctx.addresses, ctx.detected, api=ctx.api, patched=ctx.patched, say=partial(ctx.say, "addons")
    )
