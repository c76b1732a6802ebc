"""The CSINode of a Node: an object without drivers that node storage waits for.

Source: kubelet v1.36: pkg/volume/csi/nodeinfomanager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubewright.agent.dependencies import backoff
from kubewright.agent.leases import owner_reference
from kubewright.base.errors import APIError, NotFound
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.resources import CSI_NODE

_log = logging.getLogger(__name__)

NOT_YET: Final = "CSINode is not yet initialized"
MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"
PLUGINS: Final = ("aws-ebs", "azure-disk", "azure-file", "cinder", "gce-pd", "portworx-volume", "vsphere-volume")
"""In-tree volume plug-ins that CSI drivers have replaced, without their domain kubernetes.io."""
_MIGRATED_PLUGINS: Final = ",".join(f"kubernetes.io/{name}" for name in PLUGINS)
_FIRST: Final = 0.03
_MOST: Final = 30.0


def new_csi_node(node: Mapping[str, Any]) -> Object:
    """Return the CSINode to create for a Node."""
    annotations = {MIGRATED: _MIGRATED_PLUGINS}
    metadata = {"name": node["metadata"]["name"], "annotations": annotations, "ownerReferences": [owner_reference(node)]}
    return {"apiVersion": CSI_NODE.api_version, "kind": CSI_NODE.kind, "metadata": metadata, "spec": {"drivers": []}}


def belongs(csi_node: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether a CSINode belongs to this Node, and not to an earlier Node of the same name."""
    owners = csi_node["metadata"].get("ownerReferences") or ()
    wanted = {"kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
    return any(all(owner.get(key) == value for key, value in wanted.items()) for owner in owners)


def _annotated(csi_node: Mapping[str, Any]) -> Object | None:
    """Return a CSINode with the current migrated plug-ins, None if it has them: those of an older kubelet may be others."""
    annotations = csi_node["metadata"].get("annotations") or {}
    if set(annotations.get(MIGRATED, "").split(",")) == set(_MIGRATED_PLUGINS.split(",")):
        return None
    return {**csi_node, "metadata": {**csi_node["metadata"], "annotations": {**annotations, MIGRATED: _MIGRATED_PLUGINS}}}


async def publish_once(api: AsyncKubeAPI, node: Mapping[str, Any], *, is_new: bool) -> bool:
    """Make sure that this Node has a CSINode, in one attempt, and return whether that worked.

    `ensure_csi_node` retries what fails. For a Node that was just created, the CSINode is created without reading
    first.
    """
    try:
        await (api.create(new_csi_node(node)) if is_new else _ensure(api, node))
    except APIError:
        return False
    return True


async def ensure_csi_node(api: Callable[[], AsyncKubeAPI], node: Callable[[], Mapping[str, Any]], *, failed: Callable[[str], None]) -> None:
    """Make sure that this Node has a CSINode: keep or correct an existing one, replace one of an earlier Node.

    Retries until it works. `node` is called before each attempt: the Node may have been deleted and created again.
    `failed` is called on each failure with the reason why the node's storage is not ready, in the kubelet's words.
    """
    attempt = 0
    while True:
        attempt += 1
        try:
            await _ensure(api(), node())
        except APIError as error:
            failed(f"failed to initialize CSINode: {error}")
            _log.info("node %s: its CSINode: %s", node()["metadata"]["name"], error)
        else:
            return
        await asyncio.sleep(backoff(attempt, first=_FIRST, most=_MOST))


async def _ensure(api: AsyncKubeAPI, node: Mapping[str, Any]) -> None:
    name = node["metadata"]["name"]
    try:
        found = await api.get(CSI_NODE, name)
    except NotFound:
        found = None
    if found is not None and belongs(found, node):
        corrected = _annotated(found)
        if corrected is not None:
            await api.update(corrected)
        return
    if found is not None:
        await api.delete(CSI_NODE, name, uid=found["metadata"]["uid"])
    await api.create(new_csi_node(node))
