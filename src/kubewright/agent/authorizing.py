"""Who may use the kubelet API (kubelet v1.36: pkg/kubelet/server/auth.go)."""

from __future__ import annotations

from typing import Any, Final

from kubewright.base.errors import APIError
from kubewright.http.tls import Peer
from kubewright.kube.api import AsyncKubeAPI

API_SERVER: Final = "kube-apiserver-kubelet-client"
"""The common name of the API server's client certificate (kubeadm's certificate table): it acts for users that it has authorized."""

_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SUBRESOURCES: Final = {"pods": ("pods", "proxy"), "healthz": ("healthz", "proxy")}
"""First part of a path to the subresources of nodes that allow it; everything else is `proxy`."""


async def is_allowed(peer: Peer, *, method: str, path: str, node_name: str, api: AsyncKubeAPI | None) -> bool:
    """Whether the holder of a verified client certificate may make this request to a node.

    The API server may; about everybody else the node asks the API. Where that cannot answer, nobody may.
    """
    if peer.common_name == API_SERVER:
        return True
    if api is None or not peer.common_name:
        return False
    for subresource in _SUBRESOURCES.get(path.strip("/").partition("/")[0], ("proxy",)):
        try:
            answer = await api.create(access_review(peer, verb=_VERBS.get(method, "get"), subresource=subresource, node_name=node_name))
        except APIError:
            return False
        if answer.get("status", {}).get("allowed") is True:
            return True
    return False


def access_review(peer: Peer, *, verb: str, subresource: str, node_name: str) -> dict[str, Any]:
    """Return the SubjectAccessReview of a request. As for the API server, everybody with a certificate is `system:authenticated`."""
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {
            "user": peer.common_name,
            "groups": [*peer.organizations, "system:authenticated"],
            "resourceAttributes": {
                "verb": verb,
                "group": "",
                "version": "v1",
                "resource": "nodes",
                "subresource": subresource,
                "name": node_name,
            },
        },
    }
