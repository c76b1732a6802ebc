"""The phases `certs/*` and `kubeconfig/*` of init, which call the shared steps with the values of this run."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.base.change import Change
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps import certificates
from kubewright.pki import specs, table
from kubewright.pki.keys import Algorithm


def certificate_directory(ctx: InitContext) -> Iterable[Change]:
    """Report the certificate directory, and start to generate the keys that this run needs: RSA keys take time, so they use threads."""
    ctx.say("certs", f'Using certificate directory "{ctx.layout.pki}"')
    reserve_keys(ctx)
    return ()


def reserve_keys(ctx: InitContext) -> None:
    """Start to generate the keys of missing certificates and kubeconfigs. A second call does nothing."""
    wanted = specs.certificates_for(ctx.configuration, ctx.addresses)
    missing = certificates.missing_keys([spec for spec in wanted if ctx.runs(f"certs/{spec.name}")], ctx.certificates)
    ctx.bound.keys.have([*missing, *_of_kubeconfigs(ctx)])


def _of_kubeconfigs(ctx: InitContext) -> list[Algorithm]:
    wanted = specs.kubeconfigs_for(ctx.configuration, ctx.addresses)
    return certificates.missing_kubeconfigs([spec for spec in wanted if ctx.runs(f"kubeconfig/{spec.name}")], ctx.kubeconfigs)


def certificate(ctx: InitContext, row: table.CertificateRow) -> Iterable[Change]:
    """Keep or create the certificate of a row of the certificate table."""
    spec = specs.of(row, ctx.configuration, ctx.addresses)
    yield certificates.certificate(spec, store=ctx.certificates, sources=ctx.issuing, reporter=ctx.reporter)


def kubeconfig_directory(ctx: InitContext) -> Iterable[Change]:
    """Report the directory of kubeconfigs."""
    ctx.say("kubeconfig", f'Using kubeconfig directory "{ctx.layout.kubernetes}"')
    if not ctx.runs("certs"):
        ctx.bound.keys.have(_of_kubeconfigs(ctx))
    return ()


def kubeconfig(ctx: InitContext, row: table.Kubeconfig) -> Iterable[Change]:
    """Keep or create the kubeconfig of a row of the certificate table. The first one warns of the CA, unless `certs` has."""
    if not ctx.runs("certs/ca") and row == next(one for one in table.KUBECONFIGS if ctx.runs(f"kubeconfig/{one.name}")):
        certificates.warn_of_signer(ctx.certificates, now=ctx.clock.now(), reporter=ctx.reporter)
    spec = specs.of_kubeconfig(row, ctx.configuration, ctx.addresses)
    yield certificates.kubeconfig(spec, files=ctx.kubeconfigs, certificates=ctx.certificates, sources=ctx.issuing, reporter=ctx.reporter)
