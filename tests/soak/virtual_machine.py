"""A virtual machine with Debian, which runs commands through QEMU's guest agent.

Nothing that a test changes in the machine's network can cut off the agent: it answers on a serial port. What the machine
writes to its disks is discarded when it ends. Where KVM works, this is a machine of QEMU with Debian's own kernel; otherwise
it is Linux in user mode, which needs no such processor, but makes system calls slow.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.soak import user_mode

HOST: Final = "10.0.2.2"
"""The address by which the machine reaches servers on the loopback of the host (QEMU: user networking)."""
ADDRESS: Final = "10.0.2.15/24"
NAME_SERVER: Final = "10.0.2.3"
_PORT: Final = "org.qemu.guest_agent.0"
_MEMORY: Final = 6144
"""MiB."""
KVM, USER_MODE = "KVM", "user mode"
_BOOT: Final[Mapping[str, float]] = {KVM: 120, USER_MODE: 300}
"""The kinds of machines in the order in which they are tried, and how many seconds a boot may take."""


@dataclass(frozen=True, kw_only=True)
class Disks:
    """What a machine boots from: kernel, initial file system, and the raw disks, of which the first has the root file system.

    A kernel in user mode is built in `directory` when it is needed.
    """

    kernel: Path
    initrd: Path
    images: Sequence[Path]
    directory: Path


@dataclass(frozen=True, kw_only=True)
class Result:
    """A command that has ended."""

    code: int
    out: str
    err: str


class VirtualMachine:
    """A machine that runs."""

    def __init__(
        self, process: subprocess.Popen[bytes], connect: Callable[[], AbstractContextManager[socket.socket]], *, kind: str
    ) -> None:
        self.process = process
        self.kind = kind
        self._connect = connect

    def run(self, command: str, *, within: float = 300, check: bool = True) -> Result:
        """Run a line of shell. Raises AssertionError if it fails and `check` is set, or does not end within so many seconds."""
        pid = self._ask("guest-exec", {"path": "/bin/bash", "arg": ["-c", command], "capture-output": True})["pid"]
        end, pause = time.monotonic() + within, 0.2
        while not (state := self._ask("guest-exec-status", {"pid": pid}))["exited"]:
            assert time.monotonic() < end, f"`{command}` did not end within {within:g} s"
            time.sleep(pause)
            pause = min(2 * pause, 3.0)
        code = int(state.get("exitcode", -int(state.get("signal", 0))))
        result = Result(code=code, out=_decoded(state, "out-data"), err=_decoded(state, "err-data"))
        assert not check or code == 0, f"`{command}` ended with {code}: {(result.err or result.out).strip()[-1500:]}"
        return result

    def eventually(self, command: str, wanted: str = "", *, within: float = 600) -> str:
        """Repeat a command until it succeeds with some text in its output, which is returned."""
        end = time.monotonic() + within
        while True:
            result = self.run(command, check=False)
            if result.code == 0 and wanted in result.out:
                return result.out
            said = (result.err or result.out).strip()[-1500:]
            assert time.monotonic() < end, f"`{command}` ended with {result.code} and without {wanted!r} for {within:g} s: {said}"
            time.sleep(2)

    def answers(self) -> bool:
        """Return whether the agent answers: the machine has booted."""
        with suppress(OSError, ValueError):
            self._ask("guest-ping", {}, within=5)
            return True
        return False

    def _ask(self, verb: str, arguments: Mapping[str, Any], *, within: float = 120) -> Any:
        """Call the agent. What an earlier call left unread, or an echo of the line, comes before the answer to `guest-sync`."""
        number = int.from_bytes(os.urandom(4)) >> 1
        with self._connect() as connection:
            connection.settimeout(within)
            connection.sendall(_call("guest-sync", {"id": number}) + _call(verb, arguments))
            with connection.makefile("rb") as answers:
                synchronous = False
                for line in answers:
                    answer = json.loads(line)
                    if synchronous:
                        assert "return" in answer, f"{verb}: {answer}"
                        return answer["return"]
                    synchronous = answer.get("return") == number
        raise ValueError(f"the agent did not answer to {verb}")


def _call(verb: str, arguments: Mapping[str, Any]) -> bytes:
    return json.dumps({"execute": verb, "arguments": arguments}).encode() + b"\n"


def _decoded(state: Mapping[str, Any], name: str) -> str:
    return base64.b64decode(state.get(name, "")).decode(errors="replace")


@contextmanager
def booted(disks: Disks, place: Path) -> Iterator[VirtualMachine]:
    """Boot a machine and end it afterwards. Its console is written to a file in `place`. Raises AssertionError if it does not boot."""
    place.mkdir(parents=True, exist_ok=True)
    tried = [kind for kind in _BOOT if kind != KVM or Path("/dev/kvm").exists()]
    for kind in tried:
        with _STARTED[kind](disks, place) as machine:
            if _boots(machine, place / "console.log"):
                if kind == USER_MODE:
                    machine.run(user_mode.LIST_MODULES)
                yield machine
                return
    raise AssertionError(f"the machine does not boot with {' or in '.join(tried)}: see {place}/console.log")


def _boots(machine: VirtualMachine, console: Path) -> bool:
    """Wait for the agent, but not for a machine that has written nothing to its console for 20 s, as with a KVM that needs other kernels."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < _BOOT[machine.kind] and machine.process.poll() is None:
        if machine.answers():
            return True
        if passed > 20 and console.stat().st_size == 0:
            return False
        time.sleep(1)
    return False


@contextmanager
def _with_kvm(disks: Disks, place: Path) -> Iterator[VirtualMachine]:
    argv = [
        *("qemu-system-x86_64", "-nodefaults", "-display", "none", "-no-reboot", "-machine", "q35", "-accel", "kvm", "-cpu", "host"),
        *("-smp", "2", "-m", str(_MEMORY), "-snapshot"),
        *("-kernel", str(disks.kernel), "-initrd", str(disks.initrd), "-append", "root=/dev/vda rw console=ttyS0 net.ifnames=0"),
        *("-chardev", f"file,id=console,path={place / 'console.log'}", "-serial", "chardev:console"),
        *("-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net", "-device", "virtio-rng-pci", "-device", "virtio-serial"),
        *("-chardev", f"socket,id=agent,path={place / 'agent'},server=on,wait=off"),
        *("-device", f"virtserialport,chardev=agent,name={_PORT}"),
    ]
    for image in disks.images:
        argv += ["-drive", f"file={image},format=raw,if=virtio,cache=unsafe"]

    @contextmanager
    def connect() -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(str(place / "agent"))
            yield connection

    with (place / "qemu.log").open("wb") as log:
        environment = {**os.environ, "TMPDIR": str(place)}  # `-snapshot` keeps there what the machine writes
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    try:
        yield VirtualMachine(process, connect, kind=KVM)
    finally:
        process.kill()
        process.wait()


@contextmanager
def _in_user_mode(disks: Disks, place: Path) -> Iterator[VirtualMachine]:
    kernel = user_mode.ensure_kernel(disks.directory)
    with user_mode.started(kernel, disks.images, place, memory=_MEMORY) as (process, serial):
        yield VirtualMachine(process, serial.dup, kind=USER_MODE)


_STARTED: Final[Mapping[str, Callable[[Disks, Path], AbstractContextManager[VirtualMachine]]]] = {KVM: _with_kvm, USER_MODE: _in_user_mode}
