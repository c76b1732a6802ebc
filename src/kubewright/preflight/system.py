"""`SystemVerification`: the kernel, its configuration, and the cgroup controllers (kubeadm v1.36: preflight/checks_unix.go)."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.checks import Finding, warning
from kubewright.base.errors import HostError
from kubewright.base.versions import Version
from kubewright.preflight.checks import Subject
from kubewright.preflight.components import kubelet_version

_TESTED: Final = (re.compile(r"5\.4.*"), re.compile(r"5\.10.*"), re.compile(r"5\.15.*"))
_FIRST_MAJOR: Final = 6
CONFIGS: Final = (
    "/proc/config.gz",
    "/boot/config-{release}",
    "/usr/src/linux-{release}/.config",
    "/usr/src/linux/.config",
    "/usr/lib/modules/{release}/config",
    "/usr/lib/ostree-boot/config-{release}",
    "/usr/lib/kernel/config-{release}",
    "/usr/src/linux-headers-{release}/.config",
    "/lib/modules/{release}/build/.config",
)
"""The paths at which the configuration of a kernel with this release may be."""
# Each row: alternative names, one of which the kernel must have built in or as a module.
_NEEDED: Final = (
    *(("NAMESPACES",), ("NET_NS",), ("PID_NS",), ("IPC_NS",), ("UTS_NS",), ("CPUSETS",), ("MEMCG",), ("INET",), ("EXT4_FS",), ("PROC_FS",)),
    ("NETFILTER_XT_TARGET_REDIRECT", "IP_NF_TARGET_REDIRECT"),
    *(("NETFILTER_XT_MATCH_COMMENT",), ("FAIR_GROUP_SCHED",)),
)
_NEEDED_BY_CGROUPS: Final[Mapping[int, tuple[str, ...]]] = {
    1: ("CGROUPS", "CGROUP_CPUACCT", "CGROUP_DEVICE", "CGROUP_FREEZER", "CGROUP_PIDS", "CGROUP_SCHED"),
    2: ("CGROUPS", "CGROUP_BPF", "CGROUP_PIDS", "CGROUP_SCHED"),
}
_WELCOME: Final[Mapping[str, str]] = {
    "OVERLAY_FS": "Required for overlayfs.",
    "AUFS_FS": "Required for aufs.",
    "BLK_DEV_DM": "Required for devicemapper.",
    "CFS_BANDWIDTH": "Required for CPU quota.",
    "CGROUP_HUGETLB": "Required for hugetlb cgroup.",
    "SECCOMP": "Required for seccomp.",
    "SECCOMP_FILTER": "Required for seccomp mode 2.",
}
"""Options that are only reported, and their purpose."""
_STATES: Final = {"y": "enabled", "m": "enabled (as module)", "n": "disabled"}
_DEDUCED: Final = frozenset({"devices", "freezer"})
"""Controllers of cgroup v2 that every supported kernel has, although it does not list them."""
_CONTROLLERS: Final[Mapping[int, tuple[str, ...]]] = {
    1: ("cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"),
    2: ("cpu", "cpuset", "devices", "freezer", "memory", "pids"),
}
_OPTIONAL: Final[Mapping[int, tuple[str, ...]]] = {1: ("hugetlb", "blkio"), 2: ("hugetlb", "io")}
_UNIFIED: Final = PurePosixPath("/sys/fs/cgroup/cgroup.controllers")
_LISTED: Final = PurePosixPath("/proc/cgroups")
_LARGEST: Final = 4 * 1024 * 1024
"""The maximum size of a kernel configuration in bytes."""
V1_ENDS: Final = (1, 35)
"""Kubelets from this version on refuse cgroup v1 unless they are configured otherwise."""


def verification(subject: Subject, *, minors: int = 0) -> Iterable[Finding]:
    """All of this is one check with one name, as in kubeadm. The kubelet will be newer by some `minors`."""
    yield from kernel(subject)
    if cgroup_version(subject) == 1:
        yield _cgroups_v1(subject, minors)


def report(subject: Subject) -> str:
    """Return all that the check looks at, in kubeadm's words without its colours (kubernetes/system-validators: validators)."""
    cgroups, options = cgroup_version(subject), _options(subject) or {}
    there = _enabled(subject, cgroups)
    lines = [f"KERNEL_VERSION: {subject.host.facts.machine.kernel}"]
    for names in (*_NEEDED, *((name,) for name in (*_NEEDED_BY_CGROUPS[cgroups], *_WELCOME))):
        name = next((name for name in names if name in options), names[-1])
        state = _STATES.get(options.get(name, ""), "not set")
        purpose = f" - {_WELCOME[name]}" if name in _WELCOME and options.get(name, "n") == "n" else ""
        lines.append(f"CONFIG_{name}: {state}{purpose}")
    lines.append("OS: Linux")
    lines += [f"CGROUPS_{one.upper()}: {'enabled' if one in there else 'missing'}" for one in (*_CONTROLLERS[cgroups], *_OPTIONAL[cgroups])]
    return "\n".join(("The system verification failed. Printing the output from the verification:", *lines))


def kernel(subject: Subject) -> Iterable[Finding]:
    """All except the version of cgroups, for callers that know the kubelet's configuration: `kubelet_takes_cgroups`."""
    cgroups = cgroup_version(subject)
    yield from _release(subject)
    yield from _configuration(subject, cgroups)
    yield from _controllers(subject, cgroups)


def cgroup_version(subject: Subject) -> int:
    """Return the version of cgroups that the machine was booted with."""
    return 2 if subject.host.state(_UNIFIED) is not None else 1


def kubelet_takes_cgroups(subject: Subject, *, kubelet: Version, refuses_v1: bool) -> Iterable[Finding]:
    """A kubelet of a known version and configuration must start with the machine's cgroups.

    `refuses_v1` is its failCgroupV1.
    """
    if refuses_v1 and cgroup_version(subject) == 1 and (kubelet.major, kubelet.minor) >= V1_ENDS:
        yield Finding(
            text=f"this machine has cgroup v1, and the kubelet {kubelet} does not start with it unless its configuration has failCgroupV1: false",
            remedy="boot with systemd.unified_cgroup_hierarchy=1, or set failCgroupV1: false in the configuration of kubelets",
        )


def _release(subject: Subject) -> Iterable[Finding]:
    release = subject.host.facts.machine.kernel
    major = re.match(r"\d+", release)
    if not (major and int(major[0]) >= _FIRST_MAJOR) and not any(known.fullmatch(release) for known in _TESTED):
        yield warning(
            f"kernel release {release} is unsupported. Supported LTS versions from the 5.x series are 5.4, 5.10 and 5.15. Any 6.x version is"
            " also supported",
            remedy="install a kernel with long-term support",
        )


def _configuration(subject: Subject, cgroups: int) -> Iterable[Finding]:
    options = _options(subject)
    if options is None:
        yield Finding(
            text="failed to parse kernel config: unable to load it",
            remedy="load the module that provides it (`modprobe configs`), or install the kernel's headers or its /boot/config",
        )
        return
    for names in (*_NEEDED, *((name,) for name in _NEEDED_BY_CGROUPS[cgroups])):
        if not any(options.get(name, "n") != "n" for name in names):
            yield Finding(
                text=f"missing required kernel option: CONFIG_{names[0]}", remedy="install a kernel that has it, built in or as a module"
            )


def _options(subject: Subject) -> dict[str, str] | None:
    """Return the options of the kernel: built in (y), as a module (m), or left out (n); None if they are not available."""
    for pattern in CONFIGS:
        content = subject.host.read(PurePosixPath(pattern.format(release=subject.host.facts.machine.kernel)))
        if content is not None:
            text = _unpacked(content) if pattern.endswith(".gz") else content
            return dict(re.findall(r"^CONFIG_(\w+)=([ymn])$", text.decode(errors="replace"), re.MULTILINE))
    return None


def _unpacked(content: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(content, _LARGEST)
    except (zlib.error, gzip.BadGzipFile) as error:
        raise HostError("/proc/config.gz cannot be unpacked", detail=str(error), remedy="inspect it with `zcat /proc/config.gz`") from error


def _controllers(subject: Subject, cgroups: int) -> Iterable[Finding]:
    there = _enabled(subject, cgroups)
    missing = [name for name in _CONTROLLERS[cgroups] if name not in there]
    if missing:
        yield Finding(
            text=f"missing required cgroups: {' '.join(missing)}",
            remedy="enable them on the kernel's command line, for example with cgroup_enable=memory, and reboot",
        )
    lacking = [name for name in _OPTIONAL[cgroups] if name not in there]
    if lacking:
        yield warning(f"missing optional cgroups: {' '.join(lacking)}", remedy="nothing, unless pods need them")


def _enabled(subject: Subject, cgroups: int) -> frozenset[str]:
    if cgroups == 2:
        return _DEDUCED.union((subject.host.read(_UNIFIED) or b"").decode(errors="replace").split())
    rows = [line.split() for line in (subject.host.read(_LISTED) or b"").decode(errors="replace").splitlines() if not line.startswith("#")]
    return frozenset(row[0] for row in rows if len(row) == 4 and row[3] == "1")


def _cgroups_v1(subject: Subject, minors: int) -> Finding:
    """A kubelet of unknown version counts as a new one: its own check reports any problem with it."""
    try:
        kubelet = kubelet_version(subject)
    except HostError:
        kubelet = None
    text = "cgroups v1 support is deprecated and will be removed in a future release. Please migrate to cgroups v2"
    remedy = (
        "boot with systemd.unified_cgroup_hierarchy=1; to keep v1, set failCgroupV1: false in the kubelet's configuration and ignore this"
    )
    if kubelet is not None and (kubelet.major, kubelet.minor + minors) < V1_ENDS:
        return warning(text, remedy=remedy)
    return Finding(text=f"{text}: kubelets from v1.35 on do not start with it by default", remedy=remedy)
