"""The API of a cluster of machines, as its administrator reaches it from the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.clock import Clock
from kubewright.host.filesystem.files import Files
from kubewright.kube.api import KubeAPI
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.retrying import RetryingKube
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord

_SETTLED: Final = 60.0
"""Seconds for the API server to accept a request while members of etcd are added and removed."""


def access(paths: ClusterPaths, cluster: ClusterRecord) -> Access:
    """Return the cluster's location and the administrator's identity."""
    return load_access(PurePosixPath(paths.admin_kubeconfig(cluster.control_plane.name)), read=Files().read)


@contextmanager
def client(paths: ClusterPaths, cluster: ClusterRecord, *, clock: Clock) -> Iterator[KubeAPI]:
    """Provide a client that tries again for a minute: the API may answer only when etcd has a leader again."""
    inner = KubeClient(access(paths, cluster))
    with closing(inner):
        yield RetryingKube(inner, clock=clock, within=_SETTLED)
