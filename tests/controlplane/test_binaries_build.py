"""A real build with this machine's Go, into a separate cache. Go's own caches are shared, so a second run takes seconds."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from kubewright import binaries
from kubewright.base.errors import BinariesError
from kubewright.base.events import Progress, RecordingReporter
from kubewright.binaries import BinarySources, golang


def has_go(environment: Mapping[str, str]) -> bool:
    try:
        golang.find_go(environment, need=(1, 26, 0))
    except BinariesError:
        return False
    return True


@pytest.mark.skipif(not has_go(os.environ), reason="Go 1.26 is not on this machine")
def test_etcd_is_built_static_stripped_and_stamped(tmp_path: Path):
    reporter = RecordingReporter()
    sources = BinarySources(cache=tmp_path / "cache", allow_download=False)
    found = binaries.ensure(("etcd",), version="v1.36.3", sources=sources, reporter=reporter)["etcd"]
    answer = subprocess.run([found.path, "--version"], capture_output=True, check=True, text=True)
    assert "etcd Version: 3.6.8" in answer.stdout
    sections = found.path.read_bytes()
    assert b"/lib64/ld-linux" not in sections[:4096]  # statically linked
    assert b".symtab\0" not in sections
    assert str(tmp_path).encode() not in sections  # trimmed paths: the same bytes wherever it is built
    assert [event.task for event in reporter.events if isinstance(event, Progress)][-1] == "build etcd v3.6.8"
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["lock", "v1.36.3"]
    assert not [result for result in binaries.verify(version="v1.36.3", sources=sources) if result.fault]


@pytest.mark.skipif(shutil.which("go") is None, reason="there is no Go on this machine")
def test_a_build_without_modules_reports_it(tmp_path: Path):
    environment = {**os.environ, "GOMODCACHE": str(tmp_path / "modules"), "GOCACHE": str(tmp_path / "cache-of-go")}
    sources = BinarySources(cache=tmp_path / "cache", allow_download=False, offline=True)
    with pytest.raises(BinariesError) as caught:
        binaries.ensure(("etcd",), version="v1.36.3", sources=sources, environment=environment)
    assert "module lookup disabled by GOPROXY=off" in caught.value.detail
    assert "GOPROXY" in caught.value.remedy
