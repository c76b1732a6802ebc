"""One kubewright at a time."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import PurePosixPath

import pytest

from busy import HANGS
from kubewright.base.clock import FakeClock
from kubewright.base.errors import HostError, Locked
from kubewright.host.locks import Lock

HOLDER = """
import sys
from pathlib import PurePosixPath
from kubewright.host.locks import Lock
with Lock(PurePosixPath(sys.argv[1]), doing="kubewright up --name demo"):
    print("held", flush=True)
    sys.stdin.readline()
"""

FORKED = """
import os, signal, sys
from pathlib import PurePosixPath
from kubewright.host.locks import Lock
Lock(PurePosixPath(sys.argv[1]), doing="kubewright init").acquire()
if os.fork():
    print("held", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdin.read()
"""
"""A holder that dies, and its child that has the lock until its input ends."""


@contextmanager
def dead_holder(path):
    """Run the program until the holder is dead; its child ends with the block at the latest."""
    with subprocess.Popen([sys.executable, "-c", FORKED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as killed:
        assert killed.stdout.read(5) == b"held\n"
        killed.wait()
        yield killed


class EndsTheChild(FakeClock):
    """Lets the child of a dead holder end when somebody waits for it, however long that takes; time passes only if it hangs."""

    def __init__(self, holder) -> None:
        super().__init__()
        self.holder = holder
        self.end = time.monotonic() + HANGS

    def sleep(self, seconds):
        self.holder.stdin.close()
        time.sleep(seconds)
        if time.monotonic() > self.end:
            super().sleep(seconds)


@pytest.fixture
def path(tmp_path):
    return PurePosixPath(tmp_path / "lock")


@pytest.fixture
def holder(path):
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def lock(path, doing="a test"):
    return Lock(path, doing=doing, clock=FakeClock())


def test_the_holder_of_a_lock_is_reported(path, holder):
    with pytest.raises(Locked) as refused:
        lock(path).acquire()
    assert refused.value.exit_code == 75
    assert str(path) in refused.value.what
    assert refused.value.detail.startswith(f"held by pid {holder.pid} since 20")
    assert refused.value.detail.endswith(": kubewright up --name demo")
    assert refused.value.remedy


def test_a_lock_ends_with_its_process(path, holder):
    assert lock(path).try_acquire() is not None
    holder.kill()
    holder.wait()
    assert lock(path).try_acquire() is None


def test_a_child_that_a_killed_holder_was_starting_is_waited_for(path):
    """Between fork and exec, a child has the open files of its parent."""
    with dead_holder(path) as killed:
        assert lock(path).try_acquire() is not None
        with Lock(path, doing="a test", clock=EndsTheChild(killed)) as mine:
            assert mine.held


def test_a_lock_kept_by_a_child_of_a_dead_holder_is_in_use(path):
    with dead_holder(path) as killed:
        clock = FakeClock()
        start = clock.monotonic()
        with pytest.raises(Locked, match="another kubewright") as refused:
            Lock(path, doing="a test", clock=clock).acquire()
        assert f"held by pid {killed.pid} " in refused.value.detail
        assert 1 < clock.monotonic() - start < 5


def test_a_lock_ends_with_its_block(path, holder):
    holder.communicate(b"\n")
    with lock(path) as mine:
        assert mine.held
        assert lock(path).try_acquire() == f"held by pid {os.getpid()} since 2026-01-02T03:04:05Z: a test"
        assert "this process" in mine.try_acquire()
    assert not mine.held
    with lock(path):
        pass


def test_an_error_in_the_block_releases_the_lock(path):
    with pytest.raises(KeyError), lock(path):
        raise KeyError
    assert lock(path).try_acquire() is None


def test_a_lock_is_removed_with_its_directory(path, tmp_path):
    mine = lock(path)
    mine.acquire()
    mine.release(remove=True)
    mine.release(remove=True)
    assert list(tmp_path.iterdir()) == []


def test_a_removed_lock_excludes_nothing_and_is_created_again(path, tmp_path, monkeypatch):
    first, second, third = lock(path), lock(path), lock(path)
    first.acquire()
    still_there = second._still_there
    looked = []

    def look(opened):
        looked.append(opened)
        if len(looked) == 1:
            (tmp_path / "lock").unlink()
        return still_there(opened)

    monkeypatch.setattr(second, "_still_there", look)
    first.release()
    assert second.try_acquire() is None
    assert len(looked) == 2
    assert third.try_acquire() is not None


def test_a_link_is_not_followed(path, tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "lock").symlink_to("precious")
    with pytest.raises(HostError, match="cannot lock"):
        lock(path).acquire()
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_missing_directory_is_reported(path):
    with pytest.raises(HostError) as refused:
        lock(path / "x").acquire()
    assert str(path / "x") in refused.value.what


def test_a_lock_that_cannot_be_written_is_not_held(path, monkeypatch):
    mine = lock(path)

    def fail(opened):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mine, "_sign", fail)
    with pytest.raises(HostError, match="disk is full"):
        mine.acquire()
    assert not mine.held
    assert lock(path).try_acquire() is None


def test_the_lock_file_is_ours_only(path, tmp_path):
    with lock(path):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
