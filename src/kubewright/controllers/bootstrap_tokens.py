"""bootstrapsigner and tokencleaner: the decisions about token Secrets.

Source: Kubernetes v1.36: pkg/controller/bootstrap.

kube-controller-manager signs with any token secret that is not empty; `tokens.secrets.parse_secret` requires 16
characters. The lenient rule applies here, because otherwise signatures that kube-controller-manager keeps would be
removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from kubewright.base.encoding import decode_base64
from kubewright.base.masking import remember
from kubewright.base.records import dataclass
from kubewright.controllers.requests import Nothing
from kubewright.kube import core
from kubewright.kube.core import Object
from kubewright.tokens import cluster_info, secrets, strings
from kubewright.tokens.secrets import SIGNING, StoredToken
from kubewright.tokens.strings import BootstrapTokenString


@dataclass(frozen=True, kw_only=True)
class Update:
    """Write this ConfigMap."""

    config_map: Object


@dataclass(frozen=True, kw_only=True)
class Delete:
    """Delete the Secret if it is unchanged since it was observed."""

    uid: str
    version: str


@dataclass(frozen=True, kw_only=True)
class LookAgain:
    """The token expires after this many seconds."""

    after: float


def signatures(config_map: Object | None, token_secrets: Iterable[Mapping[str, Any]], *, now: datetime) -> Update | Nothing:
    """Decide whether to write cluster-info, so that it has exactly the signatures of the tokens that may sign now."""
    if config_map is None:
        return Nothing(reason="there is no cluster-info")
    changed = cluster_info.signed(config_map, signing_tokens(token_secrets), now=now)
    return Nothing(reason="its signatures are right, or it contains nothing to sign") if changed is None else Update(config_map=changed)


def signing_tokens(token_secrets: Iterable[Mapping[str, Any]]) -> Iterator[StoredToken]:
    """Yield the tokens of the Secrets that may be used for signing, whether or not they have expired."""
    for secret in token_secrets:
        name, _ = core.identity_of(secret)
        id_, key = _value(secret, "token-id"), _value(secret, "token-secret")
        named = name.removeprefix(secrets.PREFIX)
        if secret.get("type") != secrets.TYPE or name == named or not strings.ID.fullmatch(named) or id_ != named or not key:
            continue
        signs = _value(secret, "usage-bootstrap-signing") == "true"
        yield StoredToken(
            token=BootstrapTokenString(id_, remember(key)),
            expiration=_expiration(secret),
            usages=(SIGNING,) if signs else (),
        )


def expiry(secret: Mapping[str, Any], *, now: datetime) -> Delete | LookAgain | Nothing:
    """Decide about a token Secret.

    Its name and token are not checked: an expired Secret is deleted even if it is malformed.
    """
    if secret.get("type") != secrets.TYPE:
        return Nothing(reason="it is not a bootstrap token")
    text = _expiration(secret)
    if not text:
        return Nothing(reason="it does not expire")
    end = secrets.parse_moment(text)
    if end is None or end <= now:
        seen = core.metadata(secret)
        return Delete(uid=str(seen.get("uid") or ""), version=str(seen.get("resourceVersion") or ""))
    return LookAgain(after=(end - now).total_seconds())


def _expiration(secret: Mapping[str, Any]) -> str:
    """Return when a token expires. Bytes that are not text are no time either, and do not mean that it never expires."""
    return _value(secret, "expiration", errors="replace")


def _value(secret: Mapping[str, Any], key: str, *, errors: str = "strict") -> str:
    """Return one value as text; '' if it is missing or not text."""
    data = secret.get("data")
    value = data.get(key) if isinstance(data, Mapping) else None
    try:
        return decode_base64(value).decode(errors=errors) if isinstance(value, str) else ""
    except ValueError:
        return ""
