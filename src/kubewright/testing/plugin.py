"""The pytest plugin: `kubewright_cluster`, a real control plane for the whole run, and `kubewright_namespace`, a fresh one per test.

Tests with the mark `kubewright(machines=True)` need pods that really run: if there are any, the cluster of the run
consists of whole machines. Where these are not available, such tests are skipped, or fail with
`--kubewright-need-machines`, and the others get a cluster of processes.

It is installed with kubewright and costs nothing until a test uses a fixture, so none of our modules is imported here.
One cluster serves a whole test run, also with pytest-xdist: the first worker that needs it starts it, the others wait
for that. It is tied to the process that controls the run: when that ends in any way, including `kill -9`, the cluster
is stopped and its files are removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kubewright.kube.client import KubeClient
    from kubewright.local.cluster.cluster import LocalCluster
    from kubewright.testing.runs import Run

_RUN = pytest.StashKey["Run"]()
_MACHINES = pytest.StashKey[bool]()
_MARK = "kubewright"
_WORKER_INPUT = "kubewright"
"""The entry of a pytest-xdist worker's input with the run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our options."""
    group = parser.getgroup("kubewright", "a real Kubernetes control plane as a fixture")
    group.addoption("--kubewright-keep", action="store_true", help="leave the cluster running after the tests")
    group.addoption("--kubewright-version", default="", metavar="VERSION", help="Kubernetes version of the cluster")
    group.addoption("--kubewright-binaries-dir", default="", metavar="DIR", help="directory with etcd, kube-apiserver and so on")
    group.addoption("--kubewright-state-dir", default="", metavar="DIR", help="directory for the cluster's files")
    group.addoption(
        "--kubewright-need-machines",
        action="store_true",
        help="fail tests that need whole machines where these are not available, instead of skipping them",
    )
    parser.addini("kubewright_nodes", "worker nodes of the cluster besides the control planes' own (default 1)", default="1")
    parser.addini("kubewright_control_planes", "control planes of the cluster (default 1)", default="1")
    parser.addini("kubewright_version", "Kubernetes version of the cluster", default="")
    parser.addini("kubewright_config", "kubeadm configuration file of the cluster, relative to the ini file", default="")
    parser.addini("kubewright_wait", "how long the cluster may take to be ready (default 5m)", default="5m")


def pytest_configure(config: pytest.Config) -> None:
    """Register our mark."""
    config.addinivalue_line("markers", f"{_MARK}(machines=True): needs a cluster of whole machines, in which pods really run")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the kind of the run's cluster, after tests have been deselected, and skip those that need another kind."""
    marked = [item for item in items if _needs_machines(item)]
    if not marked:
        return
    from kubewright.testing.machines import unavailable

    reason = unavailable(config.getoption("kubewright_binaries_dir"))
    config.stash[_MACHINES] = not reason
    if reason and not config.getoption("kubewright_need_machines"):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that needs machines where these are not available, if it must not be skipped."""
    is_needed = item.config.getoption("kubewright_need_machines") and _needs_machines(item)
    if is_needed and not item.config.stash.get(_MACHINES, False):
        from kubewright.testing.machines import require

        with _readable_errors():
            require(item.config.getoption("kubewright_binaries_dir"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Pass the run to a worker of pytest-xdist."""
    from kubewright.base.errors import UsageError

    with suppress(UsageError):  # no home directory: the fixture reports it if a test uses it
        node.workerinput[_WORKER_INPUT] = _run(node.config).as_map()  # type: ignore[attr-defined]  # xdist has no types of its own


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove the cluster at the end of the run. The controlling process does it, after all workers have ended."""
    run = session.config.stash.get(_RUN, None)
    if run is None or hasattr(session.config, "workerinput") or session.config.getoption("kubewright_keep"):
        return
    from kubewright.testing import clusters

    clusters.finish(run)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report a cluster that was left running, and how to stop it."""
    run = config.stash.get(_RUN, None)
    if run is None or not config.getoption("kubewright_keep") or not run.paths.record.exists():
        return
    from kubewright.base.plain_text import shell_word
    from kubewright.local.cluster.cluster import LocalCluster

    where = f" --state-dir {run.state_dir}" if config.getoption("kubewright_state_dir") else ""
    terminalreporter.section("kubewright")
    terminalreporter.write_line(f"cluster {run.name} is left running; stop it with: kubewright down --name {run.name}{where}")
    kubeconfig = str(LocalCluster(run.name, state_dir=run.state_dir).kubeconfig)
    terminalreporter.write_line(f"export KUBECONFIG={shell_word(kubeconfig, what='the path of the kubeconfig')}")


@pytest.fixture(scope="session")
def kubewright_cluster(request: pytest.FixtureRequest) -> LocalCluster:
    """A running cluster: `.kubeconfig` for any client, `.client()` for ours, `.name`."""
    from kubewright.testing import clusters
    from kubewright.testing.clusters import TerminalLines
    from kubewright.testing.settings import settings

    with _readable_errors():
        wanted = settings(request.config, machines=request.config.stash.get(_MACHINES, False))
        return clusters.obtain(_run(request.config), wanted, reporter=TerminalLines(request.config))


@pytest.fixture(scope="session")
def _kubewright_client(kubewright_cluster: LocalCluster) -> Iterator[KubeClient]:
    client = kubewright_cluster.client()
    yield client
    client.close()


@pytest.fixture
def kubewright_namespace(_kubewright_client: KubeClient, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a fresh namespace with its default service account; deleted after the test, without waiting."""
    from kubewright.testing import clusters

    with _readable_errors(), clusters.fresh_namespace(_kubewright_client, test=request.node.name) as name:
        yield name


@pytest.fixture(scope="session")
def kubewright_load(kubewright_cluster: LocalCluster) -> Callable[[str | os.PathLike[str]], list[str]]:
    """A function that loads an image into a cluster of machines: a name that Docker or Podman has built, or the path of an archive.

    Returns the names of the images.
    """
    from kubewright.testing.machines import load

    def load_image(image: str | os.PathLike[str]) -> list[str]:
        with _readable_errors():
            return load(kubewright_cluster, image)

    return load_image


def _needs_machines(item: pytest.Item) -> bool:
    return any(mark.kwargs.get("machines") for mark in item.iter_markers(_MARK))


def _run(config: pytest.Config) -> Run:
    """Return the run of a process; the controlling one creates it at the first call."""
    from kubewright.testing.runs import Run

    if _RUN not in config.stash:
        given = getattr(config, "workerinput", {}).get(_WORKER_INPUT)
        keep, directory = config.getoption("kubewright_keep"), config.getoption("kubewright_state_dir")
        config.stash[_RUN] = Run.parse(given) if given else Run.begin(state_dir=directory, keep=keep)
    return config.stash[_RUN]


@contextmanager
def _readable_errors() -> Iterator[None]:
    """Show our errors as a message with its remedy instead of a traceback.

    Other exceptions are bugs and keep theirs.
    """
    from kubewright.base.errors import Interrupted, KubewrightError

    try:
        yield
    except Interrupted as error:  # Ctrl-C means the run, not this test
        raise KeyboardInterrupt from error
    except KubewrightError as error:
        parts = (f"kubewright: {error.what}", error.detail, f"hint: {error.remedy}" if error.remedy else "")
        raise pytest.fail.Exception(
            "\n".join(part for part in parts if part), pytrace=False
        ) from None  # otherwise the same text appears twice
