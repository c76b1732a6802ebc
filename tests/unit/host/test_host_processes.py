"""Processes are identified by more than their number."""

import os
import select
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busy import HANGS
from kubewright.base.clock import FakeClock
from kubewright.base.errors import HostError
from kubewright.base.records import replace
from kubewright.host.processes import Identity, RealProcesses

MARKER = "KUBEWRIGHT_TEST_MARK"


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "1000"], start_new_session=True, env=os.environ | {MARKER: "/state/a b"}) as process:
        yield process
        process.kill()


@pytest.fixture
def processes():
    return RealProcesses()


def test_a_process_is_known_while_it_lives(processes, sleeper):
    identity = processes.of(sleeper.pid)
    assert identity == Identity.of(sleeper.pid)
    assert processes.alive(identity)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.alive(identity), "a zombie does not live"
    sleeper.wait()
    assert not processes.alive(identity)
    assert processes.of(sleeper.pid) is None


@pytest.mark.parametrize("other", [{"start_time": 1}, {"boot_id": "another"}])
def test_a_reused_pid_is_another_process(processes, sleeper, other):
    before = replace(processes.of(sleeper.pid), **other)
    assert not processes.alive(before)
    assert processes.handle(before) is None
    assert processes.usage(before) is None
    assert processes.signal(before, signal.SIGKILL) is False
    assert sleeper.poll() is None


def test_a_signal_reaches_exactly_this_process(processes, sleeper):
    identity = processes.of(sleeper.pid)
    assert processes.signal(identity, signal.SIGTERM) is True
    assert sleeper.wait() == -signal.SIGTERM
    assert processes.signal(identity, signal.SIGTERM) is False


def test_a_handle_reports_the_end(processes, sleeper):
    handle = processes.handle(processes.of(sleeper.pid))
    assert select.select([handle], [], [], 0)[0] == []
    sleeper.kill()
    assert select.select([handle], [], [], HANGS)[0] == [handle]
    os.close(handle)


def test_processes_are_found_by_their_marker(processes, sleeper):
    while MARKER.encode() not in Path(f"/proc/{sleeper.pid}/environ").read_bytes():
        pass  # its environment appears a moment after its program
    assert processes.marked({MARKER: "/state/a b"}) == [processes.of(sleeper.pid)]
    assert processes.marked({MARKER: "/state/a b", "HOME": os.environ["HOME"]}) == [processes.of(sleeper.pid)]
    assert processes.marked({MARKER: "/state/a"}) == []
    assert processes.marked({"OTHER": "/state/a b"}) == []
    assert processes.marked({MARKER: "/state/a b", "OTHER": ""}) == []


@pytest.fixture
def proc(tmp_path):
    """A /proc with one process, 5, that is marked and sees our files. The root of both is `tmp_path / "root"`."""
    (tmp_path / "root/state").mkdir(parents=True)
    proc = tmp_path / "proc"
    for name in ("5", str(os.getpid())):
        (proc / name / "ns").mkdir(parents=True)
        (proc / name / "ns/mnt").symlink_to("mnt:[4026531841]")
        (proc / name / "root").symlink_to(tmp_path / "root")
    (proc / "self").symlink_to(str(os.getpid()))
    (proc / "5/stat").write_text("5 (etcd) S 1 5 " + " ".join(map(str, range(4, 30))))
    (proc / "5/environ").write_bytes(b"A=1\0MARK=/state\0")
    return proc


def test_many_processes_whose_environment_stays_empty_are_waited_for_together(proc):
    for number in range(5_000_000, 5_000_300):  # as those of user-mode Linux; our own pid is lower (proc(5): pid_max)
        (proc / f"{number}").mkdir()
        (proc / f"{number}/exe").symlink_to("/usr/bin/linux")
        for name, text in (("stat", (proc / "5/stat").read_text()), ("environ", ""), ("cmdline", "")):
            (proc / f"{number}/{name}").write_text(text)
    clock = FakeClock()
    began = clock.monotonic()
    assert [one.pid for one in RealProcesses(proc=proc, clock=clock).marked({"MARK": "/state"})] == [5]
    assert 1 < clock.monotonic() - began < 1.5


class Executing(FakeClock):
    """The process 5 of a /proc executes another program, and finishes at the third pause."""

    def __init__(self, proc, content) -> None:
        super().__init__()
        self.proc, self.content, self.pauses = proc, content, 0
        (proc / "5/exe").symlink_to("/usr/bin/etcd")
        (proc / "5/environ").write_bytes(b"")
        (proc / "5/cmdline").write_bytes(b"")

    def sleep(self, seconds):
        super().sleep(seconds)
        self.pauses += 1
        if self.pauses == 3:
            (self.proc / "5/cmdline").write_bytes(b"etcd\0")
            (self.proc / "5/environ").write_bytes(self.content)


@pytest.mark.parametrize(("content", "found", "pauses"), [(b"MARK=/state\0", [5], 3), (b"", [], 12)])
def test_a_process_that_executes_another_program_is_waited_for(proc, content, found, pauses):
    clock = Executing(proc, content)
    assert [one.pid for one in RealProcesses(proc=proc, clock=clock).marked({"MARK": "/state"})] == found
    assert clock.pauses == pauses


def move(path, target):
    path.unlink()
    path.symlink_to(target)


def elsewhere(proc):
    """Give the process its own mounts and root."""
    (proc.parent / "other/state").mkdir(parents=True)
    move(proc / "5/ns/mnt", "mnt:[4026532999]")
    move(proc / "5/root", proc.parent / "other")


def in_another_mount_namespace(proc):
    move(proc / "5/ns/mnt", "mnt:[4026532999]")


def below_another_root(proc):
    (proc.parent / "chroot").mkdir()
    move(proc / "5/root", proc.parent / "chroot")


def not_ours_to_look_at(proc):
    (proc / "5/ns/mnt").unlink()


@pytest.mark.parametrize("change", [elsewhere, in_another_mount_namespace, below_another_root, not_ours_to_look_at])
def test_a_process_that_sees_other_files_is_not_found_by_a_path(proc, change):
    processes = RealProcesses(proc=proc)
    [identity] = processes.marked({"MARK": "/state"})
    assert (identity.pid, processes.carries(identity, {"MARK": "/state"})) == (5, True)
    change(proc)
    assert processes.marked({"MARK": "/state"}) == []
    assert not processes.carries(identity, {"MARK": "/state"})


def test_a_process_with_other_mounts_is_found_by_a_directory_that_it_shares(proc):
    processes = RealProcesses(proc=proc)
    elsewhere(proc)
    shared = proc.parent / "root/state"
    assert processes.marked({"MARK": "/state"}, shared=str(shared)) == []
    there = proc.parent / f"other{shared}"
    there.parent.mkdir(parents=True)
    there.symlink_to(shared)
    assert [one.pid for one in processes.marked({"MARK": "/state"}, shared=str(shared))] == [5]
    assert processes.marked({"MARK": "/else"}, shared=str(shared)) == []


def test_processes_are_not_searched_in_another_pid_namespace(proc):
    move(proc / "self", "1")
    with pytest.raises(HostError, match="another PID namespace") as caught:
        RealProcesses(proc=proc).marked({"MARK": "/state"})
    assert "--mount-proc" in caught.value.remedy
    (proc / "self").unlink()
    with pytest.raises(HostError, match="cannot read"):
        RealProcesses(proc=proc).marked({"MARK": "/state"})


def test_usage_is_measured(processes):
    used = processes.usage(processes.of(os.getpid()))
    assert used.rss_bytes > 1_000_000
    assert used.cpu_seconds > 0


def test_an_identity_is_written_and_read_back(sleeper):
    identity = Identity.of(sleeper.pid)
    assert Identity.parse(f"{identity}\n") == identity


@given(pid=st.integers(0), start=st.integers(0), boot=st.uuids())
def test_any_identity_is_read_back(pid, start, boot):
    identity = Identity(pid=pid, start_time=start, boot_id=str(boot))
    assert Identity.parse(str(identity)) == identity


@given(text=st.text(alphabet="0123456789:ab-\n", max_size=20))
def test_junk_is_no_identity(text):
    with suppress(ValueError):
        assert str(Identity.parse(text)).count(":") == 2


@given(comm=st.binary(max_size=15).filter(lambda name: b"\0" not in name))
def test_any_program_name_is_skipped(tmp_path_factory, comm):
    proc = tmp_path_factory.mktemp("proc")
    (proc / "5").mkdir()
    numbers = " ".join(str(number) for number in range(4, 30))
    (proc / "5/stat").write_bytes(b"5 (" + comm + b") S 1 77 " + numbers.encode())
    assert RealProcesses(proc=proc).of(5) == Identity(pid=5, start_time=20, boot_id="")
    assert [one.pid for one in RealProcesses(proc=proc).group(77)] == [5]


@pytest.mark.parametrize("stat", ["", "5", "5 (x) S 1", "5 (x"])
def test_a_process_that_ends_during_inspection_counts_as_ended(tmp_path, stat):
    (tmp_path / "5").mkdir()
    (tmp_path / "5/stat").write_text(stat)
    assert RealProcesses(proc=tmp_path).of(5) is None


def test_a_process_is_known_by_its_mark_while_it_executes_other_programs(processes, tmp_path):
    script = tmp_path / "again"
    script.write_text('exec sh "$0"\n')
    with subprocess.Popen(["sh", script], env=os.environ | {MARKER: "/state"}) as child:
        try:
            identity = processes.of(child.pid)
            assert [processes.carries(identity, {MARKER: "/state"}) for _ in range(5000)].count(False) == 0
        finally:
            child.kill()
