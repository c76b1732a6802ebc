"""What marks a Node as a control plane (spec/kubeadm.md 7.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubewright.apis.kubeadm.types import CONTROL_PLANE_LABEL, Configuration

LABELS: Final = (CONTROL_PLANE_LABEL, "node.kubernetes.io/exclude-from-external-load-balancers")
"""Set with an empty value."""


def default_taint() -> dict[str, str]:
    """Return the taint of control planes: ordinary pods stay away."""
    return {"effect": "NoSchedule", "key": CONTROL_PLANE_LABEL}


def control_plane_patch(found: Mapping[str, Any], configuration: Configuration) -> dict[str, Any]:
    """Return the strategic merge patch that marks a Node, empty if it is marked already.

    The configured taints come first, then all present ones that are not among them. Lists of taints are replaced as a whole.
    """
    labels = found.get("metadata", {}).get("labels") or {}
    missing = {label: "" for label in LABELS if labels.get(label) != ""}
    present = list(found.get("spec", {}).get("taints") or ())
    configured = configuration.init.node_registration.taints
    wanted = [dict(taint) for taint in (configured if configured is not None else (default_taint(),))]
    wanted += [dict(taint) for taint in present if taint not in wanted]
    metadata = {"metadata": {"labels": missing}} if missing else {}
    return metadata | ({"spec": {"taints": wanted}} if wanted != present else {})
