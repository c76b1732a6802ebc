"""Pods on the control plane of a cluster that has become its only machine: without the workers, they would run nowhere.

A cluster that begins with one machine has no taint there. In others, `init` taints the first machine whenever `up` runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubewright.apis.kubeadm.types import CONTROL_PLANE_LABEL
from kubewright.base.change import Action, Change
from kubewright.base.errors import NotFound
from kubewright.kube.api import KubeAPI
from kubewright.kube.resources import NODE
from kubewright.local.record import ClusterRecord
from kubewright.local.user_documents import documents_of, field


def ensure(api: KubeAPI, cluster: ClusterRecord) -> list[Change]:
    """Remove the taint of control planes from the only machine of a cluster. Other taints stay, and all that the user has configured."""
    try:
        node = api.get(NODE, cluster.control_plane.name) if is_open(cluster) else {}
    except NotFound:  # it registers without the taint
        return []
    taints = (node.get("spec") or {}).get("taints") or []
    kept = [taint for taint in taints if taint.get("key") != CONTROL_PLANE_LABEL]
    if kept == taints:
        return []
    api.patch(NODE, cluster.control_plane.name, {"spec": {"taints": kept or None}}, type="merge")
    return [Change(target=f"taint of node {cluster.control_plane.name}", action=Action.DELETE)]


def is_open(cluster: ClusterRecord) -> bool:
    """Return whether pods run on the first machine: there is no other one, and the user has not configured taints."""
    given = field(documents_of(cluster.config), "InitConfiguration", "nodeRegistration")
    return cluster.total == 1 and not (isinstance(given, Mapping) and "taints" in given)
