"""One machine: systemd as PID 1 in a container of systemd-nspawn, over an overlay of the shared trees.

made ── boot() ──> booting ── ready() ──> ready ── stop() ───────> stopped (the disk stays)
└───── cut_power() ──> stopped, with whatever was on the disk at that moment
ready ── pause() ──> paused ── resume() ──> ready
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from kubewright.base.clock import SystemClock
from kubewright.base.errors import HostError, WaitTimeout
from kubewright.base.events import SilentReporter
from kubewright.base.records import dataclass
from kubewright.base.wait import PollingWaiter
from kubewright.host.detached import DetachedProcess
from kubewright.host.filesystem.mounts import unescaped
from kubewright.host.processes import Identity, RealProcesses
from kubewright.host.programs.commands import Ended
from kubewright.machines.cgroups import Cgroups
from kubewright.machines.places import MachinePlaces
from kubewright.machines.running import PATH, environment, quietly, run

_POWER_OFF = signal.SIGRTMIN + 4
"""Makes systemd start poweroff.target (systemd(1))."""
_NAMESPACES = ("-m", "-u", "-i", "-n", "-p", "-C")
"""Enters the namespaces of PID 1. `ip netns exec` would mount a new /sys, which hides the cgroup mounts."""


@dataclass(frozen=True, kw_only=True)
class Bind:
    """A directory or file of the host that a machine sees at a path."""

    source: Path
    target: str
    read_only: bool


class Machine:
    """A machine made of two read-only trees and a disk. `lower` are the trees, the upper one first.

    `shared` are paths at which it sees directories and files of the host, read-only; `mounts` are those of its user.
    """

    def __init__(
        self,
        name: str,
        *,
        group: str,
        places: MachinePlaces,
        lower: Sequence[Path],
        namespace: str,
        address: str,
        shared: Mapping[str, Path] = MappingProxyType({}),
        mounts: Sequence[Bind] = (),
    ) -> None:
        self.name = name
        self.address = address
        self.places = places
        self.cgroups = Cgroups(f"{group}_{name}")
        self._group = group
        self._lower = tuple(lower)
        self._namespace = namespace
        self._shared = shared
        self._mounts = tuple(mounts)
        self._container: DetachedProcess | None = None
        self._leader: Identity | None = None
        self._processes = RealProcesses()

    def boot(self) -> None:
        """Mount the disk and start systemd; `ready` waits until it is up."""
        self._mount()
        self.cgroups.make()
        with self.places.console.open("ab") as console:
            argv = self.cgroups.within(self._command())
            self._container = DetachedProcess(
                argv, stdin=subprocess.DEVNULL, stdout=console, stderr=console, env=_NSPAWN, start_new_session=True, cwd="/"
            )

    def ready(self, *, within: float = 600) -> None:
        """Wait until the container runtime of the machine serves. Raises HostError with the end of the console."""

        def serves() -> str | None:
            is_over = not self._leads(self.leader) if self._container is None else self._container.poll() is not None
            if is_over:
                raise HostError(f"machine {self.name} ended while it started", detail=self._last_lines())
            # the socket exists before containerd serves on it, so ask systemd
            socket = Path(f"/proc/{self.leader}/root/run/containerd/containerd.sock")
            if not self.leader or not socket.exists():
                return "systemd has not started containerd yet"
            ended = self.run("systemctl", "start", "containerd", check=False, within=within)
            return (ended.err or ended.out).strip() or "containerd does not start" if ended.code else None

        waiter = PollingWaiter(clock=SystemClock(), reporter=SilentReporter())
        what = f"machine {self.name} to start"
        waiter.until(serves, within=within, saying=what, every=0.02, at_most=0.05, diagnose=self._last_lines)

    def _last_lines(self) -> str:
        return "\n".join(self.places.console.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])

    @property
    def leader(self) -> int:
        """The machine's PID 1 in the host's numbering; 0 if there is none."""
        if self._leader is None:
            pid = next((pid for pid in self.cgroups.processes() if _is_leader(pid)), 0)
            self._leader = self._processes.of(pid) if pid else None
        return self._leader.pid if self._leader is not None else 0

    def _leads(self, pid: int) -> bool:
        """Return whether a process is still the PID 1 that was found, and not another one that has got its number."""
        return self._leader is not None and self._leader.pid == pid and self._processes.alive(self._leader)

    @property
    def is_paused(self) -> bool:
        """Whether its processes are frozen. A command in it would be frozen as well."""
        return self.cgroups.frozen

    @property
    def runs(self) -> bool:
        """Whether the machine has a PID 1 now, and is not paused; `leader` may denote one that has ended since."""
        if self._leader is not None and not self._leads(self._leader.pid):
            self._leader = None
        return bool(self.leader) and not self.is_paused

    def pause(self) -> None:
        """Freeze all its processes, as if the machine hung: connections to it stay open, but nothing answers."""
        self.cgroups.freeze()

    def resume(self) -> None:
        """Resume the processes of a paused machine."""
        self.cgroups.thaw()

    @property
    def root(self) -> Path:
        """The machine's file system, as the machine sees it."""
        return Path(f"/proc/{self.leader}/root")

    def argv(self, *command: str, env: Mapping[str, str] | None = None) -> list[str]:
        """Return the arguments that run a command in the machine, in its cgroups and with a clean environment."""
        given = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **(env or {})}
        enter = ("nsenter", "-t", str(self.leader), *_NAMESPACES, "--wdns=/root", "--")
        return self.cgroups.inside([*enter, "env", "-i", *(f"{name}={value}" for name, value in given.items()), *command])

    def start(self, *command: str, env: Mapping[str, str] | None = None, **how: int) -> subprocess.Popen[bytes]:
        """Start a command in the machine and return its process."""
        return subprocess.Popen(self.argv(*command, env=env), env=environment(), **how)  # type: ignore[call-overload, no-any-return]

    def run(
        self, *command: str, env: Mapping[str, str] | None = None, within: float = 900, check: bool = True, data: str | None = None
    ) -> Ended:
        """Run a command in the machine. Raises HostError if it fails and `check` is set, or does not end `within` seconds."""
        try:
            ended = subprocess.run(
                self.argv(*command, env=env),
                input=None if data is None else data.encode(),
                stdin=subprocess.DEVNULL if data is None else None,
                capture_output=True,
                timeout=within,
                check=False,
                env=environment(),
            )
        except subprocess.TimeoutExpired as error:
            raise HostError(f"{shlex.join(command)} on {self.name} did not end within {within:g} s") from error
        found = Ended(code=ended.returncode, out=ended.stdout.decode(errors="replace"), err=ended.stderr.decode(errors="replace"))
        if check and found.code:
            raise HostError(f"{shlex.join(command)} on {self.name} ended with {found.code}", detail=found.err or found.out)
        return found

    def bind(self, one: Bind) -> bool:
        """Mount a directory or file of the host in a running machine; returns whether it was not mounted before. Raises HostError."""
        if self._has_mount(one.target):
            return False
        words = (str(self.leader), str(one.source), one.target, "ro" if one.read_only else "rw")
        run(sys.executable, "-P", "-m", "kubewright.machines.mounting", *words)
        return True

    def unbind(self, target: str) -> bool:
        """Undo `bind`; returns whether something was mounted. Running pods keep it until they end."""
        if not self._has_mount(target):
            return False
        self.run("umount", "-l", target)  # with all below it; a recursive one fails if some of these are hidden (umount(2), MNT_DETACH)
        return True

    def _has_mount(self, target: str) -> bool:
        """Return whether something is mounted at a path (proc_pid_mountinfo(5))."""
        lines = Path(f"/proc/{self.leader}/mountinfo").read_bytes().split(b"\n")[:-1]
        return any(unescaped(line.split()[4]) == os.fsencode(target) for line in lines)

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
        self._container = self._leader = None
        self.cgroups.clear()
        clear_host(self._group, self.places)

    def shut_down(self, *, within: float = 90) -> None:
        """Make systemd stop all services and power off; then kill the remaining processes."""
        if self.leader:
            self.resume()
            os.kill(self.leader, _POWER_OFF)
            with suppress(WaitTimeout):
                waiter = PollingWaiter(clock=SystemClock(), reporter=SilentReporter())
                waiter.until(self._still_runs, within=within, saying=f"machine {self.name} to shut down", every=0.05, at_most=0.2)
        self.cut_power()

    def _still_runs(self) -> str | None:
        if self._container is not None:
            self._container.poll()
        return "its PID 1 still runs" if self._leads(self.leader) else None

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
            run("mount", "-t", "overlay", f"kubewright-{self._group}", "-o", options, str(places.root))

    def _command(self) -> list[str]:
        return [
            *(
                "systemd-nspawn",
                "-q",
                "-D",
                str(self.places.root),
                f"--machine={container_name(self._group, self.name)}",
                f"--hostname={self.name}",
            ),
            *("--register=no", "--keep-unit", f"--network-namespace-path=/run/netns/{self._namespace}", "--capability=all"),
            *("--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=read-only", "--bind=/dev/kmsg"),
            *(_bind(path, place, read_only=True) for place, path in self._shared.items()),
            *(_bind(one.source, one.target, read_only=one.read_only) for one in self._mounts),
            *(f"--bind={self.places.containerd}:/var/lib/containerd", "-b"),
        ]


_NSPAWN = {"PATH": PATH, "SYSTEMD_SECCOMP": "0", "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "1", "LANG": "C.UTF-8"}


_NSPAWN_RUN = Path("/run/systemd/nspawn")
"""Where systemd-nspawn locks the root directories of its containers (src/shared/discover-image.c of systemd 252), and keeps a directory of each."""


def clear_host(group: str, places: MachinePlaces) -> None:
    """Unmount the file system of a stopped machine, and remove what systemd-nspawn leaves behind after a kill."""
    while os.path.ismount(places.root):
        found = places.root.stat()
        (_NSPAWN_RUN / "locks" / f"inode-{found.st_dev}:{found.st_ino}").unlink(missing_ok=True)
        quietly(["umount", "-R", "-l", str(places.root)])
    for kept in _NSPAWN_RUN.glob(f"*/{container_name(group, places.root_directory.name)}"):
        quietly(["rm", "-rf", "--one-file-system", str(kept)])


def _bind(source: Path, target: str, *, read_only: bool) -> str:
    """Return the argument of systemd-nspawn for a bind mount, in whose paths a backslash escapes (systemd-nspawn(1), `--bind=`)."""
    paths = (str(path).replace("\\", "\\\\").replace(":", "\\:") for path in (source, target))
    return f"--bind{'-ro' if read_only else ''}={':'.join(paths)}"


def container_name(group: str, machine: str) -> str:
    """Return the name of a machine's container, which is as short as a host name (hostname(7): 64 characters).

    The end of the machine's name stays: it distinguishes the machines of a group.
    """
    return f"{group}-{machine[-(63 - len(group)) :].lstrip('-')}"


def _is_leader(pid: int) -> bool:
    """Whether a process is PID 1 of its own process namespace."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return any(line.split()[2:] == ["1"] for line in status.splitlines() if line.startswith("NSpid:"))
