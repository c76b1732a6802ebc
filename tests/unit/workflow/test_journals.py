"""The journal in a file: what survives a crash, and what a reader makes of it."""

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import DiskFull, HostError
from kubewright.workflow import journal
from kubewright.workflow.journal import FileJournal, Mark, MemoryJournal, Record, compacted, created, unfinished


def record(phase, mark, *made: str, workflow="init"):
    return Record(workflow=workflow, phase=phase, mark=mark, time="2026-01-02T03:04:05Z", created=made)


BEGUN, FINISHED = Mark.BEGUN, Mark.FINISHED


@pytest.mark.parametrize("durable", [True, False])
def test_records_come_back_in_order(tmp_path, durable):
    kept = [record("a", BEGUN), record("a", FINISHED, "file /x"), record("b", BEGUN)]
    for one in kept:
        FileJournal(tmp_path / "journal", durable=durable).append(one)
    assert FileJournal(tmp_path / "journal").records() == kept
    assert (tmp_path / "journal").stat().st_mode & 0o777 == 0o600


def test_a_missing_journal_is_empty(tmp_path):
    assert FileJournal(tmp_path / "journal").records() == []


@given(cut=st.integers(min_value=1, max_value=200))
def test_an_incomplete_last_line_is_ignored_and_does_not_spoil_the_next(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("torn") / "journal"
    FileJournal(path, durable=False).append(record("a", BEGUN))
    FileJournal(path, durable=False).append(record("b", BEGUN))
    first = path.read_bytes().index(b"\n") + 1
    os.truncate(path, max(first, path.stat().st_size - cut))
    FileJournal(path, durable=False).append(record("c", BEGUN))
    phases = [one.phase for one in FileJournal(path).records()]
    assert phases in (["a", "c"], ["a", "b", "c"])
    assert len(phases) == 2 or cut == 1


@given(junk=st.binary(max_size=60))
def test_junk_is_no_record(tmp_path_factory, junk):
    path = tmp_path_factory.mktemp("junk") / "journal"
    path.write_bytes(junk + b"\n[]\n{}\n3\n" + b'{"mark": "begun", "created": []}\n')
    assert FileJournal(path).records() == []


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "other").write_text("precious")
    (tmp_path / "journal").symlink_to(tmp_path / "other")
    with pytest.raises(HostError) as refused:
        FileJournal(tmp_path / "journal").append(record("a", BEGUN))
    assert str(tmp_path / "journal") in refused.value.what
    assert (tmp_path / "other").read_text() == "precious"


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def full(*_: object):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(DiskFull) as refused:
        FileJournal(tmp_path / "journal").append(record("a", BEGUN))
    assert "df -h" in refused.value.remedy


def test_a_large_journal_keeps_the_latest_records_and_all_that_was_created(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "SIZE_LIMIT", 2000)
    kept = FileJournal(tmp_path / "journal", durable=False)
    for number in range(100):
        kept.append(record("a", BEGUN))
        kept.append(record("a", FINISHED, f"file /{number % 3}"))
    assert (tmp_path / "journal").stat().st_size < 2500
    assert created(kept.records()) == ["file /0", "file /1", "file /2"]
    assert unfinished(kept.records()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal"]


@given(marks=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(Mark)), max_size=12))
def test_compacting_changes_neither_what_is_unfinished_nor_what_was_created(marks):
    records = [record(phase, mark, f"thing {number}") for number, (phase, mark) in enumerate(marks)]
    assert unfinished(compacted(records)) == unfinished(records)
    assert sorted(created(compacted(records))) == sorted(created(records))
    assert len(compacted(records)) <= 6


def test_a_phase_that_is_begun_again_counts_as_unfinished():
    kept = MemoryJournal()
    for one in (record("a", BEGUN), record("b", BEGUN), record("a", FINISHED), record("c", BEGUN), record("a", BEGUN)):
        kept.append(one)
    assert unfinished(kept.records()) == ["b", "c", "a"]
