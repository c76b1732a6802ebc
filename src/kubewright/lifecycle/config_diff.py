"""The differences between a configuration file and a cluster's stored configuration: changed fields, and a unified diff.

A cluster stores three documents: ClusterConfiguration, KubeletConfiguration and KubeProxyConfiguration. Documents for
one machine (InitConfiguration, JoinConfiguration) are not stored and not compared. Both sides are read and defaulted in
the same way; secrets are never shown.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kubewright.apis.kubeadm.codec import cluster_document
from kubewright.apis.kubeadm.defaults import NO_ADDRESS
from kubewright.apis.kubeadm.documents import CLUSTER, KUBE_PROXY, KUBELET
from kubewright.apis.kubeadm.loading import load_cluster
from kubewright.apis.kubeadm.types import LocalAPIEndpoint
from kubewright.base import yaml
from kubewright.base.change import unified_diff
from kubewright.base.errors import APIError, ValidationError
from kubewright.base.fields import FieldErrorType
from kubewright.base.level import KUBERNETES
from kubewright.base.masking import MASK, mask
from kubewright.base.records import dataclass, replace
from kubewright.base.versions import Version
from kubewright.base.yaml import Document
from kubewright.kube.api import KubeAPI
from kubewright.lifecycle import stored_configuration
from kubewright.lifecycle.stored_configuration import NAMESPACE

_ROWS: Final = {
    CLUSTER: stored_configuration.KUBEADM_CONFIG,
    KUBELET: stored_configuration.KUBELET_CONFIG,
    KUBE_PROXY: stored_configuration.KUBE_PROXY,
}
CONFIG_MAPS: Final[Mapping[str, tuple[str, str]]] = {kind: (name, key) for kind, (name, key, _) in _ROWS.items()}
"""ConfigMap and key of each document (kubeadm v1.36: phases/uploadconfig)."""
_VERSION: Final = "kubernetesVersion"
_UNKNOWN: Final = FieldErrorType.UNKNOWN.value
ANOTHER: Final = " (another)"
"""Marks a masked secret of the new side that differs from the old side's."""
_SECRET_NAME: Final = re.compile(r"(?i)(?:password|passwd|secret|token|credentials?|(?:access|api|private|client)[-_]?key)$")
_SORTED_BY_NAME: Final = frozenset({"extraArgs"})
"""Lists whose order has no meaning: kubeadm sorts arguments by name."""
Value = Any


@dataclass(frozen=True, kw_only=True)
class DefaultedDocuments:
    """The documents of one side by kind, complete with defaults; None if a document is missing, or not wanted.

    `warnings` report what is not compared.
    """

    documents: Mapping[str, Mapping[str, Any] | None]
    warnings: Sequence[str] = ()


def read_stored(api: KubeAPI) -> dict[str, Document]:
    """Return the documents that the cluster stores, by kind. The kubelet's and kube-proxy's may be missing.

    Raises APIError if the ClusterConfiguration is missing or the cluster cannot be read, DocumentError for an invalid
    document.
    """
    found = {kind: stored_configuration.find(api, row) for kind, row in _ROWS.items()}
    if found[CLUSTER] is None:
        name, key = CONFIG_MAPS[CLUSTER]
        raise APIError(
            f"the cluster has no {key} in the ConfigMap {NAMESPACE}/{name}",
            detail="kubeadm and kubewright store a cluster's configuration there",
            remedy="upload it with `init phase upload-config kubeadm --config FILE`",
        )
    return {kind: document for kind, document in found.items() if document is not None}


def of_cluster(stored: Mapping[str, Document]) -> DefaultedDocuments:
    """Apply defaults to the stored documents.

    Their version is kept, even one that we do not deploy. Raises ValidationError.
    """
    found = _at_version(list(stored.values()), _version(stored.values()) or KUBERNETES, _endpoint(stored))
    documents = {kind: found.documents[kind] if kind in stored else None for kind in CONFIG_MAPS}
    return DefaultedDocuments(documents=documents, warnings=[f"not compared: {text}" for text in found.warnings if _UNKNOWN in text])


def of_file(documents: Sequence[Document], stored: Mapping[str, Document]) -> DefaultedDocuments:
    """Apply defaults to a file.

    A version that it leaves unset, or gives as a label, is the cluster's: no other one was requested. Raises
    DocumentError and ValidationError as `load_init` does.
    """
    version, endpoint = _version(documents), _endpoint(stored)
    if version and _exact(version):
        return replace(_load(documents, endpoint, strict=True), warnings=())
    theirs = _version(stored.values())
    found = _at_version(documents, theirs if _exact(theirs) else KUBERNETES, endpoint, strict=True)
    return DefaultedDocuments(documents=found.documents, warnings=[f"not compared: {_VERSION} {version} is a label"] if version else [])


def _at_version(documents: Sequence[Document], version: str, endpoint: LocalAPIEndpoint, *, strict: bool = False) -> DefaultedDocuments:
    """Apply a version's defaults to documents.

    A version that we do not deploy is kept, with the defaults of ours. Raises ValidationError.
    """
    try:
        found = _load(_with_version(documents, version), endpoint, strict=strict)
    except ValidationError:
        found = _load(_with_version(documents, KUBERNETES), endpoint, strict=strict)
    cluster = {**(found.documents[CLUSTER] or {}), _VERSION: version}
    return DefaultedDocuments(documents={**found.documents, CLUSTER: cluster}, warnings=found.warnings)


def _load(documents: Sequence[Document], endpoint: LocalAPIEndpoint, *, strict: bool = False) -> DefaultedDocuments:
    found = load_cluster(documents, endpoint=endpoint, strict=strict, from_file=True)
    proxy = None if found.cluster.proxy.disabled else found.kube_proxy.document
    bodies = {CLUSTER: cluster_document(found.cluster), KUBELET: found.kubelet.document, KUBE_PROXY: proxy}
    return DefaultedDocuments(documents=bodies, warnings=found.warnings)


def _endpoint(stored: Mapping[str, Document]) -> LocalAPIEndpoint:
    """Return an endpoint of the address family of the cluster's kube-proxy: only the family affects a document."""
    document = stored.get(KUBE_PROXY)
    value = document.value if document else None
    address = value.get("bindAddress") if isinstance(value, Mapping) else None
    return LocalAPIEndpoint(advertise_address="::" if isinstance(address, str) and ":" in address else NO_ADDRESS)


def _version(documents: Iterable[Document]) -> str:
    """Return the version in a ClusterConfiguration; empty if none has one."""
    found = (one.value.get(_VERSION) for one in documents if isinstance(one.value, Mapping) and one.value.get("kind") == CLUSTER)
    value = next(found, "")
    return value if isinstance(value, str) else ""


def _exact(version: str) -> bool:
    try:
        Version.parse(version)
    except ValueError:
        return False
    return True


def _with_version(documents: Iterable[Document], version: str) -> list[Document]:
    """Return the documents with this version in the ClusterConfiguration; one is added if there is none."""
    found: list[Document] = []
    has_one = False
    for one in documents:
        if isinstance(one.value, Mapping) and one.value.get("kind") == CLUSTER:
            has_one = True
            found.append(replace(one, value={**one.value, _VERSION: version}))
        else:
            found.append(one)
    added = Document(value={"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": CLUSTER, _VERSION: version}, source="defaults")
    return found if has_one or not found else [*found, added]


@dataclass(frozen=True, kw_only=True)
class FieldChange:
    """One field that differs. A side without it is None; an empty path is the whole document."""

    path: str
    old: Value
    new: Value

    def as_map(self) -> dict[str, object]:
        """Return the form that `-o json` prints."""
        return {"path": self.path, "old": self.old, "new": self.new}


@dataclass(frozen=True, kw_only=True)
class DocumentDifference:
    """The differences of one document: the cluster's is old, the file's is new."""

    kind: str
    place: str
    changes: tuple[FieldChange, ...]
    diff: str

    def as_map(self) -> dict[str, object]:
        """Return the form that `-o json` prints."""
        return {"document": self.kind, "configMap": self.place, "changes": [change.as_map() for change in self.changes]}


def compare(cluster: DefaultedDocuments, file: DefaultedDocuments) -> list[DocumentDifference]:
    """Compare each document of the two sides, in the order of CONFIG_MAPS; those that are equal are left out."""
    found = []
    for kind, (name, _) in CONFIG_MAPS.items():
        old, new = (_ordered(side.documents[kind]) for side in (cluster, file))
        if old != new:
            found.append(_difference(kind, f"{NAMESPACE}/{name}", *_hidden(old, new)))
    return found


def _difference(kind: str, place: str, old: Value, new: Value) -> DocumentDifference:
    texts = ["" if one is None else yaml.dump(one) for one in (old, new)]
    diff = (
        unified_diff(*texts, name=kind)
        .replace(f"{kind} (found)", f"{kind} in {place}", 1)
        .replace(f"{kind} (desired)", f"{kind} of the file", 1)
    )
    return DocumentDifference(kind=kind, place=place, changes=tuple(_changes(old, new, "")), diff=diff)


def _ordered(value: Value, key: str = "") -> Value:
    """Return a copy in which lists without a meaningful order are sorted, and nulls, which have no meaning either, are left out."""
    if isinstance(value, Mapping):
        return {name: _ordered(part, name) for name, part in value.items() if part is not None}
    if not isinstance(value, list | tuple):
        return value
    found = [_ordered(part) for part in value]
    return sorted(found, key=lambda entry: str(entry["name"])) if key in _SORTED_BY_NAME and _names(found) else found


def _changes(old: Value, new: Value, path: str) -> Iterator[FieldChange]:
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted({*old, *new}):
            yield from _changes(old.get(name), new.get(name), f"{path}.{name}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list) and (_names(old) or not old) and (_names(new) or not new):
        yield from _named_changes(old, new, path)
    else:
        yield FieldChange(path=path, old=old, new=new)


def _named_changes(old: Sequence[Value], new: Sequence[Value], path: str) -> Iterator[FieldChange]:
    """Compare entries that have names by their names; if only their order differs, the whole list is the change."""
    before, after = ({entry["name"]: entry for entry in entries} for entries in (old, new))
    if before == after:
        yield FieldChange(path=path, old=old, new=new)
        return
    for name in dict.fromkeys([*before, *after]):
        place = f"{path}[{name}]"
        if name in before and name in after:
            yield from _changes(before[name], after[name], place)
        else:
            yield FieldChange(path=place, old=before.get(name), new=after.get(name))


def _names(entries: Sequence[Value]) -> list[str]:
    """Return the names of entries if all have a unique one; else nothing."""
    names = [entry["name"] for entry in entries if isinstance(entry, Mapping) and isinstance(entry.get("name"), str)]
    return names if len(names) == len(entries) == len(set(names)) else []


# Secrets.


def _hidden(old: Value, new: Value) -> tuple[Value, Value]:
    """Return both sides without secrets. Different sides still differ."""
    hidden_old, hidden_new = _without_secrets(old), _without_secrets(new)
    return hidden_old, _told_apart(old, new, hidden_old, hidden_new)


def _without_secrets(value: Value, key: str = "") -> Value:
    if isinstance(value, Mapping):
        named = isinstance(value.get("name"), str) and _SECRET_NAME.search(value["name"])
        return {name: _without_secrets(part, str(value["name"]) if named and name == "value" else name) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(part) for part in value]
    if isinstance(value, str) and value:
        return MASK if _SECRET_NAME.search(key) else mask(value)
    return copy.copy(value)


def _told_apart(old: Value, new: Value, hidden_old: Value, hidden_new: Value) -> Value:
    """Mark the secrets of the new side that differ from the old side's at the same position."""
    if old == new or not (isinstance(old, type(new)) or isinstance(new, type(old))):
        return hidden_new
    if isinstance(new, Mapping):
        return {name: _told_apart(old.get(name), new[name], hidden_old.get(name), part) for name, part in hidden_new.items()}
    if isinstance(new, list):
        result = list(hidden_new)
        for place, earlier in _counterparts(old, new):
            result[place] = _told_apart(old[earlier], new[place], hidden_old[earlier], hidden_new[place])
        return result
    return hidden_new + ANOTHER if hidden_new == hidden_old and isinstance(new, str) else hidden_new


def _counterparts(old: Sequence[Value], new: Sequence[Value]) -> list[tuple[int, int]]:
    """Return the indexes of new entries, each with that of the old one: of the same name, or without names at the same place."""
    if _names(old) and _names(new):
        by_name = {entry["name"]: place for place, entry in enumerate(old)}
        return [(place, by_name[entry["name"]]) for place, entry in enumerate(new) if entry["name"] in by_name]
    return [(place, place) for place in range(min(len(old), len(new)))]
