"""The phases of join that make a control plane: its certificates, kubeconfigs and manifests, and the wait for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Change
from kubewright.base.errors import CertificateError
from kubewright.lifecycle.join import local_endpoint
from kubewright.lifecycle.steps import certificates as made
from kubewright.lifecycle.steps import static_pods, waiting
from kubewright.pki import specs, store, table
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext

COMPONENTS: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def reserve_keys(ctx: JoinContext) -> None:
    """Begin to make the keys that this machine will need: RSA takes its time, in threads."""
    leaves = [spec for spec in specs.certificates_for(ctx.configuration, ctx.addresses) if isinstance(spec, specs.CertificateSpec)]
    missing = [spec.algorithm for spec in leaves if spec.signer and ctx.certificates.read(spec.key_file) is None]
    files = [specs.of_kubeconfig(row, ctx.configuration, ctx.addresses) for row in table.KUBECONFIGS if row.on_join]
    missing += [spec.certificate.algorithm for spec in files if ctx.kubeconfigs.read(spec.file) is None]
    ctx.reserve_keys(missing)


def certificates(ctx: JoinContext) -> Iterable[Change]:
    """Make the certificates that are missing; those that are there must fit. What all control planes share is never made here.

    Raises CertificateError for what is missing or does not fit.
    """
    ctx.say("certs", f'Using certificate directory "{ctx.layout.pki}"')
    rows = list(table.rows_for(ctx.configuration))
    _require_shared(ctx, rows)
    for row in rows:
        if isinstance(row, table.Leaf):
            yield from made.certificate(row)(ctx)
    ctx.say("certs", "Valid certificates and keys now exist in the certificate directory")
    yield from made.certificate(table.row("sa"))(ctx)


def _require_shared(ctx: JoinContext, rows: Iterable[table.Row]) -> None:
    """Require authorities and the service account keys: other ones than the cluster's would be of no use."""
    missing = []
    for row in rows:
        if isinstance(row, table.Authority) and store.load_authority(ctx.certificates, row.base) is None:
            missing.append(f"{row.base}.crt")
        if isinstance(row, table.KeyPair) and ctx.certificates.read(f"{row.base}.key") is None:
            missing.append(f"{row.base}.key")
    if missing:
        raise CertificateError(
            f"{ctx.layout.pki} lacks what all control planes of the cluster share: {', '.join(missing)}",
            remedy="copy them from a control plane, or join with --certificate-key",
        )


def kubeconfigs(ctx: JoinContext) -> Iterable[Change]:
    """Make the kubeconfigs of a further control plane: neither the kubelet's nor that of the super-admin."""
    ctx.say("kubeconfig", f'Using kubeconfig directory "{ctx.layout.kubernetes}"')
    for row in table.KUBECONFIGS:
        if row.on_join:
            yield from made.kubeconfig(row)(ctx)


def manifests(ctx: JoinContext) -> Iterable[Change]:
    """Write the manifests of the components; that of etcd comes when the cluster has its member."""
    yield from static_pods.manifest_directory(ctx)
    for name in COMPONENTS:
        yield from static_pods.component(name)(ctx)


def wait(ctx: JoinContext) -> Iterable[Step]:
    """Wait until all components of this machine are healthy, then have its kubelet use the API server beside it."""
    ctx.say("wait-control-plane", f'Waiting for the control plane to start as static pods from "{ctx.layout.manifests}"')
    yield from waiting.healthy(ctx, probe=ctx.probe, others=ctx.health_checks)
    yield from local_endpoint.use(ctx)
