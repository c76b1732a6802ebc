"""Renewing the certificates of components that are upgraded (kubeadm v1.36: phases/upgrade/staticpods.go, renewCertsByComponent)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Action, Change
from kubewright.base.events import Warned
from kubewright.lifecycle.steps import renewal
from kubewright.lifecycle.steps.detected_cluster import API_SERVER, ETCD
from kubewright.lifecycle.steps.renewal import CertificateLocations, RenewalResult
from kubewright.pki.renewal import Terms

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext

TOPIC: Final = "upgrade/staticpods"
OF_COMPONENT: Final[Mapping[str, Sequence[str]]] = {
    ETCD: ("etcd-server", "etcd-peer", "etcd-healthcheck-client"),
    API_SERVER: ("apiserver", "apiserver-kubelet-client", "front-proxy-client", "apiserver-etcd-client"),
    "kube-controller-manager": ("controller-manager.conf",),
    "kube-scheduler": ("scheduler.conf",),
}
"""The certificates that go with each component, by the words of `certs renew`."""
_ADMINISTRATORS: Final = ("admin.conf", "super-admin.conf")


def renewed(ctx: UpgradeContext, components: Iterable[str]) -> Iterator[Change]:
    """Renew the certificates of components. One that is missing is told, and its component finds out whether it needs it."""
    return _renewed(ctx, [name for component in components for name in OF_COMPONENT[component]])


def renewed_administrators(ctx: UpgradeContext) -> Iterator[Change]:
    """Renew what administrators of this machine use; a machine may be without super-admin.conf."""
    return _renewed(ctx, [name for name in _ADMINISTRATORS if ctx.kubeconfigs.read(name) is not None])


def _renewed(ctx: UpgradeContext, names: Sequence[str]) -> Iterator[Change]:
    if not ctx.renews:
        return
    had = {row.name for row in renewal.renewables(ctx.cluster)}
    rows = [renewal.named(name) for name in names if name in had]
    places = CertificateLocations(certificates=ctx.certificates, kubeconfigs=ctx.kubeconfigs, host=ctx.host)
    for outcome in renewal.renew(places, rows, terms=Terms.of(ctx.cluster), clock=ctx.clock, random=ctx.random, started=ctx.bound.started):
        name = outcome.row.name
        match outcome.result:
            case RenewalResult.RENEWED:
                ctx.say(TOPIC, f"Renewing {name} certificate")
                yield Change(target=f"certificate {name}", action=Action.UPDATE, reason="renewed with its component")
            case RenewalResult.EXTERNAL:
                ctx.say(TOPIC, f"External CA detected, {name} certificate can't be renewed")
            case RenewalResult.MISSING:
                ctx.reporter.emit(Warned(text=f"{name} certificate is missing: it is not renewed"))
