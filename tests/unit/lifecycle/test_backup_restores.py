"""Backups of a control plane and machines that are made again from them, with runs that are killed at each change."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from certs_kit import ControlPlane, Machine1
from test_etcd_health import FakeEtcd, status
from test_etcd_this_member import pod

from kubewright.base import records
from kubewright.base.clock import SystemClock
from kubewright.base.errors import CheckFailed, DocumentError, HostError, KubewrightError, TrustError, UsageError
from kubewright.base.events import Progress, RecordingReporter, SilentReporter, Warned
from kubewright.base.randomness import SystemRandom
from kubewright.base.wait import InstantWaiter
from kubewright.etcd import snapshots
from kubewright.etcd.api import Member, Status
from kubewright.host.desired import File
from kubewright.host.states import ServiceState
from kubewright.lifecycle import engine
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.etcd import archive, backup, backup_restore, saving, this_member
from kubewright.lifecycle.etcd.context import MemberContext
from kubewright.lifecycle.etcd.request import BackupRestoreOptions
from kubewright.lifecycle.machine import TargetMachine
from snapshot_files import database, snapshot

KEY = b"k" * 32
CONTENT = snapshot(database(3))
ETCD = {
    "name": "node1",
    "initial-advertise-peer-urls": "https://127.0.0.1:2380",
    "listen-client-urls": "https://127.0.0.1:2379",
    "listen-peer-urls": "https://127.0.0.1:2380",
    "initial-cluster": "node1=https://127.0.0.1:2380",
}
ETCDUTL = """#!/bin/sh
if [ "$1" = version ]; then echo 'etcdutl version: 3.6.9'; echo 'API version: 3.6'; exit; fi
for word in "$@"; do case "$word" in --data-dir=*) place="${word#*=}";; esac; done
mkdir -p "$place/member" && cp "$3" "$place/member/db"
"""


class Snapping(FakeEtcd):
    """One member, which sends a snapshot."""

    def __init__(self) -> None:
        super().__init__([Member(id=1, name="node1", client_urls=("https://10.0.0.1:2379",))], [status(1, size=len(CONTENT))])

    def snapshot(self, endpoint: str, /) -> Generator[bytes, None, None]:
        for at in range(0, len(CONTENT), 5000):
            yield CONTENT[at : at + 5000]


class Kubelet:
    """A service manager that knows the kubelet."""

    def __init__(self) -> None:
        self.running = False

    def state(self, name: str, /) -> ServiceState:
        return ServiceState(running=self.running, enabled=True)

    def start(self, name: str, /) -> None:
        self.running = True

    restart = enable = disable = stop = start

    def reload(self) -> None:
        """There is nothing to read again."""


@records.dataclass(frozen=True, kw_only=True)
class Instant(TargetMachine):
    """A machine on which nothing is waited for."""

    def waiter(self, reporter: Any) -> InstantWaiter:
        return InstantWaiter()


class Killed(BaseException):
    """The end of a run, as by SIGKILL: nothing that it would do afterwards happens."""


class Box:
    """A control plane with a backup, of which nothing is left."""

    def __init__(self, root: Path, capsys: Any) -> None:
        self.root = root / "machine"
        plane = ControlPlane(self.root, capsys).fill()
        self.layout, host = plane.layout, plane.host
        data = {"name": "etcd-data", "hostPath": {"path": str(self.layout.etcd_data)}}
        files = {
            self.layout.manifest("etcd"): pod("etcd", "etcd:3.6.8-0", ETCD, volumes=[data]),
            self.layout.manifest("kube-apiserver"): pod("kube-apiserver", "x:v1.36.3", {"advertise-address": "127.0.0.1"}, volumes=[]),
            self.layout.manifest("kube-scheduler"): pod("kube-scheduler", "x:v1.36.3", {}, volumes=[]),
            self.layout.kubelet_config: b"kind: KubeletConfiguration\n",
            self.layout.kubernetes / "encryption.yaml": b"secret: canary-of-encryption\n",
            self.layout.kubernetes / "tmp/kubeadm-backup/old": b"not part of a backup",
            self.layout.patches / "etcd.yaml": b"a patch",
        }
        for path, content in files.items():
            host.ensure(File(path=path, content=content, mode=0o600))
        self.before = self.tree()
        self.file, self.plain, self.etcdutl = root / "one.kwb", root / "one.tar", root / "etcdutl"
        self.etcdutl.write_text(ETCDUTL)
        self.etcdutl.chmod(0o755)
        self.collected = self.save(host, self.file, KEY)
        self.save(host, self.plain, None)
        shutil.rmtree(self.root)
        self.reporter = RecordingReporter()

    def save(self, host: Any, file: Path, key: bytes | None) -> backup.Collected:
        etcd = Snapping()
        with file.open("wb") as out:
            how: dict[str, Any] = {"key": key, "clock": SystemClock(), "random": SystemRandom(), "reporter": SilentReporter()}
            return backup.write(host, this_member.find(host), etcd, saving.choose(etcd), out.write, name=str(file), **how)

    def tree(self) -> Mapping[str, tuple[int, bytes]]:
        found = {str(path.relative_to(self.root)): path for path in sorted(self.root.rglob("*")) if path.is_file()}
        return {
            name: (path.stat().st_mode & 0o777, path.read_bytes())
            for name, path in found.items()
            if "checkpoints" not in name and "run/" not in name
        }

    def host(self, dies: int = 0) -> Any:
        """Return the machine; it dies after so many changes."""
        host: Any = Machine1(layout=self.layout, services=Kubelet(), environment={})
        done = 0

        def counted(verb: Any) -> Any:
            def call(*arguments: Any, **more: Any) -> Any:
                nonlocal done
                if dies and done >= dies:
                    raise Killed
                change = verb(*arguments, **more)
                done += bool(change)
                return change

            return call

        for name in ("ensure", "remove", "move"):
            setattr(host, name, counted(getattr(host, name)))
        return host

    def restore(self, *, mode: Mode = Mode.APPLY, dies: int = 0, **wish: Any) -> Any:
        asked = BackupRestoreOptions(**{"file": str(self.file), "key": KEY, "etcdutl": str(self.etcdutl), "yes": True, **wish})
        host = self.host(dies)
        machine = Instant(at=lambda _: host, clock=SystemClock(), random=SystemRandom(), layout=self.layout)
        return engine.run(backup_restore.ROW, asked, machine, reporter=self.reporter, mode=mode)

    def require_nothing(self) -> None:
        assert [path for path in self.root.rglob("*") if path.is_file() and "run/" not in str(path)] == []


@pytest.fixture
def box(tmp_path: Path, capsys: Any) -> Box:
    return Box(tmp_path, capsys)


def _restored(box: Box) -> dict[str, Any]:
    """Return what the machine has, but for the files that are not as they were."""
    found = dict(box.tree())
    assert found.pop("etcd/member/db")[1] == CONTENT
    manifest = found.pop("kubernetes/manifests/etcd.yaml")[1]
    assert (b"--initial-cluster-state=existing" in manifest, b"--initial-cluster=node1=https://127.0.0.1:2380" in manifest) == (True, True)
    found.pop("kubernetes/kubelet.conf")
    return found


def _expected(box: Box) -> dict[str, Any]:
    left_out = ("kubernetes/manifests/etcd.yaml", "kubernetes/kubelet.conf", "kubernetes/tmp/kubeadm-backup/old", "kubeadm.yaml")
    return {name: one for name, one in box.before.items() if name not in left_out}


@pytest.mark.parametrize("sealed", [True, False])
def test_a_machine_gets_everything_back(box: Box, sealed: bool) -> None:
    changes = box.restore(**({} if sealed else {"file": str(box.plain), "key": None})).changes
    assert _restored(box) == _expected(box)
    assert sum(change.target.startswith("file ") for change in changes) > 20
    assert _places(box) == ["member"]
    with pytest.raises(CheckFailed, match="belongs to a cluster already"):
        box.restore()


def test_a_sealed_backup_has_nothing_in_clear_text_and_a_plan_shows_no_key(box: Box) -> None:
    content, plain = box.file.read_bytes(), box.plain.read_bytes()
    canaries = [b"PRIVATE KEY", b"canary-of-encryption", b"KubeletConfiguration", CONTENT[100:140]]
    assert ([one in content for one in canaries], [one in plain for one in canaries]) == ([False] * 4, [True] * 4)
    plan = box.restore(mode=Mode.PLAN).plan
    assert len(plan.changes) > 20
    assert [change.target for change in plan.changes if "PRIVATE" in change.diff or "canary-of" in change.diff] == []
    box.require_nothing()


def test_a_restore_that_is_killed_at_any_change_continues_to_the_same_result(box: Box) -> None:
    killed = 0
    for number in range(1, 200):
        try:
            box.restore(dies=number)
        except Killed:
            killed += 1
            assert this_member_is_not_started_early(box)
            continue
        break
    assert killed > 5
    assert _restored(box) == _expected(box)


def test_a_restore_that_was_killed_when_etcd_could_start_keeps_what_has_been_written_since(box: Box) -> None:
    written, killed = Path(box.layout.etcd_data) / "member/written", 0
    for number in range(1, 200):
        try:
            box.restore(dies=number)
        except Killed:
            if Path(box.layout.manifest("etcd")).exists():
                killed += 1
                written.write_bytes(b"later")
                box.restore()
                assert (number, written.exists(), _places(box)) == (number, True, ["member"])
            shutil.rmtree(box.root)
            continue
        break
    assert killed > 3


def _places(box: Box) -> list[str]:
    return [path.name for path in Path(box.layout.etcd_data).iterdir()]


def test_another_backup_does_not_continue_an_interrupted_restore(box: Box) -> None:
    with pytest.raises(Killed):
        box.restore(dies=12)
    files = box.tree()
    _rewritten(box, {"time": "2026-01-01T00:00:00Z"})
    with pytest.raises(HostError, match=r"an operation on this machine was interrupted: backup-restore to the backup of 20") as caught:
        box.restore(file=str(box.plain), key=None)
    assert ("continues where it was interrupted" in caught.value.remedy, box.tree()) == (True, files)
    box.restore()
    assert _restored(box) == _expected(box)


def this_member_is_not_started_early(box: Box) -> bool:
    """Whether there is no manifest, or everything that its pod needs is there."""
    manifest = Path(box.layout.manifest("etcd"))
    return not manifest.exists() or (Path(box.layout.etcd_data) / "member/db").exists()


def _changed(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("change", "wish", "kind", "why"),
    [
        (lambda content: content, {"key": b"j" * 32}, TrustError, "cannot be decrypted"),
        (lambda content: content, {"key": None}, UsageError, "is sealed"),
        (lambda content: content[:-1], {}, TrustError, "cannot be decrypted"),
        (lambda content: content[:100], {}, TrustError, "cannot be decrypted"),
        (lambda content: _changed(content, 5000), {}, TrustError, "cannot be decrypted"),
        (lambda content: b"", {}, TrustError, "is not sealed, although a key was given"),
        (lambda content: b"", {"key": None}, DocumentError, "is not a backup that can be used"),
    ],
    ids=["another key", "no key", "cut off", "cut off early", "flipped bit", "empty", "empty plain"],
)
def test_a_bad_backup_is_refused_before_anything_is_written(box: Box, change: Any, wish: Any, kind: Any, why: str) -> None:
    box.file.write_bytes(change(box.file.read_bytes()))
    with pytest.raises(kind, match=why):
        box.restore(**wish)
    box.require_nothing()


def _rewritten(box: Box, description: Mapping[str, Any], *more: archive.StoredFile) -> None:
    """Make the plain backup one of another machine, as somebody may who can write the file."""
    found = archive.read(iter([box.plain.read_bytes()]), name="plain")
    with box.plain.open("wb") as out:
        made = archive.ArchiveWriter(out.write)
        made.begin({**found.description, **description}, [*found.files, *more])
        made.database(CONTENT)
        made.finish(found.etcd)


@pytest.mark.parametrize(
    ("description", "more", "why"),
    [
        ({"hostName": "other"}, (), "the backup is from the machine other"),
        ({"directories": 5}, (), "was made on a machine with other directories"),
        ({"directories": {}}, (), "was made on a machine with other directories"),
        ({}, (archive.StoredFile(path=PurePosixPath("/etc/shadow"), content=b"x", mode=0o600),), "is not a backup that can be used"),
    ],
    ids=["name", "no directories", "directories", "path"],
)
def test_a_backup_of_another_machine_or_with_other_files_is_refused(box: Box, description: Any, more: Any, why: str) -> None:
    _rewritten(box, description, *more)
    with pytest.raises(KubewrightError, match=why):
        box.restore(file=str(box.plain), key=None)
    box.require_nothing()


def test_missing_files_of_a_backup_are_reported(box: Box) -> None:
    assert box.collected.warnings == ()
    paths = {str(one.path.relative_to(box.root)) for one in box.collected.files}
    assert {"kubernetes/pki/ca.key", "kubernetes/encryption.yaml", "state/patches/etcd.yaml", "kubelet/config.yaml"} <= paths
    assert [path for path in paths if "tmp" in path] == []


def _saved(box: Box, files: Mapping[str, bytes | str]) -> backup.Collected:
    """Save a backup of a machine with more files below /etc/kubernetes; texts are targets of links."""
    box.restore()
    place = Path(box.layout.kubernetes)
    for name, content in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(content) if isinstance(content, str) else path.write_bytes(content)
    return box.save(box.host(), box.plain, None)


def test_files_that_no_backup_can_have_are_left_out_and_reported(box: Box) -> None:
    found = _saved(box, {"old/etcd.db": b"x" * (archive.LARGEST + 1), "ssl": "pki", "gone": "nowhere", "conf": "encryption.yaml"})
    place = box.layout.kubernetes
    assert found.warnings == (
        f"{place}/gone is a link to nowhere, and not to a file: it is not part of the backup",
        f"{place}/old/etcd.db has more than 16 MiB: it is not part of the backup",
        f"{place}/ssl is a link to pki, and not to a file: it is not part of the backup",
    )
    read = archive.read(iter([box.plain.read_bytes()]), name="plain")
    assert (place / "conf" in {one.path for one in read.files}, len(read.files)) == (True, len(box.collected.files) + 1)


def test_the_progress_of_reading_a_large_backup_is_reported(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "QUIET", -1.0)
    box.restore()
    size = box.file.stat().st_size
    told = [event for event in box.reporter.events if isinstance(event, Progress)]
    assert {(one.task, one.total, one.unit) for one in told} == {(f"{task} the backup", size, "bytes") for task in ("checking", "reading")}
    assert [one.task for one in told if one.done == size][-1] == "reading the backup"


def test_an_alarm_in_the_restored_data_is_reported_with_its_remedy(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server waits until it is disarmed."""
    full = Status(endpoint="https://10.0.0.1:2379", leader_id=1, errors=("memberID:171 alarm:NOSPACE ",))
    monkeypatch.setattr(MemberContext, "now", lambda _: full)
    box.restore()
    [told] = [event.text for event in box.reporter.events if isinstance(event, Warned) and "NOSPACE" in event.text]
    assert told.startswith("the former member ab has raised the alarm NOSPACE: until it is disarmed, etcd accepts no writes; compact and")
