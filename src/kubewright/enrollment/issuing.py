"""What a node is given by a hub: two certificates with keys, a kubeconfig, and the kubelet's configuration (oneinfra: internal/pkg/node).

Unlike oneinfra's, each certificate is for one usage only. Keys are made here, because stock nodes have no way to make them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding

from kubewright.apis.join_records import IssuedCertificate
from kubewright.base.clock import rfc3339
from kubewright.base.errors import CertificateError
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, field
from kubewright.enrollment import node_documents
from kubewright.enrollment.answers import Answer
from kubewright.enrollment.clusters import LoadedCluster
from kubewright.enrollment.requests import JoinRequest
from kubewright.pki import issuing, names, pem
from kubewright.pki.keys import Algorithm, KeySource
from kubewright.pki.names import Names
from kubewright.pki.node_names import LOOPBACKS
from kubewright.pki.specs import CertificateSpec
from kubewright.pki.store import LoadedAuthority
from kubewright.pki.table import CLIENT, SERVER

LIFETIME: Final = timedelta(days=365)
NODES: Final = "system:nodes"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One certificate of a node. `name` and `organization` may hold `{node}` and `{cluster}`."""

    purpose: str
    name: str
    organization: str
    usages: tuple[str, ...]
    names: Callable[[str, JoinRequest], Names]
    authority: Callable[[LoadedCluster], LoadedAuthority]


def _loopbacks(_: str, __: JoinRequest) -> Names:
    return names.of((), (), LOOPBACKS)


def _own_names(node: str, request: JoinRequest) -> Names:
    return names.of((node,), (), (*LOOPBACKS, *request.sans))


CLIENT_CERTIFICATE: Final = Row(
    purpose="client",
    name="system:node:{node}",
    organization=NODES,
    usages=CLIENT,
    names=_loopbacks,
    authority=lambda loaded: loaded.clients,
)
SERVING_CERTIFICATE: Final = Row(
    purpose="serving",
    name="{node}",
    organization="{cluster}",
    usages=SERVER,
    names=_own_names,
    authority=lambda loaded: loaded.servers,
)


@dataclass(frozen=True, kw_only=True)
class IssuedPair:
    """A certificate with its key, and what the hub remembers of it."""

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)
    remembered: IssuedCertificate


@dataclass(frozen=True, kw_only=True)
class Issued:
    """An answer, and what the hub remembers of it."""

    answer: Answer
    certificates: tuple[IssuedCertificate, ...]


def issue(loaded: LoadedCluster, node: str, request: JoinRequest, *, key_source: KeySource, started: datetime, random: Random) -> Issued:
    """Make everything for one node. Raises CertificateError where the authorities cannot sign, or a name cannot be in a certificate."""
    cluster = loaded.cluster
    made = {
        row.purpose: _certificate(row, loaded, node, request, key_source=key_source, started=started, random=random)
        for row in (CLIENT_CERTIFICATE, SERVING_CERTIFICATE)
    }
    client, serving = made["client"], made["serving"]
    answer = Answer(
        kubernetes_version=cluster.kubernetes_version.removeprefix("v"),
        kubeconfig=node_documents.kubeconfig(
            cluster,
            server=request.endpoint or cluster.server,
            certificate_pem=client.certificate_pem,
            key_pem=client.key_pem,
        ),
        kubelet_config=node_documents.kubelet_config(cluster),
        serving_certificate=serving.certificate_pem.decode(),
        serving_key=serving.key_pem.decode(),
        client_ca=cluster.kubelet_client_ca,
    )
    return Issued(answer=answer, certificates=tuple(one.remembered for one in made.values()))


def _certificate(
    row: Row, loaded: LoadedCluster, node: str, request: JoinRequest, *, key_source: KeySource, started: datetime, random: Random
) -> IssuedPair:
    authority = row.authority(loaded)
    algorithm = Algorithm(loaded.cluster.key_algorithm)
    words = {"node": node, "cluster": loaded.cluster.name}
    spec = CertificateSpec(
        name=f"the {row.purpose} certificate of {node}",
        base=row.purpose,
        common_name=row.name.format(**words),
        organizations=(row.organization.format(**words),),
        usages=row.usages,
        names=row.names(node, request),
        lifetime=_lifetime(authority, started),
        algorithm=algorithm,
        signer=authority.base,
    )
    key = key_source.take(algorithm)
    made = issuing.certificate(spec, key, authority, started=started, random=random)
    der = made.public_bytes(Encoding.DER)
    remembered = IssuedCertificate(
        purpose=row.purpose,
        serial=f"{made.serial_number:x}",
        fingerprint=hashlib.sha256(der).hexdigest(),
        not_after=rfc3339(made.not_valid_after_utc),
    )
    return IssuedPair(certificate_pem=pem.encode(pem.CERTIFICATE, der), key_pem=key.pem(), remembered=remembered)


def _lifetime(authority: LoadedAuthority, started: datetime) -> timedelta:
    """Return a year, or what is left of the authority's life. Raises CertificateError where it has ended."""
    left = authority.certificate.not_after - started
    if left <= timedelta():
        raise CertificateError(f"the authority {authority.base} has expired", remedy="renew it, and add the cluster again")
    return min(LIFETIME, left)
