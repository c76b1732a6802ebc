"""Saving a snapshot of etcd: choosing the member, and describing the snapshot in a second file.

The description identifies the cluster, and the CAs and keys for service account tokens that a restored cluster needs to
serve its clients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import closing
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.clock import Clock, rfc3339
from kubewright.base.errors import APIError, CertificateError, DocumentError, Unreachable
from kubewright.base.events import Reporter
from kubewright.base.records import dataclass
from kubewright.etcd.api import Etcd, NoQuorum
from kubewright.etcd.snapshots import Checker, Snapshot, reported
from kubewright.host.readers import FileReader
from kubewright.host.seam import Host
from kubewright.lifecycle.etcd import health
from kubewright.lifecycle.etcd.health import ClusterHealth, MemberHealth
from kubewright.lifecycle.steps.detected_cluster import DetectedCluster
from kubewright.pki import keys, pins

SCHEMA: Final = 1
SUFFIX: Final = ".json"
_PREFIX: Final = "/registry"
"""The default of kube-apiserver's --etcd-prefix."""
_AUTHORITIES: Final = ("ca", "etcd/ca", "front-proxy-ca")


@dataclass(frozen=True, kw_only=True)
class Source:
    """The member that sends the snapshot, and the cluster that it belongs to."""

    member: MemberHealth
    cluster: ClusterHealth


def choose(etcd: Etcd, *, local: str = "") -> Source:
    """Choose the leader, or the member at the endpoint `local`, which needs no majority.

    Raises NoQuorum, Unreachable.
    """
    found = health.look(etcd)
    if not local:
        if found.unknown:
            raise Unreachable("no member of etcd answers", detail="\n".join(found.problems), remedy=health.NOT_RUNNING)
        if found.leader is None:
            raise NoQuorum(
                "etcd has no leader, so a snapshot may lack what was written last",
                detail="\n".join(found.problems),
                remedy="start the other members again; --local saves what the member of this machine has",
            )
        return Source(member=found.leader, cluster=found)
    status = etcd.status(local)
    if status.problem:
        raise Unreachable(f"the etcd member at {local} does not answer", detail=status.problem, remedy="see why its etcd does not run")
    known = (one for one in found.members if one.member and one.member.id == status.member_id)
    return Source(member=next(known, MemberHealth(member=None, status=status)), cluster=found)


def save(etcd: Etcd, source: Source, write: Callable[[bytes], object], *, name: str, clock: Clock, reporter: Reporter) -> Snapshot:
    """Write the snapshot of a member piece by piece, and check it at the end.

    Raises APIError, also for a snapshot that is not whole.
    """
    checker, status = Checker(name), source.member.status
    with closing(etcd.snapshot(status.endpoint)) as pieces:
        for piece in reported(pieces, task="etcd snapshot", size=status.size, clock=clock, reporter=reporter):
            write(checker.take(piece))
    try:
        return checker.finish()
    except DocumentError as error:
        raise Unreachable(f"the snapshot of {source.member.name} is incomplete", detail=error.detail, remedy="save it again") from error


def describe(host: Host, etcd: Etcd, source: Source, snapshot: Snapshot, *, pki: PurePosixPath, clock: Clock) -> dict[str, object]:
    """Return the description of a snapshot.

    `revision` is a lower bound: that of the member before the snapshot began. `nodes` are None if they cannot be read.
    """
    status, server = source.member.status, DetectedCluster(host).api_server
    return {
        "schema": SCHEMA,
        "time": rfc3339(clock.now()),
        "size": snapshot.size,
        "sha256": snapshot.sha256,
        "clusterID": f"{status.cluster_id:x}",
        "member": {"name": source.member.name, "id": f"{status.member_id:x}"},
        "members": [one.name for one in source.cluster.members if one.member],
        "nodes": _nodes(host, etcd, status.endpoint),
        "revision": status.revision,
        "etcdVersion": status.version,
        "storageVersion": status.storage_version,
        "kubernetesVersion": server.image_tag if server else "",
        "certificateAuthorities": authorities(host, pki),
        "serviceAccountKeys": service_account_keys(host, pki),
        "encryptionConfiguration": encryption_configuration(host)[1],
    }


def _nodes(host: Host, etcd: Etcd, endpoint: str) -> list[str] | None:
    """Return the names of the Nodes that a member has, from their keys: no API server may be running.

    The keys are those of kube-apiserver v1.36: pkg/registry/core/node/storage, pkg/kubeapiserver/default_storage_factory_builder.go.
    """
    server = DetectedCluster(host).api_server
    prefix = (server.argument("etcd-prefix") if server else "") or _PREFIX
    place = f"/{prefix.strip('/')}/minions/"
    try:
        return [key.removeprefix(place) for key in etcd.keys(endpoint, place)]
    except APIError:  # a description without them is better than none
        return None


def authorities(files: FileReader, pki: PurePosixPath) -> dict[str, str]:
    """Return the pins of the CAs in a certificate directory, by their names."""
    return {base: pin for base in _AUTHORITIES if (pin := _authority(files, pki / f"{base}.crt"))}


def _authority(files: FileReader, path: PurePosixPath) -> str:
    content = files.read(path)
    try:
        return pins.pin(content, source=str(path)) if content else ""
    except CertificateError:
        return ""


def encryption_configuration(host: Host) -> tuple[str, str]:
    """Return the path of the API server's configuration for encryption, and the SHA-256 of its content; both '' if it has none."""
    server = DetectedCluster(host).api_server
    path = server.argument("encryption-provider-config") if server else ""
    content = host.read(PurePosixPath(path)) if path.startswith("/") else None
    return path, hashlib.sha256(content).hexdigest() if content is not None else ""


def service_account_keys(files: FileReader, pki: PurePosixPath) -> list[str]:
    """Return the pins of the public keys for service account tokens."""
    path = pki / "sa.pub"
    content = files.read(path)
    try:
        return [str(pins.of_public_key(der)) for der in keys.load_public(content, source=str(path))] if content else []
    except CertificateError:
        return []
