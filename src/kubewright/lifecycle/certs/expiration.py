"""The expiry dates on this machine (kubeadm v1.36: phases/certs/renewal/expiration.go, apis/output/v1alpha3).

kubeadm fails if the CA of a certificate is missing or, with an external CA, a certificate or key, and therefore on every
worker. Here, missing files are rows, and a machine with neither a control-plane certificate nor the key of a CA shows
what it has: the cluster's CA and the kubelet's certificate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeadm.types import ClusterConfiguration
from kubewright.base.clock import rfc3339
from kubewright.base.errors import CheckFailed
from kubewright.base.records import dataclass
from kubewright.lifecycle.steps import renewal as rows
from kubewright.lifecycle.steps.renewal import CertificateLocations
from kubewright.pki import certificates, kubeconfigs, renewal, table
from kubewright.pki.certificates import Certificate
from kubewright.pki.store import load_authority

API_VERSION: Final = "output.kubeadm.k8s.io/v1alpha3"
KIND: Final = "CertificateExpirationInfo"
KUBELET: Final = "kubelet.conf"


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """The expiry of one certificate; `expires` None means that it is missing. `authority` is '' for a CA."""

    name: str
    expires: datetime | None = None
    authority: str = ""
    external: bool = False

    def residual(self, now: datetime) -> timedelta:
        """Return the remaining validity, negative if it has expired; zero for a missing one."""
        return timedelta(0) if self.expires is None else self.expires - now

    def as_map(self, now: datetime) -> dict[str, object]:
        """Return the form of kubeadm's output kind."""
        shown: dict[str, object] = {
            "name": self.name,
            "expirationDate": None if self.expires is None else rfc3339(self.expires),
            "residualTime": int(self.residual(now).total_seconds()),
            "externallyManaged": self.external,
        }
        if self.expires is not None and self.authority:
            shown["caName"] = self.authority
        return {**shown, "missing": self.expires is None}


@dataclass(frozen=True, kw_only=True)
class Expiration:
    """The result of an observation. Both lists are sorted by name."""

    certificates: Sequence[Expiry]
    authorities: Sequence[Expiry]
    now: datetime

    def as_map(self) -> dict[str, object]:
        """Return kubeadm's CertificateExpirationInfo, keys in the order of its JSON."""
        return {
            "kind": KIND,
            "apiVersion": API_VERSION,
            "certificates": [row.as_map(self.now) for row in self.certificates],
            "certificateAuthorities": [row.as_map(self.now) for row in self.authorities],
        }

    def require(self, within: timedelta, *, text: str) -> None:
        """Require that all existing certificates are valid for longer than `within`, which the user wrote as `text`.

        Raises CheckFailed.
        """
        short = [row for row in (*self.certificates, *self.authorities) if row.expires is not None and row.residual(self.now) <= within]
        if short:
            raise CheckFailed(
                f"{len(short)} {'certificate expires' if len(short) == 1 else 'certificates expire'} within {text}",
                detail="\n".join(f"{row.name}: {_when(row.residual(self.now))}" for row in short),
                remedy="renew them with `kubewright certs renew all`; replace externally managed certificates and CAs manually",
            )


def _when(residual: timedelta) -> str:
    return f"expired {certificates.span(-residual)} ago" if residual < timedelta(0) else f"expires in {certificates.span(residual)}"


def observe(places: CertificateLocations, cluster: ClusterConfiguration, *, now: datetime) -> Expiration:
    """Check every certificate of this machine.

    On a machine without any, all are missing, as in kubeadm. Raises CertificateError for a file that cannot be read.
    """
    found = {row.name: load_authority(places.certificates, row.base) for row in rows.authorities(cluster)}
    external = {name for name, authority in found.items() if authority is not None and authority.key is None}
    leaves = [_leaf(places, row, external=row.authority.name in external) for row in rows.renewables(cluster) if not places.lacks(row)]
    roots = [
        Expiry(name=name, expires=None if authority is None else authority.bundle[0].not_after, external=name in external)
        for name, authority in found.items()
    ]
    of_control_plane = Expiration(certificates=leaves, authorities=roots, now=now)
    has_key = any(authority is not None and authority.key is not None for authority in found.values())
    if has_key or any(row.expires is not None for row in leaves):
        return of_control_plane
    return _of_worker(places, roots, now) or of_control_plane


def _leaf(places: CertificateLocations, row: rows.Renewable, *, external: bool) -> Expiry:
    text = places.read(row)
    if text is None:
        return Expiry(name=row.name)
    found = certificates.first(text, source=row.file) if row.base else renewal.client_certificate(text, source=row.file)
    return Expiry(name=row.name, expires=found.not_after, authority=row.authority.name, external=external)


def _of_worker(places: CertificateLocations, roots: Iterable[Expiry], now: datetime) -> Expiration | None:
    """Show a machine without control-plane certificates: existing files only, none as missing. None if there are no files at all."""
    there = [row for row in roots if row.expires is not None]
    kubelet = _kubelet(places)
    if not there and kubelet is None:
        return None
    own = [] if kubelet is None else [Expiry(name=KUBELET, expires=kubelet.not_after, authority=table.authority("ca").name, external=True)]
    return Expiration(certificates=own, authorities=there, now=now)


def _kubelet(places: CertificateLocations) -> Certificate | None:
    """Return the kubelet's client certificate: embedded, or in the file that kubelet.conf names.

    None if there is none.
    """
    text = places.kubeconfigs.read(KUBELET)
    if text is None:
        return None
    user = kubeconfigs.resolve(kubeconfigs.load(text, source=KUBELET), KUBELET).user
    if user.client_certificate_data:
        return certificates.first(user.client_certificate_data, source=KUBELET)
    if not user.client_certificate:
        return None
    named = PurePosixPath(user.client_certificate)
    content = places.host.read(places.host.layout.kubernetes / named)
    return None if content is None else certificates.first(content, source=str(named))
