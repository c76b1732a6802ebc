"""The manifest directory, the watch on it, the state files, host paths of mounts, the order of stopping."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from supervisor_kit import Machine, descriptors, eventually, pod, ready

from kubewright.base.errors import HostError
from kubewright.base.fields import FieldPath
from kubewright.local.supervisor import manifests
from kubewright.local.supervisor.manifests import DirectoryWatch, ManifestDirectory, is_manifest
from kubewright.local.supervisor.pod import Mount
from kubewright.local.supervisor.process import DOWN, ORDERLY, StopStage, stages_of
from kubewright.local.supervisor.procfs import stat_of
from kubewright.local.supervisor.runtime import ensure_host_path
from kubewright.local.supervisor.state import ComponentRecord, RecordStore, slug


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("etcd.yaml", True),
        ("etcd.yml", True),
        ("etcd.json", True),
        (".etcd.yaml", False),
        (".etcd.yaml.swp", False),
        ("etcd.yaml~", False),
        ("etcd.yaml.bak", False),
        ("etcd.yaml.tmp", False),
        ("README", False),
    ],
)
def test_manifest_files_are_recognised(name: str, counts: bool) -> None:
    assert is_manifest(name) is counts


def files(machine: Machine) -> ManifestDirectory:
    return ManifestDirectory(machine.root / "manifests", "node1")


def test_a_missing_directory_has_no_manifests(tmp_path: Path) -> None:
    assert files(Machine(tmp_path)).scan() == []


def test_an_unreadable_directory_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "manifests").write_text("a file")
    assert files(Machine(tmp_path)).scan() is None


def test_yaml_and_json_are_read_and_others_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write(pod("a"), "a")
    machine.write(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec:\n  hostNetwork: true\n  containers: [{name: b, command: [sh]}]\n", "b"
    )
    machine.write("a: [", "c")
    machine.write("x" * (1 << 20) + "y", "d")
    (tmp_path / "manifests" / "e.yaml").mkdir()
    (tmp_path / "manifests" / "f.yaml").symlink_to(tmp_path / "absent")
    found = files(machine).scan()
    assert found is not None
    assert [(one.file, one.pod_name, one.pod is not None) for one in found] == [
        ("a.yaml", "a", True),
        ("b.yaml", "b", True),
        ("c.yaml", "c", False),
        ("d.yaml", "d", False),
    ]
    assert "c.yaml" in found[2].problem
    assert found[3].problem == "d.yaml is larger than 1048576 bytes"


def test_a_file_is_decoded_only_when_it_changed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write(pod("a"), "a")
    reader = files(machine)
    first, second = reader.scan(), reader.scan()
    assert first is not None
    assert second is not None
    assert first[0] is second[0]
    machine.write(pod("b"), "a")
    third = reader.scan()
    assert third is not None
    assert third[0].pod_name == "b"
    machine.write("{", "a")
    broken = reader.scan()
    assert broken is not None
    assert (broken[0].pod_name, broken[0].pod) == ("b", None)


def test_the_second_of_two_files_with_one_pod_is_a_problem(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write(pod("etcd"), "a")
    machine.write(pod("etcd"), "z")
    found = files(machine).scan()
    assert found is not None
    assert [(one.pod_name, one.problem) for one in found] == [
        ("etcd", ""),
        ("z", "z.yaml describes the pod etcd, as a.yaml does; remove one of them"),
    ]


@pytest.mark.parametrize("inotify", [True, False])
async def test_changes_of_a_directory_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inotify: bool) -> None:
    monkeypatch.setattr(manifests, "POLL_EVERY", 0.01)
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1

    before = descriptors()
    watch = DirectoryWatch(tmp_path, look, inotify=inotify)
    watch.start()
    assert watch.uses_inotify is inotify
    for change in (lambda: (tmp_path / "a").write_text("x"), lambda: (tmp_path / "a").rename(tmp_path / "b"), (tmp_path / "b").unlink):
        seen = looks
        change()
        await eventually(lambda seen=seen: looks > seen)
    await watch.stop()
    await watch.stop()
    assert descriptors() == before


async def test_without_inotify_instances_it_polls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(manifests, "_open", none_left)
    watch = DirectoryWatch(tmp_path, lambda: None)
    watch.start()
    assert not watch.uses_inotify
    await watch.stop()


async def test_a_directory_that_was_replaced_is_watched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "RESYNC_EVERY", 0.05)
    machine = Machine(tmp_path)
    async with machine.supervised(pod("a")) as supervisor:
        await ready(supervisor, "a")
        (tmp_path / "manifests").rename(tmp_path / "old")
        await eventually(lambda: supervisor.snapshot() == [])
        machine.write(pod("b"))
        await asyncio.sleep(0.1)
        await ready(supervisor, "b")


def record(**parts: object) -> ComponentRecord:
    given = {"pid": 1, "start_time": 2, "boot_id": "x", "manifest_hash": "h", "restarts": 3, **parts}
    return ComponentRecord(name="web/side", argv0="/bin/sh", started_at="2026-01-02T03:04:05.000006Z", **given)  # type: ignore[arg-type]


def test_a_state_file_is_read_back_unchanged(tmp_path: Path) -> None:
    records = RecordStore(tmp_path)
    assert records.read("web/side") is None
    records.write(record())
    assert records.read("web/side") == record()
    assert [path.name for path in tmp_path.iterdir()] == ["web_side.json"]
    assert stat.S_IMODE((tmp_path / "web_side.json").stat().st_mode) == 0o600
    records.remove("web/side")
    records.remove("web/side")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", json.dumps({"name": "web/side"}), "\x00"])
def test_a_truncated_record_is_ignored(tmp_path: Path, content: str) -> None:
    (tmp_path / "web_side.json").write_text(content)
    assert RecordStore(tmp_path).read("web/side") is None


@given(st.binary(max_size=40))
def test_no_content_of_a_record_is_an_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    place = tmp_path_factory.getbasetemp() / "records"
    place.mkdir(exist_ok=True)
    (place / "x.json").write_bytes(content)
    assert RecordStore(place).read("x") is None


def test_each_component_has_its_own_file_name() -> None:
    assert len({slug("a/b"), slug("a.b"), slug("a-b"), slug("b/a")}) == 4


def mount(path: Path, kind: str) -> Mount:
    return Mount(mount_path=str(path), host_path=str(path), type=kind, path=FieldPath("spec.containers[0].volumeMounts[0]"))


def test_host_paths_are_created_if_their_type_says_so(tmp_path: Path) -> None:
    for _ in range(2):
        ensure_host_path(mount(tmp_path / "a" / "b", "DirectoryOrCreate"))
        ensure_host_path(mount(tmp_path / "a" / "file", "FileOrCreate"))
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "file").stat().st_mode) == 0o600
    ensure_host_path(mount(tmp_path / "a", "Directory"))
    ensure_host_path(mount(tmp_path / "a" / "file", "File"))
    ensure_host_path(mount(tmp_path / "absent", ""))
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(("name", "kind"), [("absent", "Directory"), ("absent", "File"), ("d", "File"), ("f", "Directory"), ("f", "Socket"), ("f", "DirectoryOrCreate"), ("x/y", "FileOrCreate")])  # fmt: skip
def test_impossible_host_paths_are_reported(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "f").write_text("")
    with pytest.raises(HostError) as caught:
        ensure_host_path(mount(tmp_path / name, kind))
    assert str(tmp_path / name) in caught.value.what


def test_process_facts_are_read_from_the_kernel() -> None:
    found = stat_of(os.getpid())
    assert found is not None
    assert (found.group, found.session) == (os.getpgid(0), os.getsid(0))
    assert found.rss_bytes > 1_000_000
    assert found.cpu_seconds > 0
    assert stat_of(2**22 + 1) is None


PODS = ["coredns", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
IN_ORDER = [["coredns"], ["kube-controller-manager", "kube-scheduler"], ["kube-apiserver"], ["etcd"]]


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        (ORDERLY, IN_ORDER),
        (DOWN, IN_ORDER),
        ((), [PODS]),
        ((StopStage(),), [PODS]),
        ((StopStage(pods=("etcd",)),), [PODS[:1] + PODS[2:], ["etcd"]]),
    ],
)
def test_every_pod_is_in_one_stage(stages: tuple[StopStage, ...], expected: list[list[str]]) -> None:
    assert [pods for _, pods in stages_of(PODS, stages)] == expected


def test_down_has_a_short_timeout() -> None:
    assert sum(stage.grace or 0 for stage in DOWN if "etcd" not in stage.pods) <= 1
