"""Two kinds of API server, in a network of their own.

`apiserver` is bare: an etcd and a kube-apiserver started directly with the fewest flags, for tests that create
objects which a real cluster already has. `controlplane` is the cluster of our own plugin. The binaries come from the
same places as for `up`.
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
"""Tests that use the host's network, because they may have to download sources."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Enter the network of this folder's tests. pytest calls this for the tests of all folders, once this file is loaded."""
    ours = item.path.is_relative_to(HERE) and item.path.name != DOWNLOADS
    with own_network.entered() if ours else nullcontext():
        return (yield)


@pytest.fixture(scope="session")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """An API server that all tests share: each test uses its own names."""
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
