"""The phases of join that create a control plane.

The shared files come from the Secret kubeadm-certs (kubeadm v1.36: phases/copycerts). Then follow its own certificates,
kubeconfigs and manifests, the wait for it, and the labels and taints of its Node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kubewright.base.change import Change
from kubewright.base.encoding import decode_base64
from kubewright.base.errors import CertificateError, Forbidden, NotFound
from kubewright.base.events import Waited
from kubewright.host.desired import File, Show
from kubewright.kube import objects
from kubewright.kube.resources import named
from kubewright.lifecycle.join import configuration, kubelet
from kubewright.lifecycle.steps import certificates as steps
from kubewright.lifecycle.steps import health, static_pods
from kubewright.lifecycle.steps.kubelet import mark
from kubewright.manifests import rbac
from kubewright.pki import certificates as x509
from kubewright.pki import keys, specs, store, table
from kubewright.pki.encryption import sealing
from kubewright.pki.store import CERTIFICATE_MODE, KEY_MODE, MemoryStore
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext

COMPONENTS: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
DOWNLOAD: Final = "download-certs"
SECRET: Final = "kubeadm-certs"  # noqa: S105 - a name
NAMESPACE: Final = "kube-system"
_AGAIN: Final = (
    "upload them again with `kubewright init phase upload-certs --upload-certs` on a control plane, and join with the key that it prints"
)
_READ: Final = {".crt": x509.parse, ".key": keys.load, ".pub": keys.load_public}
_KUBELETS: Final = "kubeadm:apiserver-kubelet-client"
"""The permissions for API servers to access kubelets.

Clusters that were created without them lack them (kubeadm#3310).
"""


def download_certs(ctx: JoinContext) -> Iterable[Change]:
    """Write all files in the Secret, or none. Does nothing without a certificate key.

    A resumed join keeps its files: the Secret may have been deleted by then. Raises CertificateError for a Secret that
    is missing or incomplete, a wrong key, and contents that are not a certificate or key.
    """
    key = ctx.configuration.init.certificate_key
    places = steps.shared_files(ctx.cluster, ctx.layout)
    if not key:
        return
    if ctx.resumed and all(ctx.host.state(path) is not None for path in places.values() if path):
        ctx.say(DOWNLOAD, "The certificates exist already")
        return
    ctx.say(DOWNLOAD, f'Downloading the certificates in Secret "{SECRET}" in the "{NAMESPACE}" Namespace')
    opened = _opened(_secret(ctx), sealing.parse_key(key), names=list(places))
    _require_usable(opened)
    ctx.say(DOWNLOAD, f'Saving the certificates to the folder: "{ctx.layout.pki}"')
    for name, content in opened.items():
        path = places[name]
        if content and path is not None:
            yield ctx.host.ensure(_file(path, content))


def _secret(ctx: JoinContext) -> Mapping[str, Any]:
    try:
        return configuration.patiently(ctx, lambda: ctx.bootstrap.get(named("Secret"), SECRET, NAMESPACE))
    except NotFound as error:
        raise CertificateError(
            f"the Secret {NAMESPACE}/{SECRET} does not exist",
            detail="it is deleted after two hours, or when the token that owns it is deleted",
            remedy=_AGAIN,
        ) from error
    except Forbidden as error:
        raise CertificateError(
            f"the Secret {NAMESPACE}/{SECRET} may not be read",
            detail=str(error),
            remedy=f"join with a token of the group for joining nodes; or {_AGAIN}",
        ) from error


def _opened(secret: Mapping[str, Any], key: bytes, *, names: list[str]) -> dict[str, bytes]:
    """Decrypt every value. An empty one is a file that the uploading machine did not have."""
    data = secret.get("data") or {}
    missing = [name for name in names if name not in data]
    if missing:
        raise CertificateError(f"the Secret {NAMESPACE}/{SECRET} lacks {', '.join(missing)}", remedy=_AGAIN)
    opened = {}
    for name in names:
        try:
            sealed = decode_base64(data[name] or "")
        except ValueError as error:
            raise CertificateError(f"{name} of the Secret {NAMESPACE}/{SECRET} cannot be read", remedy=_AGAIN) from error
        opened[name] = sealing.unseal(sealed, key, name=name) if sealed else b""
    return opened


def _require_usable(opened: Mapping[str, bytes]) -> None:
    """Require that every value is what its name says, and that certificates and keys of CAs match."""
    for name, content in opened.items():
        if content:
            _READ[PurePosixPath(name).suffix](content, source=f"{name} of the Secret {SECRET}")
    found = MemoryStore({name.replace("etcd-", "etcd/"): content for name, content in opened.items() if content})
    for base in ("ca", "front-proxy-ca", "etcd/ca"):
        store.load_authority(found, base)


def _file(path: PurePosixPath, content: bytes) -> File:
    mode = KEY_MODE if path.suffix == ".key" or b"PRIVATE KEY-----" in content else CERTIFICATE_MODE
    return File(path=path, content=content, mode=mode, show=Show.SIZE)


def certificates(ctx: JoinContext) -> Iterable[Change]:
    """Create missing certificates; existing ones must match. Files shared by all control planes are never created here.

    Raises CertificateError for files that are missing or do not match.
    """
    ctx.say("certs", f'Using certificate directory "{ctx.layout.pki}"')
    rows = list(table.rows_for(ctx.configuration))
    _require_shared(ctx, rows)
    for row in rows:
        if isinstance(row, table.Leaf):
            yield _certificate(ctx, row)
    ctx.say("certs", "Valid certificates and keys now exist in the certificate directory")
    yield _certificate(ctx, table.row("sa"))


def _certificate(ctx: JoinContext, row: table.CertificateRow) -> Change:
    spec = specs.of(row, ctx.configuration, ctx.addresses)
    return steps.certificate(spec, store=ctx.certificates, sources=ctx.issuing, reporter=ctx.reporter)


def _require_shared(ctx: JoinContext, rows: Iterable[table.CertificateRow]) -> None:
    """Require CAs and the service account keys: generated ones would differ from the cluster's."""
    missing = []
    for row in rows:
        if isinstance(row, table.Authority) and store.load_authority(ctx.certificates, row.base) is None:
            missing.append(f"{row.base}.crt")
        if isinstance(row, table.KeyPair) and ctx.certificates.read(f"{row.base}.key") is None:
            missing.append(f"{row.base}.key")
    if missing:
        raise CertificateError(
            f"{ctx.layout.pki} lacks files that all control planes of the cluster share: {', '.join(missing)}",
            remedy="copy them from a control plane, or join with --certificate-key",
        )


def kubeconfigs(ctx: JoinContext) -> Iterable[Change]:
    """Create the kubeconfigs of a further control plane: neither the kubelet's nor that of the super-admin."""
    ctx.say("kubeconfig", f'Using kubeconfig directory "{ctx.layout.kubernetes}"')
    if not ctx.runs("control-plane-prepare/certs"):  # which warns of the CA that has signed its certificates
        steps.warn_of_signer(ctx.certificates, now=ctx.clock.now(), reporter=ctx.reporter)
    for spec in _kubeconfigs(ctx):
        yield steps.kubeconfig(spec, files=ctx.kubeconfigs, certificates=ctx.certificates, sources=ctx.issuing, reporter=ctx.reporter)


def _kubeconfigs(ctx: JoinContext) -> list[specs.KubeconfigSpec]:
    return [specs.of_kubeconfig(row, ctx.configuration, ctx.addresses) for row in table.KUBECONFIGS if row.on_join]


def manifests(ctx: JoinContext) -> Iterable[Change]:
    """Write the manifests of the components; etcd's is written when the cluster has its member."""
    yield from static_pods.manifest_directory(ctx.cluster, ctx.layout, host=ctx.host, reporter=ctx.reporter)
    for name in COMPONENTS:
        yield from static_pods.component(
            name, ctx.inputs, host=ctx.host, patched=ctx.patched, manifests=ctx.bound.manifests, reporter=ctx.reporter
        )


def reserve_keys(ctx: JoinContext) -> None:
    """Start to generate the keys that this machine needs: RSA keys take time, so they use threads."""
    leaves = [spec for spec in specs.certificates_for(ctx.configuration, ctx.addresses) if isinstance(spec, specs.CertificateSpec)]
    missing = steps.missing_keys([spec for spec in leaves if spec.signer], ctx.certificates)
    ctx.bound.keys.have([*missing, *steps.missing_kubeconfigs(_kubeconfigs(ctx), ctx.kubeconfigs)])


def wait(ctx: JoinContext) -> Iterable[Step]:
    """Wait until all components of this machine are healthy, then make its kubelet use the local API server."""
    ctx.say("wait-control-plane", f'Waiting for the control plane to start as static pods from "{ctx.layout.manifests}"')
    yield from health.healthy(
        ctx.components,
        probe=ctx.probe,
        server=ctx.addresses.api_server,
        manifests=ctx.bound.manifests,
        others=ctx.health_checks,
        lines=ctx.health_lines,
    )
    yield from kubelet.use_local_server(ctx)


def mark_control_plane(ctx: JoinContext) -> Iterable[Change | Waited]:
    """Label and taint the Node once it is registered, through the cluster's endpoint: this machine's API server may not be up yet."""
    registration, within = ctx.join.node_registration, ctx.join.timeouts.kubernetes_api_call.seconds
    yield from mark(registration, look=ctx.admin, write=ctx.api, components=ctx.components, within=within, reporter=ctx.reporter)
    for body in rbac.grants(rbac.Purpose.JOINING):
        if body["metadata"]["name"] == _KUBELETS:
            yield objects.ensure_object(ctx.api, objects.DesiredObject(body))
