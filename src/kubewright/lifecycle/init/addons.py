"""The phases `addon/*`, and the objects of add-ons as a manifest (`--print-manifest`; kubeadm v1.36: phases/addons/dns, phases/addons/proxy)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Addresses, Detected
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.records import replace
from kubewright.lifecycle import patch_directory
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.operation import Prepared
from kubewright.lifecycle.steps import addons
from kubewright.manifests import configmaps
from kubewright.manifests import coredns as dns
from kubewright.manifests import kube_proxy as proxy

Body = dict[str, Any]
_TOPIC: Final = "addons"
Render = Callable[[Configuration, Detected], list[Body]]


def coredns(ctx: InitContext) -> Iterable[Change]:
    """Install CoreDNS."""
    yield from ctx.admission
    yield from addons.coredns(ctx.configuration, api=ctx.api, patched=ctx.patched, say=partial(ctx.say, _TOPIC))


def kube_proxy(ctx: InitContext) -> Iterable[Change]:
    """Install kube-proxy."""
    yield from ctx.admission
    yield from addons.kube_proxy(
        ctx.configuration, ctx.addresses, ctx.detected, api=ctx.api, patched=ctx.patched, say=partial(ctx.say, _TOPIC)
    )


def _coredns_objects(configuration: Configuration, _: Detected) -> list[Body]:
    return dns.objects(configuration.cluster)


def _kube_proxy_objects(configuration: Configuration, detected: Detected) -> list[Body]:
    """Return the objects without proxy variables: the manifest may be for any machine."""
    endpoint = configuration.init.local_api_endpoint
    addresses = Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port)
    return proxy.objects(configuration, addresses, replace(detected, proxy_environment={}))


_ADD_ONS: Final[Mapping[str, tuple[Render, tuple[str, ...]]]] = {
    "addon/coredns": (_coredns_objects, ("Deployment", "ConfigMap", "Service", "ClusterRole", "ClusterRoleBinding", "ServiceAccount")),
    "addon/kube-proxy": (_kube_proxy_objects, ("ServiceAccount", "ClusterRoleBinding", "Role", "RoleBinding", "ConfigMap", "DaemonSet")),
}
"""The objects of each add-on, and the order of kinds in which kubeadm prints it."""


def manifest(prepared: Prepared[Configuration], phase: str) -> str:
    """Return the objects of an add-on's phase as YAML documents, each after a separator; also those of a disabled one, as in kubeadm."""
    render, order = _ADD_ONS[phase]
    host = prepared.host
    found = patch_directory.read(host, prepared.configuration, say=_silent, user=host.facts.user)
    wanted = addons.with_patches(render(prepared.configuration, host.facts.detected), found.apply)
    bodies = sorted(map(_printed, wanted), key=lambda body: order.index(body["kind"]))
    return "".join(f"---\n{yaml.dump(body)}" for body in bodies)


def _silent(_: str) -> None:
    """Print no messages about patches: they would appear among the documents, as they do in kubeadm, whose output is then invalid YAML."""


def _printed(body: Body) -> Body:
    """Leave out the status, and the mark of a generated configuration: users who apply it manually may change it."""
    notes = {key: value for key, value in body["metadata"].get("annotations", {}).items() if key != configmaps.HASH}
    metadata = {key: value for key, value in body["metadata"].items() if key != "annotations"} | ({"annotations": notes} if notes else {})
    return {**{key: value for key, value in body.items() if key != "status"}, "metadata": metadata}
