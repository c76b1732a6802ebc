"""Writing a cluster of either kind to a directory: its status, its objects and its logs."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path

from kubewright.base.errors import HostError
from kubewright.base.events import Reporter
from kubewright.base.masking import mask
from kubewright.base.records import dataclass
from kubewright.kube.client import KubeClient
from kubewright.local.cluster import status
from kubewright.local.cluster.cluster import LocalCluster
from kubewright.local.export import objects
from kubewright.local.export.sink import Sink
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord
from kubewright.local.whole import owner


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The files that were written, relative to the directory, and why others are missing."""

    directory: Path
    files: tuple[str, ...]
    problems: tuple[str, ...]


def export(paths: ClusterPaths, directory: Path, *, reporter: Reporter) -> Exported:
    """Write a cluster to a directory that does not exist yet, or is empty.

    Parts that cannot be read are noted in the result. Raises UsageError if there is no such cluster or the directory is
    not empty, HostError if the user may not enter the machines or the directory cannot be written.
    """
    cluster = status.require(paths)
    if cluster.is_whole and os.geteuid() != 0:
        raise HostError("only root can enter machines", remedy=f"run `sudo kubewright local export --name {paths.name} {directory}`")
    sink = Sink(directory.absolute(), owner=owner.caller(os.environ), reporter=reporter)
    sink.open()
    with sink.part("status.json"):
        sink.write("status.json", _json(status.status(paths)))
    with sink.part("cluster.json"):
        sink.write("cluster.json", mask(paths.record.read_text(encoding="utf-8")).encode())
    with sink.part("objects"):
        _objects(paths, sink)
    if cluster.is_whole:
        from kubewright.local.export import machines

        machines.write(paths, cluster, sink)
    else:
        _logs(paths, cluster, sink)
    sink.close()
    return Exported(directory=directory, files=tuple(sink.files), problems=tuple(sink.problems))


def _objects(paths: ClusterPaths, sink: Sink) -> None:
    access = LocalCluster(paths.name, state_dir=paths.root.parent).access
    with closing(KubeClient(access, timeout=30.0)) as api:
        for resource in objects.listed(api):
            name = f"objects/{objects.file_name(resource)}"
            with sink.part(name):
                if found := objects.without_secrets(api.list(resource)):
                    sink.write(name, _json(found))


def _logs(paths: ClusterPaths, cluster: ClusterRecord, sink: Sink) -> None:
    """Write the logs of components that run as processes."""
    logs = {"daemon.log": paths.daemon_log}
    for machine in cluster.machines:
        logs |= {f"{machine.name}/{path.name}": path for path in sorted(paths.logs(machine.name).glob("*.log*"))}
    for name, path in logs.items():
        with sink.part(name), path.open("rb") as content:
            sink.copy(name, content)


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
