"""The Secrets of one hub's state as objects: identifying, reading and writing them.

Only versions that were read are deleted or overwritten.

| part | content |
|---|---|
| head | one Secret: the last transaction, the last lines of the journal |
| group | rows that change together |
| journal | older lines of the journal |

Each has the number of the transaction that wrote it, and the identity of its state.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from kubewright.base.errors import Conflict, HostError, NotFound
from kubewright.kube import core
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Object
from kubewright.kube.resources import SECRET

STATE_LABEL: Final = "enrollment.kubewright/state"
PART_LABEL: Final = "enrollment.kubewright/part"
CLUSTER_LABEL: Final = "enrollment.kubewright/cluster"
TYPE: Final = "enrollment.kubewright/state"
HEAD, GROUP, LINES = "head", "group", "journal"
NUMBER: Final = "enrollment.kubewright/number"
STATE_ID: Final = "enrollment.kubewright/state-id"
_CONTENT: Final = "content"


class StateSecrets:
    """The Secrets of the state `name`, which is also the name of the head."""

    def __init__(self, api: KubeAPI, *, namespace: str, name: str) -> None:
        self.name = name
        self.place = f"the Secrets {namespace}/{name}"
        """The location of the state, for messages."""
        self._api = api
        self._namespace = namespace

    def list(self, *, cluster: str = "") -> list[Object]:
        """Return all of them, or those of a cluster."""
        of_cluster = f",{CLUSTER_LABEL}={label(cluster)}" if cluster else ""
        return self._api.list(SECRET, self._namespace, label_selector=f"{STATE_LABEL}={self.name}{of_cluster}")

    def find(self, name: str) -> Object | None:
        """Return one of them, None if it does not exist."""
        try:
            return self._api.get(SECRET, name, self._namespace)
        except NotFound:
            return None

    def write(self, body: Object, *, over: Object | None) -> Object:
        """Create a Secret, or update the version that was read (`over`).

        Raises Conflict, AlreadyExists or NotFound if it has changed.
        """
        if over is None:
            return self._api.create(body)
        seen = core.metadata(over)
        metadata = {**body["metadata"], "resourceVersion": seen.get("resourceVersion"), **({"uid": seen["uid"]} if seen.get("uid") else {})}
        return self._api.update({**body, "metadata": metadata})

    def delete(self, seen: Object) -> None:
        """Delete a Secret if it is still the one that was read; one that was changed or replaced stays."""
        name, metadata = core.identity_of(seen)[0], core.metadata(seen)
        uid, version = str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or "")
        with suppress(NotFound, Conflict):
            self._api.delete(SECRET, name, self._namespace, uid=uid, resource_version=version)

    def body(self, name: str, part: str, content: Mapping[str, Any], *, number: int, state: str, cluster: str = "") -> Object:
        """Return a Secret as it is written."""
        labels = {STATE_LABEL: self.name, PART_LABEL: part, **({CLUSTER_LABEL: label(cluster)} if cluster else {})}
        annotations = {NUMBER: str(number), STATE_ID: state}
        metadata = {"name": name, "namespace": self._namespace, "labels": labels, "annotations": annotations}
        data = {_CONTENT: base64.b64encode(json.dumps(content).encode()).decode()}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": TYPE, "data": data}


def label(cluster: str) -> str:
    """Return a cluster's name in a form that fits into a label."""
    return hashlib.sha256(cluster.encode()).hexdigest()[:40]


def label_of(secret: Object, name: str) -> str:
    """Return a label of a Secret, '' if it has none."""
    return str((core.metadata(secret).get("labels") or {}).get(name) or "")


def number_of(secret: Object) -> int:
    """Return the number of the transaction that wrote a Secret, 0 if it has none."""
    text = core.annotation_of(secret, NUMBER)
    return int(text) if text.isdecimal() else 0


def version_of(secret: Object | None) -> tuple[Any, Any] | None:
    """Return an identifier of a version of an object, different for every object and change."""
    return (core.metadata(secret).get("uid"), core.metadata(secret).get("resourceVersion")) if secret is not None else None


def content_of(secret: Object) -> dict[str, Any]:
    """Return the content of one of our Secrets. Raises HostError for one that others have changed."""
    try:
        found = json.loads(base64.b64decode((secret.get("data") or {})[_CONTENT], validate=True))
    except (KeyError, ValueError, TypeError) as error:
        name, namespace = core.identity_of(secret)
        raise HostError(
            f"the Secret {namespace}/{name} does not contain data written by a hub", detail=str(error), remedy="restore it from a backup"
        ) from error
    if not isinstance(found, dict):
        raise HostError("a Secret of the hub's state contains no map", remedy="restore it from a backup")
    return found
