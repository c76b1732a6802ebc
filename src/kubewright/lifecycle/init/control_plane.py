"""The phases of init that write a control plane's files and start its kubelet: the shared steps, with what this run has."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.base.change import Change
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps import certificates, kubelet, static_pods
from kubewright.manifests import kubelet as manifests
from kubewright.manifests import patches
from kubewright.pki import specs, table
from kubewright.pki.keys import Algorithm


def certificate_directory(ctx: InitContext) -> Iterable[Change]:
    """Say where certificates go, and begin to make the keys that this run needs: RSA takes its time, in threads."""
    ctx.say("certs", f'Using certificate directory "{ctx.layout.pki}"')
    reserve_keys(ctx)
    return ()


def reserve_keys(ctx: InitContext) -> None:
    """Begin to make the keys of certificates and kubeconfigs that this run lacks. A second time begins nothing anew."""
    wanted = specs.certificates_for(ctx.configuration, ctx.addresses)
    missing = certificates.missing_keys([spec for spec in wanted if ctx.runs(f"certs/{spec.name}")], ctx.certificates)
    ctx.bound.keys.have([*missing, *_of_kubeconfigs(ctx)])


def _of_kubeconfigs(ctx: InitContext) -> list[Algorithm]:
    wanted = specs.kubeconfigs_for(ctx.configuration, ctx.addresses)
    return certificates.missing_kubeconfigs([spec for spec in wanted if ctx.runs(f"kubeconfig/{spec.name}")], ctx.kubeconfigs)


def certificate(ctx: InitContext, row: table.Row) -> Iterable[Change]:
    """Keep or make what a row of the certificate table says."""
    spec = specs.of(row, ctx.configuration, ctx.addresses)
    yield certificates.certificate(spec, store=ctx.certificates, sources=ctx.issuing, reporter=ctx.reporter)


def only_local_etcd(ctx: InitContext) -> str | None:
    """Certificates of etcd are made for a local member only."""
    return None if ctx.cluster.etcd.external is None else "etcd is external"


def kubeconfig_directory(ctx: InitContext) -> Iterable[Change]:
    """Say where kubeconfigs go."""
    ctx.say("kubeconfig", f'Using kubeconfig directory "{ctx.layout.kubernetes}"')
    if not ctx.runs("certs"):
        ctx.bound.keys.have(_of_kubeconfigs(ctx))
    return ()


def kubeconfig(ctx: InitContext, row: table.Kubeconfig) -> Iterable[Change]:
    """Keep or make what a row of the kubeconfig table says."""
    spec = specs.of_kubeconfig(row, ctx.configuration, ctx.addresses)
    yield certificates.kubeconfig(spec, files=ctx.kubeconfigs, certificates=ctx.certificates, sources=ctx.issuing, reporter=ctx.reporter)


def etcd(ctx: InitContext) -> Iterable[Change]:
    """Make etcd's data directory and write its manifest."""
    return static_pods.etcd(ctx.inputs, host=ctx.host, patched=ctx.patched, manifests=ctx.bound.manifests, reporter=ctx.reporter)


def manifest_directory(ctx: InitContext) -> Iterable[Change]:
    """Say where manifests go, and make the directory."""
    return static_pods.manifest_directory(ctx.cluster, ctx.layout, host=ctx.host, reporter=ctx.reporter)


def component(ctx: InitContext, name: str) -> Iterable[Change]:
    """Write the manifest of a component."""
    return static_pods.component(name, ctx.inputs, host=ctx.host, patched=ctx.patched, manifests=ctx.bound.manifests, reporter=ctx.reporter)


def start_kubelet(ctx: InitContext) -> Iterable[Change]:
    """Write the kubelet's files and start it."""
    files = manifests.files(ctx.configuration, ctx.layout, ctx.detected, patch=lambda body: ctx.patched(patches.KUBELET, body))
    yield from kubelet.start(files, host=ctx.host, layout=ctx.layout, stand_ins=ctx.bound.kubelet_makes, reporter=ctx.reporter)


def finalize_kubelet(ctx: InitContext) -> Iterable[Change]:
    """Let kubelet.conf name the certificate that the kubelet rotates."""
    return kubelet.finalize(ctx.layout, host=ctx.host, reporter=ctx.reporter)
