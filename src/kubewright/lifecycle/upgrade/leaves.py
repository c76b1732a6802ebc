"""Renewing the certificates of components that are upgraded (kubeadm v1.36: phases/upgrade/staticpods.go, renewCertsByComponent)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


def renewed(ctx: UpgradeContext, component: str, *, restarts: bool = True) -> Iterator[Change]:
    """Renew the certificates of a component. One that is missing is told, and the component finds out whether it needs it.

    A component that does not restart keeps its keys: it may read a certificate and its key at any moment.
    """
    return _renewed(ctx, OF_COMPONENT[component], same_keys=not restarts)


def renewed_administrators(ctx: UpgradeContext) -> Iterator[Change]:
    """Renew what administrators of this machine use; a machine may be without super-admin.conf."""
    return _renewed(ctx, [name for name in _ADMINISTRATORS if ctx.kubeconfigs.read(name) is not None])


def _renewed(ctx: UpgradeContext, names: Sequence[str], *, same_keys: bool = False) -> Iterator[Change]:
    if not ctx.renews:
        return
    had = {row.name for row in renewal.renewables(ctx.cluster)}
    rows = [renewal.named(name) for name in names if name in had]
    places = CertificateLocations(certificates=ctx.certificates, kubeconfigs=ctx.kubeconfigs, host=ctx.host)
    for outcome in renewal.renew(
        places,
        rows,
        terms=Terms.of(ctx.cluster),
        clock=ctx.clock,
        random=ctx.random,
        started=ctx.bound.started,
        same_keys=same_keys,
    ):
        name = outcome.row.name
        match outcome.result:
            case RenewalResult.RENEWED:
                ctx.say(TOPIC, f"Renewing {name} certificate")
                yield Change(target=f"certificate {name}", action=Action.UPDATE, reason="renewed with its component")
            case RenewalResult.EXTERNAL:
                ctx.say(TOPIC, f"External CA detected, {name} certificate can't be renewed")
            case RenewalResult.MISSING:
                ctx.reporter.emit(Warned(text=f"{name} certificate is missing: it is not renewed"))
