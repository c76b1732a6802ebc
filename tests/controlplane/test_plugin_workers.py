"""The pytest plugin under pytest-xdist: all workers of a run see one cluster."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugin_kit import Project, ended, eventually, remove_all, require_programs

NOTES_WHAT_IT_SEES = """
import json, os, pathlib
import pytest
from kubewright.kube.resources import named

@pytest.mark.parametrize("number", range(6))
def test_notes(kubewright_cluster, kubewright_namespace, number):
    client = kubewright_cluster.client()
    uid = client.get(named("Namespace"), "kube-system")["metadata"]["uid"]
    client.close()
    seen = {"worker": os.environ["PYTEST_XDIST_WORKER"], "uid": uid, "namespace": kubewright_namespace}
    pathlib.Path(f"seen-{number}.json").write_text(json.dumps(seen))
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    require_programs()
    made = Project(tmp_path)
    yield made
    remove_all(made)


def seen(project: Project) -> list[dict[str, str]]:
    return [json.loads(path.read_text()) for path in sorted(project.root.glob("seen-*.json"))]


def test_all_workers_share_one_cluster_and_namespaces_differ(project: Project) -> None:
    project.write("test_workers.py", NOTES_WHAT_IT_SEES)
    done = project.run("-n", "2", "--dist", "load")
    assert done.counts() == {"passed": 6}, done.out
    rows = seen(project)
    assert {row["worker"] for row in rows} == {"gw0", "gw1"}
    assert len({row["uid"] for row in rows}) == 1
    assert len({row["namespace"] for row in rows}) == 6
    assert project.left() == []


def test_a_killed_worker_leaves_the_cluster_to_the_others(project: Project) -> None:
    project.write(
        "test_dies.py",
        NOTES_WHAT_IT_SEES.replace("    client = kube", "    if number == 2:\n        os.kill(os.getpid(), 9)\n    client = kube", 1),
    )
    done = project.run("-n", "2")
    assert done.code == pytest.ExitCode.TESTS_FAILED, done.out
    assert "crashed" in done.out
    assert {row["uid"] for row in seen(project)} == {seen(project)[0]["uid"]}
    assert len(seen(project)) == 5
    assert project.left() == []


def test_killing_the_controlling_process_ends_the_cluster(project: Project) -> None:
    project.write(
        "test_waits.py",
        "import pathlib, time\ndef test_waits(kubewright_cluster):\n    pathlib.Path('running').touch()\n    time.sleep(1000)\n",
    )
    process = project.start("-n", "1")
    eventually((project.root / "running").exists, "the test to run")
    process.send_signal(signal.SIGKILL)
    ended(process)
    eventually(lambda: project.left() == [], "the cluster to go")
