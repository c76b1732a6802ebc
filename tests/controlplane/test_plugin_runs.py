"""The pytest plugin as users have it: separate runs of pytest with real clusters; however they end, nothing is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugin_kit import Project, ended, eventually, remove_all, require_programs

CLUSTER_TEST = """
def test_api_server_answers(kubewright_cluster):
    client = kubewright_cluster.client()
    try:
        assert client.raw("GET", "/readyz").status == 200
    finally:
        client.close()
    nodes = kubewright_cluster.status()["nodes"]
    assert (nodes["ready"], nodes["total"]) == (2, 2)
"""

WAITS_TO_BE_KILLED = """
import pathlib, time

def test_that_waits(kubewright_cluster):
    pathlib.Path("running").touch()
    time.sleep(1000)
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    require_programs()
    made = Project(tmp_path)
    yield made
    remove_all(made)


def test_a_run_has_a_cluster_and_leaves_nothing(project: Project) -> None:
    project.write("test_one.py", CLUSTER_TEST)
    done = project.run()
    assert done.code == 0, done.out
    assert done.counts() == {"passed": 1}
    assert project.left() == []


def test_each_test_has_its_own_namespace_in_which_pods_can_be_created(project: Project) -> None:
    project.write(
        "test_namespaces.py",
        """
        import pytest
        from kubewright.kube.resources import named

        SEEN = set()

        @pytest.mark.parametrize("number", [1, 2, 3])
        def test_Pods_can_be_made(kubewright_cluster, kubewright_namespace, number):
            assert kubewright_namespace.startswith(f"test-pods-can-be-made-{number}-")
            assert kubewright_namespace not in SEEN
            SEEN.add(kubewright_namespace)
            client = kubewright_cluster.client()
            spec = {"containers": [{"name": "one", "image": "example/one"}]}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": kubewright_namespace}, "spec": spec}
            client.create(body)
            assert len(client.list(named("Pod"), kubewright_namespace)) == 1
            client.close()

        def test_they_are_deleted_afterwards(kubewright_cluster):
            assert len(SEEN) == 3
            client = kubewright_cluster.client()
            found = {item["metadata"]["name"]: item["status"]["phase"] for item in client.list(named("Namespace"))}
            assert [name for name in SEEN if found.get(name, "Terminating") != "Terminating"] == []
            client.close()
        """.replace("\n        ", "\n"),
    )
    done = project.run()
    assert done.counts() == {"passed": 4}, done.out
    assert project.left() == []


def test_the_cluster_is_removed_after_a_failing_test_and_with_an_ini_file(project: Project) -> None:
    project.write("pytest.ini", "[pytest]\nkubewright_nodes = 0\nkubewright_config = kubeadm.yaml\n")
    project.write(
        "kubeadm.yaml",
        "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nnetworking:\n  dnsDomain: tests.example\n",
    )
    project.write(
        "test_fails.py",
        'def test_that_fails(kubewright_cluster):\n    assert kubewright_cluster.status()["nodes"]["total"] == 2\n'
        'def test_settings_count(kubewright_cluster):\n    assert kubewright_cluster.status()["nodes"]["total"] == 1\n'
        "    assert any('tests.example' in path.read_text() for path in kubewright_cluster.paths.machines.rglob('kube-apiserver.yaml'))\n",
    )
    done = project.run()
    assert done.code == 1
    assert done.counts() == {"failed": 1, "passed": 1}, done.out
    assert project.left() == []


def test_a_run_that_requests_no_cluster_starts_none(project: Project) -> None:
    project.write("test_none.py", "def test_nothing():\n    pass\n")
    assert project.run().counts() == {"passed": 1}
    assert not project.state.exists()


def test_ctrl_c_during_a_test_removes_the_cluster(project: Project) -> None:
    project.write("test_waits.py", WAITS_TO_BE_KILLED)
    process = project.start()
    eventually((project.root / "running").exists, "the test to run")
    process.send_signal(signal.SIGINT)
    done = ended(process)
    assert done.code == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in done.out
    assert project.left() == []


def test_ctrl_c_while_the_cluster_starts_removes_it(project: Project) -> None:
    project.write("test_waits.py", WAITS_TO_BE_KILLED)
    process = project.start()
    eventually(lambda: any((root / "daemon.json").exists() for root in project.clusters), "a cluster to start")
    process.send_signal(signal.SIGINT)
    assert ended(process).code == pytest.ExitCode.INTERRUPTED
    assert not (project.root / "running").exists()
    assert project.left() == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_takes_its_cluster_with_it(project: Project, number: signal.Signals) -> None:
    project.write("test_waits.py", WAITS_TO_BE_KILLED)
    process = project.start()
    eventually((project.root / "running").exists, "the test to run")
    process.send_signal(number)
    assert ended(process).code == -number
    eventually(lambda: project.left() == [], "the cluster to go")


def test_leftovers_of_a_power_failure_are_removed_by_the_next_run(project: Project) -> None:
    """Everything is killed at once: pytest, the daemon, the components. Only files are left."""
    project.write("test_waits.py", WAITS_TO_BE_KILLED)
    process = project.start()
    eventually((project.root / "running").exists, "the test to run")
    daemon = int((project.clusters[0] / "daemon.json").read_text().split(":")[0])
    os.kill(daemon, signal.SIGKILL)
    process.kill()
    assert ended(process).code == -signal.SIGKILL
    assert len(project.left()) > 1
    project.write("test_waits.py", CLUSTER_TEST)
    assert project.run().counts() == {"passed": 1}
    assert project.left() == []


def test_two_runs_at_once_have_their_own_clusters(project: Project) -> None:
    project.write("test_one.py", CLUSTER_TEST + "    import pathlib\n    pathlib.Path(f'name-{kubewright_cluster.name}').touch()\n")
    processes = [project.start(), project.start()]
    results = [ended(process) for process in processes]
    assert [done.counts() for done in results] == [{"passed": 1}, {"passed": 1}], "\n".join(done.out for done in results)
    assert len(list(project.root.glob("name-pytest-*"))) == 2
    assert project.left() == []


def test_a_cluster_can_be_kept_for_inspection(project: Project) -> None:
    from kubewright.local.cluster.cluster import LocalCluster

    project.write("test_one.py", CLUSTER_TEST)
    done = project.run("--kubewright-keep")
    assert done.counts() == {"passed": 1}, done.out
    [root] = project.clusters
    assert f"stop it with: kubewright down --name {root.name}\n" in done.out
    assert f"export KUBECONFIG={root}" in done.out
    cluster = LocalCluster(root.name, state_dir=root.parent)
    assert cluster.status()["state"] == "Ready"
    assert project.run().counts() == {"passed": 1}  # the next run does not remove it
    assert cluster.status()["state"] == "Ready"
    cluster.down()
    assert project.left() == []
