"""Renewal of a control plane's certificates: the list, derived from pki's table, and the locations of their files.

Source: kubeadm v1.36: phases/certs/renewal.

CAs, the service account keys and kubelet.conf are never renewed. With an external etcd, its certificates are not ours.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kubewright.base.change import Change
from kubewright.base.records import dataclass
from kubewright.host.certificates import HostCertificateStore
from kubewright.host.seam import Host
from kubewright.pki import renewal, store, table
from kubewright.pki.ensure import IssuingSources
from kubewright.pki.keys import KeyPool
from kubewright.pki.renewal import Terms
from kubewright.pki.store import CertificateStore, LoadedAuthority

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.types import ClusterConfiguration


@dataclass(frozen=True, kw_only=True)
class Renewable:
    """One certificate of a control plane.

    `name` is its name in `certs renew`; `base` is '' for one inside a kubeconfig. An `optional` one belongs to a component
    that few machines have.
    """

    name: str
    long_name: str
    authority: table.Authority
    base: str = ""
    owner: table.Owner = table.Owner.KUBERNETES
    optional: bool = False

    @property
    def file(self) -> str:
        """The file with the certificate, below the certificate directory or, for a kubeconfig, the Kubernetes directory."""
        return f"{self.base}.crt" if self.base else self.name


def renewables(cluster: ClusterConfiguration) -> list[Renewable]:
    """Return the rows that a cluster has, sorted by name."""
    return [row for row in everything() if _has(cluster, row.owner)]


def authorities(cluster: ClusterConfiguration) -> list[table.Authority]:
    """Return the CAs of a cluster, sorted by name."""
    found = (row for row in table.CERTIFICATES if isinstance(row, table.Authority))
    return sorted((row for row in found if _has(cluster, row.owner)), key=lambda row: row.name)


def everything() -> list[Renewable]:
    """Return all possible rows, sorted by name."""
    return sorted((*_pairs(), *_kubeconfigs()), key=lambda row: row.name)


def named(name: str) -> Renewable:
    """Return the row of a name. Raises KeyError."""
    return {row.name: row for row in everything()}[name]


def _pairs() -> Iterator[Renewable]:
    for row in table.CERTIFICATES:
        if isinstance(row, table.Leaf):
            authority = table.authority(row.signer)
            yield Renewable(name=row.name, long_name=row.long_name, authority=authority, base=row.base, owner=row.owner)


def _kubeconfigs() -> Iterator[Renewable]:
    for row in (*table.KUBECONFIGS, table.CONTROLLERS):
        if row.long_name:
            optional = row is table.CONTROLLERS
            yield Renewable(name=row.file, long_name=row.long_name, authority=table.authority("ca"), optional=optional)


def _has(cluster: ClusterConfiguration, owner: table.Owner) -> bool:
    return owner is table.Owner.KUBERNETES or cluster.etcd.external is None


@dataclass(frozen=True, kw_only=True)
class CertificateLocations:
    """One machine's certificate directory and Kubernetes directory, as stores, and the machine for files elsewhere."""

    certificates: CertificateStore
    kubeconfigs: CertificateStore
    host: Host

    @classmethod
    def of(cls, host: Host, *, certificates: PurePosixPath, kubeconfigs: PurePosixPath | None = None) -> CertificateLocations:
        """Return the locations of a machine. Without `kubeconfigs` they are in the layout's Kubernetes directory."""
        return cls(
            certificates=HostCertificateStore(host, directory=certificates),
            kubeconfigs=HostCertificateStore(host, directory=kubeconfigs or host.layout.kubernetes),
            host=host,
        )

    def read(self, row: Renewable) -> bytes | None:
        """Return the file of a row; None if it is missing."""
        return (self.certificates if row.base else self.kubeconfigs).read(row.file)

    def lacks(self, row: Renewable) -> bool:
        """Whether a row is optional and not on this machine: that is no fault."""
        return row.optional and self.read(row) is None


class RenewalResult(enum.Enum):
    """The result for one row."""

    RENEWED = "renewed"
    MISSING = "missing"
    EXTERNAL = "externally managed"


@dataclass(frozen=True, kw_only=True)
class Renewal:
    """One row, its result, and the changes."""

    row: Renewable
    result: RenewalResult
    changes: tuple[Change, ...] = ()

    @property
    def text(self) -> str:
        """The line that kubeadm prints; scripts look for its long name."""
        long_name = self.row.long_name
        return {
            RenewalResult.RENEWED: f"{long_name} renewed",
            RenewalResult.MISSING: f"MISSING! {long_name}",
            RenewalResult.EXTERNAL: f"Detected external {self.row.authority.base}, {long_name} can't be renewed",
        }[self.result]

    def as_map(self) -> dict[str, object]:
        """Return the machine-readable form."""
        return {"name": self.row.name, "result": self.result.value}


def reserve(places: CertificateLocations, rows: Iterable[Renewable], *, terms: Terms, keys: KeyPool) -> None:
    """Start to generate the keys of the rows in threads, before they are renewed.

    Raises CertificateError for a row whose CA is missing.
    """
    for row in rows:
        if places.read(row) is not None and _authority(places, row).key is not None:
            keys.reserve(terms.algorithm)


def renew(places: CertificateLocations, row: Renewable, *, terms: Terms, sources: IssuingSources, same_key: bool = False) -> Renewal:
    """Renew a row, regardless of the remaining time. With `same_key`, the key of a pair is kept if possible.

    Raises CertificateError for a file that cannot be read, or whose CA is missing.
    """
    if places.read(row) is None:
        return Renewal(row=row, result=RenewalResult.MISSING)
    authority = _authority(places, row)
    if authority.key is None:
        return Renewal(row=row, result=RenewalResult.EXTERNAL)
    if row.base:
        written = renewal.renew_pair(places.certificates, row.base, authority, terms=terms, sources=sources, same_key=same_key)
    else:
        written = (renewal.renew_kubeconfig(places.kubeconfigs, row.file, authority, terms=terms, sources=sources),)
    return Renewal(row=row, result=RenewalResult.RENEWED, changes=written)


def _authority(places: CertificateLocations, row: Renewable) -> LoadedAuthority:
    return store.require_authority(places.certificates, row.authority.base, wanted=row.name)
