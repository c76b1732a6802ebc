"""The two sides of `config diff`: what a file asks for and what a cluster keeps, each read and defaulted in the same way.

A cluster keeps three documents: ClusterConfiguration, KubeletConfiguration and KubeProxyConfiguration. What a file says about one machine
(InitConfiguration, JoinConfiguration) has no place there and is not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kubewright.apis.kubeadm import cluster_document, load_cluster
from kubewright.apis.kubeadm.defaults import NO_ADDRESS
from kubewright.apis.kubeadm.documents import CLUSTER, KUBE_PROXY, KUBELET
from kubewright.apis.kubeadm.types import LocalAPIEndpoint
from kubewright.base import yaml
from kubewright.base.errors import APIError, DocumentError, NotFound, ValidationError
from kubewright.base.fields import FieldErrorType
from kubewright.base.level import KUBERNETES
from kubewright.base.records import dataclass, replace
from kubewright.base.versions import Version
from kubewright.base.yaml import Document
from kubewright.kube.api import KubeAPI
from kubewright.kube.resources import CONFIG_MAP

NAMESPACE: Final = "kube-system"
PLACES: Final[Mapping[str, tuple[str, str]]] = {
    CLUSTER: ("kubeadm-config", "ClusterConfiguration"),
    KUBELET: ("kubelet-config", "kubelet"),
    KUBE_PROXY: ("kube-proxy", "config.conf"),
}
"""ConfigMap and key of each document (spec/kubeadm.md 7.2)."""

_VERSION: Final = "kubernetesVersion"
_UNKNOWN: Final = FieldErrorType.UNKNOWN.value


@dataclass(frozen=True, kw_only=True)
class Side:
    """The documents of one side by kind, complete with defaults; None where a document is not there, or not wanted.

    `warnings` tell what is not compared.
    """

    documents: Mapping[str, Mapping[str, Any] | None]
    warnings: Sequence[str] = ()


def read_stored(api: KubeAPI) -> dict[str, Document]:
    """Return what the cluster keeps, by kind. The kubelet's and kube-proxy's may be missing.

    Raises APIError where the ClusterConfiguration is missing or the cluster cannot be read, DocumentError for what is no document.
    """
    found = {kind: _read(api, *PLACES[kind]) for kind in PLACES}
    if found[CLUSTER] is None:
        name, key = PLACES[CLUSTER]
        raise APIError(
            f"the cluster has no {key} in the ConfigMap {NAMESPACE}/{name}",
            detail="kubeadm and kubewright keep a cluster's configuration there",
            remedy="upload it with `init phase upload-config kubeadm --config FILE`",
        )
    return {kind: document for kind, document in found.items() if document is not None}


def _read(api: KubeAPI, name: str, key: str) -> Document | None:
    try:
        data = api.get(CONFIG_MAP, name, NAMESPACE).get("data")
    except NotFound:
        return None
    text = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(text, str):
        return None
    source = f"{NAMESPACE}/{name}"
    value = yaml.load(text, source=source)
    if not isinstance(value, Mapping):
        raise DocumentError(f"{key} of the ConfigMap {source} is no map", remedy="upload it again with `init phase upload-config`")
    return Document(value=value, source=source)


def cluster_side(stored: Mapping[str, Document]) -> Side:
    """Default what the cluster keeps. Its version stays as it is, also one that we do not deploy. Raises ValidationError."""
    found = _at_version(list(stored.values()), _version(stored.values()) or KUBERNETES, _endpoint(stored))
    documents = {kind: found.documents[kind] if kind in stored else None for kind in PLACES}
    return Side(documents=documents, warnings=[f"not compared: {text}" for text in found.warnings if _UNKNOWN in text])


def file_side(documents: Sequence[Document], stored: Mapping[str, Document]) -> Side:
    """Default what a file asks for. A version that it leaves open, or gives as a label, is the cluster's: nobody asked for another one.

    Raises DocumentError and ValidationError as `load_init` does.
    """
    version, endpoint = _version(documents), _endpoint(stored)
    if version and _exact(version):
        return replace(_load(documents, endpoint, strict=True), warnings=())
    theirs = _version(stored.values())
    found = _at_version(documents, theirs if _exact(theirs) else KUBERNETES, endpoint, strict=True)
    return Side(documents=found.documents, warnings=[f"not compared: {_VERSION} {version} is a label"] if version else [])


def _at_version(documents: Sequence[Document], version: str, endpoint: LocalAPIEndpoint, *, strict: bool = False) -> Side:
    """Default documents for a version. One that we do not deploy is kept, with the defaults of ours. Raises ValidationError."""
    try:
        found = _load(_with_version(documents, version), endpoint, strict=strict)
    except ValidationError:
        found = _load(_with_version(documents, KUBERNETES), endpoint, strict=strict)
    cluster = {**(found.documents[CLUSTER] or {}), _VERSION: version}
    return Side(documents={**found.documents, CLUSTER: cluster}, warnings=found.warnings)


def _load(documents: Sequence[Document], endpoint: LocalAPIEndpoint, *, strict: bool = False) -> Side:
    found = load_cluster(documents, endpoint=endpoint, strict=strict, from_file=True)
    proxy = None if found.cluster.proxy.disabled else found.kube_proxy.document
    bodies = {CLUSTER: cluster_document(found.cluster), KUBELET: found.kubelet.document, KUBE_PROXY: proxy}
    return Side(documents=bodies, warnings=found.warnings)


def _endpoint(stored: Mapping[str, Document]) -> LocalAPIEndpoint:
    """Return an endpoint of the address family that the cluster's kube-proxy listens on: only the family reaches a document."""
    document = stored.get(KUBE_PROXY)
    value = document.value if document else None
    address = value.get("bindAddress") if isinstance(value, Mapping) else None
    return LocalAPIEndpoint(advertise_address="::" if isinstance(address, str) and ":" in address else NO_ADDRESS)


def _version(documents: Iterable[Document]) -> str:
    """Return the version that a ClusterConfiguration gives; empty if none does."""
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
    """Return the documents with this version in the ClusterConfiguration; one is added where there is none."""
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
