"""The checks before an upgrade that kubeadm does not have. All of them are ignored here, so that an upgrade continues and reports what they find."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from upgrade_kit import NEW, OLD, Answers, ControlPlane, Etcd, store, with_another_control_plane

from kubewright.base.change import Action, Change
from kubewright.base.clock import FakeClock
from kubewright.base.errors import ComponentFailed, HostError, KubewrightError, NotFound, PreflightFailed, Unreachable, UsageError
from kubewright.base.events import Checked, Waiting
from kubewright.etcd.api import Alarm, NoQuorum
from kubewright.host.filesystem.files import Files
from kubewright.host.states import FileSystem
from kubewright.kube.resources import LEASE, POD
from kubewright.lifecycle import stacked_etcd
from kubewright.lifecycle.steps.operation_lease import TERMS
from kubewright.manifests.static_pods import ENDPOINT

ETCD = "3.6.8-0"


@pytest.fixture
def box(tmp_path):
    return ControlPlane(tmp_path)


def told_by(box, check):
    """What a check has found."""
    return [event.text for event in box.reporter.events if isinstance(event, Checked) and event.check == check]


@pytest.mark.parametrize(("present", "told"), [("3.5.21-0", True), ("3.6.1-0", False), ("3.7.0-0", False)])
def test_an_etcd_of_another_minor_release_is_told_by_the_name_of_a_check(box, present, told):
    path = Path(box.layout.manifest("etcd"))
    path.write_text(path.read_text().replace(ETCD, present))
    box.upgrade()
    found = told_by(box, "EtcdMinor")
    assert [text.partition(":")[0] for text in found] == ["etcd 3.6.8 is of another minor release than 3.5.21"] * told
    assert ["All members need 3.5.26 or later before: https://10.98.0.11:2379 has 3.5.21." in text for text in found] == [True] * told


@pytest.mark.parametrize(("present", "told"), [("v1.34.9", True), ("v1.35.0", False)])
def test_api_servers_that_would_be_two_minor_releases_apart_are_told_by_the_name_of_a_check(box, present, told):
    with_another_control_plane(box, status="True")
    pod = box.kube.get(POD, "kube-apiserver-node2", "kube-system")
    pod["spec"]["containers"][0]["image"] = f"registry.k8s.io/kube-apiserver:{present}"
    box.kube.update(pod)
    box.upgrade()
    text = f"the API servers of node2 have {present}, which is more than one minor release older than {NEW}"
    assert [found.partition(";")[0] for found in told_by(box, "APIServerSkew")] == [text] * told


@pytest.mark.parametrize(
    ("section", "kubelet", "servers"),
    [
        ("apply", OLD, []),
        ("apply", NEW, [f"{OLD} of node2"]),
        ("apply", "v1.36.4", [f"{NEW} of this machine", f"{OLD} of node2"]),
        ("node", NEW, []),  # it waits for the other machine
        ("node", "v1.36.4", [f"{NEW} of this machine"]),
    ],
)
def test_api_servers_that_are_older_than_the_given_kubelet_are_told_before_the_confirmation(box, tmp_path, section, kubelet, servers):
    with_another_control_plane(box, status="True")
    store(box, kubernetesVersion=NEW)
    asked = []
    with suppress(HostError, UsageError):
        options = {"kubelet": box.kubelet(kubelet, path=tmp_path / "new-kubelet")}
        box.upgrade(section=section, ask=lambda _: asked.append(told_by(box, "KubeletSkew")) or "n", options=options)
    found = asked[0] if section == "apply" else told_by(box, "KubeletSkew")
    assert [text.partition(";")[0] for text in found] == [f"the kubelet {kubelet} is newer than the API server {one}" for one in servers]
    assert len(asked) == (section == "apply")


def test_a_file_that_is_no_kubelet_is_told_before_the_confirmation(box, tmp_path):
    with pytest.raises(UsageError, match="the answer was not y"):
        box.upgrade(ask=lambda _: "n", options={"kubelet": box.kubelet("nonsense", path=tmp_path / "new-kubelet")})
    [text] = told_by(box, "KubeletSkew")
    assert "new-kubelet does not report its version" in text


def test_arguments_that_the_new_version_does_not_know_are_warned_about(box):
    store(box, scheduler={"extraArgs": [{"name": "no-such-flag", "value": "1"}]})
    box.upgrade()
    [text] = told_by(box, "ExtraArgs")
    assert text.startswith("scheduler.extraArgs: kube-scheduler 1.36 has no flag --no-such-flag")


@pytest.mark.parametrize(("present", "removed", "told"), [("v1.35.4", "1.36", True), ("v1.35.4", "1.37", False), (OLD, "1.36", False)])
def test_apis_in_use_that_the_new_version_does_not_serve_are_warned_about(box, present, removed, told):
    path = Path(box.layout.manifest("kube-apiserver"))
    path.write_text(path.read_text().replace(OLD, present))
    labels = f'group="example.k8s.io",removed_release="{removed}",resource="examples",subresource="",version="v1beta1"'
    box.metrics = f"apiserver_requested_deprecated_apis{{{labels}}} 1\n"
    box.upgrade()
    text = "clients use example.k8s.io/v1beta1/examples, which Kubernetes 1.36 no longer serves"
    assert told_by(box, "DeprecatedAPIs") == [text] * told


@pytest.mark.parametrize(("days", "renews", "told"), [(0, False, 0), (364.5, True, 0), (364.5, False, 7), (3649.5, True, 3)])
def test_certificates_that_expire_within_a_day_are_told_by_the_name_of_a_check(box, days, renews, told):
    box.clock.advance(days * 86400)
    with suppress(KubewrightError):  # without valid certificates, the components do not work
        box.upgrade(certificate_renewal=renews)
    assert len(told_by(box, "CertificateExpiration")) == told


def test_members_of_etcd_without_a_node_are_warned_about(box):
    box.others = ("gone",)
    box.upgrade()
    [text] = told_by(box, "EtcdMembers")
    assert text.startswith("etcd's member gone at https://10.98.1.0:2380 has no Node: ")


def test_a_scheduler_that_uses_the_api_servers_of_other_machines_is_warned_about(box):
    box.upgrade()
    assert (told_by(box, "EtcdMembers"), told_by(box, "LocalAPIServer")) == ([], [])
    path = Path(box.layout.kubeconfig("scheduler"))
    path.write_text(path.read_text().replace("https://10.98.0.11:6443", "https://cluster.test:6443"))
    box.upgrade()
    [text] = told_by(box, "LocalAPIServer")
    assert text.startswith(f"{path} names https://cluster.test:6443 instead of the API server of this machine")


@pytest.mark.parametrize(("present", "told"), [("3.6.6-0", True), (ETCD, False)])
def test_an_etcd_that_would_lose_its_quorum_is_told_before_the_confirmation_if_it_is_restarted(box, present, told):
    box.others, box.dead = ("node2", "node3"), ("node3",)
    path = Path(box.layout.manifest("etcd"))
    path.write_text(path.read_text().replace(ETCD, present))
    asked, before = [], box.manifests()
    with pytest.raises(UsageError, match="the answer was not y"):
        box.upgrade(ask=lambda _: asked.append(told_by(box, "EtcdQuorum")) or "n")
    [found] = asked
    assert [text.partition(":")[0] for text in found] == ["etcd is not restarted, because it would lose its quorum"] * told
    assert ["node3 at https://10.98.1.1:2380" in text for text in found] == [True] * told
    assert box.manifests() == before


@pytest.mark.parametrize("section", ["apply", "node"])
def test_an_alarm_of_etcd_is_told_before_anything_is_written(box, section):
    """While it is raised, the Job of a check and the Lease of the upgrade could not be written; nor is etcd restarted here."""
    box.others, box.alarms = ("node2", "node3"), (Alarm(member_id=2, kind="NOSPACE"),)
    before = box.manifests()
    with pytest.raises(PreflightFailed) as caught:
        box.upgrade(section=section, ignore_preflight_errors=("IsPrivilegedUser", "SystemVerification"))
    told = "node2 at https://10.98.1.0:2380 has raised the alarm NOSPACE: until it is disarmed, etcd accepts no writes; compact and"
    assert caught.value.detail.startswith(f"[ERROR EtcdAlarms]: {told}")
    assert box.manifests() == before
    with pytest.raises(NotFound):
        box.kube.get(LEASE, TERMS.name, TERMS.namespace)


def test_the_wait_for_members_of_etcd_that_do_not_answer_is_reported(box, monkeypatch):
    path = Path(box.layout.manifest("etcd"))
    path.write_text(path.read_text().replace(ETCD, "3.6.6-0"))
    asked = []

    def alarms(_):
        asked.append(box.clock.monotonic())
        if asked[-1] < asked[0] + 30:
            raise Unreachable("no member of etcd answers")
        return []

    monkeypatch.setattr(Etcd, "alarms", alarms)
    box.upgrade()
    waits = [event for event in box.reporter.events if isinstance(event, Waiting) and event.what == "the members of etcd to answer"]
    assert len(waits) >= 20
    assert {event.reason for event in waits} == {"no member of etcd answers"}
    assert max(event.elapsed for event in waits) > 20


def test_the_members_of_etcd_are_asked_again_and_each_failure_is_told(monkeypatch):
    """As while etcd elects a leader."""
    clock, told, followed = FakeClock(), [], []

    def members(*, agreed):
        assert not agreed
        if clock.monotonic() < back:
            raise NoQuorum("there is no leader")
        return ["one"]

    back = clock.monotonic() + 5
    client = SimpleNamespace(members=members, follow=followed.append)
    monkeypatch.setattr(stacked_etcd, "client", lambda *_, **__: client)
    monkeypatch.setattr(stacked_etcd, "endpoints", lambda _: ["https://10.0.0.1:2379"])
    failed = lambda error, _: told.append(str(error))  # noqa: E731
    made = stacked_etcd.connect(None, pki=None, files=None, clock=clock, api_within=1.0, within=60.0, failed=failed)
    assert (made, followed) == (client, [["one"]])
    assert len(told) >= 5
    assert set(told) == {"there is no leader"}


def test_a_machine_waits_for_its_turn_before_the_quorum_is_checked(box, monkeypatch):
    """The machine that is being upgraded restarts its member meanwhile."""
    path = Path(box.layout.manifest("etcd"))
    path.write_text(path.read_text().replace(ETCD, "3.6.6-0"))
    box.others, box.dead = ("node2", "node3"), ("node2",)
    spec = {"holderIdentity": "node2", "leaseDurationSeconds": 30, "renewTime": "2026-01-01T00:00:00.000000Z"}
    metadata = {"name": "kubewright-operation", "namespace": "kube-system"}
    box.kube.create({"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec})
    sleep = box.clock.sleep

    def others_work(seconds):
        sleep(seconds)
        if box.dead and any(isinstance(event, Waiting) and event.what == "this machine's turn" for event in box.reporter.events):
            box.dead = ()
            box.kube.delete(LEASE, "kubewright-operation", "kube-system")

    monkeypatch.setattr(box.clock, "sleep", others_work)
    box.upgrade()
    assert (told_by(box, "EtcdQuorum"), box.tag("etcd")) == ([], ETCD)


def test_an_upgrade_ends_with_the_reason_if_the_only_api_server_does_not_come_back(box, monkeypatch):
    path = Path(box.layout.manifest("kube-apiserver"))
    path.write_text(path.read_text().replace(NEW, OLD))
    send, since = Answers.send, []

    def silent(self, call, /):
        if call.name != TERMS.name:
            return send(self, call)
        since.append(box.clock.monotonic())
        box.runtime.broken, box.runtime.at = {"kube-apiserver"}, box.tag("kube-apiserver")
        raise Unreachable("connection refused")

    monkeypatch.setattr(Answers, "send", silent)
    with pytest.raises(ComponentFailed, match="kube-apiserver does not stay up") as caught:
        box.upgrade()
    assert "the last words of kube-apiserver" in caught.value.detail
    assert box.clock.monotonic() - since[0] < 120


@pytest.mark.parametrize("unready", [True, False])
def test_an_api_server_without_another_one_that_is_ready_is_told_by_the_name_of_a_check(box, unready):
    with_another_control_plane(box, status="True")
    pod = box.kube.get(POD, "kube-apiserver-node2", "kube-system")
    pod["metadata"]["annotations"] = {ENDPOINT: "10.98.0.12:6443"}
    box.kube.update(pod)
    box.unready = ("https://10.98.0.12:6443",) if unready else ()
    with suppress(HostError):  # it is not stopped
        box.upgrade()
    assert len(told_by(box, "OtherAPIServer")) == unready


IMAGES = f"registry.k8s.io/kube-apiserver:{NEW}", f"registry.k8s.io/kube-scheduler:{NEW}"


@pytest.mark.parametrize(
    ("missing", "devices", "available", "told"),
    [
        (2, (1, 2), 500, []),
        (2, (1, 2), 205, ["2 images", "the snapshot of etcd"]),
        (2, (1, 1), 470, ["2 images and the snapshot of etcd"]),
        (0, (1, 1), 270, []),
        (0, (1, 1), 260, ["the snapshot of etcd"]),
    ],
)
def test_file_systems_without_space_for_images_and_the_snapshot_are_told_by_the_name_of_a_check(
    box, monkeypatch, missing, devices, available, told
):
    box.runtime.missing = {*IMAGES[:missing]}
    monkeypatch.setattr(type(box.runtime), "pull", lambda _, image: Change(target=f"image {image}", action=Action.CREATE), raising=False)

    def space(_, path):
        device = devices[path.is_relative_to(box.layout.kubernetes)]
        return FileSystem(device=device, capacity=1 << 40, available=available * 1_000_000, inodes=9, inodes_free=9)

    with monkeypatch.context() as patched:
        patched.setattr(Files, "space", space)
        with suppress(HostError):  # the snapshot does not fit
            box.upgrade()
    assert [text.partition(" are needed for ")[2].partition(";")[0] for text in told_by(box, "DiskSpace")] == told


def test_a_directory_of_images_that_cannot_be_looked_at_does_not_stop_an_upgrade(box, monkeypatch):
    box.runtime.missing = {*IMAGES}
    monkeypatch.setattr(type(box.runtime), "image_directories", lambda _: [box.root / "elsewhere"])
    monkeypatch.setattr(type(box.runtime), "pull", lambda _, image: Change(target=f"image {image}", action=Action.CREATE), raising=False)
    box.upgrade()
    assert (told_by(box, "DiskSpace"), box.tag("kube-scheduler")) == ([], NEW)


def test_a_second_upgrade_needs_no_space(box, monkeypatch):
    box.upgrade()
    monkeypatch.setattr(Files, "space", lambda *_: FileSystem(device=1, capacity=1, available=0, inodes=9, inodes_free=9))
    box.upgrade()
    assert (told_by(box, "DiskSpace"), told_by(box, "EtcdQuorum"), told_by(box, "OtherAPIServer")) == ([], [], [])
