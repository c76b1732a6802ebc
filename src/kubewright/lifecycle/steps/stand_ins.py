"""What a plan reads from a cluster that is not there: kubeadm's stand-ins as far as `init` needs them (spec/kubeadm.md 2.5).

A row is an object or a file that somebody else makes in a real run, after what the phases did before.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Layout
from kubewright.host.desired import File


def node(name: str) -> dict[str, Any]:
    """Return the Node that the kubelet registers; mark-control-plane waits for its label."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"labels": {"kubernetes.io/hostname": name}, "name": name}, "spec": {}}


def _own_node(configuration: Configuration) -> dict[str, Any]:
    return node(configuration.init.node_registration.name)


OBJECTS: Final[tuple[Callable[[Configuration], dict[str, Any]], ...]] = (_own_node,)
"""Objects that others make in the cluster."""

KUBELET_FILES: Final[tuple[Callable[[Layout], PurePosixPath], ...]] = (lambda layout: layout.kubelet_client_current,)
"""Files that the kubelet makes once it runs. Their content is never looked at."""


def objects(configuration: Configuration) -> list[dict[str, Any]]:
    """Return the objects for a configuration."""
    return [row(configuration) for row in OBJECTS]


def kubelet_files(layout: Layout) -> tuple[File, ...]:
    """Return the kubelet's files for a layout."""
    return tuple(File(path=row(layout), content=b"") for row in KUBELET_FILES)
