"""The second socket of the daemon of a cluster of machines: it runs programs for the owner, with the owner's file descriptors.

One connection runs one program. The client sends one packet: a `Program`, with its standard input, output and error
output (SCM_RIGHTS, unix(7)). The daemon neither reads nor writes these; it answers with the program's exit code, or with
the reason why there is none. If the client closes the connection, the program gets SIGHUP, as if its terminal were closed.

    accepted ── packet ──> running ── it ends ──> answered
                              └────── the client is gone, or the daemon stops ──> hung up
"""

from __future__ import annotations

import array
import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from kubewright.base import unexpected
from kubewright.base.errors import HostError, KubewrightError
from kubewright.base.messages import reason_of
from kubewright.host.detached import DetachedProcess
from kubewright.http.listening import listen_unix, users
from kubewright.http.loop import readable
from kubewright.http.unix import peer_user
from kubewright.local.paths import ClusterPaths
from kubewright.local.whole.services import commands
from kubewright.local.whole.services.programs import STREAMS, Program, socket_of
from kubewright.machines.machine import Machine
from kubewright.machines.running import PATH

_PAUSE: Final = 1.0
"""Seconds until clients are accepted again, for example if the daemon has too many open files."""
_PATIENCE: Final = 30.0
"""Seconds that a client may take to send its packet."""
_MOST: Final = 1 << 20
"""Bytes of a packet; the kernel's limit is lower (net.core.wmem_default)."""
_UMASK: Final = 0o022
"""As in a shell of root. Files that the daemon itself creates are private."""


class ProgramServer:
    """Listens from its creation on; `run` serves until it is cancelled, `close` stops listening."""

    def __init__(self, own: ClusterPaths, found: Callable[[str], Machine | None], *, owner: int) -> None:
        self._own = own
        self._found = found
        self._users = users(owner)
        self._listener = listen_unix(socket_of(own), owner=owner, kind=socket.SOCK_SEQPACKET)
        self._listener.setblocking(False)

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    async def run(self) -> None:
        """Serve clients, each in a task of its own."""
        async with asyncio.TaskGroup() as clients:
            while True:
                await readable(self._listener)
                try:
                    client, _ = self._listener.accept()
                except OSError:
                    await asyncio.sleep(_PAUSE)
                    continue
                clients.create_task(self._serve(client))

    async def _serve(self, client: socket.socket) -> None:
        with client:
            client.setblocking(False)
            try:
                answer = await self._answer(client)
            except KubewrightError as error:
                answer = {"what": error.what, "detail": error.detail, "remedy": error.remedy}
            except (OSError, TimeoutError):
                return  # the client has gone, or is none
            except Exception as error:  # one program must not end those of others
                unexpected.report("a program of the owner", error)
                return
            with suppress(OSError):
                client.send(json.dumps(answer).encode())

    async def _answer(self, client: socket.socket) -> Mapping[str, object]:
        if peer_user(client) not in self._users:
            raise HostError("only the owner of this cluster and root may run programs in its machines")
        async with asyncio.timeout(_PATIENCE):
            await readable(client)
        packet, descriptors = _received(client)
        try:
            if not packet:
                raise ConnectionAbortedError
            if len(descriptors) != STREAMS:
                raise HostError(f"a program needs {STREAMS} file descriptors")
            process = self._started(Program.decoded(packet), descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        code = await _ended(process, client)
        return {"code": code if code >= 0 else 128 - code}  # as shells do for signals

    def _started(self, program: Program, descriptors: list[int]) -> DetachedProcess:
        argv = program.argv(self._own, self._found)
        try:
            return DetachedProcess(
                argv,
                stdin=descriptors[0],
                stdout=descriptors[1],
                stderr=descriptors[2],
                start_new_session=not program.terminal,  # setsid(1) makes one with this terminal, if it is not in one already
                umask=_UMASK,
                cwd="/",
                env={**commands.environment(self._own), "PATH": PATH},
            )
        except OSError as error:
            raise HostError("the program cannot be started", detail=reason_of(error)) from error


def _received(client: socket.socket) -> tuple[bytes, list[int]]:
    """Read a packet and its descriptors. What does not fit has been dropped by the kernel, and is not decoded as something else."""
    room = socket.CMSG_SPACE(STREAMS * array.array("i").itemsize)
    packet, messages, _, _ = client.recvmsg(_MOST, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in messages:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return packet, list(descriptors)


async def _ended(process: DetachedProcess, client: socket.socket) -> int:
    """Wait until a program ends, and hang up if the client is gone before, or we have to stop."""
    handle = os.pidfd_open(process.pid)
    ended, gone = (asyncio.create_task(readable(one)) for one in (handle, client))
    try:
        await asyncio.wait({ended, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            _hang_up(process)
            await ended
        return process.wait()
    except asyncio.CancelledError:
        _hang_up(process)
        raise
    finally:
        for task in (ended, gone):
            task.cancel()
        await asyncio.gather(ended, gone, return_exceptions=True)
        os.close(handle)


def _hang_up(process: DetachedProcess) -> None:
    for signalled in (os.killpg, os.kill):  # setsid(1) may not have made the group yet
        with suppress(ProcessLookupError):
            signalled(process.pid, signal.SIGHUP)
            signalled(process.pid, signal.SIGCONT)
