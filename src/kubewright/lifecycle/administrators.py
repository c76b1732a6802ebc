"""The kubeconfigs with which the cluster of a machine is administrated: there, readable, still valid, and of this machine's cluster.

Without one, nobody can tell what a cluster has, and a plan would take it for empty.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import PurePosixPath

from kubewright.base.errors import CertificateError, HostError
from kubewright.host.seam import Host
from kubewright.kube.credentials import Access, ClientCertificate
from kubewright.kube.kubeconfigs import load_access
from kubewright.pki import certificates, pins


def load(host: Host, path: PurePosixPath, *, now: datetime) -> Access:
    """Read an administrator's kubeconfig. Raises HostError where it is missing, CertificateError for one that cannot be meant, and as `load_access`."""
    if host.state(path) is None:
        raise HostError(
            f"{path} is not there, and without it nobody can tell what the cluster of this machine has",
            remedy="make it with `kubewright init phase kubeconfig admin` and the configuration of the cluster, where the key of its CA is on "
            "this machine; or copy it from another control-plane node; then run the same command again",
        )
    access = load_access(path, read=host.read)
    _require_valid(access, path, now=now)
    _require_own(host, access, path)
    return access


def _require_valid(access: Access, path: PurePosixPath, *, now: datetime) -> None:
    if not isinstance(access.identity, ClientCertificate):
        return
    certificate = certificates.parse(access.identity.cert_pem, source=str(path))[0]
    if not certificate.not_before <= now <= certificate.not_after:
        raise CertificateError(
            f"the client certificate of {path} cannot be used: {certificates.expiry(certificate, now)}",
            remedy=f"renew it with `kubewright certs renew {path.name}`, and see that the clock is right; then run the same command again",
        )


def _require_own(host: Host, access: Access, path: PurePosixPath) -> None:
    """Compare with the CA of this machine, where both are there. Keys count: a CA may have been renewed with its own."""
    own_path = host.layout.certificate("ca")
    own = host.read(own_path)
    if own is None or access.ca_pem is None:
        return
    if not pins.matches(pins.of_bundle(access.ca_pem, source=str(path)), pins.of_bundle(own, source=str(own_path))):
        raise CertificateError(
            f"{path} is of another cluster than this machine: it trusts another authority than {own_path}",
            remedy="move it away, and make it anew with `kubewright init phase kubeconfig admin`, or copy it from a control-plane node of this cluster",
        )
