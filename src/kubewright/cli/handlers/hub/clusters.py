"""`hub cluster`: which clusters the hub serves, and with what it signs for them."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis import formats
from kubewright.apis.kubeconfig import BearerToken, EmbeddedCertificate, kubeconfig_document
from kubewright.apis.kubeconfig.documents import Credentials
from kubewright.base import yaml
from kubewright.base.durations import Duration
from kubewright.base.errors import CertificateError, DocumentError, UsageError
from kubewright.base.messages import quoted
from kubewright.base.plain_text import require_one_line_each
from kubewright.base.records import replace
from kubewright.base.versions import Version
from kubewright.cli.handlers import cluster_access
from kubewright.cli.handlers.hub import state
from kubewright.cli.handlers.hub import vpn as hub_vpn
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.inputs import absolute, given_duration
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import write_rows
from kubewright.enrollment.node import kubelet_fields
from kubewright.enrollment.node.kubelet_fields import RefusedFields
from kubewright.enrollment.protocol import decisions
from kubewright.enrollment.state.clusters import LoadedCluster, TenantCluster
from kubewright.enrollment.state.store import HubStore
from kubewright.host.files import Files
from kubewright.kube.credentials import Access, ClientCertificate
from kubewright.kube.credentials import BearerToken as TokenIdentity
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.server_version import server_version
from kubewright.pki import keys
from kubewright.pki.keys import Algorithm

_COLUMNS: Final = (
    ("name", "NAME"),
    ("server", "SERVER"),
    ("version", "VERSION"),
    ("approval", "APPROVAL"),
    ("joined", "JOINED"),
    ("joinKey", "JOIN KEY"),
)
_KEY_COLUMNS: Final = (("name", "NAME"), ("vpnKey", "VPN KEY"))


def add(parsed: Parsed) -> int:
    """Add a cluster, or change one; it keeps its join key."""
    name = parsed.text("cluster")
    if formats.subdomain_problems(name):
        raise UsageError(f"a cluster cannot have the name {quoted(name)}", remedy="use lower case letters, digits, '-' and '.'")
    wanted = _wanted(parsed, name)
    with state.store(parsed) as store:
        clusters = store.clusters()
        known = next((one for one in clusters if one.name == name), None)
        join_key = known.join_key if known is not None else keys.generate(Algorithm.RSA_2048).pem().decode()
        subnets = (wanted["service_subnet"], *wanted["pod_subnets"])
        vpn = hub_vpn.wanted(parsed, name, subnets=subnets, server=wanted["server"], clusters=clusters)
        hub_vpn.require_room(vpn, store.records(name))
        cluster = TenantCluster(**wanted, join_key=join_key, vpn=vpn, vpn_key=hub_vpn.key(vpn, known), generation=_generation(known))
        loaded = LoadedCluster(cluster)
        cluster.policy(foreign={})
        store.save_cluster(cluster, state.event(name, "cluster changed" if known else "cluster added"))
        hub_vpn.warn_of_missing_programs(vpn)
        _warn_of_refused_fields(cluster)
        write_rows([_row(store, loaded)], columns=_COLUMNS, form=parsed.text("output"))
    return 0


def _warn_of_refused_fields(cluster: TenantCluster) -> None:
    """Say which fields nodes of ours do not take from a hub: otherwise the first one to know is whoever joins a machine."""
    try:
        kubelet_fields.read(cluster.kubelet_config)
    except RefusedFields as error:
        joining = f", or join machines with {error.flag}" if error.flag else ""
        inputs.warn([f"nodes refuse fields in --kubelet-config: {error}: leave that out{joining}"])


def list_clusters(parsed: Parsed) -> int:
    """List the clusters with the fingerprints of their join keys."""
    with state.store(parsed) as store:
        rows = [_row(store, LoadedCluster(cluster)) for cluster in store.clusters()]
    write_rows(rows, columns=_COLUMNS, form=parsed.text("output"))
    return 0


def rotate_vpn_key(parsed: Parsed) -> int:
    """Give the hub another key in the VPN of a cluster, and print its public half."""
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
    return state.tell(parsed, done)


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


def _wanted(parsed: Parsed, name: str) -> dict[str, Any]:
    """Read flags and files. Raises UsageError for what is missing, CertificateError for files that cannot be used."""
    access = load_access(PurePosixPath(absolute(_required(parsed, "kubeconfig"))), read=Files().read)
    if access.ca_pem is None:
        raise UsageError("the kubeconfig contains no CA certificate", remedy="use one with certificate-authority-data")
    client_ca, client_key = (_file(parsed, f"client-ca-{kind}-file") for kind in ("cert", "key"))
    own = parsed.text("serving-ca-cert-file")
    try:
        ranges = {flag: parsed.strings(flag) for flag in ("pod-network-cidr", "allow-ranges")}
        for text in (parsed.text("service-cidr"), *(one for found in ranges.values() for one in found)):
            formats.subnets(text)
    except ValueError as error:
        raise UsageError(str(error), remedy="write a range like 10.96.0.0/12") from error
    server = parsed.text("server") or access.server
    problem = decisions.endpoint_problem(server)
    if problem:
        raise UsageError(
            f"{quoted(server)}, which nodes are to reach, {problem}", remedy="name the API server with --server https://HOST:PORT"
        )
    return {
        "name": name,
        "server": server,
        "server_ca": access.ca_pem.decode(),
        "kubernetes_version": _kubelets_version(parsed) or _version(access),
        "service_subnet": parsed.text("service-cidr"),
        "pod_subnets": tuple(ranges["pod-network-cidr"]),
        "domain": parsed.text("service-dns-domain"),
        "client_ca": client_ca,
        "client_key": client_key,
        "serving_ca": _file(parsed, "serving-ca-cert-file") if own else client_ca,
        "serving_key": _file(parsed, "serving-ca-key-file") if own else client_key,
        "kubelet_client_ca": _file(parsed, "kubelet-client-ca-file") if parsed.text("kubelet-client-ca-file") else client_ca,
        "kubelet_config": _fields(parsed.text("kubelet-config")),
        "approval": parsed.text("approval"),
        "key_algorithm": parsed.text("key-algorithm"),
        "reserved": parsed.strings("reserved-names"),
        "node_names": parsed.strings("allow-node-names"),
        "names": parsed.strings("allow-names"),
        "ranges": tuple(ranges["allow-ranges"]),
        "open_addresses": not ranges["allow-ranges"],
        "kept": round(Duration.parse(parsed.text("keep-requests")).seconds),
        "lifetime": round(given_duration(parsed, "certificate-lifetime").seconds),
        "kubeconfig": yaml.dump(_flat(access, name)),
    }


def _required(parsed: Parsed, flag: str) -> str:
    found = parsed.text(flag)
    if not found:
        raise UsageError(f"--{flag} is missing", remedy=f"name a file with --{flag}")
    return found


def _file(parsed: Parsed, flag: str) -> str:
    path = absolute(_required(parsed, flag))
    content = Files().read(PurePosixPath(path))
    if content is None:
        raise CertificateError(f"{path} does not exist", remedy=f"check --{flag}")
    return content.decode(errors="replace")


def _fields(path: str) -> dict[str, Any]:
    if not path:
        return {}
    content = Files().read(PurePosixPath(absolute(path)))
    found = yaml.load(content.decode(errors="replace"), source=path) if content is not None else None
    if not isinstance(found, dict):
        raise DocumentError(f"{path} holds no fields", remedy="write fields of a KubeletConfiguration, such as failCgroupV1: false")
    fields: dict[str, Any] = json.loads(json.dumps(found, default=str))
    require_one_line_each(fields, what=path)
    return fields


def _kubelets_version(parsed: Parsed) -> str:
    """Return the version that was given. Raises UsageError for one that no kubelet has."""
    text = parsed.text("kubernetes-version")
    try:
        return str(Version.parse(text)) if text else ""
    except ValueError as error:
        raise UsageError(f"--kubernetes-version: {error}", remedy="write it like v1.36.3; without it the API server is asked") from error


def _version(access: Access) -> str:
    """Ask the API server. Raises APIError."""
    with closing(cluster_access.client(access)) as client:
        return str(server_version(client, remedy="name it with --kubernetes-version"))


def _flat(access: Access, name: str) -> dict[str, object]:
    """Return a kubeconfig that names no files."""
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
