"""A hub's answer to a node, as the status of a NodeJoinRequest and as a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, field, shallow
from kubewright.enrollment.protocol.fields import MalformedField, SymmetricKey

CERTIFICATE_FILE: Final = "/etc/oneinfra/kubelet.crt"
KEY_FILE: Final = "/etc/oneinfra/kubelet.key"
CLIENT_CA_FILE: Final = "/etc/oneinfra/kubelet-client-ca.crt"
"""The path of the file that the kubelet's configuration in an answer names on stock nodes."""


@dataclass(frozen=True, kw_only=True)
class TunnelAnswer:
    """A node's end of the VPN. `address` has the prefix length, `endpoint` is host:port, keys are WireGuard's base64.

    Extensions to oneinfra: an empty `private_key` means that the node's own is used, and that the tunnel carries the
    node's traffic; `cidr` and `address` may then contain several values, separated by commas, and `mtu` and `keepalive`
    (seconds) are set.
    """

    cidr: str
    address: str
    private_key: str = field(repr=False, default="")
    endpoint: str
    endpoint_key: str
    mtu: str = ""
    keepalive: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """All data that a node needs. `kubeconfig` and `kubelet_config` are YAML, certificates and keys PEM."""

    kubernetes_version: str
    kubeconfig: str = field(repr=False)
    kubelet_config: str
    serving_certificate: str
    serving_key: str = field(repr=False)
    client_ca: str
    tunnel: TunnelAnswer | None = None


_FIELDS: Final = {
    "kubernetes_version": "kubernetesVersion",
    "kubeconfig": "kubeConfig",
    "kubelet_config": "kubeletConfig",
    "serving_certificate": "kubeletServerCertificate",
    "serving_key": "kubeletServerPrivateKey",
    "client_ca": "kubeletClientCACertificate",
}
_TUNNEL_FIELDS: Final = {
    "cidr": "CIDR",
    "address": "address",
    "private_key": "peerPrivateKey",
    "endpoint": "endpoint",
    "endpoint_key": "endpointPublicKey",
}
_TUNNEL_EXTRAS: Final = {"mtu": "mtu", "keepalive": "keepalive"}
"""Omitted if they are empty: stock nodes get only fields that they know."""
_TUNNEL: Final = "vpn"
_LONGEST: Final = 1 << 18
"""Characters of one field: a kubeconfig has some 8,000, and a CA bundle may be longer."""


def write(answer: Answer, key: SymmetricKey, *, random: Random) -> dict[str, Any]:
    """Return the fields of the status, encrypted.

    Stock nodes require all of them before the request is marked as issued.
    """
    values = shallow(answer)
    status: dict[str, Any] = {name: key.seal(values[attribute], random=random) for attribute, name in _FIELDS.items()}
    if answer.tunnel is not None:
        ends = shallow(answer.tunnel)
        fields = {**_TUNNEL_FIELDS, **{attribute: name for attribute, name in _TUNNEL_EXTRAS.items() if ends[attribute]}}
        status[_TUNNEL] = {name: key.seal(ends[attribute], random=random) for attribute, name in fields.items()}
    return status


def read(status: Mapping[str, Any], key: SymmetricKey) -> Answer:
    """Decrypt an answer. Raises MalformedField for the first field that is missing or wrong."""
    tunnel = status.get(_TUNNEL)
    if tunnel is not None and not isinstance(tunnel, Mapping):
        raise MalformedField(_TUNNEL, "is not a map")
    ends = None
    if tunnel is not None:
        fields = {**_TUNNEL_FIELDS, **{attribute: name for attribute, name in _TUNNEL_EXTRAS.items() if name in tunnel}}
        ends = TunnelAnswer(**{attribute: key.open(tunnel.get(name), name=f"{_TUNNEL}.{name}") for attribute, name in fields.items()})
    values = {attribute: key.open(status.get(name), name=name, longest=_LONGEST) for attribute, name in _FIELDS.items()}
    return Answer(**values, tunnel=ends)
