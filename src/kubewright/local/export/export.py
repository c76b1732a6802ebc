"""Writing a cluster of either kind to a directory: its status, its objects without the data of Secrets, and its logs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from kubewright.base.errors import APIError
from kubewright.base.events import Reporter
from kubewright.base.masking import mask
from kubewright.base.records import dataclass
from kubewright.kube.api import KubeAPI
from kubewright.kube.client import KubeClient
from kubewright.kube.core import Object
from kubewright.kube.resources import Resource
from kubewright.local.cluster import status
from kubewright.local.cluster.cluster import LocalCluster
from kubewright.local.export.sink import Sink
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord
from kubewright.local.whole import owner

_SECRET_FIELDS: Final = ("data", "stringData")
_REPEATS: Final = ("kubectl.kubernetes.io/last-applied-configuration",)
"""Annotations that repeat the object, with its data."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The files that were written, relative to the directory, and the reasons why others are missing."""

    directory: Path
    files: tuple[str, ...]
    problems: tuple[str, ...]


def export(paths: ClusterPaths, directory: Path, *, reporter: Reporter) -> Exported:
    """Write a cluster to a directory that does not exist yet, or is empty.

    Parts that cannot be read are noted in the result. Raises UsageError if there is no such cluster or the directory is
    not empty, HostError if the directory cannot be written.
    """
    cluster = status.require(paths)
    sink = Sink(directory.absolute(), owner=owner.caller(os.environ), reporter=reporter)
    sink.open()
    with sink.part("status.json"):
        sink.write("status.json", _json(status.status(paths)))
    with sink.part("cluster.json"):
        with owner.acting_as(owner.of_cluster(paths)):
            description = paths.record.read_text(encoding="utf-8")
        sink.write("cluster.json", mask(description).encode())
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
        for resource in listed(api):
            name = f"objects/{file_name(resource)}"
            with sink.part(name):
                if found := without_secrets(api.list(resource)):
                    sink.write(name, _json(found))


def _logs(paths: ClusterPaths, cluster: ClusterRecord, sink: Sink) -> None:
    """Write the logs of components that run as processes."""
    logs = {"daemon.log": paths.daemon_log}
    for machine in cluster.machines:
        logs |= {f"{machine.name}/{path.name}": path for path in sorted(paths.logs(machine.name).glob("*.log*"))}
    user = owner.of_cluster(paths)
    for name, path in logs.items():
        with sink.part(name):
            with owner.acting_as(user):  # they may be links
                content = path.open("rb")
            with content:
                sink.copy(name, content)


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def listed(api: KubeAPI) -> Iterator[Resource]:
    """Yield every kind of object that the API server can list, in the version that it prefers. Raises APIError if it does not answer."""
    groups = [("", "v1")]
    groups += [(group["name"], group["preferredVersion"]["version"]) for group in _read(api, "/apis").get("groups", [])]
    for group, version in groups:
        for row in _read(api, f"/apis/{group}/{version}" if group else f"/api/{version}").get("resources", []):
            if "list" in row.get("verbs", ()) and "/" not in row["name"]:
                yield Resource(group=group, version=version, kind=row["kind"], plural=row["name"], namespaced=bool(row["namespaced"]))


def file_name(resource: Resource) -> str:
    """Return the name of the file with all objects of a kind."""
    return f"{resource.plural}.{resource.group}.json" if resource.group else f"{resource.plural}.json"


def without_secrets(found: Iterable[Object]) -> list[Object]:
    """Return objects without the data of Secrets; the names of its keys stay."""
    return [_redacted(one) if (one.get("kind"), one.get("apiVersion")) == ("Secret", "v1") else one for one in found]


def _redacted(secret: Object) -> Object:
    metadata = dict(secret.get("metadata") or {})
    metadata.pop("managedFields", None)
    annotations = metadata.get("annotations") or {}
    if annotations:
        metadata["annotations"] = {name: text for name, text in annotations.items() if name not in _REPEATS}
    hidden = {name: dict.fromkeys(secret[name], "") for name in _SECRET_FIELDS if isinstance(secret.get(name), Mapping)}
    return {**secret, "metadata": metadata, **hidden}


def _read(api: KubeAPI, path: str) -> dict[str, Any]:
    answer = api.raw("GET", path, headers={"accept": "application/json"})
    if answer.status != 200:
        raise APIError(f"the API server answered {answer.status} to GET {path}")
    found: dict[str, Any] = json.loads(answer.body)
    return found
