"""A tenant cluster as the hub stores it: its location, its CAs, and its policy for joining nodes.

Secret fields are kept separate, so that a store can seal them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from kubewright.apis import formats
from kubewright.base.errors import DocumentError
from kubewright.base.masking import remember
from kubewright.base.records import dataclass, field, replace, shallow
from kubewright.enrollment.protocol.decisions import Approval, Policy
from kubewright.enrollment.vpn import network as vpn
from kubewright.enrollment.vpn.network import VPN
from kubewright.pki import keys, node_names, store, wireguard
from kubewright.pki.encryption import oaep
from kubewright.pki.encryption.oaep import RecipientKey
from kubewright.pki.keys import Algorithm, PrivateKey
from kubewright.pki.node_names import NamePolicy
from kubewright.pki.store import LoadedAuthority, MemoryStore

_SECRET: Final = ("kubeconfig", "join_key", "client_key", "serving_key", "vpn_key")
_TUPLES: Final = ("reserved", "pod_subnets", "node_names", "names", "ranges")


@dataclass(frozen=True, kw_only=True)
class TenantCluster:
    """One tenant cluster.

    - `server` is its API server's address for nodes that do not name one; `server_ca` is the CA that they trust there.
    - `client_ca` and `client_key` sign the kubelets' certificates for the API server, `serving_ca` and `serving_key`
      their serving certificates; kubelets trust `kubelet_client_ca`. A cluster that kubeadm created has one CA for all
      of these.
    - `reserved`, `node_names`, `names`, `ranges` and `open_addresses` are those of `NamePolicy`.
    - `key_algorithm` is that of nodes' keys: oneinfra's is RSA-2048; nodes do not check it.
    - `vpn` is None if nodes get none; `vpn_key` is the private key of the hub's end.
    - `generation` is the store's: it identifies the cluster among those of the same name, and its latest change; '' for
      one that is not stored.
    - `kubelet_config` are further fields for the kubelets' configuration. `kept` and `waits` are seconds, and so is
      `lifetime`, of certificates.

    All CAs are PEM, `kubeconfig` is YAML with the hub's credentials in the cluster.
    """

    name: str
    server: str
    server_ca: str
    kubernetes_version: str
    service_subnet: str = "10.96.0.0/12"
    pod_subnets: tuple[str, ...] = ()
    domain: str = "cluster.local"
    client_ca: str
    serving_ca: str
    kubelet_client_ca: str
    kubelet_config: Mapping[str, Any] = field(default_factory=dict)
    approval: str = Approval.AUTOMATIC.value
    reserved: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    open_addresses: bool = True
    key_algorithm: str = Algorithm.RSA_2048.value
    kept: int = 3600
    waits: int = 86400
    lifetime: int = 365 * 86400
    vpn: VPN | None = None
    kubeconfig: str = field(repr=False)
    join_key: str = field(repr=False)
    client_key: str = field(repr=False)
    serving_key: str = field(repr=False)
    vpn_key: str = field(repr=False, default="")
    generation: str = field(repr=False, compare=False, default="")

    def document(self) -> dict[str, Any]:
        """Return the fields that are not secret."""
        values = {name: value for name, value in shallow(self).items() if name not in (*_SECRET, "generation")}
        values["vpn"] = self.vpn.document() if self.vpn is not None else None
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def secrets(self) -> dict[str, str]:
        """Return the secret fields by name."""
        return {name: getattr(self, name) for name in _SECRET}

    def policy(self, *, foreign: Mapping[str, str], api_servers: frozenset[str] = frozenset(), crowded: bool = False) -> Policy:
        """Return the policy for joining nodes.

        `foreign` maps names to the other nodes that have them, `api_servers` are addresses of API servers, `crowded`
        means that there are too many requests.
        """
        names = self._policy.names
        return replace(self._policy, names=replace(names, foreign=foreign, reserved=names.reserved | api_servers), crowded=crowded)

    @functools.cached_property
    def _policy(self) -> Policy:
        """The part of the policy that all nodes share."""
        endpoint = urlsplit(self.server).hostname or ""
        reserved = (self.service_subnet, *self.pod_subnets, *(self.vpn.networks if self.vpn is not None else ()))
        networks = [network for text in reserved for network in formats.subnets(text)]
        names = NamePolicy(
            reserved=frozenset(map(node_names.known_as, (endpoint, *self.reserved))),
            networks=tuple(networks),
            domain=self.domain,
            node_names=self.node_names,
            names=self.names,
            ranges=tuple(network for text in self.ranges for network in formats.subnets(text)),
            open_addresses=self.open_addresses,
        )
        kept, waits = timedelta(seconds=self.kept), timedelta(seconds=self.waits)
        return Policy(names=names, approval=Approval(self.approval), kept=kept, waits=waits)


def read(document: Mapping[str, Any], secrets: Mapping[str, str], *, generation: str = "") -> TenantCluster:
    """Build a cluster from its stored form. Raises DocumentError for missing or unknown fields."""
    values: dict[str, Any] = {name: tuple(value) if name in _TUPLES else value for name, value in document.items()}
    values |= {name: remember(value) for name, value in secrets.items()}
    try:
        values["vpn"] = vpn.read(document["vpn"]) if document.get("vpn") else None
        return TenantCluster(**values, generation=generation)
    except (TypeError, LookupError) as error:
        raise DocumentError("the hub's record of a cluster cannot be read", detail=str(error), remedy="restore it from a backup") from error


class LoadedCluster:
    """A tenant cluster whose keys have been read. Raises CertificateError for one that cannot issue anything."""

    def __init__(self, cluster: TenantCluster) -> None:
        self.cluster = cluster
        self.join_key: PrivateKey = keys.load(cluster.join_key.encode(), source=f"the join key of {cluster.name}")
        self.clients = _authority(cluster.client_ca, cluster.client_key, base=f"{cluster.name}/client-ca")
        self.servers = _authority(cluster.serving_ca, cluster.serving_key, base=f"{cluster.name}/serving-ca")
        self.tunnel_key = wireguard.public_key(cluster.vpn_key) if cluster.vpn is not None else ""

    @property
    def public_key(self) -> str:
        """The public half of the join key, as nodes find it in the ConfigMap."""
        return self.join_key.public_pem().decode()

    @property
    def recipient(self) -> RecipientKey:
        """The public half of the join key, to which nodes encrypt theirs."""
        return oaep.load_recipient(self.public_key.encode(), source=f"the join key of {self.cluster.name}")


def _authority(certificate: str, key: str, *, base: str) -> LoadedAuthority:
    """Read a CA pair. Raises CertificateError if it cannot sign."""
    found = store.require_authority(
        MemoryStore({f"{base}.crt": certificate.encode(), f"{base}.key": key.encode()}), base, wanted="certificates of nodes"
    )
    found.signing_key(wanted="certificates of nodes")
    return found
