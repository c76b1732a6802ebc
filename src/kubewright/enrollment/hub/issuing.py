"""The certificates and files that a hub issues to a node.

These are two certificates with keys, a kubeconfig, and the kubelet's configuration (oneinfra: internal/pkg/node).
Unlike oneinfra's, each certificate has only one usage. The hub generates the keys, because stock nodes cannot.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography.hazmat.primitives.serialization import Encoding

from kubewright.apis import formats
from kubewright.apis.join_records import IssuedCertificate
from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document
from kubewright.base import yaml
from kubewright.base.clock import rfc3339
from kubewright.base.errors import CertificateError
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, field
from kubewright.enrollment.protocol.answers import CERTIFICATE_FILE, CLIENT_CA_FILE, KEY_FILE, Answer, TunnelAnswer
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.enrollment.state.clusters import LoadedCluster, TenantCluster
from kubewright.pki import issuing, names, wireguard
from kubewright.pki.encoding import pem
from kubewright.pki.keys import Algorithm, KeySource
from kubewright.pki.names import Names
from kubewright.pki.node_names import LOOPBACKS
from kubewright.pki.specs import CertificateSpec
from kubewright.pki.store import LoadedAuthority
from kubewright.pki.table import CLIENT, SERVER

NODES: Final = "system:nodes"
_ENDPOINTS: Final = 64
"""Cached texts of each kind. Few nodes name another endpoint than the rest."""
_CERTIFICATE_HERE: Final = b"<the certificate of the node>"
_KEY_HERE: Final = b"<the key of the node>"


@dataclass(frozen=True, kw_only=True)
class NodeCertificate:
    """One certificate of a node.

    `name` and `organization` may contain `{node}` and `{cluster}`. `names` maps the node and its names and addresses to
    the SANs.
    """

    purpose: str
    name: str
    organization: str
    usages: tuple[str, ...]
    names: Callable[[str, Sequence[str]], Names]
    authority: Callable[[LoadedCluster], LoadedAuthority]


def _loopbacks(_: str, __: Sequence[str]) -> Names:
    return names.of((), (), LOOPBACKS)


def _own_names(node: str, own: Sequence[str]) -> Names:
    return names.of((node,), (), (*LOOPBACKS, *own))


CLIENT_CERTIFICATE: Final = NodeCertificate(
    purpose="client",
    name="system:node:{node}",
    organization=NODES,
    usages=CLIENT,
    names=_loopbacks,
    authority=lambda loaded: loaded.clients,
)
SERVING_CERTIFICATE: Final = NodeCertificate(
    purpose="serving",
    name="{node}",
    organization="{cluster}",
    usages=SERVER,
    names=_own_names,
    authority=lambda loaded: loaded.servers,
)


@dataclass(frozen=True, kw_only=True)
class IssuedPair:
    """A certificate with its key, and the hub's record of it."""

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)
    remembered: IssuedCertificate


@dataclass(frozen=True, kw_only=True)
class Issued:
    """An answer, and the hub's record of it."""

    answer: Answer
    certificates: tuple[IssuedCertificate, ...]
    tunnel_key: str = ""
    """The public key of the node's end of the VPN."""


def issue(
    loaded: LoadedCluster,
    node: str,
    request: JoinRequest,
    *,
    lease: Sequence[str] = (),
    key_source: KeySource,
    started: datetime,
    random: Random,
) -> Issued:
    """Issue everything for one node.

    `lease` contains its addresses in the VPN, which its serving certificate includes. Raises CertificateError if the
    CAs cannot sign, or if a name cannot be in a certificate.
    """
    cluster, own = loaded.cluster, (*request.sans, *lease)
    tunnel, tunnel_key = _tunnel(loaded, request, lease, random=random)
    made = {
        row.purpose: _certificate(row, loaded, node, own, key_source=key_source, started=started, random=random)
        for row in (CLIENT_CERTIFICATE, SERVING_CERTIFICATE)
    }
    client, serving = made["client"], made["serving"]
    answer = Answer(
        kubernetes_version=cluster.kubernetes_version.removeprefix("v"),
        kubeconfig=kubeconfig(
            cluster,
            server=_server(cluster, request, lease),
            certificate_pem=client.certificate_pem,
            key_pem=client.key_pem,
        ),
        kubelet_config=kubelet_config(cluster),
        serving_certificate=serving.certificate_pem.decode(),
        serving_key=serving.key_pem.decode(),
        client_ca=cluster.kubelet_client_ca,
        tunnel=tunnel,
    )
    return Issued(answer=answer, certificates=tuple(one.remembered for one in made.values()), tunnel_key=tunnel_key)


def _server(cluster: TenantCluster, request: JoinRequest, lease: Sequence[str]) -> str:
    """Return where the node reaches the API server. Stock nodes use the tunnel only for its own networks."""
    through = cluster.vpn.server if cluster.vpn is not None and lease and request.tunnel_key else ""
    return through or request.endpoint or cluster.server


def _tunnel(loaded: LoadedCluster, request: JoinRequest, lease: Sequence[str], *, random: Random) -> tuple[TunnelAnswer | None, str]:
    """Return a node's end of the VPN, and its public key.

    A stock node, which has sent no key, gets a private key and only one address.
    """
    vpn = loaded.cluster.vpn
    if vpn is None or not lease:
        return None, ""
    addresses = vpn.with_mask(lease)
    ends = {"endpoint": vpn.endpoint, "endpoint_key": loaded.tunnel_key}
    if not request.tunnel_key:
        private = wireguard.new_private_key(random)
        answer = TunnelAnswer(cidr=vpn.networks[0], address=addresses[0], private_key=private, **ends)
        return answer, wireguard.public_key(private)
    numbers = {"mtu": str(vpn.mtu), "keepalive": str(vpn.keepalive)}
    return TunnelAnswer(cidr=",".join(vpn.behind), address=",".join(addresses), **ends, **numbers), request.tunnel_key


def _certificate(
    row: NodeCertificate, loaded: LoadedCluster, node: str, own: Sequence[str], *, key_source: KeySource, started: datetime, random: Random
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
        names=row.names(node, own),
        lifetime=_lifetime(authority, started, wanted=timedelta(seconds=loaded.cluster.lifetime)),
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


def _lifetime(authority: LoadedAuthority, started: datetime, *, wanted: timedelta) -> timedelta:
    """Return a certificate's lifetime: the configured one, or what is left of the CA's.

    Raises CertificateError if the CA has expired.
    """
    left = authority.certificate.not_after - started
    if left <= timedelta():
        raise CertificateError(f"the CA {authority.base} has expired", remedy="renew it, and add the cluster again")
    return min(wanted, left)


def kubeconfig(cluster: TenantCluster, *, server: str, certificate_pem: bytes, key_pem: bytes) -> str:
    """Return a node's kubeconfig: one cluster, context and user, all named like the cluster."""
    before, between, after = _kubeconfig_around(cluster.name, cluster.server_ca, server)
    return "".join((before, _data(certificate_pem), between, _data(key_pem), after))


@functools.lru_cache(maxsize=_ENDPOINTS)
def _kubeconfig_around(name: str, ca: str, server: str) -> tuple[str, str, str]:
    """Return the text before, between and after a certificate and its key.

    Both are base64, which YAML needs no quotes for.
    """
    body = kubeconfig_document(
        server=server,
        cluster_name=name,
        user=name,
        context=name,
        credentials=EmbeddedCertificate(certificate_pem=_CERTIFICATE_HERE, key_pem=_KEY_HERE),
        ca_pem=ca.encode(),
    )
    before, _, rest = yaml.dump(body).partition(_data(_CERTIFICATE_HERE))
    between, _, after = rest.partition(_data(_KEY_HERE))
    return before, between, after


def _data(content: bytes) -> str:
    return base64.b64encode(content).decode()


def kubelet_config(cluster: TenantCluster) -> str:
    """Return the kubelet's configuration: oneinfra's fields over the cluster's."""
    return _kubelet_config(json.dumps(dict(cluster.kubelet_config)), cluster.service_subnet, cluster.domain)


@functools.lru_cache(maxsize=_ENDPOINTS)
def _kubelet_config(added: str, service_subnet: str, domain: str) -> str:
    ours = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"x509": {"clientCAFile": CLIENT_CA_FILE}},
        "clusterDNS": [str(formats.service_address(service_subnet, formats.DNS_INDEX))],
        "clusterDomain": domain,
        "tlsCertFile": CERTIFICATE_FILE,
        "tlsPrivateKeyFile": KEY_FILE,
    }
    return yaml.dump(dict(_merged(json.loads(added), ours)))


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name in {**below, **above}:
        under, over = below.get(name), above.get(name)
        if isinstance(under, Mapping) and isinstance(over, Mapping):
            yield name, dict(_merged(under, over))
        else:
            yield name, under if over is None else over
