"""The objects a tenant cluster needs so that nodes can join through a hub: the CRD, RBAC, the join key, the tokens."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kubewright.apis import node_join_requests
from kubewright.apis.node_join_requests import CONFIG_MAP, JOIN_KEY, NAMESPACE, REQUESTERS, TOKEN_DESCRIPTION, VPN_NETWORKS
from kubewright.base.errors import ValidationError
from kubewright.base.records import dataclass
from kubewright.enrollment.state.store import JoinToken
from kubewright.kube.core import Object
from kubewright.kube.objects import DesiredObject
from kubewright.manifests import rbac
from kubewright.manifests.rbac import Purpose
from kubewright.tokens import secrets

OWNER_LABEL: Final = "enrollment.kubewright/hub"
"""On the token Secrets that a hub has created: it deletes no others."""


def desired(public_key: str, *, networks: Sequence[str] = ()) -> tuple[DesiredObject, ...]:
    """Return the objects in order of creation: the join key comes last, because a node proceeds as soon as it finds it.

    `networks` are those of the VPN, so that nodes know their requirements before they ask.
    """
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE},
        "data": {JOIN_KEY: public_key, **({VPN_NETWORKS: ",".join(networks)} if networks else {})},
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    bodies = (node_join_requests.custom_resource_definition(), namespace, *rbac.grants(Purpose.ENROLLMENT), config_map)
    return tuple(DesiredObject(body) for body in bodies)


def token_secret(token: JoinToken) -> Object:
    """Return the Secret of a token: oneinfra's format, with an expiration, and a label that names its owner."""
    content = {
        "auth-extra-groups": REQUESTERS,
        "description": TOKEN_DESCRIPTION,
        **({"expiration": token.expires} if token.expires else {}),
        "token-id": token.token.id,
        "token-secret": token.token.secret,
        "usage-bootstrap-authentication": "true",
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secrets.name_of(token.token.id), "namespace": secrets.NAMESPACE, "labels": {OWNER_LABEL: "true"}},
        "type": secrets.TYPE,
        "data": {name: base64.b64encode(value.encode()).decode() for name, value in content.items()},
    }


@dataclass(frozen=True, kw_only=True)
class TokenChanges:
    """Changes to the token Secrets: `missing` are created or corrected, `surplus` are names to delete."""

    missing: tuple[JoinToken, ...] = ()
    surplus: tuple[str, ...] = ()


def token_changes(found: Iterable[Mapping[str, Any]], wanted: Iterable[JoinToken]) -> TokenChanges:
    """Compare the token Secrets of a tenant with the hub's tokens.

    Pure. Secrets of others, or unreadable ones, are never touched.
    """
    tokens = {secrets.name_of(token.token.id): token for token in wanted}
    names: dict[str, Mapping[str, Any]] = {}
    for secret in found:
        metadata = secret.get("metadata") or {}
        names[str(metadata.get("name"))] = secret
    surplus = [name for name, secret in names.items() if name not in tokens and is_ours(secret)]
    missing = [token for name, token in tokens.items() if name not in names or not _fits(names[name], token)]
    return TokenChanges(missing=tuple(missing), surplus=tuple(sorted(surplus)))


def is_ours(secret: Mapping[str, Any]) -> bool:
    """Whether a hub has created the Secret."""
    return ((secret.get("metadata") or {}).get("labels") or {}).get(OWNER_LABEL) == "true"


def _fits(secret: Mapping[str, Any], token: JoinToken) -> bool:
    try:
        stored = secrets.parse_secret(secret)
    except ValidationError:
        return False
    return stored.token.same(token.token) and REQUESTERS in stored.groups and stored.expiration == token.expires
