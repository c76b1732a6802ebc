"""The pytest plugin: `kubewright_cluster`, a real control plane for the whole session, and `kubewright_namespace`, a fresh one per test.

Installed with kubewright; costs nothing until a test asks for a fixture. One cluster serves a whole test run, also with pytest-xdist:
the first worker that needs it starts it, the others wait for that. It is tied to the process of the run: however that ends, `kill -9`
included, the cluster ends and its files go.
"""

from __future__ import annotations

import os

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubewright.local.cluster import LocalCluster

_RUN = "KUBEWRIGHT_TEST_RUN"
"""Set by the process that controls the run, for its xdist workers: its process id, which names the cluster."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our options."""
    group = parser.getgroup("kubewright", "a real Kubernetes control plane as a fixture")
    group.addoption("--kubewright-keep", action="store_true", help="leave the cluster running after the tests, for a look")
    parser.addini("kubewright_nodes", "worker nodes of the cluster besides the control plane's own (default 1)", default="1")
    parser.addini("kubewright_version", "Kubernetes version of the cluster", default="")
    parser.addini("kubewright_config", "kubeadm configuration file of the cluster, relative to the root directory", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Let the controlling process name the run."""
    if not hasattr(config, "workerinput"):
        os.environ[_RUN] = str(os.getpid())


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove the cluster at the end of the run; the controlling process does it, after all workers have ended."""
    import sys

    if hasattr(session.config, "workerinput") or "kubewright.local.cluster" not in sys.modules and not _shared(session.config):
        return
    from kubewright.testing import clusters

    clusters.finish(int(os.environ[_RUN]), keep=session.config.getoption("--kubewright-keep"))


def _shared(config: pytest.Config) -> bool:
    """Whether workers of ours may have started the cluster."""
    return config.pluginmanager.hasplugin("dsession")


@pytest.fixture(scope="session")
def kubewright_cluster(request: pytest.FixtureRequest) -> LocalCluster:
    """A running cluster: `.kubeconfig` for any client, `.client()` for ours, `.name`."""
    from kubewright.testing import clusters

    return clusters.obtain(clusters.wanted(request.config, run=int(os.environ[_RUN])))


@pytest.fixture
def kubewright_namespace(kubewright_cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a fresh namespace whose default service account is there; deleted after the test, without waiting."""
    from kubewright.testing import namespaces

    with namespaces.fresh(kubewright_cluster, test=request.node.name) as name:
        yield name
