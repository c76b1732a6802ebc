"""Who may use the kubelet API (kubelet v1.36: pkg/kubelet/server/auth.go, and the delegating authorizer in the mode `Webhook`).

The kubelet knows nobody by name. Whoever shows a client certificate of the cluster is asked about at the API server, that server itself
included: kubeadm's gives itself one of the group kubeadm:cluster-admins, which RBAC lets do everything. A name alone proves little, as each
signer of the cluster could have made a certificate with it.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from kubewright.base.errors import APIError
from kubewright.http.tls import Peer
from kubewright.kube.api import AsyncKubeAPI

_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"
_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SUBRESOURCES: Final = {"pods": ("pods", "proxy"), "healthz": ("healthz", "proxy")}
"""First part of a path to the subresources of nodes that allow it; everything else is `proxy`."""


async def is_allowed(peer: Peer, *, method: str, path: str, node_name: str, api: AsyncKubeAPI | None) -> bool:
    """Whether the holder of a verified client certificate may make this request to a node.

    The node asks the API. Where that cannot answer, nobody may.
    """
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
    """Return the SubjectAccessReview of a request. As for the API server, everybody with a certificate is `system:authenticated`.

    The certificate is named in it as the API server names it (apiserver: authentication/request/x509), for audit logs and webhooks.
    """
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {
            "user": peer.common_name,
            "groups": [*peer.organizations, "system:authenticated"],
            "extra": {_CREDENTIAL: [f"X509SHA256={hashlib.sha256(peer.der).hexdigest()}"]},
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
