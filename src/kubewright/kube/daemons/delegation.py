"""Delegated authentication and authorization for servers of daemons.

Source: apiserver v1.36: DelegatingAuthenticationOptions, DelegatingAuthorizationOptions.

A bearer token is checked with a TokenReview; without one the caller is `system:anonymous`. The user's permissions are
checked with a SubjectAccessReview. Answers are cached for ten seconds, as upstream, unless the caller passes another
time.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kubewright.base.clock import Clock, SystemClock
from kubewright.base.errors import APIError, Forbidden, ServerError, Unauthorized
from kubewright.base.records import dataclass
from kubewright.kube.api import AsyncKubeAPI

if TYPE_CHECKING:
    from kubewright.http.tls import Peer

T = TypeVar("T")

REMEMBERED: Final = 10.0
"""Seconds for which an answer is cached, positive or negative."""
_MOST: Final = 1024
"""How many answers are cached. Beyond this all are dropped, so that invented tokens cannot fill the memory."""
_MASTERS: Final = "system:masters"
_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"
AUTHENTICATED: Final = "system:authenticated"


@dataclass(frozen=True, kw_only=True)
class User:
    """A user as the API server identifies them."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Further attributes that authenticators add, by name; authorizers may use them."""


ANONYMOUS: Final = User(name="system:anonymous", groups=("system:unauthenticated",))


class TokenReviews:
    """Asks the API server who owns a token.

    Answers are cached for `remembered` seconds; one instance may be shared by all users of one cluster.
    """

    def __init__(self, *, remembered: float = REMEMBERED) -> None:
        self._remembered = remembered
        self._users: _Remembered[User | None] = _Remembered()

    async def user(self, api: AsyncKubeAPI, token: str) -> User | None:
        """Return the token's owner, None for an invalid token. Raises APIError if that cannot be determined."""
        key = hashlib.sha256(token.encode()).digest()
        known, user = self._users.get(key)
        if not known:
            user = _user_of(await api.create(token_review(token)))
            self._users.put(key, user, seconds=self._remembered)
        return user


class AccessReviews:
    """Asks the API server whether a user may do something. Answers are cached for `allowed` and `denied` seconds."""

    def __init__(self, *, allowed: float = REMEMBERED, denied: float = REMEMBERED) -> None:
        self._seconds = {True: allowed, False: denied}
        self._verdicts: _Remembered[bool] = _Remembered()

    async def allows(self, api: AsyncKubeAPI, user: User, **attributes: Mapping[str, str]) -> bool:
        """Whether a user is allowed.

        `attributes` are `resourceAttributes` or `nonResourceAttributes`. Raises APIError if that cannot be
        determined.
        """
        key = (user, *((kind, tuple(sorted(values.items()))) for kind, values in attributes.items()))
        known, allowed = self._verdicts.get(key)
        if not known:
            answer = await api.create(access_review(user, **attributes))
            allowed = (answer.get("status") or {}).get("allowed") is True
            self._verdicts.put(key, allowed, seconds=self._seconds[allowed])
        return allowed is True


def bearer_token(authorization: str) -> str:
    """Return the token of an Authorization header, '' if there is none."""
    kind, _, token = authorization.partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def trusted(_: Peer) -> bool:
    """Trust every certificate that a handshake has accepted: the CAs do not change."""
    return True


class DelegatedAuthorizer:
    """Asks one cluster. Without `authentication` tokens are not accepted, without `authorization` only system:masters has access.

    `trusts`: whether a client certificate that a handshake accepted is still trusted.
    """

    def __init__(
        self,
        *,
        authentication: AsyncKubeAPI | None,
        authorization: AsyncKubeAPI | None,
        clock: Clock | None = None,
        trusts: Callable[[Peer], bool] = trusted,
    ) -> None:
        self._authentication = authentication
        self._authorization = authorization
        self._clock = clock or SystemClock()
        self._trusts = trusts
        self._tokens = TokenReviews()
        self._rights = AccessReviews()

    async def require(self, authorization: str, *, verb: str, path: str, peer: Peer | None = None) -> None:
        """Return if the sender of this Authorization header, or the owner of a verified client certificate, has this permission.

        Raises Unauthorized for invalid credentials, Forbidden for a user without permission, ServerError if that
        cannot be determined.
        """
        user: User | None
        expired = peer is not None and (peer.has_expired(self._clock.now()) or not self._trusts(peer))
        if peer is not None and peer.common_name and not expired:
            user = user_of_certificate(peer)
        elif token := bearer_token(authorization):
            user = await self._user(token)
        else:
            user = ANONYMOUS if not expired else None
        if user is None:
            raise Unauthorized("Unauthorized", code=401)
        if _MASTERS not in user.groups and not await self._may(user, verb=verb, path=path):
            raise Forbidden(f'forbidden: User "{user.name}" cannot {verb} path "{path}"', code=403)

    async def _user(self, token: str) -> User | None:
        if self._authentication is None:
            return None
        try:
            return await self._tokens.user(self._authentication, token)
        except APIError as error:
            raise Unauthorized("Unauthorized", code=401) from error

    async def _may(self, user: User, *, verb: str, path: str) -> bool:
        if self._authorization is None:
            return False
        try:
            return await self._rights.allows(self._authorization, user, nonResourceAttributes={"path": path, "verb": verb})
        except APIError as error:
            raise ServerError("Internal Server Error: there is no way to check whether this is allowed", code=500) from error


def user_of_certificate(peer: Peer) -> User:
    """Return the user of a verified client certificate. As in the API server, each such user is `system:authenticated`.

    The certificate is identified as in the API server (apiserver: authentication/request/x509), for audit logs and
    webhooks.
    """
    return User(
        name=peer.common_name,
        groups=(*peer.organizations, AUTHENTICATED),
        extra=((_CREDENTIAL, (f"X509SHA256={hashlib.sha256(peer.der).hexdigest()}",)),),
    )


def token_review(token: str) -> dict[str, Any]:
    """Return the TokenReview of a token."""
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {"token": token}}


def access_review(user: User, **attributes: Mapping[str, str]) -> dict[str, Any]:
    """Return the SubjectAccessReview of a path (`nonResourceAttributes`) or of a resource (`resourceAttributes`)."""
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {
            "user": user.name,
            **({"uid": user.uid} if user.uid else {}),
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra},
            **{kind: dict(values) for kind, values in attributes.items()},
        },
    }


def _user_of(review: Mapping[str, Any]) -> User | None:
    status = review.get("status") or {}
    if status.get("authenticated") is not True:
        return None
    found = status.get("user") or {}
    return User(
        name=str(found.get("username") or ""),
        uid=str(found.get("uid") or ""),
        groups=tuple(found.get("groups") or ()),
        extra=tuple(sorted((name, tuple(values)) for name, values in (found.get("extra") or {}).items())),
    )


class _Remembered(Generic[T]):
    """Answers, each with the time of its arrival."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, tuple[float, T]] = {}

    def get(self, key: Hashable) -> tuple[bool, T | None]:
        """Return whether there is a valid answer, and the answer."""
        until, answer = self._answers.get(key, (0.0, None))
        return (True, answer) if _now() < until else (False, None)

    def put(self, key: Hashable, answer: T, *, seconds: float) -> None:
        if seconds <= 0:
            return
        if len(self._answers) >= _MOST:
            self._answers.clear()
        self._answers[key] = (_now() + seconds, answer)


def _now() -> float:
    return asyncio.get_running_loop().time()
