"""The pytest plugin with tests that need whole machines, on a host that has none, and loading images. Real clusters are in tests/machines."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import kubewright
from kubewright.base.errors import DocumentError, HostError, UsageError
from kubewright.local.cluster.cluster import LocalCluster
from kubewright.testing import machines

pytest_plugins = ["pytester"]
TESTS = """
import pytest

@pytest.mark.kubewright(machines=True)
def test_pods_run(kubewright_cluster):
    pass

@pytest.mark.kubewright(machines=False)
def test_other():
    pass
"""
OTHERS = """
import pytest
from kubewright.testing import clusters

clusters.obtain = lambda _, wanted, **__: wanted

def test_processes_are_enough(kubewright_cluster):
    assert not kubewright_cluster.machines

@pytest.mark.kubewright(machines=True)
def test_no_fixture_is_used():
    pass
"""


def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> pytest.RunResult:
    """Run the tests without the privileges that machines need."""
    pytester.makepyfile(TESTS)
    weak = ("setpriv", "--bounding-set=-sys_admin") if os.geteuid() == 0 else ()
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(kubewright.__file__).parents[1]))
    return pytester.run(*weak, sys.executable, "-m", "pytest", "-p", "kubewright.testing.plugin", "--strict-markers", "-rs", *arguments)


def test_tests_that_need_machines_are_skipped_with_the_reason(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(pytester, monkeypatch)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*no whole machines on this host: *"])


def test_they_fail_if_machines_are_required(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = run(pytester, monkeypatch, "--kubewright-need-machines", "--kubewright-state-dir", str(tmp_path / "state"))
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*kubewright: this host cannot run whole machines*", "*hint: *"])
    assert list((tmp_path / "state").rglob("*")) == []


def test_the_others_get_a_cluster_of_processes_then(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytester.makepyfile(test_others=OTHERS)
    result = run(pytester, monkeypatch, "--kubewright-need-machines", "--kubewright-state-dir", str(tmp_path / "state"))
    result.assert_outcomes(passed=2, errors=2)


def engine(directory: Path, script: str) -> None:
    path = directory / "docker"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_an_image_without_an_engine_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match='"app:dev" is not a file, and neither docker nor podman is on PATH'):
        machines.load(LocalCluster("t", state_dir=tmp_path), "app:dev")


def test_an_engine_that_does_not_know_the_image_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine(tmp_path, "echo 'No such image' >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(HostError, match='docker cannot save the image "app:dev"') as caught:
        machines.load(LocalCluster("t", state_dir=tmp_path), "app:dev")
    assert (caught.value.detail, caught.value.remedy) == ("No such image", "build it first: `docker build --tag app:dev .`")


def test_an_archive_that_an_engine_saves_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine(tmp_path, '[ "$1 $2 $4" = "save --output app:dev" ] && echo "no archive" > "$3"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(DocumentError, match="is not a tar archive"):
        machines.load(LocalCluster("t", state_dir=tmp_path), "app:dev")
