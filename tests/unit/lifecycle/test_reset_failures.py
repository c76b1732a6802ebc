"""Steps of reset that fail in unexpected ways: all others run, and the failure is reported at the end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from reset_kit import OWN, Box, PacketFilter, ResetHost, Runtime, Services, etcd_manifest

from kubewright.base.errors import HostError, Interrupted
from kubewright.base.events import Line, Warned
from kubewright.etcd.recording import RecordingEtcd
from kubewright.host.filesystem.files import Files
from kubewright.lifecycle.steps.detected_cluster import DetectedCluster

EMPTY = ["cni", "cni/f", "etcd", "kubelet", "kubernetes", "kubernetes/manifests", "kubernetes/pki"]


@pytest.fixture
def box(tmp_path, monkeypatch):
    return Box(tmp_path).install(monkeypatch).make_control_plane()


def raising(error, *, of=None, real=None):
    """Return a function that raises, only for paths of the name `of` if it is given."""

    def verb(self, *words: object, **more: object):
        if of is None or Path(str(words[0])).name == of:
            raise error
        return real(self, *words, **more)

    return verb


SURPRISES = {
    "the kubelet": (Services, "stop", None, []),
    "the pods": (Runtime, "remove_sandbox", None, []),
    "the list of pods": (Runtime, "sandboxes", None, []),
    "the mounts": (ResetHost, "mounts", None, []),
    "the kubelet's directory": (ResetHost, "empty", "kubelet", ["kubelet/config.yaml", "kubelet/pki", "kubelet/pki/kubelet.crt"]),
    "a kubeconfig": (ResetHost, "remove", "super-admin.conf", ["kubernetes/super-admin.conf"]),
    "CNI": (ResetHost, "remove", "a.conf", []),
    "the packet filter": (PacketFilter, "remove", None, []),
    "the list of rules": (PacketFilter, "found", None, []),
    "etcd": (RecordingEtcd, "members", None, []),
    "the etcd member": (DetectedCluster, "member", None, ["etcd/member", "etcd/member/wal", "etcd/member/wal/0.wal"]),
}


@pytest.mark.parametrize("error", [RecursionError("too deep"), ValueError("odd")], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", SURPRISES)
def test_no_failing_step_prevents_another(box, monkeypatch, name, error):
    owner, verb, of, left = SURPRISES[name]
    box.write("etc/cni/net.d/a.conf")
    if name == "the kubelet":
        box.runtime.pods.clear()
    broken = raising(error, of=of, real=getattr(owner, verb, None))
    monkeypatch.setattr(owner, verb, property(broken) if owner is DetectedCluster else broken)
    outcome = box.reset(text="force: true\n", cleanup_cni=True, cleanup_packet_filter=True)
    monkeypatch.undo()
    kept = [*left, *(["etc", "etc/cni", "etc/cni/net.d"] if name != "CNI" else ["etc", "etc/cni", "etc/cni/net.d", "etc/cni/net.d/a.conf"])]
    assert box.left() == sorted([*EMPTY, *kept])
    assert box.services.running == (name == "the kubelet")
    assert outcome.failures != ()
    with pytest.raises(HostError, match="not everything could be reset") as failed:
        outcome.require_complete()
    assert f"internal error: {type(error).__name__}: {error}" in failed.value.detail
    assert "this is a bug in kubewright" in failed.value.remedy
    assert isinstance(failed.value.__cause__, ExceptionGroup)


def test_keys_and_kubeconfigs_are_removed_before_the_directory_of_the_kubelet(box, monkeypatch):
    real = ResetHost.unmount
    box.mounts.append(box.layout.kubelet / "pods/a")
    monkeypatch.setattr(ResetHost, "unmount", raising(KeyboardInterrupt()))
    with pytest.raises(Interrupted):
        box.reset()
    left = [name for name in box.left() if name.startswith("kubernetes/")]
    assert left == ["kubernetes/manifests", "kubernetes/pki"]
    assert (box.root / "kubelet/config.yaml").exists()
    monkeypatch.setattr(ResetHost, "unmount", real)
    box.reset().require_complete()
    assert box.left() == EMPTY


class Gone:
    """A reporter whose reader has gone, or whose disk is full."""

    def __init__(self, error) -> None:
        self.error = error
        self.told = 0

    def emit(self, event, /):
        self.told += isinstance(event, Line | Warned)
        raise self.error


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), OSError(28, "No space left on device"), ValueError("closed file")])
def test_a_closed_output_ends_nothing(box, error):
    box.reporter = Gone(error)
    box.reset(text="force: true\n").require_complete()
    assert box.left() == EMPTY
    assert box.reporter.told >= 8


@pytest.mark.parametrize("error", [HostError("it cannot be looked at"), RecursionError("too deep")])
def test_errors_while_listing_are_reported_and_end_nothing(box, monkeypatch, error):
    monkeypatch.setattr(ResetHost, "entries", raising(error))
    monkeypatch.setattr(ResetHost, "service", raising(error))
    outcome = box.reset(text="force: true\n")
    listed = box.lines()[0].splitlines()
    monkeypatch.undo()
    assert [line.split(": ")[0].strip() for line in listed if "not known: " in line] == [
        "service that is stopped",
        "contents of directories",
    ]
    assert not (box.root / "kubernetes/pki/ca.key").exists()
    assert not (box.root / "kubernetes/admin.conf").exists()
    assert outcome.failures != ()


@pytest.mark.parametrize("peer", ["https://[fd00::1:2380", "https://[]:2380", "//[", "https://host:port", "\udce9", "=" * 50])
def test_a_manifest_with_an_invalid_peer_url_ends_nothing(box, peer):
    box.write(
        "kubernetes/manifests/etcd.yaml",
        etcd_manifest(box.layout.etcd_data, cluster=f"b={peer.encode('ascii', 'replace').decode()},a={OWN}"),
    )
    box.reset().require_complete()
    assert box.left() == EMPTY


def test_a_failing_sync_does_not_skip_the_others(tmp_path, monkeypatch):
    files = Files(batch=True)
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text("")
        files.remove(Box(tmp_path).layout.kubernetes.parent / name / "f", below=[Box(tmp_path).layout.kubernetes.parent])
    synced, real = [], os.fsync

    def fsync(opened):
        synced.append(opened)
        if len(synced) == 1:
            raise OSError(5, "Input/output error")
        real(opened)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(HostError, match="cannot sync"):
        files.sync()
    assert len(synced) == 3
    files.sync()
    assert len(synced) == 3
