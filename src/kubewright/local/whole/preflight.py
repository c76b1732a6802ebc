"""Checks of a host for whole machines, as a table; each failure names the command that fixes it. Only reads."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from kubewright import binaries
from kubewright.base.checks import Check, Finding, Report, run_checks, warning
from kubewright.base.errors import BinariesError, CheckFailed, HostError
from kubewright.base.level import KUBERNETES
from kubewright.base.records import dataclass
from kubewright.base.versions import Version
from kubewright.binaries import BinarySources
from kubewright.local.whole import kernel, subnets
from kubewright.machines import base, host, network, places, program, running
from kubewright.machines.tree import providing

_SPACE: Final = 4_000_000_000
"""Bytes of the Debian tree, programs and images, and of some machines' first data."""
_SPACE_LATER: Final = 1_000_000_000
"""Bytes of that data alone: the tree exists."""
_ELSEWHERE: Final = "make {} a link to a directory on another disk; in a container, XDG_CACHE_HOME and XDG_STATE_HOME can name a volume"
"""On other hosts, sudo would remove these variables."""
_CAPABILITIES: Final = {"CAP_NET_ADMIN": 12, "CAP_SYS_CHROOT": 18, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27}
"""Capabilities for mounts, namespaces, networks and devices, and their bits (linux/capability.h)."""
_CONTROLLERS: Final = ("cpu", "cpuset", "memory", "pids")
"""The controllers that the kubelet needs (kubernetes v1.36: pkg/kubelet/cm/cgroup_manager_linux.go)."""


_PRIVILEGED: Final = "use the host itself, or start the container as root of the host, with `--privileged`"
_ALL_USERS: Final = ["0", "0", str(2**32 - 1)]
"""The users of the first user namespace (user_namespaces(7)): in others, root may change neither the kernel's settings nor devices."""
_CGROUPS: Final = frozenset({"cgroup", "cgroup2"})


@dataclass(frozen=True, kw_only=True)
class _Mount:
    path: str
    options: frozenset[str]
    """Those of the mount, not of its file system."""
    kind: str


@dataclass(frozen=True, kw_only=True)
class Subject:
    """This host, as the checks read it; tests replace parts."""

    user: int
    system: str
    architecture: str
    which: Callable[[str], str | None]
    read: Callable[[str], str]
    """The text of a file, '' if it cannot be read."""
    python: str
    """Why machines cannot run this program, '' if they can."""
    has_tree: bool
    """Whether the Debian tree is there."""
    offers_tree: bool
    """Whether a source of binaries may have a machine tree, so that nothing has to be made."""
    describes_kernel: bool
    """Whether the configuration of the kernel can be read."""
    builds_runc: bool
    """Whether runc is missing, and only a build can provide it. Its version does not depend on that of Kubernetes."""
    go: Callable[[], Finding | None]
    """Why no Go can build it, None if one can."""
    free: Callable[[Path], int]
    """The free bytes of the file system of a directory."""


def this_host(sources: BinarySources | None = None) -> Subject:
    """Return this host. The sources of binaries are those of the environment by default."""
    given = sources or binaries.sources_from(os.environ)
    is_offered = _permitted(lambda: providing.is_offered(given))
    return Subject(
        user=os.geteuid(),
        system=sys.platform,
        architecture=platform.machine(),
        which=lambda name: shutil.which(name, path=running.PATH),
        read=_read,
        python=program.unfit(),
        has_tree=_permitted(lambda: base.place().exists()),
        offers_tree=is_offered,
        describes_kernel=kernel.configuration() is not None,
        builds_runc=not is_offered and _permitted(lambda: bool(binaries.only_built(("runc",), version=KUBERNETES, sources=given))),
        go=_go,
        free=lambda directory: shutil.disk_usage(directory).free,
    )


def _permitted(look: Callable[[], bool]) -> bool:
    """Return what is found, False if we may not look, because HOME is that of another user; the check of the storage reports it.

    A bad directory of binaries is reported by the commands that use it.
    """
    try:
        return look()
    except (PermissionError, HostError, BinariesError):
        return False


def _go() -> Finding | None:
    """Look for a Go that can build runc."""
    from kubewright.binaries import golang, table  # hosts that have runc need neither

    try:
        golang.find_go(os.environ, need=golang.find_module(table.RUNC, table.RUNC.version(Version.parse(KUBERNETES))).go)
    except BinariesError as error:
        return Finding(text=f"runc has to be built, but {error}", remedy=error.remedy)
    return None


def examine(subject: Subject | None = None) -> Report:
    """Run all checks."""
    return run_checks(CHECKS, subject or this_host(), in_order=True)


def require(subject: Subject | None = None) -> None:
    """Run all checks. Raises CheckFailed with every failure."""
    errors = examine(subject).errors
    if errors:
        raise CheckFailed(
            "this host cannot run whole machines",
            detail="\n".join(f"{name}: {found.text}\n  hint: {found.remedy}" for name, found in errors),
            remedy="`kubewright preflight machines` repeats these checks",
        )


def require_families(config: str) -> None:
    """Require the additional features that a cluster with this configuration needs. Raises CheckFailed."""
    if any(map(network.is_ipv6, subnets.of(config).pods)) and not network.kernel_has_ipv6():
        raise CheckFailed(
            "the kernel of this host has no IPv6, but the cluster needs it",
            remedy="boot it without `ipv6.disable=1`, or leave IPv6 out of podSubnet and serviceSubnet",
        )


def _system(subject: Subject) -> Iterable[Finding]:
    if subject.system != "linux" or subject.architecture != "x86_64":
        yield Finding(text=f"machines run on Linux on amd64, not on {subject.system} on {subject.architecture}", remedy="use another host")


def _root(subject: Subject) -> Iterable[Finding]:
    if subject.user != 0:
        yield Finding(text="machines need root", remedy="run the same command with sudo; the cluster will belong to you")


def _privileges(subject: Subject) -> Iterable[Finding]:
    for reason in _restrictions(subject) if subject.user == 0 else ():
        yield Finding(text=f"{reason}: this is a container without privileges", remedy=_PRIVILEGED)


def _restrictions(subject: Subject) -> Iterator[str]:
    """Yield what root may not do here."""
    line = next((line for line in subject.read("/proc/self/status").splitlines() if line.startswith("CapEff:")), "")
    held = int(line.split()[1], 16) if line else -1
    if missing := [name for name, bit in _CAPABILITIES.items() if not held >> bit & 1]:
        yield f"root lacks {', '.join(missing)}"
    if subject.read("/proc/self/uid_map").split() not in ([], _ALL_USERS):
        yield "root of this user namespace is another user on the host"
    if found := _read_only(subject.read("/proc/self/mountinfo")):
        yield f"{', '.join(found)} {'is' if len(found) == 1 else 'are'} read-only"


def _read_only(mountinfo: str) -> list[str]:
    """Return the mounts of cgroups and kernel settings to which nobody can write."""
    mounts = {row.path: row for row in _mounts(mountinfo)}
    settings = [mounts[path] for path in ("/proc", "/proc/sys") if path in mounts][-1:]
    return [row.path for row in (*settings, *(row for row in mounts.values() if row.kind in _CGROUPS)) if "ro" in row.options]


def _programs(subject: Subject) -> Iterable[Finding]:
    wanted = dict(host.PACKAGES)
    if not subject.has_tree:
        wanted |= host.UNPACKING if subject.offers_tree else host.MAKING
    missing = {package: name for name, package in wanted.items() if subject.which(name) is None}
    if missing:
        yield Finding(text=f"not installed: {', '.join(missing.values())}", remedy=f"apt-get install {' '.join(missing)}")


def _tree(subject: Subject) -> Iterable[Finding]:
    if not subject.has_tree and not subject.offers_tree and subject.which("apt-get") is None:
        yield Finding(
            text="the machines' Debian tree has to be built, but this host has no apt",
            remedy="use a host with Debian or Ubuntu, or the file that `make machine-tree` makes on one",
        )


def _runc(subject: Subject) -> Iterable[Finding]:
    if not subject.builds_runc:
        return
    missing = {
        package: name
        for name, package in host.BUILDING.items()
        if not (subject.read(name) if name.startswith("/") else subject.which(name))
    }
    if missing:
        yield Finding(
            text=f"runc has to be built, but its build dependencies are not installed: {', '.join(missing.values())}",
            remedy=f"apt-get install {' '.join(missing)}",
        )
    if (found := subject.go()) is not None:
        yield found


def _python(subject: Subject) -> Iterable[Finding]:
    if subject.python:
        yield Finding(text=subject.python, remedy="use the archive that brings its own Python (`make bundle`)")


def _cgroups(subject: Subject) -> Iterable[Finding]:
    mounts = [line.split() for line in subject.read("/proc/mounts").splitlines()]
    found = {row[2]: row[1] for row in mounts if len(row) > 2 and row[2] in _CGROUPS}
    if not found:
        yield Finding(text="no cgroups are mounted", remedy="boot with systemd; on WSL set `systemd=true` below [boot] in /etc/wsl.conf")
        return
    if "cgroup" in found:
        rows = [line.split() for line in subject.read("/proc/cgroups").splitlines() if not line.startswith("#")]
        given = {row[0] for row in rows if len(row) > 3 and row[3] == "1"}
    else:
        given = set(subject.read(f"{found['cgroup2']}/cgroup.controllers").split())
    missing = [name for name in _CONTROLLERS if name not in given]
    if missing:
        words = " ".join(f"cgroup_enable={name}" for name in missing)
        yield Finding(
            text=f"cgroups lack the controllers {', '.join(missing)}", remedy=f"add `{words}` to the kernel's command line and reboot"
        )


def _delegation(subject: Subject) -> Iterable[Finding]:
    """In a container without systemd, only the root of version 2 has all controllers, and processes in it keep others from having them."""
    where = "/sys/fs/cgroup"
    inner = subject.read(f"{where}/cgroup.type") and subject.read(f"{where}/cgroup.procs")  # the kernel's own root has no type
    given = subject.read(f"{where}/cgroup.subtree_control").split()
    if inner and not set(_CONTROLLERS) <= set(given) and subject.read("/proc/1/comm").strip() != "systemd":
        yield Finding(
            text=f"processes in {where}, the root of this container's cgroups, keep machines from having controllers",
            remedy=f"mkdir {where}/init && xargs -rn1 < {where}/cgroup.procs > {where}/init/cgroup.procs",
        )


def _kernel(subject: Subject) -> Iterable[Finding]:
    if not subject.describes_kernel:
        yield warning(
            "the kernel's configuration cannot be read, so machines ignore the check SystemVerification",
            remedy="install the kernel's package, or let a container see /boot of its host",
        )


def _overlay(subject: Subject) -> Iterable[Finding]:
    if "\toverlay\n" not in subject.read("/proc/filesystems") + "\n" and subject.which("modprobe") is None:
        yield Finding(text="the kernel has no overlay file system", remedy="load its module: `modprobe overlay`")


def _storage(subject: Subject) -> Iterable[Finding]:
    for directory in (places.cache(), places.disks()) if subject.user == 0 else ():  # nobody else sees those of root
        here = next(path for path in (directory, *directory.parents) if path.exists()).resolve()
        if _kind_of(here, subject.read("/proc/self/mountinfo")) == "overlay":
            yield Finding(
                text=f"{here} is on an overlay, on which machines cannot have disks",
                remedy=_ELSEWHERE.format(directory),
            )
        free, needed = subject.free(here), _SPACE_LATER if subject.has_tree else _SPACE
        if free < needed:
            yield Finding(
                text=f"{here} has {free / 1e9:.1f} GB left, {needed / 1e9:.0f} GB are needed",
                remedy=f"see `du -xsh {here}/*`, or {_ELSEWHERE.format(directory)}",
            )


def _network(subject: Subject) -> Iterable[Finding]:
    if subject.user == 0 and subject.which("ip") is not None:
        try:
            network.free_range(network.routed())
        except HostError as error:
            yield Finding(text=str(error), remedy=error.remedy)


def _kind_of(path: Path, mountinfo: str) -> str:
    """Return the type of the file system that contains a path."""
    best, kind = "", ""
    for row in _mounts(mountinfo):
        if path.is_relative_to(row.path) and len(row.path) >= len(best):
            best, kind = row.path, row.kind
    return kind


def _mounts(mountinfo: str) -> Iterator[_Mount]:
    """Yield all mounts; the last one at a path covers the others (proc_pid_mountinfo(5))."""
    for line in filter(None, mountinfo.split("\n")):  # names of mount points may contain any other white space
        words = line.split(" ")
        yield _Mount(path=words[4], options=frozenset(words[5].split(",")), kind=words[words.index("-") + 1])


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


CHECKS: Final = (
    Check(name="system", find=_system),
    Check(name="root", find=_root),
    Check(name="privileges", find=_privileges),
    Check(name="programs", find=_programs),
    Check(name="debian-tree", find=_tree),
    Check(name="runc", find=_runc),
    Check(name="python", find=_python),
    Check(name="cgroups", find=_cgroups),
    Check(name="cgroup-delegation", find=_delegation),
    Check(name="kernel", find=_kernel),
    Check(name="overlay", find=_overlay),
    Check(name="storage", find=_storage),
    Check(name="network", find=_network),
)
