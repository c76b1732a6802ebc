"""Which certificates expire and are renewed on a control plane: rows derived from pki's table (spec/kubeadm.md 10.1).

Authorities, the service account keys and kubelet.conf are never renewed. With an external etcd its certificates are somebody else's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kubewright.base.records import dataclass
from kubewright.pki import table

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.types import ClusterConfiguration


@dataclass(frozen=True, kw_only=True)
class Renewable:
    """One certificate of a control plane. `name` is the word of `certs renew`; `base` is '' for one inside a kubeconfig."""

    name: str
    long_name: str
    authority: table.Authority
    base: str = ""
    owner: table.Owner = table.Owner.KUBERNETES

    @property
    def file(self) -> str:
        """The file with the certificate, below the certificate directory or, for a kubeconfig, the Kubernetes directory."""
        return f"{self.base}.crt" if self.base else self.name


def renewables(cluster: ClusterConfiguration) -> list[Renewable]:
    """Return the rows that a cluster has, sorted by name."""
    return [row for row in everything() if _has(cluster, row.owner)]


def authorities(cluster: ClusterConfiguration) -> list[table.Authority]:
    """Return the authorities that a cluster has, sorted by name."""
    found = (row for row in table.CERTIFICATES if isinstance(row, table.Authority))
    return sorted((row for row in found if _has(cluster, row.owner)), key=lambda row: row.name)


def everything() -> list[Renewable]:
    """Return every row that there can be, sorted by name."""
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
    for row in table.KUBECONFIGS:
        if row.long_name:
            yield Renewable(name=row.file, long_name=row.long_name, authority=table.authority("ca"))


def _has(cluster: ClusterConfiguration, owner: table.Owner) -> bool:
    return owner is table.Owner.KUBERNETES or cluster.etcd.external is None
