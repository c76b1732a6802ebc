"""The export of whole machines: a table of commands that run in them, their console, and the logs of their pods."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Final

from kubewright.base.errors import HostError
from kubewright.host.filesystem import archives
from kubewright.host.filesystem.archives import Forward
from kubewright.local.export.sink import Sink
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord
from kubewright.local.whole import entering, members
from kubewright.local.whole.services.programs import Program
from kubewright.machines.machine import Machine

COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "journal.txt": ("journalctl", "--no-pager", "--output=short-precise"),
    "units.txt": ("systemctl", "--no-pager", "list-units", "--all"),
    "processes.txt": ("ps", "-eo", "pid,ppid,stat,etime,rss,comm"),
    "addresses.txt": ("ip", "address"),
    "routes.txt": ("ip", "route"),
    "rules.txt": ("nft", "list", "ruleset"),
    "disk.txt": ("df", "-h"),
    "images.txt": ("ctr", "-n", "k8s.io", "images", "list"),
    "containers.txt": ("ctr", "-n", "k8s.io", "containers", "list"),
    "kubelet.yaml": ("cat", "/var/lib/kubelet/config.yaml"),
    "hosts": ("cat", "/etc/hosts"),
    "resolv.conf": ("cat", "/etc/resolv.conf"),
}
"""The files of each machine, and the commands whose output they contain. No command prints its arguments or keys."""
MOST_BYTES: Final = 4 << 30
"""Bytes of the logs of one machine's pods."""
_WITHIN: Final = 60.0
"""Seconds for each command."""
_MOST_FILES: Final = 100_000
_POD_LOGS: Final = ("tar", "--create", "--file=-", "--directory=/var/log/pods", ".")


def write(paths: ClusterPaths, cluster: ClusterRecord, sink: Sink) -> None:
    """Write the export of each machine of a cluster."""
    for name in members.members(cluster):
        with sink.part(name):
            _write(paths, members.machine_of(paths, cluster, name), sink)


def _write(paths: ClusterPaths, machine: Machine, sink: Sink) -> None:
    name = machine.name
    with sink.part(f"{name}/console.log"), entering.reading(paths, Program(machine=name)) as (console, ended):
        sink.copy(f"{name}/console.log", console)
        if code := ended():
            raise HostError(f"the console of machine {name} cannot be read", detail=f"cat ended with {code}")
    if not machine.runs:
        sink.failed(name, "the machine does not run")
        return
    for file, command in COMMANDS.items():
        with sink.part(f"{name}/{file}"):
            sink.write(f"{name}/{file}", entering.captured(paths, Program(machine=name, command=command), within=_WITHIN))
    pods = Program(machine=name, command=_POD_LOGS)
    with (
        sink.part(f"{name}/pods"),
        Path(os.devnull).open("wb") as nothing,
        entering.reading(paths, pods, stderr=nothing.fileno()) as (archive, _),
    ):
        copy_logs(archive, name, sink)


def copy_logs(archive: IO[bytes], machine: str, sink: Sink) -> None:
    """Write the files of an archive of a machine's pods. Raises HostError for one that is invalid or too large: it is the machine's."""
    try:
        for path, content in files_of(archive):
            sink.copy(f"{machine}/pods/{path}", content)
    except archives.UNREADABLE as error:
        raise HostError(f"the archive of the logs cannot be read: {error}") from error


def files_of(archive: IO[bytes]) -> Iterator[tuple[PurePosixPath, IO[bytes]]]:
    """Yield the files of an archive that a machine has made, with relative paths. Links, and paths that lead elsewhere, are left out."""
    with archives.opened(Forward(archive, most=MOST_BYTES)) as tar:
        for number, entry in enumerate(tar):
            if number == _MOST_FILES:
                raise HostError(f"it has more than {_MOST_FILES} files")
            path = PurePosixPath(entry.name)
            content = tar.extractfile(entry) if entry.isreg() else None
            if content is not None and path.parts and not path.is_absolute() and ".." not in path.parts:
                yield path, content
