"""The host's packages, kernel modules and limits that machines need. The kubelet changes some sysctls of the whole host."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kubewright.host.filesystem import mounts
from kubewright.machines import cgroups, network
from kubewright.machines.places import RUN, locked
from kubewright.machines.running import quietly

PACKAGES: Mapping[str, str] = {
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "nsenter": "util-linux",
}
"""The programs that run machines, and the Debian package of each."""
MAKING: Mapping[str, str] = {"debootstrap": "debootstrap", "gcc": "gcc libc6-dev"}
"""Those that make the Debian tree, and the program of the pause image."""
BUILDING: Mapping[str, str] = {"gcc": "gcc libc6-dev", "pkg-config": "pkg-config", "/usr/include/seccomp.h": "libseccomp-dev"}
"""The programs and the header that build runc, in addition to Go: it links a C library."""
UNPACKING: Mapping[str, str] = {"zstd": "zstd"}
"""Those that take it from a machine tree."""
_MODULES = ("overlay", "br_netfilter", "nf_conntrack")
_LIMITS: Mapping[str, int] = {"fs/inotify/max_user_instances": 8192, "fs/inotify/max_user_watches": 524288}
"""Limits of the host that systemd, containerd and the kubelets of all machines share. Before Linux 5.11, there were 8192 watches."""
_BRIDGES = "net/bridge"
_FORWARDING = "net/ipv6/conf/all/forwarding"
_ADVERTISEMENTS = "net/ipv6/conf/{}/accept_ra"
_LINKS = "net/ipv4/conf/*/forwarding"
"""Whether single links forward packets, which changes with net/ipv4/ip_forward."""
SYSCTLS = (
    *("kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys"),
    *("vm/overcommit_memory", "vm/panic_on_oom"),
    *(*_LIMITS, "net/ipv4/ip_forward", "net/ipv4/conf/all/accept_redirects"),
)
"""The settings of the host that `prepare` and the kubelet change (kubernetes v1.36: setupKernelTunables in container_manager_linux.go).

Those that change with ip_forward come after it (the kernel's inet_forward_change in net/ipv4/devinet.c).
"""
_SAVED = RUN / "sysctls.json"
_NAMESPACES = Path("/run/netns")
_NOT_MOUNTED = RUN / "netns"
"""Exists if `_NAMESPACES` was no mount point before the first machine."""


def prepare(machines: Sequence[cgroups.Cgroups], *, forwarding: bool, ipv6: bool = False) -> None:
    """Create the cgroups of machines, and change the settings of the host that machines need and cannot change themselves.

    The previous settings are saved first. With `forwarding`, machines reach what the host reaches; with `ipv6` this is true for IPv6 too.
    """
    uplinks = network.ipv6_uplinks() if forwarding and ipv6 else []
    with locked(RUN / "sysctls.lock"):
        remember_mount()
        remember(_SAVED, uplinks=uplinks)
        for machine in machines:
            machine.make()
    load_modules()
    raise_limits()
    if forwarding:
        (Path("/proc/sys") / "net/ipv4/ip_forward").write_text("1", encoding="ascii")
    forward_ipv6(uplinks)


def load_modules(*, proc: Path = Path("/proc/sys"), load: Callable[..., None] = quietly) -> None:
    """Load modules of the kernel. Modules that are built in or missing, and a host without modules, are not errors.

    Bridges of the host stay as they were. With br_netfilter, firewalls would see the packets of all bridges, for
    example those of virtual machines (Linux: networking/ip-sysctl, bridge-nf-call-iptables). Network namespaces have
    settings of their own.
    """
    known = (proc / _BRIDGES).exists()
    load(*(["modprobe", "-q", name] for name in _MODULES))
    for setting in () if known else (proc / _BRIDGES).glob("bridge-nf-call-*"):
        setting.write_text("0", encoding="ascii")


def raise_limits(*, proc: Path = Path("/proc/sys")) -> None:
    """Raise limits that are too low for machines; higher values stay."""
    for name, least in _LIMITS.items():
        if int((proc / name).read_text(encoding="ascii")) < least:
            (proc / name).write_text(str(least), encoding="ascii")


def forward_ipv6(uplinks: Sequence[str], *, proc: Path = Path("/proc/sys")) -> None:
    """Enable forwarding of IPv6 packets on a host with links to other networks, without losing routes from router advertisements.

    A host that forwards ignores router advertisements unless a link has the value 2 (Linux: networking/ip-sysctl, accept_ra).
    """
    for link in uplinks:
        setting = proc / _ADVERTISEMENTS.format(link)
        if setting.read_text(encoding="ascii").strip() == "1":
            setting.write_text("2", encoding="ascii")
    if uplinks:
        (proc / _FORWARDING).write_text("1", encoding="ascii")


def release() -> None:
    """Restore the host's own settings if no machine is left."""
    with locked(RUN / "sysctls.lock"):
        if not cgroups.any_left():
            restore(_SAVED)
            cgroups.end()
            end_mount()


def remember_mount() -> None:
    """Save whether the directory of the host's network namespaces is no mount point, before the first machine."""
    if not _SAVED.exists() and _NAMESPACES not in map(Path, mounts.mount_points(Path(mounts.TABLE).read_bytes())):
        _NOT_MOUNTED.touch()


def end_mount() -> None:
    """Undo what the first `ip netns add` of a host did: the directory of the namespaces became a mount point (iproute2: ip/ipnetns.c)."""
    if _NOT_MOUNTED.exists():
        _NOT_MOUNTED.unlink()
        if not any(_NAMESPACES.iterdir()):
            quietly(["umount", str(_NAMESPACES)], ["rmdir", str(_NAMESPACES)])


def remember(record: Path, *, uplinks: Sequence[str] = (), proc: Path = Path("/proc/sys")) -> None:
    """Save the settings that change for the whole host, except those that are saved already: machines have changed them since.

    A kernel need not have all of them. Those of IPv6 change only on hosts with links to other networks.
    """
    known = json.loads(record.read_text(encoding="ascii")) if record.exists() else {}
    links = () if known else sorted(str(path.relative_to(proc)) for path in proc.glob(_LINKS) if path.parent.name != "all")
    names = [*SYSCTLS, *links, *(_ADVERTISEMENTS.format(link) for link in uplinks), *([_FORWARDING] if uplinks else [])]
    missing = [name for name in names if name not in known and (proc / name).exists()]
    fresh = {name: (proc / name).read_text(encoding="ascii").strip() for name in missing}
    if fresh:
        part = record.with_suffix(".part")
        part.write_text(json.dumps(known | fresh), encoding="ascii")
        part.rename(record)


def restore(record: Path, *, proc: Path = Path("/proc/sys")) -> None:
    """Restore the saved settings, and delete the file; does nothing if none were saved. A link may be gone."""
    if not record.exists():
        return
    for name, value in json.loads(record.read_text(encoding="ascii")).items():
        setting = proc / name
        if setting.exists() and setting.read_text(encoding="ascii").strip() != value:
            setting.write_text(value, encoding="ascii")
    record.unlink()


def unfit() -> str:
    """Return what this host lacks and cannot install, a text that begins with `no`; '' if machines can be made."""
    if os.geteuid() != 0:
        return "no root: machines cannot be made"
    return "" if shutil.which("apt-get") else "no apt: machines are made of Debian's packages"
