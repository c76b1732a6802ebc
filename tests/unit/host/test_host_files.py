"""Files that survive power failures and kill -9, and paths that cannot be redirected."""

import errno
import gc
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import DiskFull, HostError
from kubewright.host.desired import Directory, File
from kubewright.host.filesystem import files as module
from kubewright.host.filesystem.files import LEFTOVER, Files
from kubewright.host.processes import Identity
from kubewright.host.states import Kind

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def file(path, content=b"new", **more: object):
    return File(path=PurePosixPath(path), content=content, **more)


def mode(path):
    return Path(path).stat().st_mode & 0o7777


def names(path):
    return sorted(entry.name for entry in path.iterdir())


def pure(path):
    return PurePosixPath(path)


@contextmanager
def ordinary_user():
    """Provide a directory that root owns, and be an ordinary user inside the block."""
    directory = Path(tempfile.mkdtemp(prefix="kubewright-test-"))
    directory.chmod(0o755)
    user = os.geteuid()
    try:
        (directory / "mine").mkdir()
        if user == 0:
            os.chown(directory / "mine", NOBODY, NOBODY)
            os.seteuid(NOBODY)
        yield directory / "mine"
    finally:
        os.seteuid(user)
        (directory / "mine").chmod(0o755)
        shutil.rmtree(directory)


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
@pytest.mark.parametrize("wanted", [0o600, 0o644, 0o400, 0o755])
def test_the_mode_is_exact_with_any_umask(tmp_path, umask, wanted):
    before = os.umask(umask)
    try:
        Files().write(file(tmp_path / "a/b/c", mode=wanted, directory_mode=0o700))
    finally:
        os.umask(before)
    assert [mode(tmp_path / path) for path in ("a", "a/b", "a/b/c")] == [0o755, 0o700, wanted]


@pytest.mark.parametrize("wanted", [0o700, 0o755])
def test_missing_directories_above_one_have_its_mode(tmp_path, wanted):
    (tmp_path / "there").mkdir(mode=0o711)
    Files().make(Directory(path=pure(tmp_path / "there/a/b/c"), mode=wanted))
    assert [mode(tmp_path / path) for path in ("there", "there/a", "there/a/b", "there/a/b/c")] == [0o711, wanted, wanted, wanted]


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    (tmp_path / "f").write_bytes(b"old and longer")
    Files().write(file(tmp_path / "f"))
    assert (tmp_path / "f").read_bytes() == b"new"
    assert names(tmp_path) == ["f"]


@given(content=st.binary(max_size=200), limit=st.integers(min_value=1, max_value=64))
def test_short_writes_are_continued(tmp_path_factory, content, limit):
    path = tmp_path_factory.mktemp("short") / "f"
    write = os.write
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", lambda opened, data: write(opened, bytes(data)[:limit]))
        Files(durable=False).write(file(path, content))
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("settings", "more", "at_once", "later"),
    [
        pytest.param({}, {}, 2, 2, id="the file and its directory"),
        pytest.param({"batch": True}, {}, 1, 2, id="directories put off"),
        pytest.param({"durable": False}, {}, 0, 0, id="not at all"),
        pytest.param({}, {"durable": False}, 0, 0, id="not for this file"),
    ],
)
def test_syncs_are_as_many_as_needed(tmp_path, monkeypatch, settings, more, at_once, later):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    files = Files(**settings)
    files.write(file(tmp_path / "f", **more))
    assert len(synced) == at_once
    files.sync()
    files.sync()
    assert len(synced) == later


def test_a_batch_syncs_each_directory_once(tmp_path, monkeypatch):
    files = Files(batch=True)
    for number in range(5):
        files.write(file(tmp_path / f"f{number}"))
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    files.sync()
    assert len(synced) == 1


WRITER = """
import sys
from pathlib import PurePosixPath
from kubewright.host.desired import File
from kubewright.host.filesystem.files import Files
print("ready", flush=True)
while True:
    for letter in b"ab":
        Files(durable=False).write(File(path=PurePosixPath(sys.argv[1]), content=bytes([letter]) * 3_000_000))
"""


def test_a_writer_that_is_killed_leaves_the_old_or_the_new_content(tmp_path):
    target, chance = tmp_path / "f", random.Random(3)
    target.write_bytes(b"a" * 3_000_000)
    leftovers = 0
    for _ in range(10):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(target)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout.readline() == b"ready\n"
            time.sleep(0.01 + chance.random() * 0.02)
            writer.send_signal(signal.SIGKILL)
        content = target.read_bytes()
        assert content in {b"a" * 3_000_000, b"b" * 3_000_000}
        leftovers += len(names(tmp_path)) - 1
    assert Files().entries(pure(tmp_path)) == [pure(target)]
    Files().write(file(target))
    assert names(tmp_path) == ["f"], f"{leftovers} leftovers were made"


def writer(pid, *, started=0, boot=""):
    """Return how the name of a temporary file identifies a process: this one, or one that started earlier or before a boot."""
    found = Identity.of(pid)
    return f"{pid}-{found.start_time + started}-{boot or found.boot_id[:8]}"


def test_leftovers_of_dead_writers_are_removed_and_those_of_live_ones_stay(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as dead:
        gone = writer(dead.pid)
        dead.kill()
    stay = [f".x.kubewright-{writer(os.getpid())}-0", f".x.kubewright-{writer(1)}-0", ".x.kubewright-", "x.kubewright-1-1-a-1", ".hidden"]
    for name in [*stay, f".x.kubewright-{gone}-4"]:
        (tmp_path / name).write_text("")
    files = Files()
    files.write(file(tmp_path / "x"))
    assert names(tmp_path) == sorted([*stay, "x"])


def test_leftovers_of_writers_whose_pid_was_reused_are_removed(tmp_path):
    """After a reboot, pids start low again: that of a writer which the power failure ended is soon used again, by us or by a thread."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        before = [
            writer(os.getpid(), started=-1),
            writer(os.getpid(), boot="0" * 8),
            writer(1, started=9),
            f"{thread.native_id}-1-{'0' * 8}",
        ]
        for name in before:
            (tmp_path / f".x.kubewright-{name}-0").write_text("secret")
        Files().write(file(tmp_path / "x"))
    finally:
        ended.set()
        thread.join()
    assert names(tmp_path) == ["x"]


def test_our_own_leftover_does_not_block_a_write(tmp_path):
    (tmp_path / f".x.kubewright-{writer(os.getpid())}-0").symlink_to(tmp_path / "elsewhere")
    Files().write(file(tmp_path / "x"))
    assert (tmp_path / "x").read_bytes() == b"new"
    assert not (tmp_path / "elsewhere").exists()


def test_names_of_temporary_files_are_hidden_from_a_kubelet():
    assert LEFTOVER.fullmatch(".etcd.yaml.kubewright-12-345-0a1b2c3d-3")
    assert not LEFTOVER.fullmatch("etcd.yaml.kubewright-12-345-0a1b2c3d-3")


@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EIO, HostError)])
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, code, kind, call):
    def fail(*_: object):
        raise OSError(code, os.strerror(code))

    (tmp_path / "f").write_bytes(b"old")
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(HostError) as failed:
        Files().write(file(tmp_path / "f"))
    assert type(failed.value) is kind
    assert str(tmp_path / "f") in failed.value.what
    assert failed.value.remedy
    assert isinstance(failed.value.__cause__, OSError)
    assert names(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"old"


def interrupted_after_call(number, work):
    """Raise KeyboardInterrupt where a signal would that arrived during the n-th call of a built-in function.

    Returns whether there were that many calls.
    """
    calls = itertools.count()

    def interrupt(_frame, event, _function):
        if event == "c_return" and next(calls) == number:
            raise KeyboardInterrupt  # with that, Python removes the profiler

    gc.disable()  # Python ignores an exception raised during a callback of its garbage collector, and hypothesis installs one
    sys.setprofile(interrupt)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
        gc.enable()
    return False


@pytest.mark.filterwarnings("ignore:unclosed scandir")  # interrupted before its `with` block begins
@pytest.mark.parametrize("found", [None, b"old"])
def test_an_interrupt_at_any_call_leaves_the_old_or_the_new_file_and_nothing_else(tmp_path, found):
    seen = []
    for number in itertools.count():
        place = tmp_path / str(number)
        place.mkdir()
        if found is not None:
            (place / "f").write_bytes(found)
        files = Files()
        if not interrupted_after_call(number, lambda: files.write(file(place / "f"))):  # noqa: B023 - called at once
            break
        left = {name: (place / name).read_bytes() for name in names(place)}
        assert left in ({} if found is None else {"f": found}, {"f": b"new"}), number
        seen.append(left.get("f"))
    assert {found, b"new"} == set(seen)
    assert len(seen) > 10


def test_directories_of_an_interrupted_run_have_their_modes(tmp_path, request):
    before = os.umask(0o022)
    request.addfinalizer(lambda: os.umask(before))
    for number in itertools.count():
        place = tmp_path / str(number)
        place.mkdir()
        files = Files()
        if not interrupted_after_call(number, lambda: files.make(Directory(path=pure(place / "a/b"), mode=0o750))):  # noqa: B023 - called at once
            break
        assert {name: mode(place / name) for name in ("a", "a/b") if (place / name).exists()}.items() <= {"a": 0o750, "a/b": 0o750}.items()


def test_a_read_only_file_system_is_reported(tmp_path, monkeypatch):
    def fail(*_: object, **__: object):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(HostError) as failed:
        Files().write(file(tmp_path / "f"))
    assert "read-only" in failed.value.what
    assert "findmnt" in failed.value.remedy
    assert names(tmp_path) == []


def test_an_unwritable_directory_is_reported():
    with ordinary_user() as mine:
        mine.chmod(0o500)
        with pytest.raises(HostError) as failed:
            Files().write(file(mine / "f"))
    assert failed.value.what == f"cannot write {mine / 'f'}: not allowed as user {NOBODY if os.geteuid() == 0 else os.geteuid()}"
    assert f"namei -l {mine / 'f'}" in failed.value.remedy


def test_an_unreadable_file_is_reported():
    with ordinary_user() as mine:
        (mine / "f").write_bytes(b"secret")
        (mine / "f").chmod(0)
        with pytest.raises(HostError, match=r"cannot read .*not allowed"):
            Files().read(pure(mine / "f"))


def test_a_link_in_the_place_of_the_file_is_replaced_never_followed(tmp_path):
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "f").symlink_to(tmp_path / "precious")
    Files().write(file(tmp_path / "f"))
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert not (tmp_path / "f").is_symlink()


def test_a_link_of_our_own_in_the_path_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    Files().write(file(tmp_path / "link/pki/ca.crt"))
    assert (tmp_path / "real/pki/ca.crt").read_bytes() == b"new"


@needs_root
@pytest.mark.parametrize("what", ["directory", "symbolic link"])
def test_paths_through_directories_of_other_users_are_refused(tmp_path, what):
    (tmp_path / "real").mkdir()
    theirs = tmp_path / "real" if what == "directory" else tmp_path / "link"
    if what == "symbolic link":
        theirs.symlink_to("real")
    os.chown(theirs, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(HostError) as refused:
        Files().write(file(theirs / "below/f"))
    assert refused.value.what == f"{theirs} is a {what} that belongs to user {NOBODY}"
    assert "chown" in refused.value.remedy
    assert names(tmp_path / "real") == []


@needs_root
@pytest.mark.parametrize("target", ["theirs/mine", "../{here}/theirs/mine", "{there}/theirs/mine", "second"])
def test_the_rules_for_owners_also_apply_behind_a_link_of_our_own(tmp_path, target):
    (tmp_path / "theirs/mine").mkdir(parents=True)
    os.chown(tmp_path / "theirs", NOBODY, NOBODY)
    (tmp_path / "second").symlink_to(tmp_path / "theirs/mine")
    (tmp_path / "link").symlink_to(target.format(here=tmp_path.name, there=tmp_path))
    with pytest.raises(HostError) as refused:
        Files().write(file(tmp_path / "link/f"))
    assert refused.value.what == f"{tmp_path}/theirs is a directory that belongs to user {NOBODY}"
    assert names(tmp_path / "theirs/mine") == []


@needs_root
def test_a_link_behind_a_link_is_checked_by_its_owner(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "theirs").symlink_to("real")
    os.chown(tmp_path / "theirs", NOBODY, NOBODY, follow_symlinks=False)
    (tmp_path / "link").symlink_to("theirs")
    with pytest.raises(HostError, match=f"theirs is a symbolic link that belongs to user {NOBODY}"):
        Files().write(file(tmp_path / "link/f"))


def test_links_are_followed_as_the_kernel_does(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/up").symlink_to("../../c")
    (tmp_path / "c").symlink_to(tmp_path / "a")
    Files().write(file(tmp_path / "a/b/up/b/f"))
    assert (tmp_path / "a/b/f").read_bytes() == b"new"
    (tmp_path / "x").symlink_to("y")
    (tmp_path / "y").symlink_to("x")
    with pytest.raises(HostError, match="cannot write"):
        Files().write(file(tmp_path / "x/f"))
    (tmp_path / "dangling").symlink_to("nothing")
    with pytest.raises(HostError, match="cannot write"):
        Files().write(file(tmp_path / "dangling/sub/f"))
    assert not (tmp_path / "nothing").exists()


@needs_root
def test_owner_and_group_are_set(tmp_path):
    Files().write(file(tmp_path / "f", owner=NOBODY, group=12))
    Files().make(Directory(path=pure(tmp_path / "d"), mode=0o750, owner=NOBODY, group=12))
    found = [(tmp_path / name).stat() for name in "fd"]
    assert [(one.st_uid, one.st_gid, one.st_mode & 0o777) for one in found] == [(NOBODY, 12, 0o600), (NOBODY, 12, 0o750)]


@pytest.mark.parametrize("path", ["relative/f", "/tmp/../etc/f", "/", "."])
def test_a_path_must_be_absolute_and_normalised(path):
    with pytest.raises(HostError, match="is not a path to write to"):
        Files().write(file(path))


def test_a_file_in_the_middle_of_a_path_is_reported(tmp_path):
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(HostError) as failed:
        Files().write(file(tmp_path / "f/g"))
    assert "namei" in failed.value.remedy


def test_files_are_read(tmp_path):
    (tmp_path / "f").write_bytes(b"x" * 200_000)
    (tmp_path / "link").symlink_to("f")
    files = Files()
    assert files.read(pure(tmp_path / "f")) == b"x" * 200_000
    assert files.read(pure(tmp_path / "link")) == b"x" * 200_000
    assert files.read(pure(tmp_path / "missing")) is None
    assert files.read(pure(tmp_path / "f/below")) is None
    assert files.read(pure("/proc/sys/kernel/osrelease")) == os.uname().release.encode() + b"\n"


def test_only_files_of_a_sane_size_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "READ_LIMIT", 10)
    (tmp_path / "f").write_bytes(b"x" * 11)
    with pytest.raises(HostError, match="larger than 10 bytes"):
        Files().read(pure(tmp_path / "f"))


def test_special_files_are_not_read_and_do_not_block(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path):
        with pytest.raises(HostError, match="not a regular file"):
            Files().read(pure(path))
    with pytest.raises(HostError, match="not a regular file"):
        list(Files().pieces(pure(tmp_path / "fifo")))


def test_states_of_paths_are_read(tmp_path):
    (tmp_path / "f").write_bytes(b"12345")
    (tmp_path / "f").chmod(0o640)
    (tmp_path / "link").symlink_to("f")
    os.mkfifo(tmp_path / "fifo")
    found = {name: Files().state(pure(tmp_path / name)) for name in ("f", "link", "fifo", "", "missing", "f/x")}
    assert {name: state and state.kind for name, state in found.items()} == {
        "f": Kind.FILE, "link": Kind.LINK, "fifo": Kind.OTHER, "": Kind.DIRECTORY, "missing": None, "f/x": None,
    }  # fmt: skip
    assert (found["f"].mode, found["f"].size, found["f"].owner) == (0o640, 5, os.geteuid())


def test_entries_are_sorted_and_without_temporary_files(tmp_path):
    for name in ("b", "a", ".a.kubewright-1-1-0a-1", ".c"):
        (tmp_path / name).write_bytes(b"")
    assert [path.name for path in Files().entries(pure(tmp_path))] == [".c", "a", "b"]
    assert Files().entries(pure(tmp_path / "missing")) == []


def test_a_directory_gets_the_mode_that_is_enforced(tmp_path):
    (tmp_path / "d").mkdir(mode=0o755)
    Files().make(Directory(path=pure(tmp_path / "d"), mode=0o700))
    assert mode(tmp_path / "d") == 0o755
    Files().make(Directory(path=pure(tmp_path / "d"), mode=0o700, enforce=True))
    assert mode(tmp_path / "d") == 0o700


def test_a_tree_is_removed_without_following_links(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/f").write_bytes(b"")
    (tmp_path / "root/a/b").mkdir(parents=True)
    (tmp_path / "root/a/b/f").write_bytes(b"")
    (tmp_path / "root/a/link").symlink_to(tmp_path / "precious")
    os.mkfifo(tmp_path / "root/a/fifo")
    Files().remove(pure(tmp_path / "root/a"), below=[pure(tmp_path / "root")])
    assert names(tmp_path / "root") == []
    assert names(tmp_path / "precious") == ["f"]
    Files().remove(pure(tmp_path / "root/a"), below=[pure(tmp_path / "root")])


@pytest.mark.parametrize("path", ["other", "rootx", ".", "root/../other"])
def test_nothing_outside_of_the_root_is_removed(tmp_path, path):
    (tmp_path / "root").mkdir()
    (tmp_path / "other").mkdir()
    with pytest.raises(HostError):
        Files().remove(pure(tmp_path) / path, below=[pure(tmp_path / "root")])
    assert names(tmp_path) == ["other", "root"]


def test_several_threads_write_at_once(tmp_path):
    files = Files(durable=False)

    def write(number):
        for turn in range(20):
            files.write(file(tmp_path / f"{number % 2}/{turn}", str(number).encode()))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(names(tmp_path / name)) for name in "01"] == [20, 20]
    assert {path.read_bytes() for path in (tmp_path / "1").iterdir()} <= {b"1", b"3"}
