"""The directories of clusters: which of them are removed when they are empty, also while other clusters start."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kubewright.local.cluster.down import down
from kubewright.local.paths import ClusterPaths
from kubewright.local.state_directory import changing, remove_empty


@pytest.mark.parametrize(
    ("cluster", "other", "left"),
    [
        ("kubewright/clusters/dev", "", ""),
        ("kubewright/clusters/dev", "kubewright/clusters/other", "kubewright kubewright/clusters kubewright/clusters/other"),
        ("kubewright/clusters/dev", "kubewright/machines", "kubewright kubewright/machines"),
        ("kubewright/clusters/dev", "kubewright/clusters/dev/nodes", "kubewright kubewright/clusters kubewright/clusters/dev kubewright/clusters/dev/nodes"),
        ("given/clusters/dev", "", "given given/clusters"),
        ("kubewright/dev", "", "kubewright"),
    ],
    ids=["the last one", "another cluster", "machines", "not empty", "a directory of the user", "another place"],
)  # fmt: skip
def test_only_empty_directories_of_kubewright_are_removed(tmp_path: Path, cluster: str, other: str, left: str) -> None:
    for path in filter(None, (cluster, other)):
        (tmp_path / path).mkdir(parents=True, exist_ok=True)
    remove_empty(tmp_path / cluster)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == left.split()


def test_a_link_to_another_disk_stays(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "kubewright").symlink_to("disk")
    (tmp_path / "kubewright" / "clusters" / "dev").mkdir(parents=True)
    remove_empty(tmp_path / "kubewright" / "clusters" / "dev")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["disk", "kubewright"]


def test_down_of_the_last_cluster_leaves_no_directory(tmp_path: Path) -> None:
    paths = ClusterPaths(tmp_path / "kubewright" / "clusters" / "dev")
    paths.root.mkdir(mode=0o700, parents=True)
    paths.lock.touch()
    assert down(paths).existed
    assert list(tmp_path.iterdir()) == []


def test_clusters_start_while_the_directories_of_others_are_removed(tmp_path: Path) -> None:
    def change(name: str) -> int:
        paths = ClusterPaths(tmp_path / "kubewright" / "clusters" / name)
        for _ in range(200):
            with changing(paths, doing="a test"):
                assert paths.lock.is_file()
        return 1

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(change, ("one", "two", "three", "four"))) == 4
    assert list(tmp_path.iterdir()) == []
