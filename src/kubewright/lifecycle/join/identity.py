"""The identity that a kubelet has once it was let in: kubelet.conf with the certificate that it names."""

from __future__ import annotations

from datetime import datetime

from kubewright.base.errors import HostError, KubewrightError
from kubewright.host.seam import Host
from kubewright.kube.credentials import Access, ClientCertificate


def of_node(host: Host, *, now: datetime) -> Access | None:
    """Return how this machine talks as its Node; None if it has no kubelet.conf that can be used now."""
    try:
        return usable(host, now=now)
    except KubewrightError:
        return None


def usable(host: Host, *, now: datetime) -> Access:
    """Read kubelet.conf and what it names. Raises what reading raises, and HostError without a certificate that is valid now."""
    from kubewright.kube.kubeconfigs import load_access
    from kubewright.pki import certificates

    path = host.layout.kubeconfig("kubelet")
    access = load_access(path, read=host.read)
    if not isinstance(access.identity, ClientCertificate):
        raise HostError(f"{path} holds no client certificate", remedy="remove it, and join again")
    if certificates.parse(access.identity.cert_pem, source=str(path))[0].not_after <= now:
        raise HostError(f"the client certificate of {path} has expired", remedy="remove it, and join again with a new token")
    return access
