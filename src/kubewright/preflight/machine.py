"""Checks of the machine itself: processors, memory, swap, tools, names, and files that an earlier cluster left."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.checks import Finding, warning
from kubewright.base.messages import quoted
from kubewright.preflight.checks import Check, Subject, path_name

CORES: Final = 2
MEMORY: Final = 1700
"""MiB, rounded down."""
_MIB: Final = 1024 * 1024
_SWAPS: Final = PurePosixPath("/proc/swaps")
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)

_RESET: Final = "if they are no longer needed, remove the files of an earlier cluster with `reset`"


def privileged(subject: Subject) -> Iterable[Finding]:
    """Only root may change a machine."""
    if subject.user != 0:
        yield Finding(text="user is not running as root", remedy="run the command as root, with sudo for example")


def cores(subject: Subject) -> Iterable[Finding]:
    """A control plane needs more than one processor."""
    found = subject.host.facts.machine.cores
    if found < CORES:
        yield Finding(
            text=f"the number of available CPUs {found} is less than the required {CORES}", remedy="give the machine more processors"
        )


def memory(subject: Subject) -> Iterable[Finding]:
    """A control plane uses most of this itself."""
    found = subject.host.facts.machine.memory // _MIB
    if found < MEMORY:
        yield Finding(text=f"the system RAM ({found} MB) is less than the minimum {MEMORY} MB", remedy="give the machine more memory")


def swap(subject: Subject) -> Iterable[Finding]:
    """The kubelet refuses to start with swap on unless its configuration says otherwise."""
    if _swaps(subject):
        yield warning(
            "swap is supported for cgroup v2 only. The kubelet must be properly configured to use swap",
            remedy="turn it off (`swapoff -a`, and its lines in /etc/fstab), or set failSwapOn: false and memorySwap in the kubelet's configuration",
        )


def kubelet_takes_swap(subject: Subject, *, refuses: bool) -> Iterable[Finding]:
    """A kubelet of a known configuration must start with the machine's swap. `refuses` is its failSwapOn."""
    if refuses and _swaps(subject):
        yield Finding(
            text="swap is on, and the kubelet does not start with it unless its configuration has failSwapOn: false",
            remedy="turn it off (`swapoff -a`, and its lines in /etc/fstab), or set failSwapOn: false in the configuration of kubelets",
        )


def _swaps(subject: Subject) -> bool:
    return len((subject.host.read(_SWAPS) or b"").decode(errors="replace").splitlines()) > 1


def in_path(program: str) -> Check:
    """Programs that the kubelet and the runtime call."""

    def find(subject: Subject) -> Iterable[Finding]:
        if subject.host.programs.path(program) is None:
            yield Finding(text=f"{program} not found in system path", remedy=f"install the package that has `{program}`, or fix PATH")

    return Check(name=f"FileExisting-{program}", find=find)


def switched_on(path: PurePosixPath) -> Check:
    """A kernel setting that must be 1: without forwarding, pods of other machines are unreachable."""
    setting = str(path.relative_to("/proc/sys")).replace("/", ".")

    def find(subject: Subject) -> Iterable[Finding]:
        content = subject.host.read(path)
        if content is None:
            yield Finding(
                text=f"{path} does not exist", remedy="make sure that the kernel has this protocol, and that /proc/sys is mounted"
            )
        elif content[:1] != b"1":
            yield Finding(
                text=f"{path} contents are not set to 1", remedy=f"set it with `sysctl -w {setting}=1`, and permanently in /etc/sysctl.d"
            )

    return Check(name=path_name("FileContent", path), find=find)


def hostname(resolve: Callable[[str], object] | None = None) -> Check:
    """The name of the Node, by which components find the machine."""

    def find(subject: Subject) -> Iterable[Finding]:
        name = subject.node.name
        if not _QUALIFIED.fullmatch(name):
            yield warning(
                f"hostname: invalid node name {quoted(name)}",
                remedy="choose another with --node-name: letters, digits, - and ., at most 63",
            )
        try:
            (resolve or _resolve)(name)
        except OSError:
            yield warning(
                f'hostname "{name}" could not be reached',
                remedy=f"if other machines should be able to resolve {name}, add it to DNS or /etc/hosts",
            )

    return Check(name="Hostname", find=find)


def _resolve(name: str) -> object:
    return socket.getaddrinfo(name, None)


def file_available(path: PurePosixPath) -> Check:
    """A file that the command is going to write must not exist."""

    def find(subject: Subject) -> Iterable[Finding]:
        if subject.host.state(path) is not None:
            yield Finding(text=f"{path} already exists", remedy=_RESET)

    return Check(name=path_name("FileAvailable", path), find=find)


def directory_empty(path: PurePosixPath) -> Check:
    """A data directory must not contain data of others."""

    def find(subject: Subject) -> Iterable[Finding]:
        if subject.host.entries(path):
            yield Finding(text=f"{path} is not empty", remedy=_RESET)

    return Check(name=path_name("DirAvailable", path), find=find)


def file_existing(path: PurePosixPath, *, name: str) -> Check:
    """A file that the configuration names must exist."""

    def find(subject: Subject) -> Iterable[Finding]:
        if subject.host.state(path) is None:
            yield Finding(text=f"{path} doesn't exist", remedy="put it there, or set the right path in the configuration")

    return Check(name=name, find=find)
