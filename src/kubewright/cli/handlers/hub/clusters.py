"""`hub cluster`: the clusters that the hub serves, and their CAs."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis import formats
from kubewright.apis.kubeconfig import BearerToken, EmbeddedCertificate, kubeconfig_document
from kubewright.apis.kubeconfig.documents import Credentials
from kubewright.base import yaml
from kubewright.base.clock import SystemClock, rfc3339
from kubewright.base.durations import Duration
from kubewright.base.errors import UsageError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass, fields, replace, shallow
from kubewright.cli.handlers import cluster_access
from kubewright.cli.handlers.hub import state
from kubewright.cli.handlers.hub import vpn as hub_vpn
from kubewright.cli.handlers.hub.vpn import VPNOptions
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import write_rows
from kubewright.enrollment.node import kubelet_fields
from kubewright.enrollment.node.kubelet_fields import RefusedFields
from kubewright.enrollment.protocol import decisions
from kubewright.enrollment.state.clusters import LoadedCluster, TenantCluster
from kubewright.enrollment.state.store import HubStore
from kubewright.host.filesystem.files import Files
from kubewright.kube.credentials import Access, ClientCertificate, Identity
from kubewright.kube.credentials import BearerToken as TokenIdentity
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.server_info import server_version
from kubewright.pki import certificates, keys
from kubewright.pki.keys import Algorithm

_COLUMNS: Final = (
    ("name", "NAME"),
    ("server", "SERVER"),
    ("version", "VERSION"),
    ("approval", "APPROVAL"),
    ("joined", "JOINED"),
    ("joinKey", "JOIN KEY"),
)
_REQUIRED: Final = ("kubeconfig", "client-ca-cert-file", "client-ca-key-file")
_KEY_COLUMNS: Final = (("name", "NAME"), ("vpnKey", "VPN KEY"))
_SOON: Final = timedelta(days=30)
"""Credentials that expire sooner are reported: the hub keeps them as they are."""


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """The flags of `hub cluster add`: some set fields of the same name of `TenantCluster`, others are converted."""

    kubeconfig: str
    server: str
    kubernetes_version: str
    client_ca: str
    client_key: str
    serving_ca: str
    serving_key: str
    kubelet_client_ca: str
    kubelet_config: Mapping[str, Any]
    service_subnet: str
    pod_subnets: tuple[str, ...]
    domain: str
    approval: str
    reserved: tuple[str, ...]
    node_names: tuple[str, ...]
    names: tuple[str, ...]
    ranges: tuple[str, ...]
    key_algorithm: str
    lifetime: Duration
    kept: Duration


_SAME: Final = frozenset(one.name for one in fields(TenantCluster)) & frozenset(one.name for one in fields(ClusterOptions))


def add(parsed: Parsed) -> int:
    """Add a cluster, or change one; an existing cluster keeps its join key."""
    name = parsed.text("cluster")
    if formats.subdomain_problems(name):
        raise UsageError(f"a cluster cannot have the name {quoted(name)}", remedy="use lower case letters, digits, '-' and '.'")
    _require_files(parsed)
    options = inputs.complete(parsed, ClusterOptions)
    access = load_access(PurePosixPath(options.kubeconfig), read=Files().read)
    wanted = _wanted(options, name, access)
    with state.store(parsed) as store:
        clusters = store.clusters()
        known = next((one for one in clusters if one.name == name), None)
        join_key = known.join_key if known is not None else keys.generate(Algorithm.RSA_2048).pem().decode()
        subnets = (wanted["service_subnet"], *wanted["pod_subnets"])
        vpn = hub_vpn.wanted(inputs.complete(parsed, VPNOptions), name, subnets=subnets, server=wanted["server"], clusters=clusters)
        hub_vpn.require_room(vpn, store.records(name))
        cluster = TenantCluster(**wanted, join_key=join_key, vpn=vpn, vpn_key=hub_vpn.key(vpn, known), generation=_generation(known))
        loaded = LoadedCluster(cluster)
        cluster.policy(foreign={})
        store.save_cluster(cluster, state.event(name, "cluster changed" if known else "cluster added"))
        hub_vpn.warn_of_missing_programs(vpn)
        _warn_of_refused_fields(cluster)
        _warn_of_expiry(access.identity)
        write_rows([_row(store, loaded)], columns=_COLUMNS, form=parsed.text("output"))
    return 0


def _warn_of_refused_fields(cluster: TenantCluster) -> None:
    """Warn about fields that our nodes do not accept from a hub: otherwise the first machine that joins would report them."""
    try:
        kubelet_fields.read(cluster.kubelet_config)
    except RefusedFields as error:
        joining = f", or join machines with {error.flag}" if error.flag else ""
        inputs.warn([f"nodes refuse fields in --kubelet-config: {error}: leave that out{joining}"])


def _warn_of_expiry(identity: Identity) -> None:
    """Warn about credentials that expire soon, such as a token that its file would have renewed."""
    end = _end_of(identity)
    if end is not None and end - SystemClock().now() < _SOON:
        inputs.warn([f"the credentials in the kubeconfig expire at {rfc3339(end)}: before that, run this command again with new ones"])


def _end_of(identity: Identity) -> datetime | None:
    """Return when credentials expire; None for a token that never does, or whose expiry only the API server knows."""
    if isinstance(identity, ClientCertificate):
        return certificates.first(identity.cert_pem, source="the certificate in the kubeconfig").not_after
    try:
        claims = identity.token.split(".")[1] if isinstance(identity, TokenIdentity) else ""
        return datetime.fromtimestamp(json.loads(base64.urlsafe_b64decode(f"{claims}=="))["exp"], UTC)
    except (ValueError, LookupError, TypeError, OverflowError, OSError):
        return None


def list_clusters(parsed: Parsed) -> int:
    """List the clusters with the fingerprints of their join keys."""
    with state.store(parsed) as store:
        rows = [_row(store, LoadedCluster(cluster)) for cluster in store.clusters()]
    write_rows(rows, columns=_COLUMNS, form=parsed.text("output"))
    return 0


def rotate_vpn_key(parsed: Parsed) -> int:
    """Replace the hub's key in the VPN of a cluster, and print the new public key."""
    name = parsed.text("cluster")
    with state.store(parsed) as store:
        cluster = state.cluster(store, name)
        if cluster.vpn is None:
            raise UsageError(f"{quoted(name)} has no VPN", remedy="see `kubewright hub cluster add --help`, flags --vpn-…")
        changed = replace(cluster, vpn_key=hub_vpn.key(cluster.vpn, None))
        row = hub_vpn.row(LoadedCluster(changed))
        store.save_cluster(changed, state.event(name, "vpn key of the hub changed", key=row["vpnKey"]))
    write_rows([{"name": name, **row}], columns=_KEY_COLUMNS, form=parsed.text("output"))
    return 0


def remove(parsed: Parsed) -> int:
    """Remove a cluster."""
    name = parsed.text("cluster")
    done = state.event(name, "cluster removed")
    with state.store(parsed) as store:
        contents = store.contents(name)
        cluster = state.cluster(store, name)
        store.remove_cluster(name, done, contents=contents)
        others = [one.vpn.interface for one in store.clusters() if one.vpn is not None]
    if cluster.vpn is not None and cluster.vpn.interface not in others:
        hub_vpn.remove(cluster.vpn)
    return state.print_result(parsed, done)


def _generation(known: TenantCluster | None) -> str:
    return known.generation if known is not None else ""


def _row(store: HubStore, loaded: LoadedCluster) -> dict[str, object]:
    cluster = loaded.cluster
    return {
        "name": cluster.name,
        "server": cluster.server,
        "version": cluster.kubernetes_version,
        "approval": cluster.approval,
        "joined": len([record for record in store.records(cluster.name) if record.active]),
        "joinKey": str(loaded.recipient.pin),
        **hub_vpn.row(loaded),
    }


def _wanted(options: ClusterOptions, name: str, access: Access) -> dict[str, Any]:
    """Return the cluster's fields except generated keys. Raises UsageError for an unusable kubeconfig."""
    if access.ca_pem is None:
        raise UsageError("the kubeconfig contains no CA certificate", remedy="use one with certificate-authority-data")
    server = options.server or access.server
    problem = decisions.endpoint_problem(server)
    if problem:
        raise UsageError(
            f"{quoted(server)}, which nodes have to reach, {problem}", remedy="set the API server with --server https://HOST:PORT"
        )
    values = {one: value for one, value in shallow(options).items() if one in _SAME}
    return {
        **values,
        "name": name,
        "server": server,
        "server_ca": access.ca_pem.decode(),
        "kubernetes_version": options.kubernetes_version or _version(access),
        "serving_ca": options.serving_ca or options.client_ca,
        "serving_key": options.serving_key if options.serving_ca else options.client_key,
        "kubelet_client_ca": options.kubelet_client_ca or options.client_ca,
        "open_addresses": not options.ranges,
        "kept": round(options.kept.seconds),
        "lifetime": round(options.lifetime.seconds),
        "kubeconfig": yaml.dump(_flat(access, name)),
    }


def _require_files(parsed: Parsed) -> None:
    """Require the flags that have no default. Raises UsageError."""
    for flag in (*_REQUIRED, *(("serving-ca-key-file",) if parsed.text("serving-ca-cert-file") else ())):
        if not parsed.text(flag):
            raise UsageError(f"--{flag} is missing", remedy=f"pass a file with --{flag}")


def _version(access: Access) -> str:
    """Ask the API server for its version. Raises APIError."""
    with closing(cluster_access.client(access)) as client:
        return str(server_version(client, remedy="set it with --kubernetes-version"))


def _flat(access: Access, name: str) -> dict[str, object]:
    """Return a kubeconfig that refers to no files."""
    return kubeconfig_document(
        server=access.server, cluster_name=name, user="hub", credentials=_credentials(access), ca_pem=access.ca_pem, context=name
    )


def _credentials(access: Access) -> Credentials:
    identity = access.identity
    if isinstance(identity, ClientCertificate):
        return EmbeddedCertificate(certificate_pem=identity.cert_pem, key_pem=identity.key_pem)
    if isinstance(identity, TokenIdentity):
        return BearerToken(token=identity.token)
    raise UsageError("the kubeconfig has no credentials", remedy="use one with a client certificate or a token")
