"""The Debian tree on which every machine is based, made once by debootstrap."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from kubewright.base.events import Reporter
from kubewright.machines.places import cache, making
from kubewright.machines.running import run, step

SUITE = "bookworm"
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "iproute2", "iptables", "nftables", "ebtables", "ipset", "conntrack", "ethtool", "kmod", "socat"),
    *("iputils-ping", "procps", "util-linux", "mount", "login", "passwd", "ca-certificates", "openssl", "curl", "python3", "python3-venv"),
    *("wireguard-tools", "busybox-static"),
)


def place() -> Path:
    """Return where the tree is, or will be."""
    key = hashlib.sha256(" ".join((SUITE, *PACKAGES)).encode()).hexdigest()[:12]
    return cache() / f"base-{key}"


def ensure_base(reporter: Reporter) -> Path:
    """Return the tree, creating it if necessary, which takes about a minute. Raises HostError if debootstrap fails."""
    tree = place()
    if not tree.exists():
        with making(tree) as partial:
            with step(reporter, "making the Debian tree of the machines", takes="about a minute"):
                # without an address, debootstrap uses Debian's own mirror: the host may be Ubuntu
                source = [address] if (address := mirror()) else []
                # without a keyring, debootstrap only warns, and uses TLS instead, unless it is given an address
                verified = ["--force-check-gpg"] if address and not address.startswith("https:") else []
                packages = f"--include={','.join(PACKAGES)}"
                argv = ("debootstrap", "--variant=minbase", *verified, packages, SUITE, str(partial), *source)
                run("unshare", "--mount", *argv, within=1800)  # it mounts /proc in the tree, which would stay if it is killed
            _clean(partial)
    return tree


def mirror(apt: Path = Path("/etc/apt")) -> str:
    """Return the address from which the host's own apt gets this release of Debian, '' if there is none. It is not stored anywhere."""
    for path in sorted((apt / "sources.list.d").glob("*.sources")):
        fields = [line.split() for line in _text(path).splitlines()]
        uris = [words[1] for words in fields if words and words[0] == "URIs:"]
        if uris and any(SUITE in words for words in fields if words and words[0] == "Suites:"):
            return uris[0]
    for path in (apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.list"))):
        lines = _text(path).splitlines() if path.exists() else []
        for line in (line for line in lines if line.startswith("deb ")):
            words = [word for word in line.split()[1:] if not word.startswith("[")]
            if words[1:2] == [SUITE] and "main" in words:
                return words[0]
    return ""


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")  # comments have any encoding


def _clean(tree: Path) -> None:
    """Remove files that would make all machines identical, or keep them busy."""
    shutil.rmtree(tree / "var" / "cache" / "apt", ignore_errors=True)
    shutil.rmtree(tree / "var" / "lib" / "apt" / "lists", ignore_errors=True)
    (tree / "etc" / "machine-id").write_text("", encoding="ascii")
    for name in ("hostname", "resolv.conf"):
        (tree / "etc" / name).unlink(missing_ok=True)
