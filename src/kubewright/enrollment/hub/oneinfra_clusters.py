"""Clusters in oneinfra's own manifests (API cluster.oneinfra.ereslibre.es/v1alpha1, kind Cluster), imported into a hub. Pure.

Fields that only concern control planes are ignored. Every wrong field is reported; messages never contain keys or
tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from kubewright.apis import formats
from kubewright.apis.join_records import IssuedCertificate, JoinRecord, State
from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document
from kubewright.base import yaml
from kubewright.base.clock import rfc3339
from kubewright.base.errors import CertificateError, KubewrightError, UsageError, ValidationError
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.base.masking import remember
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, replace
from kubewright.base.yaml import Document
from kubewright.enrollment.state.clusters import TenantCluster
from kubewright.enrollment.state.store import JoinToken
from kubewright.enrollment.vpn import leases
from kubewright.enrollment.vpn import network as vpn
from kubewright.enrollment.vpn.leases import NoAddressLeft
from kubewright.enrollment.vpn.network import VPN
from kubewright.pki import certificates, issuing, keys, store, wireguard
from kubewright.pki.certificates import Certificate
from kubewright.pki.encryption import oaep
from kubewright.pki.keys import Algorithm, PrivateKey
from kubewright.pki.specs import CertificateSpec
from kubewright.pki.store import LoadedAuthority, MemoryStore
from kubewright.pki.table import CLIENT
from kubewright.tokens import strings

GROUP: Final = "cluster.oneinfra.ereslibre.es/v1alpha1"
KIND: Final = "Cluster"
PROTOCOL: Final = "oneinfra/v1alpha1"
CIDR: Final = "10.0.0.0/16"
"""oneinfra's default when a VPN is enabled without a network."""
_USER: Final = "kubewright-hub"
_MASTERS: Final = "system:masters"
_WORKER: Final = "worker-"
_NODE: Final = "system:node:"
_REQUIRED, _INVALID, _TYPE = FieldErrorType.REQUIRED, FieldErrorType.INVALID, FieldErrorType.TYPE


@dataclass(frozen=True, kw_only=True)
class ImportedCluster:
    """A cluster as a hub serves it.

    `records` are the nodes that oneinfra knows: those in its VPN, and those whose certificates it has stored.
    """

    cluster: TenantCluster
    tokens: tuple[JoinToken, ...] = ()
    records: tuple[JoinRecord, ...] = ()


def read(documents: Sequence[Document], *, now: datetime, token_life: timedelta, random: Random) -> list[ImportedCluster]:
    """Read all clusters in documents; lists of objects are expanded, other kinds ignored.

    Tokens do not expire in oneinfra; here they expire after `token_life`. Raises ValidationError with everything that
    is wrong, UsageError if there is no cluster.
    """
    errors: list[FieldError] = []
    found = [
        _Reader(document, path, value, errors).cluster(now=now, token_life=token_life, random=random)
        for document in documents
        for path, value in _clusters(document)
    ]
    names = [one.cluster.name for one in found if one is not None]
    twice = sorted({name for name in names if names.count(name) > 1})
    errors += [FieldError(path=FieldPath("metadata.name"), type=FieldErrorType.DUPLICATE, value=name) for name in twice]
    if errors:
        raise ValidationError("clusters cannot be imported", errors, remedy="correct the manifests; nothing was imported")
    if not found:
        raise UsageError(
            f"these files contain no {KIND} of {GROUP}", remedy="kubectl get clusters.cluster.oneinfra.ereslibre.es -A -o yaml"
        )
    return [one for one in found if one is not None]


def _clusters(document: Document) -> Iterator[tuple[FieldPath, Mapping[str, Any]]]:
    value = document.value
    if not isinstance(value, Mapping):
        return
    items = value.get("items") if str(value.get("kind")).endswith("List") else None
    rows = [(FieldPath("items")[index], one) for index, one in enumerate(items)] if isinstance(items, list) else [(FieldPath(), value)]
    for path, one in rows:
        if isinstance(one, Mapping) and (one.get("apiVersion"), one.get("kind")) == (GROUP, KIND):
            yield path, one


class _Reader:
    """Reads one cluster and adds its errors to `errors`."""

    def __init__(self, document: Document, path: FieldPath, value: Mapping[str, Any], errors: list[FieldError]) -> None:
        self._document = document
        self._path = path
        self._value = value
        self._errors = errors

    def cluster(self, *, now: datetime, token_life: timedelta, random: Random) -> ImportedCluster | None:
        """Return the cluster, None if it is invalid."""
        before = len(self._errors)
        name = self._name()
        version = self._text("spec.kubernetesVersion")
        server = self._server()
        subnets = self._subnets("spec.networking.serviceCIDR") or ("10.96.0.0/12",)
        pods = self._subnets("spec.networking.clusterCIDR")
        server_ca = self._authority_only("spec.apiServer.ca")
        clients, servers = (self._authority(f"spec.certificateAuthorities.{one}") for one in ("apiServerClient", "kubelet"))
        kubelet_client_ca = self._authority_only("spec.certificateAuthorities.kubeletClient")
        join_key = self._join_key()
        tunnel, tunnel_key = self._vpn(name, server, (*subnets, *pods), random)
        tokens = self._tokens(name, rfc3339(now + token_life))
        records = self._with_certificates(self._records(name, tunnel, rfc3339(now)), name, clients, now)
        tunnel = self._avoiding(tunnel, records)
        if len(self._errors) > before or clients is None or servers is None:
            return None
        cluster = TenantCluster(
            name=name,
            server=server,
            server_ca=server_ca,
            kubernetes_version=f"v{version.removeprefix('v')}",
            service_subnet=",".join(subnets),
            pod_subnets=pods,
            client_ca=clients.pem.decode(),
            client_key=_pem(clients),
            serving_ca=servers.pem.decode(),
            serving_key=_pem(servers),
            kubelet_client_ca=kubelet_client_ca,
            vpn=tunnel,
            vpn_key=tunnel_key,
            kubeconfig=_kubeconfig(name, server, server_ca, clients, now=now, random=random),
            join_key=join_key,
        )
        return ImportedCluster(cluster=cluster, tokens=tokens, records=records)

    def _name(self) -> str:
        name = self._text("metadata.name")
        problems = formats.subdomain_problems(name) if name else []
        if problems:
            self._wrong("metadata.name", "; ".join(problems), value=name)
        return name

    def _server(self) -> str:
        text = self._text("status.apiServerEndpoint")
        try:
            parts = urlsplit(text)
            fine = not text or (parts.scheme == "https" and bool(parts.hostname) and parts.port != 0 and parts.path in {"", "/"})
        except ValueError:
            fine = False
        if not fine:
            self._wrong("status.apiServerEndpoint", "is not https://HOST:PORT", value=text)
        return text.rstrip("/")

    def _subnets(self, path: str) -> tuple[str, ...]:
        text = self._text(path, required=False)
        try:
            return tuple(str(network) for network in formats.subnets(text)) if text else ()
        except ValueError as error:
            self._wrong(path, str(error), value=text)
            return ()

    def _authority_only(self, path: str) -> str:
        """Read the certificate of a CA whose key is not needed."""
        text = self._text(f"{path}.certificate")
        try:
            if text:
                store.require_authority(MemoryStore({"ca.crt": text.encode()}), "ca", wanted="it")
        except CertificateError as error:
            self._wrong(f"{path}.certificate", str(error))
        return text

    def _authority(self, path: str) -> LoadedAuthority | None:
        """Read a CA with its key."""
        certificate, key = self._text(f"{path}.certificate"), self._text(f"{path}.privateKey", secret=True)
        if not certificate or not key:
            return None
        try:
            return store.require_authority(
                MemoryStore({"ca.crt": certificate.encode(), "ca.key": key.encode()}), "ca", wanted="certificates"
            )
        except CertificateError as error:
            self._wrong(path, str(error))
            return None

    def _join_key(self) -> str:
        path = "spec.joinKey.privateKey"
        text = self._text(path, secret=True)
        if not text:
            return ""
        try:
            key: PrivateKey = keys.load(text.encode(), source="it")
            oaep.load_recipient(key.public_pem(), source="it")
        except CertificateError as error:
            self._wrong(path, str(error))
        return text

    def _tokens(self, name: str, expires: str) -> tuple[JoinToken, ...]:
        found = []
        for index, text in enumerate(self._items("spec.joinTokens")):
            path = f"spec.joinTokens[{index}]"
            try:
                token = strings.parse(text if isinstance(text, str) else "")
            except UsageError as error:
                self._wrong(path, error.detail or str(error))
            else:
                found.append(JoinToken(cluster=name, token=token, expires=expires, description="imported"))
        return tuple(found)

    def _vpn(self, name: str, server: str, subnets: Sequence[str], random: Random) -> tuple[VPN | None, str]:
        enabled = self._value_at("spec.vpn.enabled")
        if not isinstance(enabled, bool | None):
            self._errors.append(self._error("spec.vpn.enabled", _TYPE, "must be true or false", enabled))
        if enabled is not True:
            return None, ""
        networks = self._subnets("spec.vpn.CIDR") or (CIDR,)
        endpoint = self._text("status.vpnServerEndpoint")
        found = VPN(networks=networks, endpoint=endpoint, interface=vpn.interface_name(name))
        problem = vpn.problem(found, subnets=subnets, server=server, others=()) if endpoint and server else ""
        if problem:
            self._wrong("spec.vpn", problem, value=",".join(networks))
        return found, self._vpn_key(random)

    def _vpn_key(self, random: Random) -> str:
        """Return the private key of the hub's end, which the VPN's nodes know.

        oneinfra before 20.05.0-alpha15 stores it with a peer.
        """
        key = self._text("spec.vpn.privateKey", required=False, secret=True)
        if key and not wireguard.is_key(key):
            self._wrong("spec.vpn.privateKey", "is not a WireGuard key")
        own = [peer for _, peer in self._peers() if not str(peer.get("name")).startswith(_WORKER)]
        older = str(own[0].get("privateKey") or "") if own and not key else ""
        if older and not wireguard.is_key(older):
            self._wrong("status.vpnPeers", "the hub's peer has no WireGuard key")
        if not key and not older and self._peers():
            self._errors.append(self._error("spec.vpn.privateKey", _REQUIRED, "there are nodes in the VPN", None))
        return key or (remember(older) if older else wireguard.new_private_key(random))

    def _avoiding(self, tunnel: VPN | None, records: Sequence[JoinRecord]) -> VPN | None:
        """Make the hub take an address that no node has: oneinfra gives the first one to a node."""
        try:
            return vpn.avoiding(tunnel, [record.lease for record in records]) if tunnel is not None else None
        except NoAddressLeft as error:
            self._wrong("status.vpnPeers", str(error))
            return tunnel

    def _records(self, name: str, tunnel: VPN | None, now: str) -> tuple[JoinRecord, ...]:
        """Return a record for each node in the VPN, so that it keeps its name, its address and its peer."""
        if tunnel is None:
            return ()
        records: dict[str, JoinRecord] = {}
        for path, peer in self._peers():
            record = self._record(path, peer, name=name, tunnel=tunnel, now=now) if str(peer.get("name")).startswith(_WORKER) else None
            if record is None:
                continue
            other = next((records[held] for held in record.held if held in records), None)
            if other is not None:
                self._wrong(path, f"has the name, the address or the key of the node {other.node} as well", value=peer["name"])
            records |= dict.fromkeys(record.held, record)
        return tuple({record.node: record for record in records.values()}.values())

    def _with_certificates(
        self, records: tuple[JoinRecord, ...], name: str, clients: LoadedAuthority | None, now: datetime
    ) -> tuple[JoinRecord, ...]:
        """Add a record for each node whose certificate oneinfra has stored (`oi reconcile` does).

        The record includes that certificate's details.
        """
        found = {record.node: record for record in records}
        for node, leaf in self._leaves():
            signed = clients is not None and leaf.issued_by(clients.certificate)
            if not signed or leaf.common_name != f"{_NODE}{node}" or leaf.not_after <= now or formats.subdomain_problems(node):
                continue
            record = found.get(node) or _record_of(name, node, rfc3339(now))
            remembered = IssuedCertificate(
                purpose="client",
                serial=f"{leaf.serial:x}",
                fingerprint=hashlib.sha256(leaf.der).hexdigest(),
                not_after=rfc3339(leaf.not_after),
            )
            found[node] = replace(record, certificates=(remembered,))
        return tuple(found.values())

    def _leaves(self) -> Iterator[tuple[str, Certificate]]:
        path = "status.clientCertificates"
        kept = self._value_at(path)
        if not isinstance(kept, Mapping | None):
            self._errors.append(self._error(path, _TYPE, "must be a map", ""))
            return
        for user, pair in (kept or {}).items():
            text = pair.get("certificate") if isinstance(pair, Mapping) else None
            if not str(user).startswith(_NODE):
                continue
            try:
                yield str(user).removeprefix(_NODE), certificates.first(str(text).encode(errors="replace"), source="it")
            except CertificateError as error:
                self._wrong(path, f"{user}: {error}")

    def _record(self, path: str, peer: Mapping[str, Any], *, name: str, tunnel: VPN, now: str) -> JoinRecord | None:
        node, key = str(peer["name"]).removeprefix(_WORKER), str(peer.get("publicKey") or "")
        text = str(peer.get("address") or "").partition("/")[0]
        address = formats.address(text)
        if formats.subdomain_problems(node):
            self._wrong(f"{path}.name", "does not name a node", value=peer["name"])
        elif address is None or not any(leases.is_inside(address, network) for network in tunnel.ranges):
            self._wrong(f"{path}.address", "is not an address for a node of this VPN", value=text)
        elif not wireguard.is_key(key):
            self._wrong(f"{path}.publicKey", "is not a WireGuard key")
        else:
            return replace(_record_of(name, node, now), lease=str(address), tunnel_key=key)
        return None

    def _peers(self) -> list[tuple[str, Mapping[str, Any]]]:
        items = enumerate(self._items("status.vpnPeers"))
        return [(f"status.vpnPeers[{index}]", peer) for index, peer in items if isinstance(peer, Mapping)]

    def _value_at(self, path: str) -> Any:
        here: Any = self._value
        for step in path.split("."):
            here = here.get(step) if isinstance(here, Mapping) else None
        return here

    def _items(self, path: str) -> list[Any]:
        found = self._value_at(path)
        if found is not None and not isinstance(found, list):
            self._errors.append(self._error(path, _TYPE, "must be a list", ""))
            return []
        return found or []

    def _text(self, path: str, *, required: bool = True, secret: bool = False) -> str:
        found = self._value_at(path)
        if found is None or found == "":
            if required:
                self._errors.append(self._error(path, _REQUIRED, "", None))
            return ""
        if not isinstance(found, str):
            self._errors.append(self._error(path, _TYPE, "must be a string", "" if secret else found))
            return ""
        return remember(found) if secret else found

    def _wrong(self, path: str, reason: str, *, value: object = "") -> None:
        self._errors.append(self._error(path, _INVALID, reason, value))

    def _error(self, path: str, kind: FieldErrorType, reason: str, value: object) -> FieldError:
        whole = f"{self._path.text}.{path}" if self._path.text else path
        line, column = self._document.position_of(whole)
        source = ":".join(str(part) for part in (self._document.source, line, column) if part)
        return FieldError(path=FieldPath(whole), type=kind, reason=reason, value=value, source=source)


def _record_of(cluster: str, node: str, now: str) -> JoinRecord:
    """Return the record of a node that comes with a cluster.

    Its key is unknown, so it can join again only once its name is freed.
    """
    return JoinRecord(cluster=cluster, node=node, state=State.ISSUED, protocol=PROTOCOL, request="", key="", issued=now, changed=now)


def _kubeconfig(name: str, server: str, server_ca: str, clients: LoadedAuthority, *, now: datetime, random: Random) -> str:
    """Make the kubeconfig with which the hub acts in the cluster.

    It is valid as long as the CA: the hub has the CA's key anyway, so a shorter lifetime would protect nothing.
    """
    spec = CertificateSpec(
        name=f"the hub's certificate for {name}",
        base=_USER,
        common_name=_USER,
        organizations=(_MASTERS,),
        usages=CLIENT,
        lifetime=clients.certificate.not_after - now,
        algorithm=Algorithm.ECDSA_P256,
        signer=clients.base,
    )
    key = keys.generate(Algorithm.ECDSA_P256)
    made = issuing.signed(spec, key, clients, started=now, random=random)
    identity = EmbeddedCertificate(certificate_pem=made, key_pem=key.pem())
    return yaml.dump(kubeconfig_document(server=server, cluster_name=name, user=_USER, credentials=identity, ca_pem=server_ca.encode()))


def _pem(authority: LoadedAuthority) -> str:
    return authority.signing_key(wanted="certificates").pem().decode()


def conflicts(imported: Sequence[ImportedCluster], known: Sequence[TenantCluster]) -> str:
    """Return why clusters cannot be served together with those of a hub, '' if they can."""
    taken = sorted({one.name for one in known} & {one.cluster.name for one in imported})
    if taken:
        return f"the hub serves {', '.join(taken)} already"
    tunnels = [one.vpn for one in known if one.vpn is not None]
    for one in imported:
        if one.cluster.vpn is None:
            continue
        try:
            subnets = (one.cluster.service_subnet, *one.cluster.pod_subnets)
            problem = vpn.problem(one.cluster.vpn, subnets=subnets, server=one.cluster.server, others=tunnels)
        except KubewrightError as error:
            problem = str(error)
        if problem:
            return f"{one.cluster.name} cannot have its VPN here: {problem}"
        tunnels.append(one.cluster.vpn)
    return ""
