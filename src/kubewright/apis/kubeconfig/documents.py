"""Kubeconfig documents in kubeadm's shape (one cluster, one user, one context), and adding a context to a user's kubeconfig or removing it.

Pure; the latter works on the raw maps, so that unknown fields are kept. Our entries carry an extension (client-go:
tools/clientcmd/api/v1, `extensions`), which kubectl keeps when it edits or renames them: only entries with it are ever
changed or removed. It names the owner by an id and by a directory.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from kubewright.base import untyped
from kubewright.base.plain_text import require_one_line_each
from kubewright.base.records import dataclass, field

EXTENSION: Final = "kubewright"
LISTS: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}
"""The lists of named entries, and the field with their content."""
CURRENT: Final = "current-context"
_TRUST: Final = ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name")
Config = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class EmbeddedCertificate:
    """A client certificate and its key, embedded in the file."""

    certificate_pem: bytes = field(repr=False)
    key_pem: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class CertificateFiles:
    """A client certificate and its key in files; both may be the same one."""

    certificate: str
    key: str


@dataclass(frozen=True, kw_only=True)
class BearerToken:
    """A token, embedded in the file."""

    token: str = field(repr=False)


Credentials = EmbeddedCertificate | CertificateFiles | BearerToken


def kubeconfig_document(
    *,
    server: str,
    cluster_name: str,
    user: str,
    credentials: Credentials | None,
    ca_pem: bytes | None = None,
    context: str = "",
    namespace: str = "",
    more: Mapping[str, object] = MappingProxyType({}),
) -> dict[str, object]:
    """Return a kubeconfig whose current context is its only one, `USER@CLUSTER` by default.

    `more` are further fields of the cluster. All of `ca_pem` is embedded, including a bundle during a change of CA;
    kubeadm keeps only its first certificate. Without credentials, the user exists and is empty: anonymous. Raises
    UnsafeText for a value with control characters.
    """
    name = context or f"{user}@{cluster_name}"
    chosen = {"cluster": cluster_name, **({"namespace": namespace} if namespace else {}), "user": user}
    document: dict[str, object] = {
        "apiVersion": "v1",
        "clusters": [{"cluster": {**cluster_body(server, ca_pem=ca_pem), **more}, "name": cluster_name}],
        "contexts": [{"context": chosen, "name": name}],
        "current-context": name,
        "kind": "Config",
        "users": [{"name": user, "user": _user_body(credentials)}],
    }
    require_one_line_each(document, what="the kubeconfig")
    return document


def cluster_body(server: str, *, ca_pem: bytes | None = None) -> dict[str, object]:
    """Return the entry of one cluster."""
    return {**({"certificate-authority-data": _encode(ca_pem)} if ca_pem is not None else {}), "server": server}


def _user_body(credentials: Credentials | None) -> dict[str, object]:
    if isinstance(credentials, EmbeddedCertificate):
        return {"client-certificate-data": _encode(credentials.certificate_pem), "client-key-data": _encode(credentials.key_pem)}
    if isinstance(credentials, CertificateFiles):
        return {"client-certificate": credentials.certificate, "client-key": credentials.key}
    return {} if credentials is None else {"token": credentials.token}


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The owner of an entry."""

    id: str
    directory: str


@dataclass(frozen=True, kw_only=True)
class Addition:
    """A cluster, a user and a context of the same name. The maps are those of a kubeconfig's entries."""

    name: str
    cluster: Config
    user: Config
    owner: Owner


def added(config: Config, addition: Addition) -> dict[str, Any]:
    """Return a kubeconfig with a context added, which becomes the current one.

    Existing entries of the name are updated: fields that ours lack are kept, such as a namespace or a proxy, but not
    those for the CA and credentials.
    """
    bodies = {
        "clusters": addition.cluster,
        "contexts": {"cluster": addition.name, "user": addition.name},
        "users": addition.user,
    }
    result = {"apiVersion": "v1", "kind": "Config", **config}
    for plural, singular in LISTS.items():
        entries = _entries(config, plural)
        found = next((one for one in entries if _name(one) == addition.name), None)
        before = untyped.mapping((found or {}).get(singular))
        kept = {key: value for key, value in before.items() if plural != "users" and key not in _TRUST}
        body = {**kept, **bodies[plural], "extensions": _marked(before, addition.owner)}
        mine = {**(found or {}), "name": addition.name, singular: body}
        result[plural] = [*entries, mine] if found is None else [mine if one is found else one for one in entries]
    return {**result, CURRENT: addition.name}


def owners(config: Config, name: str) -> list[Owner | None]:
    """Return the owners of the entries of a name; None for one without a known owner."""
    return [
        _owner(untyped.mapping(untyped.mapping(one).get(singular)))
        for plural, singular in LISTS.items()
        for one in _entries(config, plural)
        if _name(one) == name
    ]


def taken_out(config: Config, owner_id: str) -> dict[str, Any]:
    """Return a kubeconfig without the entries of an owner, regardless of their names.

    Removing the current context leaves none.
    """
    result = dict(config)
    gone: set[object] = set()
    for plural, singular in LISTS.items():
        entries = _entries(config, plural)
        kept = [one for one in entries if not _is_of(owner_id, untyped.mapping(one).get(singular))]
        if len(kept) < len(entries):
            result[plural] = kept
            if plural == "contexts":
                gone = {_name(one) for one in entries} - {_name(one) for one in kept}
    return {**result, CURRENT: ""} if config.get(CURRENT) in gone else result


def _is_of(owner_id: str, body: object) -> bool:
    owner = _owner(untyped.mapping(body))
    return owner is not None and owner.id == owner_id


def _entries(config: Config, plural: str) -> list[Config]:
    return list(config.get(plural) or ())


def _name(entry: object) -> object:
    return untyped.mapping(entry).get("name")


def _extensions(body: Config) -> list[Any]:
    found = body.get("extensions")
    return found if isinstance(found, list) else []


def _owner(body: Config) -> Owner | None:
    for one in _extensions(body):
        said = untyped.mapping(untyped.mapping(one).get("extension"))
        if untyped.mapping(one).get("name") == EXTENSION and isinstance(said.get("id"), str):
            return Owner(id=said["id"], directory=str(said.get("stateDirectory", "")))
    return None


def _marked(body: Config, owner: Owner) -> list[Any]:
    others = [one for one in _extensions(body) if untyped.mapping(one).get("name") != EXTENSION]
    return [*others, {"extension": {"id": owner.id, "stateDirectory": owner.directory}, "name": EXTENSION}]
