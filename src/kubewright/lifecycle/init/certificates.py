"""The phases `certs/*` and `kubeconfig/*` of init: the shared steps, with what this run has."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.base.change import Change
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps import certificates
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
