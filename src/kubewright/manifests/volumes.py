"""Directories and files of the host in static pods (spec/kubeadm.md 6.7)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis.kubeadm.types import ExternalEtcd, HostPathMount
from kubewright.host.facts import CA_DIRECTORIES
from kubewright.manifests.flags import Inputs

DIRECTORY: Final = "DirectoryOrCreate"
FILE: Final = "FileOrCreate"
SYSTEM_CERTIFICATES: Final = "/etc/ssl/certs"


def mounted(name: str, path: PurePosixPath | str, kind: str, *, read_only: bool = True) -> HostPathMount:
    """Return a mount of something at its own path."""
    return HostPathMount(name=name, host_path=str(path), mount_path=str(path), read_only=read_only, path_type=kind)


def certificates(inputs: Inputs) -> list[HostPathMount]:
    """Return what everything that speaks TLS mounts: the system's certificates, ours, and the host's CA directories that exist."""
    return [
        mounted("ca-certs", SYSTEM_CERTIFICATES, DIRECTORY),
        mounted("k8s-certs", inputs.layout.pki, DIRECTORY),
        *(mounted(path.removeprefix("/").replace("/", "-"), path, DIRECTORY) for path in inputs.detected.ca_directories),
    ]


def external_etcd(external: ExternalEtcd | None, pki: PurePosixPath) -> list[HostPathMount]:
    """Return the directories of an external etcd's files that nothing else mounts.

    Which directory lies in which is decided by the start of its text, as in kubeadm: `/srv/etcd-old` counts as inside `/srv/etcd`.
    """
    if external is None:
        return []
    known = (*CA_DIRECTORIES, SYSTEM_CERTIFICATES, str(pki))
    kept: list[str] = []
    for path in filter(None, (external.ca_file, external.cert_file, external.key_file)):
        directory = posixpath.dirname(posixpath.normpath(path)) or "."
        if directory == "." or directory.startswith(known):
            continue
        inside = any(directory.startswith(other) for other in kept)
        kept = [other for other in kept if not other.startswith(directory) or other == directory]
        if not inside:
            kept.append(directory)
    return [mounted(f"etcd-certs-{index}", directory, DIRECTORY) for index, directory in enumerate(sorted(set(kept)))]


def merged(defaults: Iterable[HostPathMount], extra: Iterable[HostPathMount]) -> list[HostPathMount]:
    """Return one mount for each name: the last one counts, so the user's replace defaults. In order of their first appearance."""
    return list({mount.name: mount for mount in (*defaults, *extra)}.values())


def volume_documents(mounts: Sequence[HostPathMount]) -> list[dict[str, Any]]:
    """Return `spec.volumes`, sorted by name. An empty type is written, too."""
    return [
        {"hostPath": {"path": mount.host_path, "type": mount.path_type}, "name": mount.name}
        for mount in sorted(mounts, key=lambda mount: mount.name)
    ]


def mount_documents(mounts: Sequence[HostPathMount]) -> list[dict[str, Any]]:
    """Return `volumeMounts` of a container in the order given."""
    return [{"mountPath": mount.mount_path, "name": mount.name} | ({"readOnly": True} if mount.read_only else {}) for mount in mounts]
