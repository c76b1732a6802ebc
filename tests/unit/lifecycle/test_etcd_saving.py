"""Saving a snapshot and comparing it with its description, with a simulated etcd."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from pathlib import Path, PurePosixPath

import pytest
from certs_kit import Machine1
from hypothesis import given
from hypothesis import strategies as st
from test_etcd_health import THREE, FakeEtcd, status
from test_etcd_this_member import pod

from kubewright.apis.machine import Layout
from kubewright.base.clock import FakeClock
from kubewright.base.errors import DocumentError, Interrupted, Unreachable
from kubewright.base.events import Progress, RecordingReporter, SilentReporter
from kubewright.etcd.api import NoQuorum, Status
from kubewright.etcd.snapshots import Snapshot
from kubewright.host.desired import File
from kubewright.host.filesystem.files import Files
from kubewright.host.programs.commands import Ended
from kubewright.lifecycle.etcd import saving, verifying
from kubewright.lifecycle.etcd.verifying import Contents
from snapshot_files import database, snapshot

CONTENT = snapshot(database(3))


class _Snapping(FakeEtcd):
    """Sends a snapshot in pieces, each of which takes a second; and then fails, if configured."""

    def __init__(self, clock: FakeClock, *, content: bytes = CONTENT, error: BaseException | None = None) -> None:
        super().__init__(THREE, [status(1, size=len(CONTENT)), status(2), status(3)])
        self.clock = clock
        self.content = content
        self.error = error
        self.asked: list[str] = []

    def snapshot(self, endpoint: str, /) -> Generator[bytes, None, None]:
        self.asked.append(endpoint)
        for at in range(0, len(self.content), 4096):
            self.clock.sleep(1.0)
            yield self.content[at : at + 4096]
        if self.error is not None:
            raise self.error


def _save(etcd: _Snapping, path: Path, reporter: RecordingReporter | SilentReporter) -> Snapshot:
    source = saving.choose(etcd)
    with Files().replacing(PurePosixPath(path), mode=0o600) as file:
        return saving.save(etcd, source, file.write, name=str(path), clock=etcd.clock, reporter=reporter)


def test_the_leader_sends_the_snapshot_and_progress_is_shown_after_two_seconds(tmp_path: Path) -> None:
    reporter, etcd = RecordingReporter(), _Snapping(FakeClock())
    assert _save(etcd, tmp_path / "etcd.db", reporter).size == len(CONTENT)
    assert (tmp_path / "etcd.db").read_bytes() == CONTENT
    assert etcd.asked == ["https://10.0.0.1:2379"]
    told = [event for event in reporter.events if isinstance(event, Progress)]
    assert [(one.done, one.total) for one in told] == [(3 * 4096, len(CONTENT)), (len(CONTENT), len(CONTENT))]


@pytest.mark.parametrize(
    ("content", "error", "kind"),
    [
        (CONTENT[:4096], None, Unreachable),
        (CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]), None, Unreachable),
        (CONTENT[:4096], Unreachable("it went silent"), Unreachable),
        (CONTENT[:4096], Interrupted("stopped"), Interrupted),
        (CONTENT[:4096], KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_an_incomplete_snapshot_leaves_no_file_and_keeps_an_old_one(
    tmp_path: Path, content: bytes, error: BaseException | None, kind: type[BaseException]
) -> None:
    with pytest.raises(kind):
        _save(_Snapping(FakeClock(), content=content, error=error), tmp_path / "etcd.db", SilentReporter())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "etcd.db").write_bytes(b"old")
    with pytest.raises(kind):
        _save(_Snapping(FakeClock(), content=content, error=error), tmp_path / "etcd.db", SilentReporter())
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("etcd.db", b"old")]


def test_without_a_leader_the_local_flag_is_required() -> None:
    etcd = FakeEtcd(THREE, [status(1, problem="refused"), status(2, problem="refused"), status(3, leader_id=0)])
    with pytest.raises(NoQuorum, match="etcd has no leader"):
        saving.choose(etcd)
    assert saving.choose(etcd, local="https://10.0.0.3:2379").member.name == "three"
    with pytest.raises(Unreachable, match="does not answer"):
        saving.choose(etcd, local="https://10.0.0.1:2379")
    nobody = FakeEtcd(Unreachable("nobody answers"), [Status(endpoint="https://10.0.0.1:2379", problem="refused")])
    with pytest.raises(Unreachable, match="no member of etcd answers") as caught:
        saving.choose(nobody)
    assert (caught.value.detail.splitlines()[-1], "--local" in caught.value.remedy) == ("https://10.0.0.1:2379: refused", False)


class _Keys(_Snapping):
    """Has the keys of two Nodes, or none that can be read."""

    def __init__(self, *, readable: bool = True) -> None:
        super().__init__(FakeClock())
        self.readable = readable

    def keys(self, endpoint: str, prefix: str, /) -> list[str]:
        self.asked.append(f"{endpoint} {prefix}")
        if not self.readable:
            raise Unreachable("too many keys")
        return [f"{prefix}one", f"{prefix}two"]


@pytest.mark.parametrize(("given", "prefix"), [("", "/registry"), ("other/", "/other"), ("/deep/one", "/deep/one")])
def test_the_description_lists_the_nodes_in_the_data(tmp_path: Path, given: str, prefix: str) -> None:
    layout = Layout.below(PurePosixPath(tmp_path))
    host = Machine1(layout=layout)
    manifest = pod("kube-apiserver", "x:v1.36.3", {"etcd-prefix": given} if given else {}, volumes=[])
    host.ensure(File(path=layout.manifest("kube-apiserver"), content=manifest))
    for readable, nodes in ((True, ["one", "two"]), (False, None)):
        etcd = _Keys(readable=readable)
        source = saving.choose(etcd)
        assert saving.describe(host, etcd, source, WHOLE, pki=layout.pki, clock=etcd.clock)["nodes"] == nodes
        assert etcd.asked == [f"https://10.0.0.1:2379 {prefix}/minions/"]


WHOLE = Snapshot(size=len(CONTENT), sha256="ab")


@pytest.mark.parametrize(
    ("content", "warnings", "revision"),
    [
        (b'{"sha256": "ab", "revision": 4}', [], 4),
        (None, ["FILE.json does not exist, so it is unknown which cluster the snapshot belongs to"], None),
        (b'{"sha256": "cd", "revision": 4}', ["FILE.json describes another snapshot"], None),
        (b"[1]", ["FILE.json is not a description of a snapshot"], None),
        (b"\xff", ["FILE.json is not a description of a snapshot"], None),
    ],
)
def test_a_mismatched_description_is_a_warning(content: bytes | None, warnings: list[str], revision: int | None) -> None:
    found = verifying.compare(WHOLE, content, name="FILE.json", contents=None)
    assert (list(found.warnings), found.as_map()["revision"]) == (warnings, revision)


def test_output_of_etcdutl_is_shown_with_the_description() -> None:
    contents = Contents(revision=3, keys=1, hash="a", storage_version="3.6.0")
    found = verifying.compare(WHOLE, b'{"sha256": "ab", "revision": 4}', name="FILE.json", contents=contents).as_map()
    assert (found["revision"], found["keys"], found["hash"]) == (4, 1, "a")
    found = verifying.compare(WHOLE, None, name="FILE.json", contents=contents).as_map()
    assert (found["revision"], found["storageVersion"]) == (3, "3.6.0")


@given(st.binary(max_size=60) | st.builds(lambda value: json.dumps(value).encode(), st.dictionaries(st.text(max_size=3), st.integers())))
def test_no_description_breaks_the_comparison(content: bytes) -> None:
    assert verifying.compare(WHOLE, content, name="FILE.json", contents=None).snapshot == WHOLE


class _Commands:
    def __init__(self, ended: Ended) -> None:
        self.ended = ended
        self.argv: list[str] = []

    def run(self, argv: Sequence[str], /, *, within: float, text: str = "") -> Ended:
        assert within > 60
        assert text == ""
        self.argv = list(argv)
        return self.ended


def test_etcdutl_counts_the_keys() -> None:
    commands = _Commands(Ended(code=0, out='{"hash":3276836191,"revision":4,"totalKey":3,"totalSize":32768,"version":"3.6.0"}\n'))
    found = verifying.read_with("/bin/etcdutl", PurePosixPath("/etcd.db"), commands=commands)
    assert commands.argv == ["/bin/etcdutl", "snapshot", "status", "/etcd.db", "--write-out=json"]
    assert found == Contents(revision=4, keys=3, hash="c3508d5f", storage_version="3.6.0")
    for ended in (Ended(code=1, err="a\nError: invalid database\n"), Ended(code=0, out="{}"), Ended(code=0, out="odd")):
        with pytest.raises(DocumentError, match=r"/bin/etcdutl cannot read /etcd\.db") as caught:
            verifying.read_with("/bin/etcdutl", PurePosixPath("/etcd.db"), commands=_Commands(ended))
        assert caught.value.detail
