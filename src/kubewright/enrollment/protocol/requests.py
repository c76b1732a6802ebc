"""A node's request, as a NodeJoinRequest and as a value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from kubewright.apis import join_records, node_join_requests
from kubewright.apis.node_join_requests import MOST_SANS
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, field
from kubewright.enrollment.protocol import fields
from kubewright.enrollment.protocol.fields import MalformedField, SymmetricKey
from kubewright.kube import core
from kubewright.pki import node_names, wireguard
from kubewright.pki.encryption.oaep import RecipientKey
from kubewright.pki.keys import PrivateKey

_KEY: Final = "symmetricKey"
_ENDPOINT: Final = "apiServerEndpoint"
_SANS: Final = "extraSANs"
RUNTIME: Final = "containerRuntimeEndpoint"
IMAGES: Final = "imageServiceEndpoint"
"""These two are for the node itself: a hub does not decrypt them."""
_TUNNEL_KEY: Final = "vpnPublicKey"
"""Ours, not oneinfra's: sent only to hubs that announce support for it."""
MOST_SIZE: Final = 160 * 1024
"""Bytes of an object as JSON: far more than one with every field at its limit, and an answer."""
_SIZE: Final = "size"
"""A field that `slim` adds."""
_IDENTITY: Final = ("name", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")


@dataclass(frozen=True, kw_only=True)
class JoinRequest:
    """A node's request.

    `endpoint` is its address of the API server, '' to leave it to the hub; `sans` are in the order of the request.
    `tunnel_key` is the public key of its end of the VPN, '' if the hub should generate both halves.
    """

    endpoint: str = ""
    sans: tuple[str, ...] = ()
    tunnel_key: str = ""
    key: SymmetricKey = field(repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names and addresses that must be unique, in canonical form."""
        return tuple(node_names.known_as(san) for san in self.sans if san not in node_names.LOOPBACKS)

    @property
    def claims(self) -> tuple[str, ...]:
        """Everything that must be unique (`JoinRecord.held`)."""
        return (*self.names, join_records.tunnel_key_name(self.tunnel_key)) if self.tunnel_key else self.names


def spec_of(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the spec of an object, empty if it has none."""
    found = request.get("spec")
    return found if isinstance(found, Mapping) else {}


def slim(request: dict[str, Any]) -> dict[str, Any]:
    """Return an object; of one that is larger than allowed, which is going to be deleted, only its identity and its size."""
    size = len(core.encode(request))
    if size <= MOST_SIZE:
        return request
    metadata = core.metadata(request)
    kept = {name: str(metadata[name])[:256] for name in _IDENTITY if metadata.get(name)}
    held = {"finalizers": ["kept"]} if metadata.get("finalizers") else {}
    return {"kind": request.get("kind"), "apiVersion": request.get("apiVersion"), "metadata": {**kept, **held}, _SIZE: size}


def size_of(request: Mapping[str, Any]) -> int:
    """Return the size of an object that `slim` has reduced, 0 for one of an allowed size."""
    found = request.get(_SIZE)
    return found if isinstance(found, int) else 0


def digest(request: Mapping[str, Any]) -> str:
    """Return an identifier of an object and its copies: encryptions of a key always differ."""
    return hashlib.sha256(str(spec_of(request).get(_KEY)).encode(errors="replace")).hexdigest()


def contents_digest(request: Mapping[str, Any]) -> str:
    """Return an identifier of a request that changes with its spec."""
    return hashlib.sha256(json.dumps(spec_of(request), sort_keys=True, default=str).encode()).hexdigest()


def read(request: Mapping[str, Any], *, join_key: PrivateKey) -> JoinRequest:
    """Decrypt a request. Raises MalformedField for the first field that is wrong."""
    spec = spec_of(request)
    key = fields.open_key(spec.get(_KEY), join_key, name=_KEY)
    return JoinRequest(
        endpoint=key.open(spec[_ENDPOINT], name=_ENDPOINT) if spec.get(_ENDPOINT) else "",
        sans=_sans(spec, key),
        tunnel_key=_tunnel_key(spec, key),
        key=key,
    )


def _sans(spec: Mapping[str, Any], key: SymmetricKey) -> tuple[str, ...]:
    sans = spec.get(_SANS) or []
    if not isinstance(sans, list):
        raise MalformedField(_SANS, "is not a list")
    if len(sans) > MOST_SANS:
        raise MalformedField(_SANS, f"has {len(sans)} entries, more than {MOST_SANS}")
    return tuple(key.open(value, name=f"{_SANS}[{index}]") for index, value in enumerate(sans))


def _tunnel_key(spec: Mapping[str, Any], key: SymmetricKey) -> str:
    found = key.open(spec[_TUNNEL_KEY], name=_TUNNEL_KEY) if spec.get(_TUNNEL_KEY) else ""
    if found and not wireguard.is_key(found):
        raise MalformedField(_TUNNEL_KEY, "is not a WireGuard key")
    return found


def write(
    name: str, request: JoinRequest, *, recipient: RecipientKey, runtime_endpoint: str, image_endpoint: str, random: Random
) -> dict[str, Any]:
    """Return the object that a node sends."""
    seal = request.key.seal
    spec: dict[str, Any] = {
        _KEY: fields.seal_key(request.key, recipient),
        _ENDPOINT: seal(request.endpoint, random=random),
        RUNTIME: seal(runtime_endpoint, random=random),
        IMAGES: seal(image_endpoint, random=random),
    }
    if request.sans:
        spec[_SANS] = [seal(san, random=random) for san in request.sans]
    if request.tunnel_key:
        spec[_TUNNEL_KEY] = seal(request.tunnel_key, random=random)
    return node_join_requests.request_document(name, spec)


def reread(found: Mapping[str, Any], key: SymmetricKey) -> JoinRequest:
    """Decrypt an object as the node that created it. Raises MalformedField for one with another key."""
    spec = spec_of(found)
    return JoinRequest(
        endpoint=key.open(spec.get(_ENDPOINT), name=_ENDPOINT),
        sans=_sans(spec, key),
        tunnel_key=_tunnel_key(spec, key),
        key=key,
    )
