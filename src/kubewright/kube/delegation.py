"""Who may see what a daemon serves: the API server is asked (apiserver v1.36: DelegatingAuthenticationOptions, DelegatingAuthorizationOptions).

A bearer token is asked about with a TokenReview; without one the caller is `system:anonymous`. Whether that user may is asked with a
SubjectAccessReview of the path. Answers count for ten seconds, as there. Client certificates are not looked at.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Hashable, Mapping
from typing import Any, Final, Generic, TypeVar

from kubewright.base.errors import APIError, Forbidden, ServerError, Unauthorized
from kubewright.base.records import dataclass
from kubewright.kube.api import AsyncKubeAPI

T = TypeVar("T")

REMEMBERED: Final = 10.0
"""Seconds for which an answer counts, good or bad."""
_MOST: Final = 1024
"""Answers that are kept. Beyond that all are forgotten: whoever makes up tokens must not fill the memory."""
_MASTERS: Final = "system:masters"


@dataclass(frozen=True, kw_only=True)
class User:
    """Who somebody is, as the API server says."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What authenticators add, by name: authorizers may look at it."""


ANONYMOUS: Final = User(name="system:anonymous", groups=("system:unauthenticated",))


class DelegatedAuthorizer:
    """Asks one cluster. Without `authentication` no token is known, without `authorization` only system:masters may see anything."""

    def __init__(self, *, authentication: AsyncKubeAPI | None, authorization: AsyncKubeAPI | None) -> None:
        self._authentication = authentication
        self._authorization = authorization
        self._users: _Remembered[User | None] = _Remembered()
        self._verdicts: _Remembered[bool] = _Remembered()

    async def require(self, authorization: str, *, verb: str, path: str) -> None:
        """Return if the sender of this Authorization header may do that.

        Raises Unauthorized for credentials that are not good, Forbidden for a user who may not, ServerError where nobody can be asked.
        """
        kind, _, token = authorization.partition(" ")
        user: User | None = ANONYMOUS
        if kind.lower() == "bearer" and token.strip():
            user = await self._user(token.strip())
        if user is None:
            raise Unauthorized("Unauthorized", code=401)
        if _MASTERS not in user.groups and not await self._may(user, verb=verb, path=path):
            raise Forbidden(f'forbidden: User "{user.name}" cannot {verb} path "{path}"', code=403)

    async def _user(self, token: str) -> User | None:
        if self._authentication is None:
            return None
        key = hashlib.sha256(token.encode()).digest()
        known, user = self._users.get(key)
        if not known:
            try:
                answer = await self._authentication.create(token_review(token))
            except APIError as error:
                raise Unauthorized("Unauthorized", code=401) from error
            user = _user_of(answer)
            self._users.put(key, user)
        return user

    async def _may(self, user: User, *, verb: str, path: str) -> bool:
        if self._authorization is None:
            return False
        key = (user, verb, path)
        known, allowed = self._verdicts.get(key)
        if not known:
            try:
                answer = await self._authorization.create(path_review(user, verb=verb, path=path))
            except APIError as error:
                raise ServerError("Internal Server Error: nobody can be asked whether this is allowed", code=500) from error
            allowed = (answer.get("status") or {}).get("allowed") is True
            self._verdicts.put(key, allowed)
        return allowed is True


def token_review(token: str) -> dict[str, Any]:
    """Return the TokenReview of a token."""
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {"token": token}}


def path_review(user: User, *, verb: str, path: str) -> dict[str, Any]:
    """Return the SubjectAccessReview of a path that is no resource."""
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra},
            "nonResourceAttributes": {"path": path, "verb": verb},
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
    """Answers with their time."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, tuple[float, T]] = {}

    def get(self, key: Hashable) -> tuple[bool, T | None]:
        """Return whether there is an answer that still counts, and the answer."""
        until, answer = self._answers.get(key, (0.0, None))
        return (True, answer) if _now() < until else (False, None)

    def put(self, key: Hashable, answer: T) -> None:
        if len(self._answers) >= _MOST:
            self._answers.clear()
        self._answers[key] = (_now() + REMEMBERED, answer)


def _now() -> float:
    return asyncio.get_running_loop().time()
