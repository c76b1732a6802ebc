"""All objects of a cluster, as they are written for a bug report: without the data of Secrets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kubewright.base.errors import APIError
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Object
from kubewright.kube.resources import Resource

_SECRET_FIELDS: Final = ("data", "stringData")
_REPEATS: Final = ("kubectl.kubernetes.io/last-applied-configuration",)
"""Annotations that repeat the object, with its data."""


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
