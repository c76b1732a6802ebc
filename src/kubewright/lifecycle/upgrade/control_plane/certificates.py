"""Renews the certificates of upgraded components (kubeadm v1.36: phases/upgrade/staticpods.go, renewCertsByComponent)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Action, Change
from kubewright.base.errors import HostError
from kubewright.base.events import Warned
from kubewright.host.desired import File
from kubewright.host.overlay import OverlayHost
from kubewright.lifecycle.steps import checkpoint, renewal
from kubewright.lifecycle.steps.detected_cluster import API_SERVER, ETCD
from kubewright.lifecycle.steps.renewal import CertificateLocations, Renewable, RenewalResult
from kubewright.lifecycle.upgrade.planning.versions import NAMESPACE
from kubewright.pki import certificates, specs, store, table
from kubewright.pki.renewal import Terms
from kubewright.pki.specs import CertificateSpec, Found

if TYPE_CHECKING:
    from kubewright.host.seam import Host
    from kubewright.lifecycle.steps.checkpoint import Checkpoint
    from kubewright.lifecycle.upgrade.context import UpgradeContext

TOPIC: Final = "upgrade/staticpods"
OF_COMPONENT: Final[Mapping[str, Sequence[str]]] = {
    ETCD: ("etcd-server", "etcd-peer", "etcd-healthcheck-client"),
    API_SERVER: ("apiserver", "apiserver-kubelet-client", "front-proxy-client", "apiserver-etcd-client"),
    "kube-controller-manager": ("controller-manager.conf",),
    "kube-scheduler": ("scheduler.conf",),
}
"""The certificates of each component, by the names of `certs renew`."""
_ADMINISTRATORS: Final = ("admin.conf", "super-admin.conf")


def renew(ctx: UpgradeContext, components: Iterable[str], *, same_keys: Iterable[str] = ()) -> dict[str, list[File]]:
    """Renew the certificates of components without writing them, and return the files of each, the key first.

    The components of `same_keys` keep their keys: they are not restarted, and may read both files at any moment.
    """
    draft = OverlayHost(ctx.host)
    groups = ((components, False), (same_keys, True))
    names = [
        name for group, same in groups for name in _renewed(ctx, draft, [row for one in group for row in OF_COMPONENT[one]], same=same)
    ]
    return {name: _files(ctx, draft, name) for name in names}


def _files(ctx: UpgradeContext, draft: Host, name: str) -> list[File]:
    """Return the files that a renewal has written into a draft of the machine."""
    base, layout = renewal.named(name).base, ctx.layout
    paths = (layout.key(base), layout.certificate(base)) if base else (layout.kubernetes / name,)
    found = [(path, draft.read(path), draft.state(path)) for path in paths]
    return [
        File(path=path, content=content, mode=state.mode)
        for path, content, state in found
        if content is not None and state is not None and content != ctx.host.read(path)
    ]


def write(ctx: UpgradeContext, kept: Checkpoint, component: str) -> Iterator[Change]:
    """Write the renewed certificates of a component."""
    for name in OF_COMPONENT[component]:
        if name in kept.pairs and any(checkpoint.put_pair(ctx.host, kept, name)):
            yield _change(ctx, name)


def renewed_administrators(ctx: UpgradeContext) -> Iterator[Change]:
    """Renew admin.conf and super-admin.conf, if they exist."""
    names = [name for name in _ADMINISTRATORS if ctx.kubeconfigs.read(name) is not None]
    yield from (_change(ctx, name) for name in _renewed(ctx, ctx.host, names))


def renewed_controllers(ctx: UpgradeContext) -> Iterator[Change]:
    """Renew the kubeconfig of kubewright's own controllers, if this machine has their static pod, and restart that pod.

    It reads the file only when it starts. The kubelet starts it again at once.
    """
    name = table.CONTROLLERS.file
    if ctx.kubeconfigs.read(name) is None:
        return
    for one in _renewed(ctx, ctx.host, [name]):
        yield _change(ctx, one)
        yield from _stopped(ctx, f"{table.CONTROLLERS.name}-{ctx.node_name}")


def _stopped(ctx: UpgradeContext, pod: str) -> Iterator[Change]:
    """Stop a static pod; if that is impossible, only a warning is reported."""
    try:
        for sandbox in ctx.host.runtime.sandboxes():
            if (sandbox.namespace, sandbox.name) == (NAMESPACE, pod) and sandbox.ready:
                yield ctx.host.runtime.stop_sandbox(sandbox)
    except HostError as error:
        ctx.reporter.emit(Warned(text=f"restart the static pod {pod}: it still uses its earlier certificate ({error})"))


def _change(ctx: UpgradeContext, name: str) -> Change:
    ctx.say(TOPIC, f"Renewing {name} certificate")
    return Change(target=f"certificate {name}", action=Action.UPDATE, reason="renewed with its component")


def _renewed(ctx: UpgradeContext, host: Host, names: Sequence[str], *, same: bool = False) -> Iterator[str]:
    """Renew certificates on a host, and yield their names; the ones that cannot be renewed are reported."""
    if not ctx.renews:
        return
    had = {row.name for row in renewal.renewables(ctx.cluster)}
    rows = [renewal.named(name) for name in names if name in had]
    places = CertificateLocations.of(host, certificates=ctx.layout.pki, kubeconfigs=ctx.layout.kubernetes)
    terms = Terms.of(ctx.cluster)
    if not same:
        renewal.reserve(places, rows, terms=terms, keys=ctx.bound.keys)
    for row in rows:
        outcome = renewal.renew(places, row, terms=terms, sources=ctx.issuing, same_key=same)
        name = outcome.row.name
        match outcome.result:
            case RenewalResult.RENEWED:
                _compare(ctx, places, row)
                yield name
            case RenewalResult.EXTERNAL:
                ctx.say(TOPIC, f"External CA detected, {name} certificate can't be renewed")
            case RenewalResult.MISSING:
                ctx.reporter.emit(Warned(text=f"{name} certificate is missing: it is not renewed"))


def _compare(ctx: UpgradeContext, places: CertificateLocations, row: Renewable) -> None:
    """Warn of a renewed certificate that the configuration describes differently, because renewal copies the earlier one.

    The same in kubeadm (v1.36: phases/certs/renewal), which does not report it.
    """
    spec = next((specs.of(one, ctx.configuration, ctx.addresses) for one in table.CERTIFICATES if one.name == row.name), None)
    text = places.certificates.read(row.file) if row.base else None
    if text is None or not isinstance(spec, CertificateSpec):
        return
    authority = store.require_authority(places.certificates, row.authority.base, wanted=row.name)
    found = Found(certificates=(certificates.first(text, source=row.file),), key=None, authority=authority)
    if differences := specs.content_differences(spec, found):
        ctx.reporter.emit(
            Warned(
                text=f"{row.file} is renewed as it was, and the configuration describes another one: {'; '.join(differences)}. To create it from"
                f" the configuration, remove {row.base}.crt and {row.base}.key and run `kubewright init phase certs {row.name}`"
            )
        )
