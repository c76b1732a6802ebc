"""The administrator's kubeconfig on the host: it names a control plane that runs, because the host does not know the machines' names."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from kubewright.host.desired import File
from kubewright.host.filesystem.files import Files
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord
from kubewright.local.whole import members, owner
from kubewright.local.whole.documents import PORT

_SERVER: Final = re.compile(r"^(\s+server: )\S+$", re.MULTILINE)


def follow(paths: ClusterPaths, cluster: ClusterRecord) -> None:
    """Let the kubeconfig name a control plane that runs, after machines have been stopped or started. Needs root."""
    kubeconfig = paths.admin_kubeconfig(cluster.control_plane.name)
    with owner.acting_as(owner.of_cluster(paths)):
        text = kubeconfig.read_text(encoding="utf-8") if kubeconfig.exists() else ""
    if text:
        write(paths, cluster, text)


def write(paths: ClusterPaths, cluster: ClusterRecord, text: str) -> None:
    """Write a kubeconfig of the administrator for the host, as the owner of the cluster."""
    first = cluster.control_plane
    address = next((one.address for one in cluster.machines if members.machine_of(paths, cluster, one.name).runs), first.address)
    content = pointed(text, address)
    with owner.acting_as(owner.of_cluster(paths)):
        path = PurePosixPath(paths.admin_kubeconfig(first.name))
        Files().write(File(path=path, content=content.encode(), mode=0o600, directory_mode=0o700))


def pointed(text: str, address: str) -> str:
    """Return a kubeconfig of one cluster with another server."""
    return _SERVER.sub(rf"\g<1>https://{address}:{PORT}", text)
