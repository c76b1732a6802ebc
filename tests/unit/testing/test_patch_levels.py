"""Programs of another patch level, made without a build."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))

from testbed import patch_level

from kubewright.machines.images import Image


@pytest.fixture
def cached(tmp_path, monkeypatch):
    monkeypatch.setattr(patch_level, "cache", lambda: tmp_path / "cache")
    return tmp_path


def test_every_version_is_replaced_and_nothing_moves():
    content = b"\0v1.36.3\0 k8s.io/kubernetes v1.36.3\n go1.36.3 \xff"
    assert patch_level.renumber(content, "v1.36.3", "v1.36.4") == b"\0v1.36.4\0 k8s.io/kubernetes v1.36.4\n go1.36.3 \xff"


@pytest.mark.parametrize(("new", "said"), [("v1.36.10", "not as long"), ("v1.36", "not as long")])
def test_a_version_of_another_length_is_refused(new, said):
    with pytest.raises(ValueError, match=said):
        patch_level.renumber(b"v1.36.3", "v1.36.3", new)


def test_a_program_of_another_version_is_refused():
    with pytest.raises(ValueError, match=r"does not contain the version v1\.36\.3"):
        patch_level.renumber(b"v1.35.4", "v1.36.3", "v1.36.4")


def test_a_copy_is_created_once_for_each_state_of_a_program(cached):
    source = cached / "kubelet"
    source.write_bytes(b"v1.36.3")
    first = patch_level.program(source, "v1.36.3", "v1.36.4")
    made = first.stat().st_mtime_ns
    assert (first.read_bytes(), os.access(first, os.X_OK), source.read_bytes()) == (b"v1.36.4", True, b"v1.36.3")
    assert (patch_level.program(source, "v1.36.3", "v1.36.4"), first.stat().st_mtime_ns) == (first, made)
    source.write_bytes(b"v1.36.3, rebuilt")
    assert patch_level.program(source, "v1.36.3", "v1.36.4").read_bytes() == b"v1.36.4, rebuilt"


def test_several_that_need_a_copy_at_the_same_time_get_the_same_one(cached):
    source = cached / "kubelet"
    source.write_bytes(b"v1.36.3" + bytes(4 << 20))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: patch_level.program(source, "v1.36.3", "v1.36.4"), range(8)))
    assert (set(found), found[0].read_bytes()) == ({found[0]}, b"v1.36.4" + bytes(4 << 20))
    assert [path.name for path in found[0].parent.iterdir()] == [found[0].name]


def test_only_images_of_the_level_get_its_tag_and_programs(cached):
    source = cached / "kube-proxy"
    source.write_bytes(b"v1.36.3")
    tree = Path("/base")
    found = patch_level.images(
        [
            Image("registry.k8s.io/kube-proxy:v1.36.3", {"usr/bin/kube-proxy": source, "note": b"as it is"}, tree=tree, parts=("bin",)),
            Image("registry.k8s.io/etcd:3.6.8-0", {"usr/local/bin/etcd": cached / "etcd"}),
        ],
        "v1.36.3",
        "v1.36.4",
    )
    assert [image.reference for image in found] == ["registry.k8s.io/kube-proxy:v1.36.4"]
    program = found[0].files["usr/bin/kube-proxy"]
    assert isinstance(program, Path)
    assert (program.read_bytes(), found[0].files["note"], found[0].tree, found[0].parts) == (b"v1.36.4", b"as it is", tree, ("bin",))
