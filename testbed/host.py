"""What machines need from the host: packages, kernel modules and limits. The kubelet changes some sysctls of the whole host."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from testbed.progress import step
from testbed.running import BedError, quietly, run

PACKAGES = ("systemd-container", "debootstrap", "iproute2", "gcc", "libc6-dev", "libseccomp-dev", "pkg-config")
_MODULES = ("overlay", "br_netfilter", "nf_conntrack")
_INSTANCES = 8192
"""inotify instances: systemd, containerd and the kubelet of every machine share the host's limit."""
KUBELET_SYSCTLS = ("kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory")


def prepare() -> None:
    """Set what machines need and cannot set themselves; a module that is built in or missing is no error here."""
    if shutil.which("modprobe"):
        quietly(*(["modprobe", "-q", name] for name in _MODULES))
    limit = Path("/proc/sys/fs/inotify/max_user_instances")
    if int(limit.read_text(encoding="ascii")) < _INSTANCES:
        limit.write_text(str(_INSTANCES), encoding="ascii")


def missing_packages() -> list[str]:
    """Return the packages that are not installed."""
    asked = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\\n", *PACKAGES]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.splitlines()
    return [name for name in PACKAGES if f"{name} installed" not in said]


def remember(record: Path, *, proc: Path = Path("/proc/sys")) -> None:
    """Save the settings that kubelets change for the whole host, unless they are saved already: then kubelets have already changed them."""
    if not record.exists():
        found = {name: (proc / name).read_text(encoding="ascii").strip() for name in KUBELET_SYSCTLS}
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


def install_packages() -> None:
    """Install with apt what the testbed needs and this host lacks. Raises BedError on an unsuitable host."""
    if reason := unfit():
        raise BedError(reason)
    missing = missing_packages()
    if not missing:
        return
    with step(f"installing {', '.join(missing)}", takes="seconds"):
        run("apt-get", "update", "-qq")
        run(
            *("apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES),
            env={"DEBIAN_FRONTEND": "noninteractive", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
