"""Two kinds of API server: `apiserver` is bare, an etcd and a kube-apiserver started by hand with the fewest flags, for tests that make
objects which a cluster has already; `controlplane` is the cluster of our own plugin. The binaries come from where `up` takes them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trustme
from server_kit import RunningServer, api_server

from kubewright.kube.client import KubeClient
from kubewright.local.cluster import LocalCluster


@pytest.fixture(scope="session")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """An API server that all tests share: each takes names of its own."""
    with api_server(tmp_path_factory.mktemp("apiserver")) as running:
        yield running


@pytest.fixture(scope="session")
def controlplane(kubewright_cluster: LocalCluster) -> RunningServer:
    access, place = kubewright_cluster.access, kubewright_cluster.places
    [pki] = place.machines.glob("*/kubernetes/pki")
    authority = trustme.CA.from_pem((pki / "ca.crt").read_bytes(), (pki / "ca.key").read_bytes())
    return RunningServer(access.server, (pki / "ca.crt").read_bytes(), authority)


@pytest.fixture
def admin(apiserver: RunningServer) -> Iterator[KubeClient]:
    client = KubeClient(apiserver.access())
    yield client
    client.close()
