"""Authorities whose keys are kept elsewhere: what they have signed must be here before the first phase runs (spec/kubeadm.md 5.5)."""

from __future__ import annotations

from typing import Final

from kubewright.base.errors import UsageError
from kubewright.lifecycle.init.context import InitContext
from kubewright.pki import store, table

_SIGNED: Final = {"ca": ("apiserver", "apiserver-kubelet-client"), "front-proxy-ca": ("front-proxy-client",)}
"""The certificates that kubeadm asks for, by the file name of their authority."""


def check(ctx: InitContext) -> None:
    """Require what a run cannot make: certificates and, for the cluster's own authority, all kubeconfigs. Nothing is written.

    Raises CertificateError, naming the first file that is missing or does not fit, and UsageError where certificates are to be uploaded.
    """
    elsewhere = [base for base in _SIGNED if store.is_external(ctx.certificates, base)]
    if elsewhere and ctx.upload_certs:
        raise UsageError(
            f"certificates cannot be uploaded: {elsewhere[0]}.key is not on this machine",
            remedy="leave out --upload-certs, and copy the certificates to further control planes yourself",
        )
    for base in elsewhere:
        for row in table.CERTIFICATES:
            if row.name in _SIGNED[base]:
                _require(ctx, row)
    if "ca" in elsewhere:
        for kubeconfig in table.KUBECONFIGS:
            _require_kubeconfig(ctx, kubeconfig)


def _require(ctx: InitContext, row: table.Row) -> None:
    """Keep the certificate, as its phase does: making one ends with the error that its authority's key is not here."""
    from kubewright.pki import ensure, specs  # few machines have such authorities

    ensure.ensure(ctx.certificates, specs.of(row, ctx.configuration, ctx.addresses), clock=ctx.clock, random=ctx.random)


def _require_kubeconfig(ctx: InitContext, row: table.Kubeconfig) -> None:
    from kubewright.pki import kubeconfigs, specs

    spec = specs.of_kubeconfig(row, ctx.configuration, ctx.addresses)
    kubeconfigs.ensure_kubeconfig(ctx.kubeconfigs, ctx.certificates, spec, clock=ctx.clock, random=ctx.random)
