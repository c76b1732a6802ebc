"""`etcd restore` on a made-up machine: what it leaves when it succeeds, fails, is stopped, or is killed at any change."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from certs_kit import ControlPlane, Machine1
from test_backup_restores import CONTENT, ETCD, ETCDUTL, Killed, Kubelet
from test_etcd_this_member import pod

from kubewright.base import records
from kubewright.base.clock import SystemClock
from kubewright.base.errors import CheckFailed, HostError, Interrupted, Unreachable, UsageError, WaitTimeout
from kubewright.base.events import Line, Progress, RecordingReporter, Waited, Warned
from kubewright.base.randomness import SystemRandom
from kubewright.base.wait import InstantWaiter, Wait
from kubewright.etcd import snapshots
from kubewright.etcd.api import Status
from kubewright.host.desired import File
from kubewright.http.messages import Response
from kubewright.kube.recording import RecordingKube
from kubewright.kube.resources import LEASE, NODE
from kubewright.lifecycle import engine
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.etcd import restore
from kubewright.lifecycle.etcd.context import MemberContext
from kubewright.lifecycle.etcd.request import RestoreOptions
from kubewright.lifecycle.machine import TargetMachine
from kubewright.lifecycle.recovery import RECOVER
from kubewright.lifecycle.steps import checkpoint
from kubewright.lifecycle.steps.checkpoint import State
from kubewright.lifecycle.steps.operation_lease import TERMS
from kubewright.manifests.static_pods import CLIENT_URLS

ADDRESS = "127.0.233.7"
"""Where nobody listens."""
LEASES = "the controllers and the kubelets to renew their leases"


class FailingWaiter(InstantWaiter):
    """Waits for nothing, and fails where it is told to."""

    def __init__(self, fails: dict[str, BaseException]) -> None:
        super().__init__()
        self._fails = fails

    def wait(self, asked: Wait, /) -> Waited:
        """Look once at the leases."""
        if asked.saying == LEASES and (reason := asked.condition()) is not None:
            raise WaitTimeout("no", detail=reason)
        return super().wait(asked)

    def until(self, condition: Any, /, *, within: float, saying: str, **more: Any) -> Waited:
        if saying in self._fails:
            raise self._fails.pop(saying)  # restoring the earlier state is not disturbed
        return super().until(condition, within=within, saying=saying, **more)


@records.dataclass(frozen=True, kw_only=True)
class Instant(TargetMachine):
    """A machine on which nothing is waited for. `api` is the cluster, if its API server is ready."""

    fails: dict[str, BaseException]
    api: RecordingKube | None = None

    def client(self, access: Any, **more: Any) -> Any:
        return self.api or super().client(access, **more)

    def waiter(self, reporter: Any) -> FailingWaiter:
        return FailingWaiter(self.fails)


class Box:
    """A control plane with a member of etcd that does not answer, and a snapshot."""

    def __init__(self, root: Path, capsys: Any) -> None:
        self.root = root / "machine"
        plane = ControlPlane(self.root, capsys).fill()
        self.layout, self.root_of_files = plane.layout, root
        data = {"name": "etcd-data", "hostPath": {"path": str(self.layout.etcd_data)}}
        flags = {name: value.replace("127.0.0.1", ADDRESS) for name, value in ETCD.items()}
        server = pod("kube-apiserver", "x:v1.36.3", {"advertise-address": ADDRESS}, volumes=[])
        for name, content in (("etcd", pod("etcd", "etcd:3.6.8-0", flags, volumes=[data])), ("kube-apiserver", server)):
            plane.host.ensure(File(path=self.layout.manifest(name), content=content, mode=0o600))
        plane.host.ensure(File(path=self.layout.etcd_data / "member/db", content=b"old"))
        self.snapshot, self.etcdutl = root / "etcd.db", root / "etcdutl"
        self.snapshot.write_bytes(CONTENT)
        self.etcdutl.write_text(ETCDUTL)
        self.etcdutl.chmod(0o755)
        self.fails: dict[str, BaseException] = {}
        self.api: RecordingKube | None = None
        self.reporter = RecordingReporter()
        self.before = self.tree()

    def tree(self) -> dict[str, bytes]:
        found = {str(path.relative_to(self.root)): path.read_bytes() for path in sorted(self.root.rglob("*")) if path.is_file()}
        return {name: content for name, content in found.items() if not name.startswith(("state/checkpoints", "run/"))}

    def run(self, *, mode: Mode = Mode.APPLY, dies: int = 0, dies_when: Callable[[], object] = bool, **wish: Any) -> Any:
        host: Any = Machine1(layout=self.layout, services=Kubelet(), environment={})
        done = 0

        def counted(verb: Any) -> Any:
            def call(*arguments: Any, **more: Any) -> Any:
                nonlocal done
                if (dies and done >= dies) or dies_when():
                    raise Killed
                change = verb(*arguments, **more)
                done += bool(change)
                return change

            return call

        for name in ("ensure", "remove", "move"):
            setattr(host, name, counted(getattr(host, name)))
        asked = RestoreOptions(**{"etcdutl": str(self.etcdutl), "yes": True, **wish})
        return engine.run(restore.ROW, asked, self._machine(host), reporter=self.reporter, mode=mode)

    def boot(self) -> None:
        """Run what the unit runs before the kubelet, if it is installed."""
        if Path(self.layout.units / "kubewright-recover.service").exists():
            engine.run(
                RECOVER, None, self._machine(Machine1(layout=self.layout, services=Kubelet(), environment={})), reporter=self.reporter
            )

    def _machine(self, host: Any) -> Instant:
        return Instant(at=lambda _: host, clock=SystemClock(), random=SystemRandom(), layout=self.layout, fails=self.fails, api=self.api)

    def new_data(self) -> list[Path]:
        """Return the directories for new data, which exist until it serves."""
        return list(Path(self.layout.etcd_data).glob("new-*-restore"))

    def states(self) -> list[State]:
        return [one.state for one in checkpoint.every(Machine1(layout=self.layout))]


@pytest.fixture
def box(tmp_path: Path, capsys: Any) -> Box:
    return Box(tmp_path, capsys)


def _require_restored(box: Box, data: bytes) -> None:
    found = box.tree()
    [aside] = [name for name in found if name.startswith("etcd/member.before-")]
    manifest = found.pop("kubernetes/manifests/etcd.yaml")
    assert (b"--initial-cluster-state=existing" in manifest, f"--initial-cluster=node1=https://{ADDRESS}:2380".encode() in manifest) == (
        True,
        True,
    )
    assert (found.pop(aside), found.pop("etcd/member/db")) == (b"old", data)
    assert found == {
        name: content for name, content in box.before.items() if name not in ("kubernetes/manifests/etcd.yaml", "etcd/member/db")
    }
    assert sorted(path.name.partition(".")[0] for path in Path(box.layout.etcd_data).iterdir()) == ["member", "member"]


def test_the_data_of_a_snapshot_takes_the_place_of_the_old(box: Box) -> None:
    plan = box.run(file=str(box.snapshot), mode=Mode.PLAN).plan
    assert (sum("renamed to" in change.reason for change in plan.changes), box.tree()) == (2, box.before)
    box.run(file=str(box.snapshot))
    _require_restored(box, CONTENT)
    assert box.states() == [State.DONE]


def test_a_member_begins_again_with_its_own_data(box: Box) -> None:
    Path(box.layout.etcd_data / "member/snap").mkdir()
    Path(box.layout.etcd_data / "member/snap/db").write_bytes(b"own")
    box.run(from_this_member=True, peers_are_gone=True)
    assert box.tree()["etcd/member/db"] == b"own"


@pytest.mark.parametrize("stops", [WaitTimeout("no answer"), KeyboardInterrupt()], ids=["fails", "Ctrl-C"])
@pytest.mark.parametrize("at", ["etcd and kube-apiserver to end", "etcd to serve the new data", "the API server to be ready"])
def test_the_earlier_state_is_restored_if_a_restore_fails_or_is_stopped(box: Box, at: str, stops: BaseException) -> None:
    box.fails[at] = stops
    with pytest.raises((HostError, Interrupted)):
        box.run(file=str(box.snapshot))
    assert (box.tree(), box.states()) == (box.before, [State.ROLLED_BACK])
    assert [path.name for path in Path(box.layout.etcd_data).iterdir()] == ["member"]
    box.fails.clear()
    box.run(file=str(box.snapshot))
    _require_restored(box, CONTENT)


def test_a_snapshot_that_etcdutl_cannot_read_stops_nothing(box: Box) -> None:
    box.etcdutl.write_text("#!/bin/sh\n[ $1 = version ] && echo 'etcdutl version: 3.6.8' && exit\necho 'cannot read it' >&2; exit 1\n")
    with pytest.raises(HostError, match="back in its earlier state") as caught:
        box.run(file=str(box.snapshot))
    assert "cannot read it" in caught.value.detail
    assert (box.tree(), box.states()) == (box.before, [State.ROLLED_BACK])


@pytest.mark.parametrize(("says", "found"), [("etcdutl version: 3.7.0", "3.7.0"), ("etcdctl", "of an unknown version")])
def test_an_etcdutl_of_another_minor_release_is_refused_before_anything_stops(box: Box, says: str, found: str) -> None:
    box.etcdutl.write_text(f"#!/bin/sh\necho '{says}'\n")
    for wish in ({"file": str(box.snapshot)}, {"from_this_member": True, "peers_are_gone": True}):
        with pytest.raises(CheckFailed, match="is not of the minor release of this machine's etcd") as caught:
            box.run(**wish)
        assert caught.value.detail == f"it is {found}, and etcd is 3.6.8"
    assert (box.tree(), box.states()) == (box.before, [])


def test_a_restore_that_is_killed_at_any_change_continues_to_the_same_result(box: Box) -> None:
    killed = 0
    for number in range(1, 60):
        try:
            box.run(file=str(box.snapshot), dies=number)
        except Killed:
            killed += 1
            continue
        break
    assert killed > 5
    _require_restored(box, CONTENT)


def test_a_restore_of_lost_data_that_was_killed_when_etcd_could_start_keeps_what_has_been_written_since(box: Box) -> None:
    first, data = box.root.with_name("first"), Path(box.layout.etcd_data)
    shutil.rmtree(data / "member")
    shutil.copytree(box.root, first)
    killed = 0
    for number in range(1, 60):
        shutil.rmtree(box.root)
        shutil.copytree(first, box.root)
        try:
            box.run(file=str(box.snapshot), dies=number)
        except Killed:
            if box.states() == [State.IN_PROGRESS] and (data / "member").exists() and Path(box.layout.manifest("etcd")).exists():
                killed += 1
                (data / "member/written").write_bytes(b"later")
                box.run(file=str(box.snapshot))
                assert (number, [str(path.relative_to(data)) for path in data.rglob("written")]) == (number, ["member/written"])
            continue
        break
    assert killed > 2
    assert [path.name for path in data.iterdir()] == ["member"]


def test_a_machine_that_loses_power_during_a_restore_boots_with_one_of_the_two_states(box: Box) -> None:
    booted: set[tuple[bytes, bool]] = set()
    for number in range(1, 60):
        try:
            box.run(file=str(box.snapshot), dies=number)
        except Killed:
            box.boot()
            found = box.tree()
            data, is_old = found["etcd/member/db"], found["kubernetes/manifests/etcd.yaml"] == box.before["kubernetes/manifests/etcd.yaml"]
            booted.add((data, is_old))
            assert "kubernetes/manifests/kube-apiserver.yaml" in found
            assert (State.IN_PROGRESS in box.states()) is (data == CONTENT)
            continue
        break
    assert booted == {(b"old", True), (CONTENT, False)}
    _require_restored(box, CONTENT)


def test_what_was_written_after_a_power_cut_is_restored_too(box: Box) -> None:
    written = Path(box.layout.etcd_data / "member/snap/db")
    written.parent.mkdir()
    written.write_bytes(b"before")
    with pytest.raises(Killed):
        box.run(from_this_member=True, peers_are_gone=True, dies_when=box.new_data)
    box.boot()
    written.write_bytes(b"after")
    box.run(from_this_member=True, peers_are_gone=True)
    assert box.tree()["etcd/member/db"] == b"after"


def test_a_machine_stays_fenced_if_its_restore_loses_power(box: Box) -> None:
    box.run(fence=True)
    with pytest.raises(Killed):
        box.run(file=str(box.snapshot), dies_when=box.new_data)
    box.boot()
    assert (Path(box.layout.manifest("etcd")).exists(), Path(box.layout.etcd_data / "member/db").read_bytes()) == (False, b"old")
    box.run(unfence=True)
    assert box.tree() == box.before


def test_a_machine_is_fenced_and_unfenced(box: Box) -> None:
    for _ in range(2):
        box.run(fence=True)
        assert (box.states(), Path(box.layout.manifest("etcd")).exists()) == ([State.IN_PROGRESS], False)
    box.run(unfence=True)
    assert (box.tree(), box.states()) == (box.before, [State.ROLLED_BACK])
    with pytest.raises(HostError, match="is not fenced"):
        box.run(unfence=True)


def test_a_fenced_machine_can_be_the_one_that_restores(box: Box) -> None:
    box.run(fence=True)
    box.run(file=str(box.snapshot))
    _require_restored(box, CONTENT)
    assert State.IN_PROGRESS not in box.states()


def test_a_fenced_machine_whose_restore_failed_can_be_unfenced(box: Box) -> None:
    box.run(fence=True)
    box.fails["etcd to serve the new data"] = WaitTimeout("no answer")
    with pytest.raises(HostError, match="back in its earlier state"):
        box.run(file=str(box.snapshot))
    assert Path(box.layout.manifest("etcd")).exists() is False
    box.run(unfence=True)
    assert box.tree() == box.before


def test_a_finished_restore_is_not_repeated_while_etcd_does_not_answer(box: Box) -> None:
    box.run(file=str(box.snapshot))
    before = box.tree()
    with pytest.raises(CheckFailed, match="unknown whether etcd still is the cluster that was made from snapshot"):
        box.run(file=str(box.snapshot))
    assert box.tree() == before
    box.run(file=str(box.snapshot), again=True)
    assert (box.states(), len(list(Path(box.layout.etcd_data).glob("member.before-*")))) == ([State.DONE] * 2, 2)


def test_a_restore_waits_for_its_turn_if_an_api_server_is_ready(box: Box) -> None:
    box.api, box.fails["this machine's turn"] = RecordingKube(), WaitTimeout("two is at work")
    with pytest.raises(WaitTimeout, match="two is at work"):
        box.run(file=str(box.snapshot))
    assert (box.tree(), box.states()) == (box.before, [])
    box.run(file=str(box.snapshot))
    _require_restored(box, CONTENT)
    assert _warnings(box) == []


def test_without_an_api_server_a_restore_continues_with_a_warning(box: Box) -> None:
    box.run(file=str(box.snapshot))
    assert _warnings(box) == ["no API server is ready, so other machines are not kept from being changed at the same time"]


class Stopping(RecordingKube):
    """An API server without etcd that said that it is ready."""

    def send(self, call: Any, /) -> Any:
        raise Unreachable("the request timed out")


@pytest.mark.parametrize("has_new_manifest", [False, True])
def test_a_restore_that_was_killed_continues_if_the_api_server_ends_after_it_said_that_it_is_ready(
    box: Box, has_new_manifest: bool
) -> None:
    manifest = "kubernetes/manifests/etcd.yaml"

    def reached() -> bool:
        found = box.tree().get(manifest, b"")
        return found != box.before[manifest] and bool(found) is has_new_manifest

    with pytest.raises(Killed):
        box.run(file=str(box.snapshot), dies_when=reached)
    box.api = Stopping()
    box.run(file=str(box.snapshot))
    _require_restored(box, CONTENT)
    assert len(_warnings(box)) > 0


def _warnings(box: Box) -> list[str]:
    return [event.text for event in box.reporter.events if isinstance(event, Warned) and "API server" in event.text]


def test_another_snapshot_does_not_finish_a_restore(box: Box) -> None:
    with pytest.raises(Killed):
        box.run(file=str(box.snapshot), dies=12)
    other = box.root_of_files / "other.db"
    other.write_bytes(CONTENT)
    with pytest.raises(HostError, match="an operation on this machine was interrupted: etcd-restore"):
        box.run(file=str(other))
    box.run(file=str(box.snapshot))
    _require_restored(box, CONTENT)


def test_nothing_is_done_without_a_yes_and_for_contradicting_flags(box: Box) -> None:
    asked: list[str] = []
    with pytest.raises(UsageError, match="the answer was not y"):
        box.run(file=str(box.snapshot), yes=False, ask=lambda question: asked.append(question) or "n\n")
    assert ["Everything that was written since is lost" in one for one in asked] == [True]
    for wish in ({}, {"file": str(box.snapshot), "from_this_member": True}, {"fence": True, "unfence": True}):
        with pytest.raises(UsageError, match="name either a snapshot or one of"):
            box.run(**wish)
    assert box.tree() == box.before


@pytest.mark.parametrize(("saved", "warned"), [(b"of today", False), (b"of then", True)])
def test_another_configuration_for_encryption_than_when_the_snapshot_was_saved_is_warned_about(
    box: Box, saved: bytes, warned: bool
) -> None:
    path, manifest = box.root / "encryption.yaml", Path(box.layout.manifest("kube-apiserver"))
    path.write_bytes(b"of today")
    manifest.write_bytes(
        pod("kube-apiserver", "x:v1.36.3", {"advertise-address": ADDRESS, "encryption-provider-config": str(path)}, volumes=[])
    )
    described = {"sha256": CONTENT[-32:].hex(), "encryptionConfiguration": hashlib.sha256(saved).hexdigest()}
    (box.root_of_files / "etcd.db.json").write_text(json.dumps(described))
    box.run(file=str(box.snapshot))
    told = [event.text for event in box.reporter.events if isinstance(event, Warned) and "configuration for encryption" in event.text]
    assert len(told) == warned


HOOKS = [{"name": "strict.test"}, {"name": "open.test", "failurePolicy": "Ignore"}, {"name": "named.test", "failurePolicy": "Fail"}]
WEBHOOKS = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "guard"},
    "webhooks": HOOKS,
}


class Restored(RecordingKube):
    """A cluster with a webhook, whose Nodes a restore changes."""

    def __init__(self, *nodes: set[str]) -> None:
        super().__init__()
        self.create(WEBHOOKS)
        self.nodes = list(nodes)

    def list(self, resource: Any, /, *arguments: Any, **more: Any) -> Any:
        if resource is NODE and self.nodes:
            return [{"metadata": {"name": name}} for name in self.nodes.pop(0)]
        return super().list(resource, *arguments, **more)


def test_webhooks_that_can_lock_the_cluster_are_listed_before_the_question(box: Box) -> None:
    box.api, told = Restored(), []

    def ask(_: str) -> str:
        told.extend(event.text for event in box.reporter.events if isinstance(event, Warned) and "failurePolicy" in event.text)
        return "n"

    with pytest.raises(UsageError, match="the answer was not y"):
        box.run(file=str(box.snapshot), yes=False, ask=ask)
    assert [text.rpartition(": ")[2] for text in told] == ["validatingwebhookconfiguration/guard (strict.test, named.test)"]


def test_nodes_that_a_restore_has_removed_or_brought_back_are_reported(box: Box) -> None:
    box.api = Restored({"node1", "new", "both"}, {"both", "old"})
    box.run(file=str(box.snapshot))
    said = [event.text for event in box.reporter.events if isinstance(event, Line) and "Nodes" in event.text]
    assert [text.partition(":")[0] for text in said] == ["The restored data lacks the Nodes new", "The Nodes old are back"]


def test_nodes_that_a_snapshot_lacks_are_named_before_the_question(box: Box) -> None:
    (box.root_of_files / "etcd.db.json").write_text(json.dumps({"sha256": CONTENT[-32:].hex(), "nodes": ["node1", "gone"]}))
    asked: list[str] = []
    box.api = Restored({"node1", "two", "three"})
    with pytest.raises(UsageError, match="the answer was not y"):
        box.run(file=str(box.snapshot), yes=False, ask=lambda question: asked.append(question) or "n")
    assert ["since is lost. It lacks the Nodes three, two. The present data" in question for question in asked] == [True]


def _lease(name: str, namespace: str, at: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": LEASE.api_version, "kind": "Lease", "metadata": meta, "spec": {"renewTime": at}}


def test_controllers_and_kubelets_that_do_not_work_with_the_restored_data_are_named(box: Box) -> None:
    for name in ("kube-controller-manager", "kube-scheduler"):
        flags = {"leader-elect": "true", "leader-elect-resource-name": f"own-{name}"}
        Path(box.layout.manifest(name)).write_bytes(pod(name, "x:v1.36.3", flags, volumes=[]))
    (box.root_of_files / "etcd.db.json").write_text(json.dumps({"sha256": CONTENT[-32:].hex(), "time": "2026-11-24T14:40:12Z"}))
    before, after = "2026-11-24T14:40:10.000000Z", "2026-11-24T14:40:20.000000Z"
    box.api = Restored({"node1", "two", "lost"}, {"node1", "two", "back"})
    for name, namespace, at in (
        ("own-kube-controller-manager", "kube-system", before),
        ("own-kube-scheduler", "kube-system", after),
        ("node1", "kube-node-lease", after),
        ("back", "kube-node-lease", before),
    ):
        box.api.create(_lease(name, namespace, at))
    box.run(file=str(box.snapshot))
    told = [event.text for event in box.reporter.events if isinstance(event, Warned) and "restored data" in event.text]
    assert [text.partition("not renewed since: ")[2] for text in told] == ["kube-controller-manager, Node two)"]
    assert box.states() == [State.DONE]


class Unready(Restored):
    """Was not ready before the restore."""

    def raw(self, method: str, path: str, **more: Any) -> Any:
        return Response(status=500, headers={}, body=b"") if path == "/readyz" else super().raw(method, path, **more)


def _from_this_member(box: Box) -> dict[str, Any]:
    """Give the member data, and return the fields of a request to begin again with it."""
    Path(box.layout.etcd_data / "member/snap").mkdir()
    Path(box.layout.etcd_data / "member/snap/db").write_bytes(b"own")
    return {"from_this_member": True, "peers_are_gone": True}


def test_the_lease_that_a_killed_run_has_left_in_the_data_of_this_member_is_released(box: Box) -> None:
    wish = _from_this_member(box)
    with pytest.raises(Killed):
        box.run(**wish, dies_when=box.new_data)
    box.api = Unready({"node1"})
    metadata = {"name": TERMS.name, "namespace": TERMS.namespace}
    box.api.create({"apiVersion": LEASE.api_version, "kind": "Lease", "metadata": metadata, "spec": {"holderIdentity": "node1"}})
    box.api.create(_lease("node1", "kube-node-lease", f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%S.%fZ}"))
    box.run(**wish)
    assert box.api.get(LEASE, TERMS.name, TERMS.namespace)["spec"]["holderIdentity"] == ""


@pytest.mark.parametrize("killed", [False, True])
def test_stopped_control_planes_are_known_by_their_pods_if_etcd_could_not_name_them(box: Box, killed: bool) -> None:
    wish = _from_this_member(box)
    if killed:
        with pytest.raises(Killed):
            box.run(**wish, dies_when=box.new_data)
    box.api = Unready({"node1", "two"})
    for node in ("node1", "two"):
        box.api.create(_pod_of_etcd(node, f"https://{ADDRESS}:2379"))
    box.api.create(_lease("node1", "kube-node-lease", f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%S.%fZ}"))
    box.run(**wish)
    assert [event.text for event in box.reporter.events if isinstance(event, Warned) and "restored data" in event.text] == []
    said = [event.text for event in box.reporter.events if isinstance(event, Line)]
    assert sum(text.startswith("On the other control planes (two) run `kubewright etcd member replace`") for text in said) == 1


def test_a_plan_waits_for_no_leases_and_a_restored_cluster_in_which_all_work_is_not_warned_about(box: Box) -> None:
    box.api = Restored()
    for mode in (Mode.PLAN, Mode.APPLY):
        box.run(file=str(box.snapshot), mode=mode)
    assert [event.text for event in box.reporter.events if isinstance(event, Warned) and "restored data" in event.text] == []


@pytest.mark.parametrize(
    "described",
    [
        {"etcdVersion": "three"},
        {"members": 5},
        {"members": ["one", 5]},
        {"nodes": ["\x1b]0;one"]},
        {"time": "0001-01-01T00:00:00+14:00"},
        {"time": 5},
        {"revision": "7"},
    ],
    ids=str,
)
def test_a_description_that_nobody_has_saved_is_not_used(box: Box, described: dict[str, Any]) -> None:
    (box.root_of_files / "etcd.db.json").write_text(json.dumps({"sha256": CONTENT[-32:].hex(), **described}))
    box.run(file=str(box.snapshot))
    told = [event.text for event in box.reporter.events if isinstance(event, Warned) and "etcd.db.json" in event.text]
    assert ["is not a description of a snapshot" in text for text in told] == [True]
    _require_restored(box, CONTENT)


def test_other_members_have_to_be_stopped(box: Box) -> None:
    manifest = Path(box.layout.manifest("etcd"))
    manifest.write_text(manifest.read_text().replace("--initial-cluster=", "--initial-cluster=two=https://127.0.233.8:2380,"))
    before = box.tree()
    described = {"sha256": CONTENT[-32:].hex(), "members": ["node1", "two", "three"]}
    (box.root_of_files / "etcd.db.json").write_text(json.dumps(described))
    with pytest.raises(CheckFailed, match="unknown whether other members of etcd are running") as caught:
        box.run(file=str(box.snapshot))
    assert caught.value.detail == "three: its address is not known"  # and that of two refuses connections
    assert box.tree() == before


@pytest.mark.parametrize(
    "wish", [{"from_this_member": True}, {"from_this_member": True, "peers_are_gone": True}, {"file": "etcd.db"}], ids=str
)
def test_members_that_still_serve_an_api_server_are_found_if_that_of_this_machine_does_not_answer(box: Box, wish: dict[str, Any]) -> None:
    box.api = RecordingKube()
    for node, address in (("node1", ADDRESS), ("two", "127.0.0.1")):
        box.api.create(_pod_of_etcd(node, f"https://{address}:2379"))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        port = server.getsockname()[1]
        _let_peers_listen_on(box, port)
        before = box.tree()
        with pytest.raises(CheckFailed, match="other members of etcd are running") as caught:
            box.run(**{**wish, **({"file": str(box.snapshot)} if "file" in wish else {})})
    assert caught.value.detail == f"two at https://127.0.0.1:{port} answers"
    assert box.tree() == before


def _pod_of_etcd(node: str, url: str) -> dict[str, Any]:
    labels = {"component": "etcd", "tier": "control-plane"}
    metadata = {"name": f"etcd-{node}", "namespace": "kube-system", "labels": labels, "annotations": {CLIENT_URLS: url}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}}


def _let_peers_listen_on(box: Box, port: int) -> None:
    manifest = Path(box.layout.manifest("etcd"))
    manifest.write_text(manifest.read_text().replace(":2380", f":{port}"))


def test_a_member_that_does_not_answer_begins_again_only_if_its_peers_are_known_to_be_gone(box: Box) -> None:
    with pytest.raises(CheckFailed, match="unknown whether other members of etcd are running") as caught:
        box.run(from_this_member=True)
    assert caught.value.detail == "other members: the member of this machine does not answer, so it is unknown whether there are others"
    assert (box.tree(), box.states()) == (box.before, [])


@pytest.mark.parametrize("mode", [Mode.APPLY, Mode.PLAN])
def test_the_progress_of_checking_a_large_snapshot_is_reported(box: Box, monkeypatch: pytest.MonkeyPatch, mode: Mode) -> None:
    monkeypatch.setattr(snapshots, "QUIET", -1.0)
    box.run(file=str(box.snapshot), mode=mode)
    told = [event for event in box.reporter.events if isinstance(event, Progress)]
    assert [(one.task, one.done, one.total, one.unit) for one in told] == [("checking the snapshot", len(CONTENT), len(CONTENT), "bytes")]


def test_an_alarm_in_the_restored_data_is_reported_with_its_remedy(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server waits until it is disarmed."""
    full = Status(endpoint="https://10.0.0.1:2379", leader_id=1, errors=("memberID:171 alarm:NOSPACE ",))
    monkeypatch.setattr(MemberContext, "now", lambda _: full)
    box.run(file=str(box.snapshot))
    [told] = [event.text for event in box.reporter.events if isinstance(event, Warned) and "NOSPACE" in event.text]
    assert told.startswith("the former member ab has raised the alarm NOSPACE: until it is disarmed, etcd accepts no writes; compact and")
