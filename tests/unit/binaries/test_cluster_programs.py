"""The programs of a local cluster: kubectl is included, and no cluster fails because it is missing."""

from __future__ import annotations

from pathlib import Path

import binaries_programs as programs
import pytest
from binaries_go import FakeGo

from kubewright.base.clock import FakeClock
from kubewright.base.errors import BinariesError
from kubewright.base.events import RecordingReporter, Warned
from kubewright.binaries import BinarySources, golang
from kubewright.local import programs as of_cluster

VERSION = "v1.36.3"


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGo:
    """A Go that builds at once; there is no other one, and no kubectl on PATH."""
    made = FakeGo.make(tmp_path / "go")
    monkeypatch.setattr(golang, "INSTALLED", "/nonexistent/go")
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def sources(tmp_path: Path, directory: Path | None = None, *, build: bool = True) -> BinarySources:
    return BinarySources(cache=tmp_path / "cache", directory=directory, allow_download=False, allow_build=build)


def components(found: BinarySources, *, with_kubectl: bool = True) -> dict[str, Path]:
    return of_cluster.components(VERSION, sources=found, reporter=RecordingReporter(), clock=FakeClock(), with_kubectl=with_kubectl)


def bring(found: BinarySources) -> list[str]:
    """Get kubectl; returns the warnings."""
    reporter = RecordingReporter()
    of_cluster.bring_kubectl(VERSION, sources=found, reporter=reporter, clock=FakeClock())
    return [event.text for event in reporter.events if isinstance(event, Warned)]


def test_kubectl_is_built_together_with_the_components(go: FakeGo, tmp_path: Path) -> None:
    there = sources(tmp_path)
    assert sorted(components(there)) == sorted(of_cluster.COMPONENTS)
    assert of_cluster.find_kubectl(VERSION, sources=there) is not None
    assert len(go.builds()) == 2  # etcd's, and Kubernetes'
    calls = len(go.calls())
    assert (bring(there), len(components(there)), len(go.calls())) == ([], 4, calls)


def test_only_a_missing_kubectl_is_built_after_the_cluster_has_started(go: FakeGo, tmp_path: Path) -> None:
    there = sources(tmp_path)
    components(there, with_kubectl=False)
    assert of_cluster.find_kubectl(VERSION, sources=there) is None
    builds = len(go.builds())
    components(there)
    assert len(go.builds()) == builds  # the cluster does not wait for it
    assert bring(there) == []
    assert of_cluster.find_kubectl(VERSION, sources=there) is not None


def test_no_cluster_fails_because_kubectl_is_missing(go: FakeGo, tmp_path: Path) -> None:
    components(sources(tmp_path), with_kubectl=False)
    [warning] = bring(sources(tmp_path, build=False))
    assert "the cluster is up, but kubectl is not available" in warning
    assert "kubewright binaries fetch kubectl" in warning
    assert "build: not allowed" in warning


def test_unavailable_components_are_reported_once(go: FakeGo, tmp_path: Path) -> None:
    go.behave("exit 1")
    with pytest.raises(BinariesError, match="kube-apiserver"):
        components(sources(tmp_path))


@pytest.fixture
def chosen(tmp_path: Path) -> Path:
    """A directory of the user's with all components and no kubectl."""
    for name in of_cluster.COMPONENTS:
        programs.put(tmp_path / "chosen", name, programs.program(name))
    return tmp_path / "chosen"


def test_a_user_directory_without_kubectl_is_reported_and_nothing_is_built(
    go: FakeGo, tmp_path: Path, chosen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{go.root}/bin")
    there = sources(tmp_path, chosen)
    assert components(there)["etcd"] == chosen / "etcd"
    [warning] = bring(there)
    assert warning.startswith(f"kubectl is neither in {chosen} nor in the cache")
    assert go.builds() == []
    programs.put(tmp_path / "own", "kubectl", programs.program("kubectl"))
    monkeypatch.setenv("PATH", f"{tmp_path}/own")
    assert bring(there) == []  # the user has one


def test_another_version_of_kubectl_in_the_user_directory_is_reported(go: FakeGo, tmp_path: Path, chosen: Path) -> None:
    programs.put(chosen, "kubectl", programs.elf_program("Client Version: v1.35.4"))
    there = sources(tmp_path, chosen)
    assert len(components(there)) == len(of_cluster.COMPONENTS)
    [warning] = bring(there)
    assert str(chosen / "kubectl") in warning
    assert of_cluster.find_kubectl(VERSION, sources=there) is None
