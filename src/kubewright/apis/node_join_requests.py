"""The API of oneinfra's NodeJoinRequest (v1alpha1), and the names of its objects in a cluster. Pure.

Values are encrypted text; `enrollment` defines the two kinds of encryption. Upstream: oneinfra 20.09,
apis/node/v1alpha1 and internal/pkg/infra/oneinfra-join.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from kubewright.base import untyped
from kubewright.base.clock import rfc3339
from kubewright.base.records import dataclass

GROUP: Final = "node.oneinfra.ereslibre.es"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "NodeJoinRequest"
PLURAL: Final = "nodejoinrequests"
CRD_NAME: Final = f"{PLURAL}.{GROUP}"

NAMESPACE: Final = "oneinfra-system"
CONFIG_MAP: Final = "oneinfra-join"
JOIN_KEY: Final = "joinKey"
"""The entry of the ConfigMap with the public key to which nodes encrypt their keys."""
VPN_NETWORKS: Final = "vpn"
"""Ours, not oneinfra's: the entry with the networks of the VPN, if there is one.

Such a hub accepts keys that nodes have generated.
"""
REQUESTERS: Final = "system:bootstrappers:oneinfra"
"""The group of all holders of a join token."""
TOKEN_DESCRIPTION: Final = "oneinfra node join token"  # noqa: S105 - a description

LONGEST_FIELD: Final = 4096
"""Characters of one encrypted value. Those of stock nodes have about a hundred."""
LONGEST_KEY: Final = 2048
"""Characters of an encrypted key: enough for RSA-8192."""
MOST_SANS: Final = 16

ISSUED: Final = "Issued"

LEAVING_LABEL: Final = "enrollment.kubewright/leaving"
"""A label of the Node of a machine that leaves: ours, not oneinfra's.

It is not sufficient: others than the machine may write to Nodes.
"""
LEAVE_PROOF: Final = "enrollment.kubewright/leave-proof"
"""An annotation, in addition, with which the machine proves that the request is its own: see `enrollment.leave_proofs`."""
LEAVE_ANSWER: Final = "enrollment.kubewright/leave-answer"
"""An annotation with the hub's reason for refusing a leave request. A machine that may leave no longer has a Node."""

VPN_KEY: Final = "enrollment.kubewright/vpn-key"
"""An annotation on the Node of a machine that offers another key for its end of the VPN.

Ours: see `enrollment.key_offers`.
"""
VPN_KEY_ANSWER: Final = "enrollment.kubewright/vpn-key-answer"
"""An annotation with the hub's answer to that offer."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """The condition `Issued` of a request: True, False if it was refused, or Unknown while it waits.

    Stock nodes react to True only.
    """

    status: str
    reason: str = ""
    message: str = ""
    since: str = ""
    """The time of its last change, as in the object."""

    def document(self, now: datetime) -> dict[str, str]:
        """Return it as it is written."""
        moment = rfc3339(now)
        return {
            "type": ISSUED,
            "status": self.status,
            "lastTransitionTime": moment,
            "lastSetTime": moment,
            "reason": self.reason,
            "message": self.message,
        }


def condition_of(request: Mapping[str, Any]) -> Condition | None:
    """Return the condition of a request, None if it has none. The first of several applies, as for stock nodes."""
    for row in untyped.mappings(untyped.mapping(request.get("status")).get("conditions")):
        if row.get("type") == ISSUED:
            texts = {name: str(row.get(key) or "") for name, key in _CONDITION_FIELDS.items()}
            return Condition(**texts)
    return None


_CONDITION_FIELDS: Final = {"status": "status", "reason": "reason", "message": "message", "since": "lastTransitionTime"}


def request_document(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request as a node sends it."""
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": dict(spec)}


def custom_resource_definition() -> dict[str, Any]:
    """Return the definition of the kind.

    oneinfra's has no limits. These refuse nothing that a stock node sends, and make the API server refuse what is too
    large for a hub.
    """
    column = {"name": "SANs", "type": "string", "jsonPath": ".spec.extraSANs"}
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [column, {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
        "schema": {"openAPIV3Schema": _SCHEMA},
    }
    names = {"kind": KIND, "listKind": f"{KIND}List", "plural": PLURAL, "singular": "nodejoinrequest", "shortNames": ["njr", "njrs"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {"group": GROUP, "names": names, "scope": "Cluster", "versions": [version]},
    }


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties)}


_TEXT: Final = {"type": "string"}
_MOMENT: Final = {"type": "string", "format": "date-time"}
_FIELD: Final = {"type": "string", "maxLength": LONGEST_FIELD}
_SPEC: Final = {
    "symmetricKey": {"type": "string", "maxLength": LONGEST_KEY},
    "apiServerEndpoint": _FIELD,
    "containerRuntimeEndpoint": _FIELD,
    "imageServiceEndpoint": _FIELD,
    "extraSANs": {"type": "array", "maxItems": MOST_SANS, "items": _FIELD},
    "vpnPublicKey": _FIELD,
}
_STATUS_TEXTS: Final = (
    "kubernetesVersion",
    "kubeConfig",
    "kubeletConfig",
    "kubeletServerCertificate",
    "kubeletServerPrivateKey",
    "kubeletClientCACertificate",
)
_VPN: Final = ("CIDR", "address", "peerPrivateKey", "endpoint", "endpointPublicKey", "mtu", "keepalive")
_CONDITION: Final = {**dict.fromkeys(("type", "status", "reason", "message"), _TEXT), "lastTransitionTime": _MOMENT, "lastSetTime": _MOMENT}
_STATUS: Final = {
    **dict.fromkeys(_STATUS_TEXTS, _TEXT),
    "vpn": _object(dict.fromkeys(_VPN, _TEXT)),
    "conditions": {"type": "array", "items": _object(_CONDITION)},
}
_SCHEMA: Final = _object(
    {"apiVersion": _TEXT, "kind": _TEXT, "metadata": {"type": "object"}, "spec": _object(_SPEC), "status": _object(_STATUS)}
)
