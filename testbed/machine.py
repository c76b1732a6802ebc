"""One machine: systemd as PID 1 in a container of systemd-nspawn, over an overlay of the shared trees.

made ── boot() ──> booting ── ready() ──> ready ── stop() ───────> stopped (the disk stays)
└───── cut_power() ──> stopped, with whatever was on the disk at that moment
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from testbed.cgroups import Cgroups
from testbed.places import MachinePlaces
from testbed.running import BedError, quietly, run

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAMESPACES = ("-m", "-u", "-i", "-n", "-p", "-C")
"""Enters the namespaces of PID 1. `ip netns exec` would mount a new /sys, which hides the cgroup mounts."""


@dataclass(frozen=True)
class Ended:
    """The result of a command in a machine."""

    code: int
    out: str
    err: str


class Machine:
    """A machine made of two read-only trees and a disk. `lower` are the trees, the upper one first.

    `shared` are paths at which it sees directories of the host, read-only.
    """

    def __init__(
        self,
        name: str,
        *,
        bed: str,
        places: MachinePlaces,
        lower: Sequence[Path],
        namespace: str,
        address: str,
        shared: Mapping[str, Path] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self.address = address
        self.places = places
        self.cgroups = Cgroups(f"{bed}_{name}")
        self._bed = bed
        self._lower = tuple(lower)
        self._namespace = namespace
        self._shared = shared
        self._container: subprocess.Popen[bytes] | None = None
        self._leader = 0

    def boot(self) -> None:
        """Mount the disk and start systemd; `ready` waits until it is up."""
        self._mount()
        self.cgroups.make()
        with self.places.console.open("ab") as console:
            argv = self.cgroups.within(self._command())
            self._container = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=console, stderr=console, env=_NSPAWN)

    def ready(self, *, within: float = 600) -> None:
        """Wait until the container runtime of the machine serves. Raises BedError with the end of the console."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            if self._container is None or self._container.poll() is not None:
                break
            # the socket exists before containerd serves on it, so ask systemd
            socket = Path(f"/proc/{self.leader}/root/run/containerd/containerd.sock")
            if self.leader and socket.exists() and self.run("systemctl", "start", "containerd", check=False, within=within).code == 0:
                return
            time.sleep(0.02)
        said = self.places.console.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
        raise BedError(f"machine {self.name} did not come up:\n" + "\n".join(said))

    @property
    def leader(self) -> int:
        """The machine's PID 1 in the host's numbering; 0 if there is none."""
        if not self._leader:
            self._leader = next((pid for pid in self.cgroups.processes() if _is_leader(pid)), 0)
        return self._leader

    @property
    def root(self) -> Path:
        """The machine's file system, as the machine sees it."""
        return Path(f"/proc/{self.leader}/root")

    def argv(self, *command: str, env: Mapping[str, str] | None = None) -> list[str]:
        """Return the arguments that run a command in the machine, in its cgroups and with a clean environment."""
        given = {"PATH": _PATH, "HOME": "/root", "LANG": "C.UTF-8", **(env or {})}
        enter = ("nsenter", "-t", str(self.leader), *_NAMESPACES, "--wdns=/root", "--")
        return self.cgroups.inside([*enter, "env", "-i", *(f"{name}={value}" for name, value in given.items()), *command])

    def start(self, *command: str, env: Mapping[str, str] | None = None, **how: int) -> subprocess.Popen[bytes]:
        """Start a command in the machine and return its process."""
        return subprocess.Popen(self.argv(*command, env=env), **how)  # type: ignore[call-overload, no-any-return]

    def run(
        self, *command: str, env: Mapping[str, str] | None = None, within: float = 900, check: bool = True, data: str | None = None
    ) -> Ended:
        """Run a command in the machine. Raises BedError if it fails and `check` is set."""
        ended = subprocess.run(
            self.argv(*command, env=env),
            input=None if data is None else data.encode(),
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            timeout=within,
            check=False,
        )
        found = Ended(ended.returncode, ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace"))
        if check and found.code:
            raise BedError(f"{shlex.join(command)} on {self.name} ended with {found.code}:\n{found.err or found.out}")
        return found

    def stop(self) -> None:
        """Kill the machine; it needs no orderly shutdown."""
        self.cut_power()

    def cut_power(self) -> None:
        """Kill everything in the machine at once, like a power failure. `boot` starts it again from the same disk."""
        if self._container is not None:
            self._container.kill()
        self.cgroups.kill()
        if self._container is not None:
            self._container.wait(600)
        self._container, self._leader = None, 0
        unmount(self.places.root)

    def remove(self) -> None:
        """Stop the machine and remove its disk and cgroups."""
        self.cut_power()
        self.cgroups.remove()
        run("rm", "-rf", "--one-file-system", str(self.places.root_directory))

    def _mount(self) -> None:
        places = self.places
        for path in (places.upper, places.work, places.root, places.containerd):
            path.mkdir(parents=True, exist_ok=True)
        if not os.path.ismount(places.root):
            lower = ":".join(str(path) for path in self._lower)
            options = f"lowerdir={lower},upperdir={places.upper},workdir={places.work}"
            run("mount", "-t", "overlay", f"kubewright-testbed-{self._bed}", "-o", options, str(places.root))

    def _command(self) -> list[str]:
        return [
            *("systemd-nspawn", "-q", "-D", str(self.places.root), f"--machine={self._bed}-{self.name}", f"--hostname={self.name}"),
            *("--register=no", "--keep-unit", f"--network-namespace-path=/run/netns/{self._namespace}", "--capability=all"),
            *("--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=read-only", "--bind=/dev/kmsg"),
            *(f"--bind-ro={path}:{place}" for place, path in self._shared.items()),
            *(f"--bind={self.places.containerd}:/var/lib/containerd", "-b"),
        ]


_NSPAWN = {"PATH": _PATH, "SYSTEMD_SECCOMP": "0", "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "1", "LANG": "C.UTF-8"}


def unmount(root: Path) -> None:
    """Unmount a machine's file system, as often as something was mounted there."""
    while os.path.ismount(root):
        quietly(["umount", "-R", "-l", str(root)])


def _is_leader(pid: int) -> bool:
    """Whether a process is PID 1 of its own process namespace."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return any(line.split()[2:] == ["1"] for line in status.splitlines() if line.startswith("NSpid:"))
