"""Running the programs of `services.programs`: root starts them itself, the owner of a cluster lets its daemon start them."""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from kubewright.base.clock import SystemClock
from kubewright.base.errors import HostError
from kubewright.base.messages import reason_of
from kubewright.base.records import replace
from kubewright.host.terminals import PseudoTerminal
from kubewright.http import unix
from kubewright.local.paths import ClusterPaths
from kubewright.local.whole import members
from kubewright.local.whole.services import client
from kubewright.local.whole.services.places import runtime
from kubewright.local.whole.services.programs import Program, socket_of
from kubewright.machines.running import environment

_CHUNK: Final = 64 * 1024
_SAID: Final = 4096
"""Bytes of a program's error output that an error shows."""


def argv(paths: ClusterPaths, program: Program) -> list[str]:
    """Return the arguments with which root starts a program. Raises HostError for a machine that does not run."""
    return program.argv(runtime(paths), lambda name: members.machine_of_group(paths, name))


@contextmanager
def started(paths: ClusterPaths, program: Program, *, stdin: int, stdout: int, stderr: int) -> Iterator[Callable[[], int]]:
    """Start a program with these file descriptors, and yield what waits for its end and returns its exit code. It ends with the block.

    Raises HostError if it cannot be started, or the daemon, which starts it for the owner, does not run.
    """
    if os.geteuid() == 0:
        with subprocess.Popen(argv(paths, program), stdin=stdin, stdout=stdout, stderr=stderr, env=environment()) as process:
            try:
                yield process.wait
            finally:
                process.terminate()
        return
    with _asked(paths, program, stdin, stdout, stderr) as sock:
        yield lambda: _code(paths, sock)


def attached(paths: ClusterPaths, program: Program) -> int:
    """Let the daemon run a program with our own streams, and return its exit code. If they are a terminal, the program gets one of its own."""
    if not (os.isatty(0) and os.isatty(1)):
        with _asked(paths, program, 0, 1, 2) as sock:
            return _code(paths, sock)
    own = replace(program, terminal=True)
    with PseudoTerminal() as terminal:
        follower = terminal.follower
        with _asked(paths, own, follower, follower, follower if os.isatty(2) else 2) as sock:
            terminal.relay(sock.fileno())
            return _code(paths, sock)


@contextmanager
def _asked(paths: ClusterPaths, program: Program, *streams: int) -> Iterator[socket.socket]:
    """Send a program with its streams to the daemon, and yield the connection, which the daemon answers when the program has ended."""
    path = socket_of(runtime(paths))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        try:
            with unix.reachable(path) as short:
                sock.connect(short)
            unix.check_server(sock, path)
            socket.send_fds(sock, [program.encoded()], streams)
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise HostError("the command is too long for the cluster's daemon", detail=reason_of(error)) from error
            raise client.absent(paths) from error
        yield sock


def _code(paths: ClusterPaths, sock: socket.socket) -> int:
    try:
        answer = json.loads(sock.recv(_CHUNK))
    except (OSError, ValueError) as error:  # nothing, if the daemon has ended
        raise client.absent(paths) from error
    if "code" not in answer:
        raise HostError(answer["what"], detail=answer["detail"], remedy=answer["remedy"])
    return int(answer["code"])


@contextmanager
def reading(paths: ClusterPaths, program: Program, *, stderr: int = 2) -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
    """Start a program without input, and read its output. It is ended with the block."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as content, Path(os.devnull).open("rb") as nothing:
        try:
            with started(paths, program, stdin=nothing.fileno(), stdout=writer, stderr=stderr) as wait:
                os.close(writer)
                writer = -1
                yield content, wait
        finally:
            if writer >= 0:
                os.close(writer)


def output(paths: ClusterPaths, program: Program) -> Generator[bytes, None, int]:
    """Yield the output of a program; returns its exit code. The program is ended if the caller stops reading."""
    with reading(paths, program) as (content, wait):
        while chunk := os.read(content.fileno(), _CHUNK):
            yield chunk
        return wait()


def captured(paths: ClusterPaths, program: Program, *, within: float) -> bytes:
    """Return the output of a command in a machine. Raises HostError, with its error output, if it fails or does not end `within` seconds."""
    what = f"{' '.join(program.command)} on {program.machine}"
    clock, found = SystemClock(), bytearray()
    deadline = clock.monotonic() + within
    with tempfile.TemporaryFile() as said, reading(paths, program, stderr=said.fileno()) as (content, wait):
        while select.select([content], [], [], max(0.0, deadline - clock.monotonic()))[0]:
            chunk = os.read(content.fileno(), _CHUNK)
            if not chunk:
                break
            found += chunk
        else:
            raise HostError(f"{what} did not end within {within:g} s")
        code = wait()
        if code:
            said.seek(0)
            raise HostError(f"{what} ended with {code}", detail=said.read(_SAID).decode(errors="replace").strip())
    return bytes(found)
