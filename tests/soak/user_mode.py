"""Linux as a process (user-mode Linux), for virtual hosts where KVM does not work: it is built here, from Debian's source.

Debian's own package of it is built without cgroup's controllers, nftables and several processors. `OPTIONS` is what hosts with
firewalls and machines need in addition to the kernel's own defaults. Nothing is a module. All processes of a virtual host
are in a PID namespace, which ends with the first one, and in a network namespace, from which slirp4netns leads outside.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kubewright.machines import base
from kubewright.machines.places import making

SUITE: Final = "trixie-backports"
"""Kernels before 6.19 have one processor in user mode, and therefore no controller `cpuset`."""
_KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_DEFAULT_MIRROR: Final = "http://deb.debian.org/debian"


def _prefixed(prefix: str, names: str) -> str:
    return " ".join(f"{prefix}_{name}" for name in names.split())


OPTIONS: Final[Mapping[str, str]] = {
    "general": "SMP NO_HZ_IDLE HIGH_RES_TIMERS SYSVIPC POSIX_MQUEUE KEYS BPF_SYSCALL SECCOMP SECCOMP_FILTER FHANDLE INOTIFY_USER FANOTIFY "
    "UNIX98_PTYS BINFMT_MISC IKCONFIG IKCONFIG_PROC HW_RANDOM UML_RANDOM CC_OPTIMIZE_FOR_PERFORMANCE",
    "devices": "SSL NULL_CHAN BLK_DEV_UBD BLK_DEV_LOOP UML_NET_VECTOR",
    "cgroups": "CGROUPS MEMCG BLK_CGROUP BLK_DEV_THROTTLING CGROUP_SCHED FAIR_GROUP_SCHED CFS_BANDWIDTH CGROUP_PIDS CGROUP_FREEZER CPUSETS "
    "CGROUP_CPUACCT CGROUP_BPF CGROUP_DEVICE CGROUP_MISC PSI",
    "namespaces": "NAMESPACES UTS_NS IPC_NS USER_NS PID_NS NET_NS TIME_NS",
    "file systems": "DEVTMPFS DEVTMPFS_MOUNT TMPFS TMPFS_POSIX_ACL TMPFS_XATTR EXT4_FS EXT4_FS_POSIX_ACL EXT4_FS_SECURITY OVERLAY_FS "
    "AUTOFS_FS FUSE_FS",
    "network": "NET PACKET UNIX UNIX_DIAG INET INET_DIAG NETLINK_DIAG IPV6 IP_ADVANCED_ROUTER IP_MULTIPLE_TABLES IPV6_MULTIPLE_TABLES "
    "IPV6_SUBTREES NET_SCHED NET_CLS_ACT NET_CLS_BPF NET_SCH_INGRESS NET_SCH_FQ_CODEL NET_SCH_TBF NETDEVICES NET_CORE BRIDGE "
    "BRIDGE_VLAN_FILTERING VLAN_8021Q VETH DUMMY TUN VXLAN MACVLAN IPVLAN",
    "netfilter": "NETFILTER NETFILTER_ADVANCED NETFILTER_INGRESS NETFILTER_EGRESS NETFILTER_NETLINK_LOG NETFILTER_NETLINK_QUEUE "
    "NETFILTER_NETLINK_ACCT BRIDGE_NETFILTER NF_CONNTRACK NF_CONNTRACK_MARK NF_CONNTRACK_ZONES NF_CONNTRACK_EVENTS "
    "NF_CONNTRACK_PROCFS NF_CONNTRACK_FTP NF_CONNTRACK_NETBIOS_NS NF_CONNTRACK_TFTP NF_CT_NETLINK NF_CT_PROTO_SCTP NF_NAT "
    "NF_FLOW_TABLE NF_FLOW_TABLE_INET",
    "nftables": "NF_TABLES NF_TABLES_INET NF_TABLES_NETDEV NF_TABLES_IPV4 NF_TABLES_IPV6 NF_TABLES_ARP NF_TABLES_BRIDGE NFT_NUMGEN NFT_CT "
    "NFT_FLOW_OFFLOAD NFT_CONNLIMIT NFT_LOG NFT_LIMIT NFT_MASQ NFT_REDIR NFT_NAT NFT_TUNNEL NFT_QUEUE NFT_QUOTA NFT_REJECT "
    "NFT_COMPAT NFT_HASH NFT_FIB NFT_FIB_INET NFT_FIB_IPV4 NFT_FIB_IPV6 NFT_SOCKET NFT_TPROXY NFT_SYNPROXY NFT_DUP_IPV4 "
    "NFT_BRIDGE_META NFT_BRIDGE_REJECT",
    "xtables": "NETFILTER_XTABLES NETFILTER_XTABLES_LEGACY NETFILTER_XT_MARK NETFILTER_XT_CONNMARK NETFILTER_XT_SET NETFILTER_XT_NAT "
    "IP_NF_IPTABLES IP_NF_IPTABLES_LEGACY IP_NF_FILTER IP_NF_NAT IP_NF_MANGLE IP_NF_RAW IP_NF_TARGET_REJECT "
    "IP_NF_TARGET_MASQUERADE IP_NF_TARGET_REDIRECT IP_NF_MATCH_RPFILTER IP_NF_MATCH_TTL IP6_NF_IPTABLES "
    "IP6_NF_IPTABLES_LEGACY IP6_NF_FILTER IP6_NF_NAT IP6_NF_MANGLE IP6_NF_RAW IP6_NF_TARGET_REJECT IP6_NF_TARGET_MASQUERADE "
    "IP6_NF_MATCH_RPFILTER IP6_NF_MATCH_RT IP6_NF_MATCH_HL IP6_NF_MATCH_AH IP6_NF_MATCH_FRAG IP6_NF_MATCH_EUI64 "
    "IP6_NF_MATCH_IPV6HEADER IP6_NF_MATCH_OPTS IP6_NF_MATCH_MH BRIDGE_NF_EBTABLES",
    "targets": _prefixed("NETFILTER_XT_TARGET", "CT CLASSIFY CHECKSUM LOG MASQUERADE NETMAP NFLOG REDIRECT TCPMSS TPROXY TRACE HL"),
    "matches": _prefixed(
        "NETFILTER_XT_MATCH",
        "ADDRTYPE BPF CGROUP COMMENT CONNBYTES CONNLIMIT CONNMARK CONNTRACK HASHLIMIT HELPER HL IPRANGE LENGTH LIMIT MAC MARK "
        "MULTIPORT NFACCT OWNER PHYSDEV PKTTYPE RECENT SOCKET STATE STATISTIC STRING TCPMSS U32",
    ),
    "sets": "IP_SET IP_SET_BITMAP_PORT IP_SET_HASH_IP IP_SET_HASH_IPPORT IP_SET_HASH_IPPORTNET IP_SET_HASH_NET IP_SET_HASH_NETPORT "
    "IP_SET_HASH_MAC IP_SET_LIST_SET IP_VS IP_VS_PROTO_TCP IP_VS_PROTO_UDP IP_VS_NFCT IP_VS_RR",
}
"""By purpose, without `CONFIG_`."""
_OFF: Final = "MODULES SOUND DEBUG_KERNEL BLK_DEV_NBD PPP SLIP ISO9660_FS QUOTA WLAN IOSCHED_BFQ XTERM_CHAN PORT_CHAN CC_OPTIMIZE_FOR_SIZE"
_VALUES: Final = ("NR_CPUS=4", "LOG_BUF_SHIFT=18", 'CON_CHAN="null"', 'SSL_CHAN="null"')
_CPUINFO: Final = ("arch/um/kernel/um_arch.c", 'seq_printf(m, "model name\\t: UML\\n");', 'seq_printf(m, "cpu MHz\\t\\t: 1000.000\\n");')
"""A file of the source, a line in it, and a line to follow it: the kubelet's cAdvisor needs the frequency of a processor."""
LIST_MODULES: Final = "mount /dev/ubdc /usr/lib/modules && depmod"
"""To be run in the guest, so that `modprobe` of what is built in succeeds."""


def fragment() -> str:
    """Return the part of the kernel's configuration that we decide."""
    on = [f"CONFIG_{name}=y" for names in OPTIONS.values() for name in names.split()]
    off = [f"# CONFIG_{name} is not set" for name in _OFF.split()]
    return "".join(f"{line}\n" for line in (*on, *off, *(f"CONFIG_{value}" for value in _VALUES)))


def missing(config: str) -> list[str]:
    """Return the lines of `fragment` that a kernel's configuration does not have; an option that is off may also be unknown."""
    lines = config.splitlines()
    on = [line for line in fragment().splitlines() if not line.startswith("#") and line not in lines]
    return on + [line for line in fragment().splitlines() if line.startswith("#") and f"{line.split()[1]}=y" in lines]


def ensure_kernel(directory: Path) -> Path:
    """Return the kernel's program, next to which is a disk with the list of what is built in. Building it takes about ten minutes."""
    place = directory / f"user-mode-{hashlib.sha256(repr((SUITE, fragment(), _CPUINFO)).encode()).hexdigest()[:12]}"
    if not place.exists():
        with making(place) as work:
            source = work / "source"
            source.mkdir(parents=True)
            _unpack(_download(work / "apt"), source)
            _configure(source)
            _make(source, "linux", f"-j{os.cpu_count()}")
            shutil.copy(source / "linux", work / "linux")
            version = _make(source, "-s", "kernelrelease").strip()
            modules = work / "modules" / version
            modules.mkdir(parents=True)
            for name in ("modules.builtin", "modules.builtin.modinfo"):
                shutil.copy(source / name, modules)
            (modules / "modules.order").touch()
            _run("mke2fs", "-q", "-t", "ext4", "-d", str(modules.parent), str(work / "modules.ext4"), "16M")
            for done in (source, work / "apt", work / "modules"):
                shutil.rmtree(done)
    return place / "linux"


def _download(apt: Path) -> Path:
    """Download the source of the newest kernel of the suite with an apt of our own, which does not change the host's."""
    (apt / "lists" / "partial").mkdir(parents=True)
    (apt / "sources.list").write_text(f"deb [signed-by={_KEYRING}] {base.mirror() or _DEFAULT_MIRROR} {SUITE} main\n", encoding="ascii")
    settings = {
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "/nonexistent",
        "Dir::State::lists": apt / "lists",
        "Dir::Cache": apt / "cache",
    }
    options = [f"-o{name}={value}" for name, value in settings.items()]
    _run("apt-get", *options, "-qq", "update")
    depends = _run("apt-cache", *options, "depends", "linux-source")
    package = next(word for word in depends.split() if word.startswith("linux-source-"))
    _run("apt-get", *options, "-qq", "download", package, directory=apt)
    return next(apt.glob("linux-source-*.deb"))


def _unpack(package: Path, source: Path) -> None:
    name = next(word for word in _run("dpkg-deb", "-c", str(package)).split() if word.endswith(".tar.xz")).lstrip(".")
    outer = f"dpkg-deb --fsys-tarfile {package} | tar -xO .{name} | tar -xJ --strip-components=1 -C {source}"
    _run("bash", "-o", "pipefail", "-c", outer)


def _configure(source: Path) -> None:
    name, line, following = _CPUINFO
    text = (source / name).read_text(encoding="utf-8")
    assert text.count(line) == 1, f"{name} has changed: it no longer has `{line}`"
    (source / name).write_text(text.replace(line, f"{line}\n\t{following}"), encoding="utf-8")
    _make(source, "x86_64_defconfig")
    (source / "fragment").write_text(fragment(), encoding="ascii")
    _run("scripts/kconfig/merge_config.sh", "-m", ".config", "fragment", directory=source)
    _make(source, "olddefconfig")
    left = missing((source / ".config").read_text(encoding="utf-8"))
    assert not left, f"the kernel cannot be configured with {', '.join(left)}"


def _make(source: Path, *words: str) -> str:
    return _run("nice", "make", "ARCH=um", *words, directory=source)


def _run(*argv: str, directory: Path | None = None) -> str:
    ended = subprocess.run(argv, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    assert ended.returncode == 0, f"{' '.join(argv)[:200]} ended with {ended.returncode}: {ended.stderr.strip()[-1500:]}"
    return ended.stdout


_LINKED: Final = """\
ip link set lo up
ip link add bridge type bridge forward_delay 0
ip link add guest type veth peer name host
ip link set host master bridge up
ip link set guest up
ip link set bridge up
until ip link set slirp master bridge up 2>/dev/null; do sleep 0.1; done
exec "$@"
"""
"""Runs a command in a network namespace when slirp4netns has made its link there. Linux 7.3 crashes with a tap as its link."""


def command(kernel: Path, images: Sequence[Path], place: Path, *, serial: int, memory: int) -> list[str]:
    """Return the command of the kernel. `serial` is the file descriptor of the guest's first serial line. What the guest writes is in `place`."""
    disks = [f"ubd{number}={place}/cow-{number},{image}" for number, image in enumerate(images)]
    return [
        *("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"),
        *("sh", "-euc", _LINKED, "linked", str(kernel), f"mem={memory}M", "ncpus=2", "seccomp=on", *disks),
        *("root=/dev/ubda", "rw", "con=null", "con0=null,fd:1", f"ssl0=fd:{serial}", "vec0:transport=raw,ifname=guest,depth=128"),
        *("net.ifnames=0", "systemd.mask=getty@tty1.service", "agent=serial"),
    ]


@contextmanager
def started(kernel: Path, images: Sequence[Path], place: Path, *, memory: int) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """Start the kernel, and end it afterwards. Provide its process, and the other end of its serial line."""
    disks = (*images, kernel.with_name("modules.ext4"))
    ours, theirs = socket.socketpair()
    with ours, theirs, (place / "console.log").open("wb") as log:
        argv = command(kernel, disks, place, serial=theirs.fileno(), memory=memory)
        environment = {**os.environ, "TMPDIR": "/dev/shm"}  # the guest's memory is a file there
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, pass_fds=(theirs.fileno(),), start_new_session=True
        )
        try:
            slirp = _leads_outside(process, place)
            try:
                yield process, ours
            finally:
                slirp.kill()
                slirp.wait()
        finally:
            process.kill()
            process.wait()


def _leads_outside(process: subprocess.Popen[bytes], place: Path) -> subprocess.Popen[bytes]:
    """Lead from the network namespace of a process outside, with the addresses of QEMU's user networking."""
    own, end = Path("/proc/self/ns/net").readlink(), time.monotonic() + 30
    while Path(f"/proc/{process.pid}/ns/net").readlink() == own:
        assert time.monotonic() < end, "the network namespace was not made"
        time.sleep(0.05)
    with (place / "slirp.log").open("wb") as log:
        return subprocess.Popen(["slirp4netns", str(process.pid), "slirp"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
