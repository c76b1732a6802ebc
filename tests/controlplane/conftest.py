"""Two kinds of API server: `apiserver` is bare, an etcd and a kube-apiserver started by hand with the fewest flags, for tests that make
objects which a cluster has already; `controlplane` is the cluster of our own plugin. The binaries come from where `up` takes them.

All of it is in a network of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path

import own_network
import pytest
import trustme
from server_kit import RunningServer, api_server

from kubewright.kube.client import KubeClient
from kubewright.local.cluster.cluster import LocalCluster

HERE = Path(__file__).parent
DOWNLOADS = "test_binaries_build.py"
"""What is tried on the network that everybody has: it may have to get sources."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Give the tests of this folder their network. pytest calls this for the tests of all folders, once this file is loaded."""
    ours = item.path.is_relative_to(HERE) and item.path.name != DOWNLOADS
    with own_network.entered() if ours else nullcontext():
        return (yield)


@pytest.fixture(scope="session")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """An API server that all tests share: each takes names of its own."""
    with api_server(tmp_path_factory.mktemp("apiserver")) as running:
        yield running


@pytest.fixture(scope="session")
def controlplane(kubewright_cluster: LocalCluster) -> RunningServer:
    access, place = kubewright_cluster.access, kubewright_cluster.paths
    [pki] = place.machines.glob("*/kubernetes/pki")
    authority = trustme.CA.from_pem((pki / "ca.crt").read_bytes(), (pki / "ca.key").read_bytes())
    return RunningServer(access.server, (pki / "ca.crt").read_bytes(), authority)


@pytest.fixture
def admin(apiserver: RunningServer) -> Iterator[KubeClient]:
    client = KubeClient(apiserver.access())
    yield client
    client.close()
