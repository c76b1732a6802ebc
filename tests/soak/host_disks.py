"""The disks of a virtual host: Debian with its own kernel and firewalls, and kubewright's archive with the parts of machines.

Nothing is mounted to make them. The second disk is mounted in the virtual host at the path that its directory has here:
which parts are taken for the current ones depends on the paths of the programs.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.soak.virtual_machine import ADDRESS, HOST, NAME_SERVER, Disks

from kubewright.base.level import KUBERNETES
from kubewright.binaries.cache import RECORDS
from kubewright.machines import base, images, places

ROOT: Final = Path(__file__).parents[2]
FIREWALLS: Final = ("docker.io", "firewalld", "ufw")
_PACKAGES: Final = (
    *("systemd", "systemd-sysv", "systemd-container", "udev", "dbus", "linux-image-amd64", "initramfs-tools", "qemu-guest-agent"),
    *("iproute2", "iptables", "nftables", "kmod", "procps", "apparmor", "ca-certificates", "curl", *FIREWALLS),
)
_IDLE: Final = ("docker.service", "docker.socket", "containerd.service", "firewalld.service", "ufw.service")
"""Units that a part starts itself, besides all timers."""
_WIRED: Final = f"""\
[Match]
Name=eth0 vec0
[Network]
Address={ADDRESS}
Gateway={HOST}
"""
_AGENT: Final = """\
[Unit]
ConditionKernelCommandLine=agent=serial
[Service]
ExecStart=/usr/sbin/qemu-ga -m isa-serial -p /dev/ttyS0
Restart=always
[Install]
WantedBy=multi-user.target
"""
"""For a kernel without the port of a virtual machine on which Debian's own unit of the agent waits."""
_FILES: Final = {
    "etc/hostname": "debian\n",
    "etc/hosts": "127.0.0.1 localhost debian\n",
    "etc/resolv.conf": f"nameserver {NAME_SERVER}\n",
    "etc/systemd/network/10-wired.network": _WIRED,
    "etc/systemd/system/agent-serial.service": _AGENT,
}
_SIZES: Final = {"debian": "4G", "parts": "12G"}


def directory() -> Path:
    """Return where all of it is."""
    return places.cache() / "hosts"


def parts() -> Path:
    """Return the directory of the second disk, here and in the virtual host."""
    return directory() / "parts"


def ensure_disks(archive: Path) -> Disks:
    """Make what is missing, which takes some minutes the first time: Debian, once for each list of packages, and the parts."""
    debian = _ensure_debian()
    return Disks(
        kernel=next((debian.parent / "boot").glob("vmlinuz-*")),
        initrd=next((debian.parent / "boot").glob("initrd.img-*")),
        images=(debian, _ensure_parts(archive)),
        directory=directory(),
    )


def _ensure_debian() -> Path:
    key = hashlib.sha256(repr((base.SUITE, _PACKAGES, _IDLE, _FILES, str(parts()))).encode()).hexdigest()[:12]
    place = directory() / f"debian-{key}"
    if not place.exists():
        _say("making the disk of the virtual host: about five minutes")
        with _partial(place) as work:
            tree = work / "tree"
            mirror = [address] if (address := base.mirror()) else []
            _run("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(_PACKAGES)}", base.SUITE, str(tree), *mirror)
            _furnish(tree)
            shutil.copytree(tree / "boot", work / "boot")
            _file_system(work / "disk.ext4", tree, label="debian")
            shutil.rmtree(tree)
    return place / "disk.ext4"


def _furnish(tree: Path) -> None:
    for name, text in _FILES.items():
        (tree / name).unlink(missing_ok=True)
        (tree / name).write_text(text, encoding="ascii")
    lines = ("LABEL=debian / ext4 defaults 0 0", f"LABEL=parts {parts()} ext4 defaults 0 0")
    (tree / "etc" / "fstab").write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    units = tree / "etc" / "systemd" / "system"
    for link in [*units.glob("*.wants/*"), *units.glob("*.requires/*")]:
        if link.name in _IDLE or link.name.endswith(".timer"):
            link.unlink()
    for link in (tree / "usr" / "lib" / "systemd" / "system" / "timers.target.wants").glob("*.timer"):
        link.unlink()
    for unit in ("/lib/systemd/system/systemd-networkd.service", "/etc/systemd/system/agent-serial.service"):
        (units / "multi-user.target.wants" / Path(unit).name).symlink_to(unit)


def _ensure_parts(archive: Path) -> Path:
    """Make the second disk: the archive, and a cache with everything that machines of our version are made of."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    image, made = directory() / "parts.ext4", parts() / "archive.sha256"
    if image.exists() and made.exists() and made.read_text(encoding="ascii") == digest:
        return image
    _say("making the disk with the parts of machines: about three minutes")
    image.unlink(missing_ok=True)
    shutil.rmtree(parts(), ignore_errors=True)
    cache = parts() / "cache" / "kubewright"
    (cache / "testbed").mkdir(parents=True)
    (parts() / "state").mkdir()
    for path in (base.place(), images.pause_place()):
        _run("cp", "-al", str(path), str(cache / "testbed"))
    programs = places.cache().parent / "binaries" / KUBERNETES
    shutil.copytree(programs, cache / "binaries" / KUBERNETES)
    _round_times(cache / "binaries")
    _run("tar", "-C", str(parts()), "-xf", str(archive))
    next(parts().glob("kubewright-*")).rename(parts() / "kubewright")
    environment = {**os.environ, "XDG_CACHE_HOME": str(parts() / "cache")}
    _run(sys.executable, "-c", "from kubewright.machines.parts import ensure_parts; ensure_parts()", environment=environment)
    _file_system(image, parts(), label="parts")
    made.write_text(digest, encoding="ascii")
    return image


def _round_times(programs: Path) -> None:
    """Give programs times in whole seconds, which is what mke2fs keeps, also where the cache says which programs it has checked."""
    for path in programs.rglob("*"):
        os.utime(path, ns=(0, path.stat().st_mtime_ns // 10**9 * 10**9))
    for path in programs.rglob(RECORDS):
        records = json.loads(path.read_text(encoding="ascii"))
        for record in records["programs"].values():
            record["mtime"] = record["mtime"] // 10**9 * 10**9
        path.write_text(json.dumps(records), encoding="ascii")


@contextmanager
def _partial(place: Path) -> Iterator[Path]:
    """Provide a directory that gets its name when it is complete."""
    partial = place.with_name(f"{place.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    partial.rename(place)


def _file_system(image: Path, tree: Path, *, label: str) -> None:
    _run("mke2fs", "-q", "-t", "ext4", "-L", label, "-d", str(tree), str(image), _SIZES[label])


def _run(*argv: str, environment: dict[str, str] | None = None) -> None:
    ended = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    assert ended.returncode == 0, f"{argv[0]} ended with {ended.returncode}: {ended.stderr.strip()[-1500:]}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
