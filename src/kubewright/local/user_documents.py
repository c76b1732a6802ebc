"""The documents that a user gives to `up` with --config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kubewright.base import yaml
from kubewright.base.errors import DocumentError, UsageError
from kubewright.base.level import KUBERNETES
from kubewright.base.versions import Version
from kubewright.base.yaml import Document

SOURCE: Final = "--config"
_OF_KIND: Final = "kind.x-k8s.io/"


def version_of(config: str, asked: str | None) -> str:
    """Return the Kubernetes version of a new cluster: the flag's, else the document's, else ours.

    Raises UsageError if the two contradict each other.
    """
    named = field(documents_of(config), "ClusterConfiguration", "kubernetesVersion")
    if not isinstance(named, str) or not named:
        return asked or KUBERNETES
    try:
        written = str(Version.parse(named))
    except ValueError:
        return asked or KUBERNETES  # a label such as stable-1 is not looked up for a local cluster
    if asked is not None and asked != written:
        raise UsageError(f"--kubernetes-version {asked} is not the version of {SOURCE}, {written}", remedy="specify only one of them")
    return written


def documents_of(config: str) -> list[Document]:
    """Return the documents of a configuration; '' is none. Raises DocumentError, also for the configuration of another tool."""
    try:
        found = yaml.load_all(config, source=SOURCE, recognise_json=True) if config else []
    except DocumentError as error:
        error.remedy = (
            error.remedy or "correct the file: it must be YAML, with a document of kind ClusterConfiguration, InitConfiguration or both"
        )
        raise
    if any(isinstance(one.value, Mapping) and str(one.value.get("apiVersion")).startswith(_OF_KIND) for one in found):
        raise DocumentError(
            f"{SOURCE} is a configuration of kind, not of kubeadm",
            remedy="use --nodes, --control-planes, --publish and --mount; kubeadmConfigPatches are documents for --config",
        )
    return found


def field(documents: Sequence[Document], kind: str, *path: str) -> object:
    """Return the raw value of a field in the document of a kind, or None."""
    for document in documents:
        if isinstance(document.value, Mapping) and document.value.get("kind") == kind:
            found: object = document.value
            for name in path:
                found = found.get(name) if isinstance(found, Mapping) else None
            return found
    return None
