"""The export of whole machines: a table of commands that run in them, their console, and the logs of their pods."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import IO, Final

from kubewright.base.errors import HostError
from kubewright.host.filesystem import archives
from kubewright.host.filesystem.archives import Forward
from kubewright.local.export.sink import Sink
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord
from kubewright.local.whole import members
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
_MOST_FILES: Final = 100_000
_POD_LOGS: Final = ("tar", "--create", "--file=-", "--directory=/var/log/pods", ".")


def write(paths: ClusterPaths, cluster: ClusterRecord, sink: Sink) -> None:
    """Write the export of each machine of a cluster. Needs root."""
    for name in members.members(cluster):
        with sink.part(name):
            _write(members.machine_of(paths, cluster, name), sink)


def _write(machine: Machine, sink: Sink) -> None:
    name = machine.name
    with sink.part(f"{name}/console.log"), machine.places.console.open("rb") as console:
        sink.copy(f"{name}/console.log", console)
    if not machine.runs:
        sink.failed(name, "the machine does not run")
        return
    for file, command in COMMANDS.items():
        with sink.part(f"{name}/{file}"):
            sink.write(f"{name}/{file}", machine.run(*command, within=60).out.encode())
    with sink.part(f"{name}/pods"):
        _pod_logs(machine, sink)


def _pod_logs(machine: Machine, sink: Sink) -> None:
    with machine.start(*_POD_LOGS, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            copy_logs(process.stdout, machine.name, sink)
        finally:
            process.kill()  # it waits for us if the rest is not read


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
