"""Clusters of machines: volumes on their disks, mounts of the host's directories, and the host's name in their DNS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from kubewright.base.errors import HostError, UsageError
from kubewright.base.records import replace
from kubewright.local import mounts, record
from kubewright.local.mounts import Mount
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.whole import addons, members
from kubewright.local.whole.services import volumes
from kubewright.machines import mounting
from kubewright.manifests import corefile
from kubewright.manifests.coredns import corefile as default_corefile

CLUSTER = ClusterRecord(name="dev", id="0" * 32, machines=(LocalMachineRecord(name="dev-control-plane", address="172.30.4.11"),))
ASKED = {"volume.kubernetes.io/storage-provisioner": volumes.PROVISIONER, "volume.kubernetes.io/selected-node": "dev-worker-1"}


def claim(annotations: dict[str, str] = ASKED, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "data", "namespace": "default", "uid": "u-1", "annotations": annotations},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "standard", **spec},
    }


def released(**changes: Any) -> dict[str, Any]:
    volume = volumes.volume_for(claim(), volumes.storage_class())
    volume["status"] = {"phase": "Released"}
    volume["spec"] |= changes
    return volume


def test_the_class_is_the_default_and_waits_for_the_first_pod() -> None:
    found = volumes.storage_class()
    assert found["metadata"]["annotations"] == {"storageclass.kubernetes.io/is-default-class": "true"}
    assert (found["volumeBindingMode"], found["reclaimPolicy"]) == ("WaitForFirstConsumer", "Delete")


def test_a_claim_is_provisioned_when_a_machine_has_been_chosen() -> None:
    assert volumes.is_wanted(claim())
    assert volumes.is_wanted(
        claim(
            {**ASKED, "volume.kubernetes.io/storage-provisioner": "", "volume.beta.kubernetes.io/storage-provisioner": volumes.PROVISIONER}
        )
    )
    for other in (
        claim({}),
        claim({**ASKED, "volume.kubernetes.io/selected-node": ""}),
        claim({**ASKED, "volume.kubernetes.io/storage-provisioner": "example.com/other"}),
        claim(volumeName="pvc-u-1"),
    ):
        assert not volumes.is_wanted(other)


def test_a_volume_is_a_directory_of_the_machine_and_belongs_to_its_claim() -> None:
    found = volumes.volume_for(claim(), {**volumes.storage_class(), "reclaimPolicy": "Retain"})
    spec = found["spec"]
    assert (found["metadata"]["name"], spec["local"]) == ("pvc-u-1", {"path": "/var/lib/kubewright/volumes/pvc-u-1"})
    assert (spec["capacity"], spec["persistentVolumeReclaimPolicy"], spec["storageClassName"]) == ({"storage": "1Gi"}, "Retain", "standard")
    assert (volumes.machine_of(found), spec["claimRef"]["uid"]) == ("dev-worker-1", "u-1")


def test_only_released_volumes_of_ours_are_deleted() -> None:
    assert volumes.is_released(released())
    for other in (
        {**released(), "status": {"phase": "Bound"}},
        released(persistentVolumeReclaimPolicy="Retain"),
        released(local={"path": "/etc"}),
        {**released(), "metadata": {"name": "pvc-u-1"}},
        {**released(), "metadata": {**released()["metadata"], "name": "other"}},
    ):
        assert not volumes.is_released(other)
    assert volumes.machine_of({"spec": {}}) == ""


def test_a_mount_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert mounts.parse("/srv/../data:/mnt/data") == Mount(source=Path("/data"), target=PurePosixPath("/mnt/data"))
    assert mounts.parse("x:/mnt/x:ro") == Mount(source=tmp_path / "x", target=PurePosixPath("/mnt/x"), read_only=True)
    assert str(mounts.parse("/a:/var/lib/app:ro")) == "/a:/var/lib/app:ro"
    assert str(mounts.parse("/a://mnt//x/")) == "/a:/mnt/x"  # POSIX lets two leading slashes mean something else


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/a",
        ":/b",
        "/a:",
        "/a:b",
        "/a:/b:rx",
        "/a:/b:ro:x",
        "/a:/",
        "/a:/etc",
        "/a:/var",
        "/a:/proc/x",
        "/a:/var/run/x",
        "/a:/x/../etc",
        "/a://etc",
    ],
)
def test_a_mount_that_machines_cannot_have_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        mounts.parse(text)


def test_a_directory_whose_path_has_a_colon_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a:b").mkdir()
    monkeypatch.chdir(tmp_path / "a:b")
    with pytest.raises(UsageError, match="machines cannot see") as caught:
        mounts.parse("x:/mnt/x")
    assert caught.value.remedy == "use a path without a colon"


def test_two_mounts_at_one_path_and_missing_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two mounts have the path /mnt in machines"):
        mounts.parse_all(["/a:/mnt", "/b:/mnt"])
    (tmp_path / "file").touch()
    mounts.require_sources(mounts.parse_all([f"{tmp_path}:/mnt", f"{tmp_path}/file:/etc/app.conf:ro"]))
    with pytest.raises(UsageError, match="none, to be mounted at /mnt, does not exist") as caught:
        mounts.require_sources(mounts.parse_all([f"{tmp_path}/none:/mnt"]))
    assert caught.value.remedy == f"create it, for example with `mkdir -p {tmp_path}/none`"


def test_a_place_for_a_mount_replaces_only_what_an_earlier_mount_has_left(tmp_path: Path) -> None:
    place = tmp_path / "etc" / "app"
    for is_directory in (True, False, False, True, True):
        mounting.make_place(place, is_directory=is_directory)
        assert (place.is_dir(), place.is_file()) == (is_directory, not is_directory)
    (place / "file").write_text("kept")
    for target, is_directory in ((place, False), (place / "file", True)):
        with pytest.raises(OSError):
            mounting.make_place(target, is_directory=is_directory)
    mounting.make_place(place, is_directory=True)
    mounting.make_place(place / "file", is_directory=False)
    assert [path.read_text() for path in place.iterdir()] == ["kept"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts in other namespaces")
def test_nothing_below_a_read_only_mount_of_a_running_machine_can_be_written_to(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "below").mkdir(parents=True)
    # the mount below exists only in the namespace of this shell, which mounts in the one of the "machine"
    script = f"""
        mount -t tmpfs none {source}/below
        unshare --mount --propagation private sleep 60 & machine=$!
        until [ "$(readlink /proc/$machine/ns/mnt)" != "$(readlink /proc/$$/ns/mnt)" ]; do sleep 0.01; done
        for mode in ro rw; do
            {sys.executable} -P -m kubewright.machines.mounting $machine {source} {tmp_path}/$mode $mode || exit 1
            for place in . below; do nsenter -t $machine -m touch {tmp_path}/$mode/$place/$mode; done
        done
        kill $machine
        ls {source} {source}/below
    """
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    ended = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert (ended.stdout.split(), ended.stderr.count("Read-only file system")) == (
        [f"{source}:", "below", "rw", f"{source}/below:", "rw"],
        2,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts in other namespaces")
def test_what_is_unmounted_in_a_machine_stays_mounted_on_the_host(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    # on most hosts, mounts are shared (mount_namespaces(7)); only this shell's are here
    script = f"""
        mount --bind {source} {source} && mount --make-shared {source} && mkdir {source}/below && mount -t tmpfs none {source}/below || exit 1
        unshare --mount --propagation slave sleep 60 & machine=$!; trap "kill $machine" EXIT
        until [ "$(readlink /proc/$machine/ns/mnt)" != "$(readlink /proc/$$/ns/mnt)" ]; do sleep 0.01; done
        for mode in rw ro; do
            {sys.executable} -P -m kubewright.machines.mounting $machine {source} {target}/$mode $mode || exit 1
            nsenter -t $machine -m mountpoint -q {target}/$mode/below || exit 2
            nsenter -t $machine -m umount -l {target}/$mode || exit 3
            mountpoint -q {source}/below || exit 4
        done
    """
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_mount_below_another_is_mounted_after_it() -> None:
    given = tuple(map(str, mounts.parse_all(["/a:/mnt/x/y", "/b:/mnt/x", "/c:/data:ro"])))
    assert [one.target for one in members.binds(replace(CLUSTER, mounts=given))] == ["/data", "/mnt/x", "/mnt/x/y"]


def test_the_record_keeps_mounts_and_refuses_broken_ones(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    record.save(replace(CLUSTER, mounts=("/data:/mnt/data:ro",)), path)
    found = record.load(path)
    assert found is not None
    assert found.mounted == (Mount(source=Path("/data"), target=PurePosixPath("/mnt/data"), read_only=True),)
    record.save(replace(CLUSTER, mounts=("relative:/mnt/data",)), path)
    with pytest.raises(HostError, match="does not describe a cluster"):
        record.load(path)


def test_the_hosts_name_is_added_once_and_follows_its_address() -> None:
    before = default_corefile("cluster.local")
    first = addons.with_host(before, "172.30.4.1")
    (server,) = corefile.parse(first)
    (hosts,) = [plugin for plugin in server.plugins if plugin.name == "hosts"]
    assert [(option.name, *option.arguments) for option in hosts.options] == [("172.30.4.1", "host.kubewright.internal"), ("fallthrough",)]
    assert len(server.plugins) == len(corefile.parse(before)[0].plugins) + 1
    assert addons.with_host(first, "172.30.4.1") == first
    assert addons.with_host(first, "172.30.9.1") == first.replace("172.30.4.1", "172.30.9.1")


@pytest.mark.parametrize("text", ["", "example.org {\n    whoami\n}\n", ".:53 {\n    hosts /etc/other {\n       fallthrough\n    }\n}\n"])
def test_a_corefile_with_other_plans_is_left_alone(text: str) -> None:
    assert addons.with_host(text, "172.30.4.1") == text
