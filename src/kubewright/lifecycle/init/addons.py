"""The phases `addon/*`."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.base.change import Change
from kubewright.lifecycle.init.cluster import apply
from kubewright.lifecycle.init.context import InitContext
from kubewright.manifests import objects


def dns_wanted(ctx: InitContext) -> str | None:
    """CoreDNS is installed unless the configuration turns it off."""
    return "dns.disabled is set" if ctx.cluster.dns.disabled else None


def proxy_wanted(ctx: InitContext) -> str | None:
    """kube-proxy is installed unless the configuration turns it off."""
    return "proxy.disabled is set" if ctx.cluster.proxy.disabled else None


def coredns(ctx: InitContext) -> Iterable[Change]:
    """Install CoreDNS."""
    yield from apply(ctx, objects.dns(ctx.configuration))
    ctx.say("addons", "Applied essential addon: CoreDNS")


def kube_proxy(ctx: InitContext) -> Iterable[Change]:
    """Install kube-proxy."""
    yield from apply(ctx, objects.proxy(ctx.configuration, ctx.addresses, ctx.detected))
    ctx.say("addons", "Applied essential addon: kube-proxy")
