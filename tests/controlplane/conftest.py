"""Two kinds of API server, in a network of their own.

`apiserver` is bare: an etcd and a kube-apiserver started directly with the fewest flags, for tests that create
objects which a real cluster already has. `controlplane` is the cluster of our own plugin. The binaries come from the
same places as for `up`.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path

import own_network
import pytest
import trustme
from server_kit import RunningServer, api_server

from kubewright.kube.client import KubeClient
from kubewright.local.cluster.cluster import LocalCluster

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))  # for `testbed`: the conftest of the machines' tests is not there if only these tests run
DOWNLOADS = "test_binaries_build.py"
"""Tests that use the host's network, because they may have to download sources."""

CLUSTER = "kubewright_cluster"
_shared = ExitStack()
_running: list[RunningServer] = []
_users: set[str] = set()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Enter the network of this folder's tests. pytest calls this for the tests of all folders, once this file is loaded."""
    ours = item.path.is_relative_to(HERE) and item.path.name != DOWNLOADS
    with own_network.entered() if ours else nullcontext():
        return (yield)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note which tests use the cluster of the plugin."""
    _users.update(item.nodeid for item in session.items if CLUSTER in getattr(item, "fixturenames", ()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Stop the servers after the last tests that use them: idle, they would keep a tenth of a core busy until the end of the run.

    The shared API server may be started again, if this process is given other tests of this folder later.
    """
    yield
    if nextitem is None or not nextitem.path.is_relative_to(HERE):
        _running.clear()
        _shared.close()
    if item.nodeid in _users:
        _users.remove(item.nodeid)
        if not _users and (cluster := item.funcargs.get(CLUSTER)) and not item.config.getoption("kubewright_keep"):  # type: ignore[attr-defined]
            cluster.down()


@pytest.fixture(scope="module")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """An API server that all tests share: each test uses its own names."""
    if not _running:
        _running.append(_shared.enter_context(api_server(tmp_path_factory.mktemp("apiserver"))))
    return _running[0]


@pytest.fixture(scope="session")
def controlplane(kubewright_cluster: LocalCluster) -> RunningServer:
    access, place = kubewright_cluster.access, kubewright_cluster.paths
    [pki] = place.machines.glob("*/kubernetes/pki")
    authority = trustme.CA.from_pem((pki / "ca.crt").read_bytes(), (pki / "ca.key").read_bytes())
    return RunningServer(access.server, (pki / "ca.crt").read_bytes(), authority)


@pytest.fixture
def admin(apiserver: RunningServer) -> Iterator[KubeClient]:
    client = KubeClient(apiserver.access(), timeout=600)
    yield client
    client.close()
