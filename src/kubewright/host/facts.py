"""Facts of a machine: for defaulting (`Detected`), and for a Node's status (kubelet v1.36: pkg/kubelet/nodestatus).

Pure over the reading verbs. A fact that cannot be read is empty; its users define the consequences.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.machine import Detected
from kubewright.base.errors import HostError
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass, field
from kubewright.host.readers import FileReader, Network
from kubewright.host.states import Kind
from kubewright.host.usage import meminfo

CRI_SOCKETS: Final = (
    "unix:///var/run/containerd/containerd.sock",
    "unix:///var/run/crio/crio.sock",
    "unix:///var/run/cri-dockerd.sock",
)
"""The sockets of runtimes that kubeadm looks for, in its order (cmd/kubeadm/app/constants)."""

CA_DIRECTORIES: Final = (
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
)
"""Directories of CA certificates besides /etc/ssl/certs, in kubeadm's order (kubeadm v1.36: phases/controlplane/volumes.go)."""

ARCHITECTURES: Final[Mapping[str, str]] = {"x86_64": "amd64", "aarch64": "arm64"}
"""Go's names of the architectures that `uname` reports."""

BOOTED: Final = "/run/systemd/system"
"""This directory exists if systemd is the init system (sd_booted(3))."""
_RESOLVED: Final = "/run/systemd/units/invocation:systemd-resolved.service"
"""systemd keeps this link while the unit is active."""

_MACHINE_IDS: Final = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_SYSTEM_UUIDS: Final = (
    "/sys/class/dmi/id/product_uuid",
    "/proc/device-tree/system-id",
    "/proc/device-tree/vm,uuid",
    "/etc/machine-id",
)
_OS_RELEASES: Final = ("/etc/os-release", "/usr/lib/os-release")
_PRETTY_NAME: Final = Pattern(r"PRETTY_NAME=(.*)")
_HUGE_PAGES: Final = PurePosixPath("/sys/kernel/mm/hugepages")


@dataclass(frozen=True, kw_only=True)
class MachineInfo:
    """The facts that a Node's status reports.

    Sizes are in bytes; `huge_pages` maps a page size to the number of pages.
    """

    cores: int = 0
    memory: int = 0
    swap: int = 0
    huge_pages: Mapping[int, int] = field(default_factory=dict)
    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    kernel: str = "Unknown"
    os_image: str = "Unknown"
    architecture: str = ""
    """In Go's names: `amd64`, `arm64`."""


class Facts:
    """All facts of a machine, as they were when first requested.

    `machine` may be a function, because few callers need that part. `user` is the ID of the user that kubewright runs
    as; `systemd` is whether it is the init system.
    """

    def __init__(
        self, *, detected: Detected, machine: MachineInfo | Callable[[], MachineInfo], user: int | None = None, systemd: bool = False
    ) -> None:
        self.detected = detected
        self.user = os.geteuid() if user is None else user
        self.systemd = systemd
        self._machine = machine

    @cached_property
    def machine(self) -> MachineInfo:
        """The facts that its Node reports."""
        return self._machine() if callable(self._machine) else self._machine


def gather(files: FileReader, network: Network, *, environment: Mapping[str, str], architecture: str) -> Facts:
    """Gather the facts of a machine. `architecture` is the output of `uname -m`."""
    return Facts(
        detected=detect(files, network, environment=environment),
        machine=lambda: machine(files, architecture=ARCHITECTURES.get(architecture, architecture)),
        systemd=_exists_as(files, BOOTED, Kind.DIRECTORY),
    )


def detect(files: FileReader, network: Network, *, environment: Mapping[str, str]) -> Detected:
    """Gather the facts that the defaults of a configuration depend on; version labels are not resolved here."""
    return Detected(
        host_name=_text(files, "/proc/sys/kernel/hostname") or os.uname().nodename,  # another root may lack /proc
        default_ipv4=network.default_address(family=4),
        default_ipv6=network.default_address(family=6),
        loopback_global=network.loopback_global(),
        cri_sockets=_runtimes(files, network),
        systemd_resolved=_exists_as(files, _RESOLVED, Kind.LINK),
        ca_directories=tuple(directory for directory in CA_DIRECTORIES if _exists_as(files, directory, Kind.DIRECTORY)),
        proxy_environment={name: value for name, value in environment.items() if name.lower().endswith("_proxy") and value},
    )


def _runtimes(files: FileReader, network: Network) -> tuple[str, ...]:
    """Return the sockets of container runtimes. Of several, only those at which one listens (kubeadm v1.36: util/runtime)."""
    paths = {socket: socket.removeprefix("unix://") for socket in CRI_SOCKETS}
    found = [socket for socket, path in paths.items() if _exists_as(files, path, Kind.SOCKET)]
    return tuple(socket for socket in found if len(found) == 1 or network.accepts(PurePosixPath(paths[socket])))


def machine(files: FileReader, *, architecture: str) -> MachineInfo:
    """Gather the facts that a Node's status reports."""
    memory = meminfo(files)
    return MachineInfo(
        cores=count_cores(_text(files, "/sys/devices/system/cpu/online")) or (os.cpu_count() or 0),
        memory=memory.get("MemTotal", 0),
        swap=memory.get("SwapTotal", 0),
        huge_pages=_huge_pages(files),
        machine_id=_first(files, _MACHINE_IDS) or "",
        system_uuid=_first(files, _SYSTEM_UUIDS) or "",
        boot_id=_text(files, "/proc/sys/kernel/random/boot_id"),
        kernel=_text(files, "/proc/sys/kernel/osrelease") or "Unknown",
        os_image=os_image(_first(files, _OS_RELEASES)),
        architecture=architecture,
    )


def count_cores(text: str) -> int:
    """Count the processors in a kernel list such as `0-3,6`. Ranges may overlap."""
    ranges = sorted((int(part[0]), int(part[-1])) for part in (one.split("-") for one in text.strip().split(",") if one))
    count, next_core = 0, 0
    for first, last in ranges:
        count += max(0, last + 1 - max(first, next_core))
        next_core = max(next_core, last + 1)
    return count


def os_image(release: str | None) -> str:
    """Return PRETTY_NAME of an os-release file, `Linux` if it has none, `Unknown` if there is no file.

    Source: cadvisor v0.56, machine/operatingsystem_unix.go, which strips double quotes only.
    """
    if release is None:
        return "Unknown"
    pretty = _PRETTY_NAME.search(release)
    return "Linux" if pretty is None else pretty[1].strip('"')


def _huge_pages(files: FileReader) -> dict[int, int]:
    """Read the pool of every page size; the directories are named `hugepages-2048kB`."""
    found = {}
    for directory in files.entries(_HUGE_PAGES):
        size = directory.name.removeprefix("hugepages-").removesuffix("kB")
        if size.isdigit():
            found[int(size) * 1024] = int(_text(files, str(directory / "nr_hugepages")) or "0")
    return found


def _exists_as(files: FileReader, path: str, kind: Kind) -> bool:
    """Return whether a path exists and is of this kind. Links are followed, as in kubeadm."""
    with suppress(HostError):  # not visible to an ordinary user
        found = files.state(PurePosixPath(path))
        return found is not None and found.kind in {kind, Kind.LINK}
    return False


def _first(files: FileReader, paths: tuple[str, ...]) -> str | None:
    """Return the content of the first file that can be read, even if it is empty (cadvisor: machine/info.go, utils/sysfs); None for none."""
    return next((text for path in paths if (text := _read(files, path)) is not None), None)


def _text(files: FileReader, path: str) -> str:
    return _read(files, path) or ""


def _read(files: FileReader, path: str) -> str | None:
    with suppress(HostError):  # readable by root only, for example the system's UUID
        content = files.read(PurePosixPath(path))
        return None if content is None else content.decode("utf-8", errors="replace").strip("\0 \t\n")
    return None
