"""The phases `addon/*`, and the objects of add-ons as a manifest (`--print-manifest`; kubeadm v1.36: phases/addons/dns, phases/addons/proxy)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Addresses, Detected
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.errors import CheckFailed, NotFound
from kubewright.base.records import replace
from kubewright.kube import core
from kubewright.kube.objects import DesiredObject, Write, ensure_object
from kubewright.kube.resources import CONFIG_MAP, named
from kubewright.lifecycle import patch_directory
from kubewright.lifecycle.init.cluster import apply
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.operation import Prepared
from kubewright.manifests import configmaps, objects, patches
from kubewright.manifests import coredns as dns
from kubewright.manifests import kube_proxy as proxy

Body = dict[str, Any]
NAMESPACE: Final = "kube-system"
COREFILE: Final = "Corefile"
_TARGETS: Final = {"Deployment": patches.DNS, "DaemonSet": patches.PROXY}
"""The kinds that can be patched: an add-on has one of them."""
_SELECTOR: Final = f"k8s-app={dns.SERVICE}"
Render = Callable[[Configuration, Detected], list[Body]]


def dns_wanted(ctx: InitContext) -> str | None:
    """CoreDNS is installed unless the configuration turns it off."""
    return "dns.disabled is set" if ctx.cluster.dns.disabled else None


def proxy_wanted(ctx: InitContext) -> str | None:
    """kube-proxy is installed unless the configuration turns it off."""
    return "proxy.disabled is set" if ctx.cluster.proxy.disabled else None


def coredns(ctx: InitContext) -> Iterable[Change]:
    """Install CoreDNS. The number of its pods and a Corefile that somebody wrote stay as they are (kubeadm v1.36: phases/addons/dns)."""
    wanted = objects.dns(ctx.configuration, replicas=_replicas(ctx))
    yield from _told(ctx, _with_corefile(ctx, with_patches(wanted, ctx.patched)), "CoreDNS")


def _with_corefile(ctx: InitContext, wanted: Iterable[Body]) -> Iterable[Change]:
    for body in wanted:
        write = Write.CREATE_ONLY if _has_corefile(ctx, body) else Write.REPLACE
        yield ensure_object(ctx.api, DesiredObject(body, write=write))


def kube_proxy(ctx: InitContext) -> Iterable[Change]:
    """Install kube-proxy."""
    changes = apply(ctx, with_patches(objects.proxy(ctx.configuration, ctx.addresses, ctx.detected), ctx.patched))
    yield from _told(ctx, changes, "kube-proxy")


def _told(ctx: InitContext, changes: Iterable[Change], name: str) -> Iterable[Change]:
    """Yield the changes of an add-on, and say at their end whether there were any."""
    changed = False
    for change in changes:
        changed = changed or bool(change)
        yield change
    ctx.say("addons", f"{'Applied' if changed else 'Using existing'} essential addon: {name}")


def with_patches(bodies: Iterable[Body], patched: Callable[[str, Body], Body]) -> Iterator[Body]:
    """Yield the objects of an add-on, those that can be patched as the user wants them."""
    for body in bodies:
        target = _TARGETS.get(body["kind"])
        yield body if target is None else patched(target, body)


def _replicas(ctx: InitContext) -> int:
    """Return how many pods the DNS Deployment of the cluster has, or kubeadm's number. Raises CheckFailed where there are several."""
    found = ctx.api.list(named("Deployment"), NAMESPACE, label_selector=_SELECTOR)
    if len(found) > 1:
        names = ", ".join(core.identity_of(one)[0] for one in found)
        raise CheckFailed(
            "there is more than one DNS Deployment in kube-system",
            detail=f"{names} carry the label {_SELECTOR}",
            remedy="remove those that do not belong there, or skip the phase addon/coredns",
        )
    count = found[0].get("spec", {}).get("replicas") if found else None
    return count if isinstance(count, int) else dns.REPLICAS


def _has_corefile(ctx: InitContext, body: dict[str, Any]) -> bool:
    """Whether an object is the ConfigMap of CoreDNS and the one in the cluster holds a configuration. Ours is then the same, or theirs stays."""
    if body["kind"] != "ConfigMap":
        return False
    try:
        found = ctx.api.get(CONFIG_MAP, dns.NAME, NAMESPACE)
    except NotFound:
        return False
    return bool((found.get("data") or {}).get(COREFILE))


def _coredns_objects(configuration: Configuration, _: Detected) -> list[Body]:
    return dns.objects(configuration.cluster)


def _kube_proxy_objects(configuration: Configuration, detected: Detected) -> list[Body]:
    """Without proxy variables: the manifest may be for any machine."""
    endpoint = configuration.init.local_api_endpoint
    addresses = Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port)
    return proxy.objects(configuration, addresses, replace(detected, proxy_environment={}))


_ADD_ONS: Final[Mapping[str, tuple[Render, tuple[str, ...]]]] = {
    "addon/coredns": (_coredns_objects, ("Deployment", "ConfigMap", "Service", "ClusterRole", "ClusterRoleBinding", "ServiceAccount")),
    "addon/kube-proxy": (_kube_proxy_objects, ("ServiceAccount", "ClusterRoleBinding", "Role", "RoleBinding", "ConfigMap", "DaemonSet")),
}
"""What an add-on consists of, and the order of kinds in which kubeadm prints it."""


def manifest(prepared: Prepared[Configuration], phase: str) -> str:
    """Return the objects of an add-on's phase as YAML documents, each after a separator; those of a disabled one too, as kubeadm does."""
    render, order = _ADD_ONS[phase]
    host = prepared.host
    found = patch_directory.read(host, prepared.configuration, say=_silent, user=host.facts.user)
    wanted = with_patches(render(prepared.configuration, host.facts.detected), found.apply)
    bodies = sorted(map(_printed, wanted), key=lambda body: order.index(body["kind"]))
    return "".join(f"---\n{yaml.dump(body)}" for body in bodies)


def _silent(_: str) -> None:
    """What is said about patches would stand among the documents; with kubeadm it does, so that its output is no YAML."""


def _printed(body: Body) -> Body:
    """Leave out the status, and the mark of a generated configuration: who installs it by hand may change it."""
    notes = {key: value for key, value in body["metadata"].get("annotations", {}).items() if key != configmaps.HASH}
    metadata = {key: value for key, value in body["metadata"].items() if key != "annotations"} | ({"annotations": notes} if notes else {})
    return {**{key: value for key, value in body.items() if key != "status"}, "metadata": metadata}
