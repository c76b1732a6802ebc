"""The scripts of action.yml and of the GitLab template, run unchanged. Only the download of packages is replaced by those of this environment."""

from __future__ import annotations

import os
import sysconfig
import tarfile
from pathlib import Path

import pytest

from ci_kit import ROOT, bash, jobs, run_action
from kubewright import binaries
from plugin_kit import require_programs


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A fresh home directory. pip installs kubewright itself and finds everything else installed already."""
    require_programs()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PYTHON"))}
    return {
        **kept,
        "HOME": str(tmp_path),
        "KUBEWRIGHT_CACHE_DIR": str(binaries.sources_from(os.environ).cache.parent),
        "KUBEWRIGHT_OFFLINE": "1",
        "KUBEWRIGHT_NO_BUILD": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # means: without isolation
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }


def test_the_action_provides_a_cluster_to_later_steps(environment: dict[str, str], tmp_path: Path) -> None:
    files = run_action({"nodes": "0"}, environment, tmp_path)
    kubewright = Path(files["GITHUB_PATH"].read_text().strip()) / "kubewright"
    try:
        kubeconfig = files["GITHUB_ENV"].read_text().strip().removeprefix("KUBECONFIG=")
        assert files["GITHUB_OUTPUT"].read_text() == f"kubeconfig={kubeconfig}\n"
        assert Path(kubeconfig).is_file()
        assert "ci     Ready" in bash(f"{kubewright} local list", environment, tmp_path)
    finally:
        bash(f"{kubewright} down --name ci", environment, tmp_path)


def test_a_job_may_use_the_action_twice(tmp_path: Path) -> None:
    (tmp_path / "clone" / "dist").mkdir(parents=True)
    (tmp_path / "clone" / "Makefile").write_text("bundle:\n")
    (tmp_path / "kubewright-1" / "bin").mkdir(parents=True)
    (tmp_path / "kubewright-1" / "bin" / "kubewright").touch()
    with tarfile.open(tmp_path / "clone" / "dist" / "kubewright-1-linux-amd64.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "kubewright-1", "kubewright-1")
    for _ in range(2):
        files = run_action({"machines": "true"}, os.environ, tmp_path, clone=tmp_path / "clone", steps=1)
    assert files["GITHUB_PATH"].read_text().splitlines() == [f"{tmp_path}/kubewright/bin"] * 2
    assert [path.name for path in (tmp_path / "kubewright").rglob("*")] == ["bin", "kubewright"]


def test_the_job_of_gitlab_has_a_cluster_and_leaves_none(environment: dict[str, str], tmp_path: Path) -> None:
    job = jobs()[".kubewright"]
    environment |= {"CI_PROJECT_DIR": str(tmp_path)}
    environment |= {name: text.replace("$CI_PROJECT_DIR", str(tmp_path)) for name, text in job["variables"].items()}
    environment |= {"KUBEWRIGHT_PACKAGE": str(ROOT), "KUBEWRIGHT_UP": "--nodes 0"}
    report = "kubewright local export --name ci report"
    try:
        # a runner of GitLab runs before_script and script in one shell
        said = bash(
            "\n".join(("set -e", *job["before_script"], 'test -f "$KUBECONFIG"; kubewright local list', report)), environment, tmp_path
        )
        assert "ci     Ready" in said
        found = {str(path.relative_to(tmp_path / "report")) for path in (tmp_path / "report").rglob("*") if path.is_file()}
        assert {"status.json", "daemon.log", "objects/nodes.json", "ci-control-plane/kube-apiserver.log"} <= found
        assert "problems.txt" not in found
    finally:
        bash("\n".join(job["after_script"]), environment, tmp_path)
    assert list((tmp_path / ".kubewright" / "state").rglob("cluster.json")) == []
