"""Values that several tests of the agent use."""

from __future__ import annotations

import copy
from typing import Any

from kubewright.agent.status.facts import GIB, MachineProfile, NodeFacts

NOW = "2026-01-02T03:04:05Z"
LATER = "2026-01-02T03:14:05Z"


def machine(**changes: Any) -> MachineProfile:
    return MachineProfile(
        **{
            "architecture": "amd64",
            "kubelet_version": "v1.36.3",
            "cpu_millis": 4000,
            "memory": 8 * GIB,
            "ephemeral_storage": 100 * GIB,
            "machine_id": "machine",
            "system_uuid": "system",
            "boot_id": "boot",
            **changes,
        }
    )


def facts(name: str = "node-1", **changes: Any) -> NodeFacts:
    return NodeFacts(**{"name": name, "profile": machine(), "addresses": ("10.0.0.1",), **changes})


def stored(node: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A Node as the API server returns it."""
    copied = copy.deepcopy(node)
    copied["metadata"].update(uid="uid-of-node", resourceVersion="1")
    copied["spec"].update(spec)
    return copied


def pod(name: str = "web", *, spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{name}", "resourceVersion": "1", "generation": 1, **metadata},
        "spec": {
            "nodeName": "node-1",
            "restartPolicy": "Always",
            "containers": [{"name": "app", "image": "example.org/app:1"}],
            **(spec or {}),
        },
        "status": {"phase": "Pending", **(status or {})},
    }
