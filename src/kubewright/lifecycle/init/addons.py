"""The phases `addon/*`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kubewright.base.change import Change
from kubewright.base.errors import CheckFailed, NotFound
from kubewright.kube import core
from kubewright.kube.objects import DesiredObject, Write, ensure_object
from kubewright.kube.resources import CONFIG_MAP, named
from kubewright.lifecycle.init.cluster import apply
from kubewright.lifecycle.init.context import InitContext
from kubewright.manifests import coredns as dns
from kubewright.manifests import objects, patches

Body = dict[str, Any]

NAMESPACE: Final = "kube-system"
COREFILE: Final = "Corefile"
_TARGETS: Final = {"Deployment": patches.DNS, "DaemonSet": patches.PROXY}
"""The kinds that can be patched: an add-on has one of them."""

_SELECTOR: Final = f"k8s-app={dns.SERVICE}"


def dns_wanted(ctx: InitContext) -> str | None:
    """CoreDNS is installed unless the configuration turns it off."""
    return "dns.disabled is set" if ctx.cluster.dns.disabled else None


def proxy_wanted(ctx: InitContext) -> str | None:
    """kube-proxy is installed unless the configuration turns it off."""
    return "proxy.disabled is set" if ctx.cluster.proxy.disabled else None


def coredns(ctx: InitContext) -> Iterable[Change]:
    """Install CoreDNS. The number of its pods and a Corefile that somebody wrote stay as they are (spec/kubeadm.md 7.5)."""
    wanted = objects.dns(ctx.configuration, replicas=_replicas(ctx))
    for body in with_patches(wanted, ctx.patched):
        write = Write.CREATE_ONLY if _has_corefile(ctx, body) else Write.REPLACE
        yield ensure_object(ctx.api, DesiredObject(body, write=write))
    ctx.say("addons", "Applied essential addon: CoreDNS")


def kube_proxy(ctx: InitContext) -> Iterable[Change]:
    """Install kube-proxy."""
    yield from apply(ctx, with_patches(objects.proxy(ctx.configuration, ctx.addresses, ctx.detected), ctx.patched))
    ctx.say("addons", "Applied essential addon: kube-proxy")


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
