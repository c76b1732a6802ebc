"""`etcd snapshot verify` and `backup show`: what they print about files that may contain anything, and their progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from kubewright.base.clock import FakeClock
from kubewright.base.events import Progress, RecordingReporter
from kubewright.cli import main as entry
from kubewright.etcd.recording import RecordingEtcd
from kubewright.lifecycle.etcd import access, backup, saving, this_member, verifying
from kubewright.lifecycle.etcd.archive import ArchiveWriter, StoredFile
from kubewright.lifecycle.etcd.backup import Collected
from snapshot_files import database, snapshot

CONTENT = snapshot(database(3))
DESCRIBED = {"time": "2026-11-27T10:00:00Z", "node": "one", "peerURL": "https://10.0.0.1:2380", "etcdVersion": "3.6.8"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a snapshot."""
    path = tmp_path / "etcd.db"
    path.write_bytes(CONTENT)
    return path


def _backup(path: Path, description: dict[str, Any], *, name: str = "/etc/kubernetes/admin.conf") -> Path:
    with path.open("wb") as out:
        writer = ArchiveWriter(out.write)
        paths = ("/etc/kubernetes/pki/ca.crt", name)
        writer.begin(description, [StoredFile(path=PurePosixPath(one), content=b"a file", mode=0o600) for one in paths])
        writer.database(CONTENT)
        writer.finish({"revision": 7})
    return path


@pytest.mark.parametrize("words", [("etcd", "snapshot", "save", "-"), ("backup", "create", "-", "--plain")])
def test_nothing_binary_is_written_to_a_terminal(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert entry.main(list(words)) == 2
    assert "is not written to a terminal\nhint: redirect stdout, or pass a file\n" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("etcd", "snapshot", "save"),
        ("etcd", "snapshot", "verify"),
        ("backup", "create", "--plain"),
        ("backup", "show"),
        ("backup", "restore", "--yes"),
        ("hub", "backup"),
        ("hub", "restore"),
    ],
)
def test_an_empty_name_of_a_file_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """As with a shell variable that is not set."""
    assert entry.main([*words, ""]) == 2
    assert capsys.readouterr().err.startswith("error: the name of the file is empty\nhint: see `")


def test_a_backup_is_written_to_stdout_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    for module, name in ((this_member, "find"), (access, "find"), (saving, "choose")):
        monkeypatch.setattr(module, name, lambda *_, **__: None)
    monkeypatch.setattr(access, "connect", lambda *_, clock: RecordingEtcd())

    def write(host: object, member: object, etcd: object, source: object, out: Callable[[bytes], object], **_: object) -> Collected:
        out(b"\xff\0 the backup")
        return Collected(files=(), warnings=("a file is missing",))

    monkeypatch.setattr(backup, "write", write)
    assert entry.main(["backup", "create", "-", "--plain", "-o", "json"]) == 0
    out, err = capfdbinary.readouterr()
    assert (out, err) == (b"\xff\0 the backup", b"warning: a file is missing\n")
    assert list(tmp_path.iterdir()) == []


def test_a_backup_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _backup(tmp_path / "one.tar", {**DESCRIBED, "kubernetesVersion": "v1.36.3"})
    assert entry.main(["backup", "show", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{file} is a complete backup: 2 files and 0.0 MB of etcd",
        "  created     2026-11-27T10:00:00Z",
        "  node        one",
        "  peer URL    https://10.0.0.1:2380",
        "  Kubernetes  v1.36.3",
        "  etcd        3.6.8",
        "  revision    7",
        "  /etc/kubernetes/pki/ca.crt",
        "  /etc/kubernetes/admin.conf",
    ]


def test_what_a_backup_does_not_say_is_left_out_and_no_text_of_it_has_a_line_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _backup(tmp_path / "one.tar", {**DESCRIBED, "node": "one\n  created     today"}, name="/etc/kubernetes/a\nb\x1b[2K")
    assert entry.main(["backup", "show", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), lines[2], lines[-1]) == (8, r"  node        one\n  created     today", "  /etc/kubernetes/a\\nb\\u001b[2K")


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_snapshot_is_verified(file: Path, form: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(file.parent))
    assert entry.main(["etcd", "snapshot", "verify", str(file), "-o", form]) == 0
    printed = capsys.readouterr()
    first = json.loads(printed.out)["size"] if form == "json" else printed.out.splitlines()[0]
    assert first == (len(CONTENT) if form == "json" else f"{file} is a complete snapshot of 0.0 MB")
    assert "etcdutl is not on PATH, so the keys were not counted" in printed.err


@pytest.mark.parametrize("linked", [False, True])
def test_the_progress_of_reading_a_large_file_is_shown_after_two_seconds(file: Path, linked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, reporter = FakeClock(), RecordingReporter()
    if linked:
        target, file = file, file.with_name("link")
        file.symlink_to(target)
    monkeypatch.setattr("kubewright.host.filesystem.files._PIECE", 4096)
    for piece in verifying.reading(PurePosixPath(file), task="verify", clock=clock, reporter=reporter):
        assert piece
        clock.sleep(1.5)
    told = [event for event in reporter.events if isinstance(event, Progress)]
    assert [(one.task, one.done, one.total) for one in told] == [("verify", 3 * 4096, len(CONTENT)), ("verify", len(CONTENT), len(CONTENT))]
