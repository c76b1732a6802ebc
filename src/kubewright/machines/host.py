"""What machines need from the host: packages, kernel modules and limits. The kubelet changes some sysctls of the whole host."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from kubewright.machines import cgroups
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
UNPACKING: Mapping[str, str] = {"zstd": "zstd"}
"""Those that take it from a machine tree."""
_MODULES = ("overlay", "br_netfilter", "nf_conntrack")
_INSTANCES = 8192
"""inotify instances: systemd, containerd and the kubelet of every machine share the host's limit."""
_INOTIFY = "fs/inotify/max_user_instances"
SYSCTLS = ("kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", _INOTIFY, "net/ipv4/ip_forward")
"""What the kubelet and `prepare` change for the whole host."""
_SAVED = RUN / "sysctls.json"


def prepare(machines: Sequence[cgroups.Cgroups], *, forwarding: bool) -> None:
    """Create the cgroups of machines, and set what they need and cannot set themselves. The settings before that are saved first."""
    with locked(RUN / "sysctls.lock"):
        remember(_SAVED)
        for machine in machines:
            machine.make()
    if shutil.which("modprobe"):
        quietly(*(["modprobe", "-q", name] for name in _MODULES))  # a module that is built in or missing is no error here
    limit = Path("/proc/sys") / _INOTIFY
    if int(limit.read_text(encoding="ascii")) < _INSTANCES:
        limit.write_text(str(_INSTANCES), encoding="ascii")
    if forwarding:
        (Path("/proc/sys") / "net/ipv4/ip_forward").write_text("1", encoding="ascii")


def release() -> None:
    """Restore the host's own settings if no machine is left."""
    with locked(RUN / "sysctls.lock"):
        if not cgroups.any_left():
            restore(_SAVED)


def remember(record: Path, *, proc: Path = Path("/proc/sys")) -> None:
    """Save the settings that change for the whole host, unless they are saved already: then machines have already changed them."""
    if not record.exists():
        found = {name: (proc / name).read_text(encoding="ascii").strip() for name in SYSCTLS}
        part = record.with_suffix(".part")
        part.write_text(json.dumps(found), encoding="ascii")
        part.rename(record)


def restore(record: Path, *, proc: Path = Path("/proc/sys")) -> None:
    """Restore the saved settings, and delete the file; does nothing if none were saved."""
    if not record.exists():
        return
    for name, value in json.loads(record.read_text(encoding="ascii")).items():
        if (proc / name).read_text(encoding="ascii").strip() != value:
            (proc / name).write_text(value, encoding="ascii")
    record.unlink()


def unfit() -> str:
    """Say what this host lacks that cannot be installed: begins with `no`, empty if machines can be made."""
    if os.geteuid() != 0:
        return "no root: machines cannot be made"
    return "" if shutil.which("apt-get") else "no apt: machines are made of Debian's packages"
