"""Programs that the daemon of a cluster of machines runs for the cluster's owner, with the owner's own file descriptors.

The machine is a stand-in: its commands run on this host. tests/machines has the real ones.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import other_user
from kubewright.base.errors import HostError
from kubewright.http import loop
from kubewright.local.paths import ClusterPaths
from kubewright.local.whole import entering
from kubewright.local.whole.services.program_server import ProgramServer
from kubewright.local.whole.services.programs import Program, socket_of
from other_user import readable

__all__ = ["readable"]
STRANGER = 12346
HANGS = 60.0
CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(sys.argv[1])"
ATTACHED = """\
import pathlib, sys
from kubewright.local.paths import ClusterPaths
from kubewright.local.whole import entering
from kubewright.local.whole.services.programs import Program
entering.runtime = lambda paths: paths
sys.exit(entering.attached(ClusterPaths(pathlib.Path(sys.argv[1])), Program(machine="one", command=tuple(sys.argv[2:]))))
"""


class OnThisHost:
    """A machine that is this host."""

    name = "one"
    runs = True

    def __init__(self, directory: Path) -> None:
        self.places = SimpleNamespace(console=directory / "console.log")

    def argv(self, *command: str, env: Mapping[str, str]) -> list[str]:
        return ["env", *(f"{name}={value}" for name, value in env.items()), *command]


@contextmanager
def serving(directory: Path, *, owner: int | None = None) -> Iterator[ClusterPaths]:
    """Serve programs from a directory, in a thread of its own."""
    own, machine = ClusterPaths(directory), OnThisHost(directory)
    directory.chmod(0o711)
    listens, stop = threading.Event(), Callback()

    async def serve() -> None:
        server = ProgramServer(own, {"one": machine}.get, owner=os.geteuid() if owner is None else owner)  # type: ignore[arg-type]
        stopping = asyncio.Event()
        running_loop = asyncio.get_running_loop()
        stop.call = lambda: running_loop.call_soon_threadsafe(stopping.set)
        task = asyncio.create_task(server.run())
        listens.set()
        await stopping.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        server.close()

    thread = threading.Thread(target=lambda: loop.run(serve))
    thread.start()
    try:
        assert listens.wait(HANGS)
        yield own
    finally:
        stop.call()
        thread.join()


class Callback:
    """What another thread sets."""

    call: Callable[[], object]


@pytest.fixture(autouse=True)
def _usual_signals() -> Iterator[None]:
    """Programs would inherit that the tests were started to ignore a signal: by nohup, or in the background. The daemon undoes this."""
    former = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)}
    for number in former:
        signal.signal(number, signal.default_int_handler)
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.fixture
def own(readable: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterPaths]:
    """The files of a daemon that serves this user as the cluster's owner."""
    with serving(readable) as paths:
        monkeypatch.setattr(entering, "runtime", lambda found: found)
        if os.geteuid() == 0:
            monkeypatch.setattr(os, "geteuid", lambda: 12345)  # root would start programs itself
        yield paths


def command(*words: str, **environment: str) -> Program:
    return Program(machine="one", command=words, environment=environment)


def ended(paths: ClusterPaths, program: Program) -> tuple[bytes, int]:
    """Return the output and the exit code of a program."""
    running, found = entering.output(paths, program), b""
    while True:
        try:
            found += next(running)
        except StopIteration as stop:
            return found, stop.value


def test_a_command_writes_to_the_caller_and_its_exit_code_is_returned(own: ClusterPaths) -> None:
    assert ended(own, command("sh", "-c", 'echo "said $WHAT"; umask; exit 3', WHAT="this")) == (b"said this\n0022\n", 3)
    assert ended(own, command("sh", "-c", "kill -9 $$")) == (b"", 137)
    assert ended(own, command("cat")) == (b"", 0)  # there is no input
    assert entering.captured(own, command("sh", "-c", "echo out; echo err >&2"), within=HANGS) == b"out\n"
    with pytest.raises(HostError, match="ended with 4") as failed:
        entering.captured(own, command("sh", "-c", "echo why >&2; exit 4"), within=HANGS)
    assert failed.value.detail == "why"
    with entering.reading(own, command("sh", "-c", "printf a; sleep 0.2; printf b")) as (content, wait):
        assert (content.read(2), wait()) == (b"ab", 0)  # as archives are read
    with pytest.raises(HostError, match="did not end within 0"):
        entering.captured(own, command("sleep", "1000"), within=0)


def test_the_logs_of_the_daemon_and_of_the_console_are_read(own: ClusterPaths) -> None:
    own.daemon_log.write_text("1\n2\n3\n")
    (own.root / "console.log").write_text("booted\n")
    assert [ended(own, Program()), ended(own, Program(tail=1))] == [(b"1\n2\n3\n", 0), (b"3\n", 0)]
    assert ended(own, Program(machine="one")) == (b"booted\n", 0)
    with closing(entering.output(own, Program(tail=1, follow=True))) as followed:
        assert next(followed) == b"3\n"


def test_a_program_is_hung_up_when_its_caller_stops_reading(own: ClusterPaths) -> None:
    with closing(entering.output(own, command("sh", "-c", "echo $$; sleep 1000 & wait"))) as lines:
        pid = int(next(lines))
        assert os.getpgid(pid) != os.getpgid(0)
    with pytest.raises(ProcessLookupError):
        while True:  # until it has ended
            os.kill(pid, 0)
            threading.Event().wait(0.01)


def test_what_cannot_be_started_is_an_error(own: ClusterPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    for program, said in (
        (Program(machine="two", command=("true",)), 'there is no machine "two"'),
        (command("sh", "-c", ":" * 200_000), "cannot be started|too long"),
        (command("true", "x" * 2_000_000), "too long"),
    ):
        with pytest.raises(HostError, match=said):
            ended(own, program)
    monkeypatch.setattr(OnThisHost, "runs", False)
    with pytest.raises(HostError, match="machine one does not run"):
        ended(own, command("true"))
    with pytest.raises(HostError, match='the daemon of cluster "none" does not run'):
        ended(ClusterPaths(own.root / "none"), command("true"))


@pytest.mark.parametrize(
    "changed",
    [
        {"machine": 1},
        {"machine": "o\0ne"},
        {"command": "true"},
        {"command": [1]},
        {"command": ["\0"]},
        {"environment": {"a": 1}},
        {"environment": {"a\0": ""}},
        {"terminal": 1},
        {"tail": "+1 /etc/shadow"},
        {"tail": True},
        {"follow": "--pid=1"},
        {"more": 1},
    ],
)
def test_anything_but_a_program_is_refused(changed: Mapping[str, Any]) -> None:
    program = Program(machine="one", command=("a", "b"), environment={"x": "y"}, tail=3)
    found = json.loads(program.encoded())
    assert Program.decoded(json.dumps(found).encode()) == program
    with pytest.raises(HostError, match="is not a program"):
        Program.decoded(json.dumps({**found, **changed}).encode())


@pytest.mark.parametrize("packet", [b"", b"[]", b"{", b"[" * 100_000, b"\xff", b"null"])
def test_packets_of_other_programs_are_refused(packet: bytes) -> None:
    with pytest.raises(HostError, match="is not a program"):
        Program.decoded(packet)


def test_a_packet_needs_three_descriptors_and_all_are_closed_again(own: ClusterPaths) -> None:
    for count in (0, 2, 4):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(str(socket_of(own)))
            reader, writer = os.pipe()
            socket.send_fds(sock, [command("true").encoded()], [writer] * count)
            os.close(writer)
            answer = json.loads(sock.recv(65536))
            assert answer.get("what") == "a program needs 3 file descriptors" or (count, answer) == (
                4,
                {"code": 0},
            )  # the fourth is dropped
            assert os.read(reader, 1) == b""  # nobody has the other end any more
            os.close(reader)
    assert ended(own, command("echo", "said")) == (b"said\n", 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root can act as another user")
def test_only_the_owner_and_root_may_connect(readable: Path) -> None:
    with serving(readable, owner=12345) as paths:
        codes = {}
        for user in (0, 12345, STRANGER):
            argv = [other_user.python(user), "-I", "-c", CONNECT, str(socket_of(paths))]
            codes[user] = subprocess.run(argv, **other_user.becoming(user), check=False, cwd="/", stderr=subprocess.DEVNULL).returncode
        assert (codes, socket_of(paths).stat().st_mode & 0o777) == ({0: 0, 12345: 0, STRANGER: 1}, 0o600)


@contextmanager
def terminal(paths: ClusterPaths, *words: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Run a program in a terminal of 30 rows and 100 columns; provides the other end of the terminal."""
    leader, follower = os.openpty()
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    mode = termios.tcgetattr(follower)
    argv = [sys.executable, "-P", "-c", ATTACHED, str(paths.root), *words]
    with subprocess.Popen(argv, stdin=follower, stdout=follower, stderr=follower) as process:
        try:
            yield leader, process
            assert termios.tcgetattr(follower) == mode  # as before
        finally:
            process.kill()
            os.close(follower)
            os.close(leader)


def shown(leader: int, end: bytes) -> bytes:
    """Return what a terminal shows up to and including a text."""
    found = b""
    while not found.endswith(end):
        found += os.read(leader, 1)
    return found


def test_a_program_in_a_terminal_has_one_of_its_own(own: ClusterPaths) -> None:
    script = 'trap "echo caught; echo more >&2; exit 6" INT; stty size; read line; echo "got $line"; while :; do sleep 0.05; done'
    with terminal(own, "bash", "-c", script) as (leader, process):
        assert shown(leader, b"30 100\r\n") == b"30 100\r\n"
        os.write(leader, b"typed\r")
        assert shown(leader, b"got typed\r\n") == b"typed\r\ngot typed\r\n"
        os.write(leader, b"\x03")  # for the program, not for the command that waits for it
        assert shown(leader, b"more\r\n") == b"^Ccaught\r\nmore\r\n"
        assert process.wait() == 6


def test_all_output_of_a_program_in_a_terminal_is_shown_though_others_keep_it_open(own: ClusterPaths) -> None:
    with terminal(own, "bash", "-c", "trap '' HUP; sleep 1000 & echo $!; seq 20000; exit 0") as (leader, process):
        pid = int(shown(leader, b"\r\n"))
        try:
            assert shown(leader, b"20000\r\n").count(b"\r\n") == 20000
            assert process.wait() == 0
        finally:
            os.kill(pid, 9)
