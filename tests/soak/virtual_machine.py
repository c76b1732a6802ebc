"""A virtual machine of QEMU that boots Debian's own kernel, and runs commands through QEMU's guest agent.

Nothing that a test changes in the machine's network can cut off the agent: it answers on a virtual serial port. What the
machine writes to its disks is discarded when it ends. KVM is used where it works; otherwise QEMU emulates processors,
which takes 10 to 20 times as long.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

HOST: Final = "10.0.2.2"
"""The address by which the machine reaches servers on the loopback of the host (QEMU: user networking)."""
ADDRESS: Final = "10.0.2.15/24"
NAME_SERVER: Final = "10.0.2.3"
_PORT: Final = "org.qemu.guest_agent.0"
_MEMORY: Final = 6144
"""MiB."""
_BOOT: Final[Mapping[str, float]] = {"kvm": 120, "tcg": 900}
"""The accelerators in the order in which they are tried, and how many seconds a boot may take."""


@dataclass(frozen=True, kw_only=True)
class Disks:
    """What a machine boots from: kernel, initial file system, and the raw disks, of which the first has the root file system."""

    kernel: Path
    initrd: Path
    images: Sequence[Path]


@dataclass(frozen=True, kw_only=True)
class Result:
    """A command that has ended."""

    code: int
    out: str
    err: str


class VirtualMachine:
    """A machine that runs."""

    def __init__(self, process: subprocess.Popen[bytes], place: Path, *, accelerator: str) -> None:
        self.process = process
        self.place = place
        self.accelerator = accelerator

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
        """Call the agent on a connection of its own. What an earlier call left unread comes before the answer to `guest-sync`."""
        number = int.from_bytes(os.urandom(4)) >> 1
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(within)
            connection.connect(str(self.place / "agent"))
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
    tried = [name for name in _BOOT if name != "kvm" or Path("/dev/kvm").exists()]
    for accelerator in tried:
        process = _start(disks, place, accelerator)
        try:
            machine = VirtualMachine(process, place, accelerator=accelerator)
            if _boots(machine):
                yield machine
                return
        finally:
            process.kill()
            process.wait()
    raise AssertionError(f"the machine does not boot with {' or '.join(tried)}: see {place}/console.log")


def _boots(machine: VirtualMachine) -> bool:
    end = time.monotonic() + _BOOT[machine.accelerator]
    while time.monotonic() < end and machine.process.poll() is None:
        if machine.answers():
            return True
        time.sleep(1)
    return False


def _start(disks: Disks, place: Path, accelerator: str) -> subprocess.Popen[bytes]:
    argv = [
        *("qemu-system-x86_64", "-nodefaults", "-display", "none", "-no-reboot", "-machine", "q35", "-accel", accelerator),
        *("-cpu", "host" if accelerator == "kvm" else "max", "-smp", "2", "-m", str(_MEMORY), "-snapshot"),
        *("-kernel", str(disks.kernel), "-initrd", str(disks.initrd), "-append", "root=/dev/vda rw console=ttyS0 net.ifnames=0"),
        *("-chardev", f"file,id=console,path={place / 'console.log'}", "-serial", "chardev:console"),
        *("-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net", "-device", "virtio-rng-pci", "-device", "virtio-serial"),
        *(
            "-chardev",
            f"socket,id=agent,path={place / 'agent'},server=on,wait=off",
            "-device",
            f"virtserialport,chardev=agent,name={_PORT}",
        ),
    ]
    for image in disks.images:
        argv += ["-drive", f"file={image},format=raw,if=virtio,cache=unsafe"]
    with (place / "qemu.log").open("wb") as log:
        environment = {**os.environ, "TMPDIR": str(place)}  # `-snapshot` keeps there what the machine writes
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
