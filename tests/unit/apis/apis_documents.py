"""Shared by the tests of the configuration kinds: reference files, a machine, and documents built from maps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubewright.apis.kubeadm.loading import Loaded, load_init
from kubewright.apis.machine import Detected
from kubewright.base.errors import DocumentError, ValidationError
from kubewright.base.randomness import SeededRandom
from kubewright.base.yaml import Document, load_all

REFERENCE = Path(__file__).parents[2] / "data" / "reference"
CASES = ("ipv4-minimal", "extra-everything", "external-etcd", "dual-stack", "ipv6-only", "ecdsa-p256", "custom-paths-sans")
ALL_CASES = (*CASES, "patches", "external-ca", "structured-authz", "proxy-env", "rootless")
MACHINE = Detected(host_name="node1", default_ipv4="10.98.0.11", default_ipv6="fd00:98::11")

V1BETA4 = "kubeadm.k8s.io/v1beta4"
KUBELET = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
KUBE_PROXY = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}


def init(**fields: object) -> dict[str, object]:
    return {"apiVersion": V1BETA4, "kind": "InitConfiguration", **fields}


def cluster(**fields: object) -> dict[str, object]:
    return {"apiVersion": V1BETA4, "kind": "ClusterConfiguration", "kubernetesVersion": "v1.36.2", **fields}


def documents(*values: Mapping[str, object]) -> list[Document]:
    return [Document(value=value, source="kubeadm.yaml") for value in values]


def load(*values: Mapping[str, object], **keywords: object) -> Loaded:
    return load_init(documents(*values), **{"detected": MACHINE, "random": SeededRandom(), **keywords})


def load_text(text: str, **keywords: object) -> Loaded:
    return load_init(load_all(text, source="kubeadm.yaml"), **{"detected": MACHINE, "random": SeededRandom(), **keywords})


def load_case(name: str, **keywords: object) -> Loaded:
    return load_text((REFERENCE / "cases" / name / "kubeadm.yaml").read_text(), **keywords)


def field_errors(*values: Mapping[str, object], **keywords: object) -> list[tuple[str, str]]:
    """Return path and type of each field error, in order; fail if the documents are valid."""
    try:
        loaded = load(*values, **keywords)
    except ValidationError as error:
        return [(found.path.text, found.type.value) for found in error.errors]
    raise AssertionError(f"no error, but {loaded}")


def document_error(*values: Mapping[str, object], **keywords: object) -> DocumentError:
    try:
        loaded = load(*values, **keywords)
    except DocumentError as error:
        return error
    raise AssertionError(f"no error, but {loaded}")


def reference_json(path: str) -> Any:
    return json.loads((REFERENCE / path).read_text())


def config_map(objects: Any, name: str) -> dict[str, Any]:
    """Find a ConfigMap in the output of `init --dry-run`."""
    if isinstance(objects, dict):
        if objects.get("kind") == "ConfigMap" and objects["metadata"]["name"] == name:
            return objects
        objects = list(objects.values())
    found = [config_map(item, name) for item in objects] if isinstance(objects, list) else []
    return next((item for item in found if item), {})
