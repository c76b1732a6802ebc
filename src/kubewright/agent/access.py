"""Access control for the kubelet API.

Source: kubelet v1.36: pkg/kubelet/server/auth.go, cmd/kubelet/app/auth.go.

A caller is identified by a client certificate of the cluster or by a token that the API server knows. Whether the
caller is allowed is decided by a SubjectAccessReview on a subresource of the node. The API server's own requests are
reviewed too: a user name alone proves little, because every signer of the cluster could have issued a certificate with
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, StatusError
from kubewright.base.records import dataclass, replace
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.daemons.delegation import (
    ANONYMOUS,
    AUTHENTICATED,
    AccessReviews,
    TokenReviews,
    User,
    bearer_token,
    trusted,
    user_of_certificate,
)

if TYPE_CHECKING:
    from kubewright.http.routes import Request
    from kubewright.http.tls import Peer

_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SUBRESOURCES: Final = {
    "pods": ("pods", "proxy"),
    "runningpods": ("pods", "proxy"),
    "healthz": ("healthz", "proxy"),
    "configz": ("configz", "proxy"),
    "stats": ("stats",),
    "metrics": ("metrics",),
    "logs": ("log",),
    "checkpoint": ("checkpoint",),
    "statusz": ("statusz",),
    "flagz": ("configz",),
}
"""The subresources of nodes that allow a path, by the path's first segment. Every other path needs `proxy`."""


@dataclass(frozen=True, kw_only=True)
class AccessRules:
    """The authentication and authorization of callers.

    Times are in seconds; the defaults are those of local clusters, where every call is reviewed.
    """

    anonymous: bool = False
    """Treat callers without a credential as `system:anonymous`; otherwise they are refused."""
    tokens: bool = False
    """Ask the API server about bearer tokens; otherwise every token is invalid."""
    token_seconds: float = 120.0
    reviews: bool = True
    """Ask the API server what callers may do; otherwise every caller may do everything."""
    allowed_seconds: float = 0.0
    denied_seconds: float = 0.0


class Refused(StatusError):
    """A caller is refused. The text is the body of the answer."""

    def __init__(self, text: str, *, code: int) -> None:
        super().__init__(text, code=code, reason="")


class Callers:
    """Authenticates and authorizes the callers of the kubelet API."""

    def __init__(self, rules: AccessRules, clock: Clock, *, trusts: Callable[[Peer], bool] = trusted) -> None:
        """Keep the arguments. `trusts`: whether a client certificate that a handshake accepted is still trusted."""
        self._rules = rules
        self._clock = clock
        self._trusts = trusts
        self._tokens = TokenReviews(remembered=rules.token_seconds)
        self._rights = AccessReviews(allowed=rules.allowed_seconds, denied=rules.denied_seconds)

    async def user(self, request: Request, api: AsyncKubeAPI | None) -> User:
        """Return the user who calls. Raises Refused with 401."""
        peer = request.peer
        expired = peer is not None and (peer.has_expired(self._clock.now()) or not self._trusts(peer))
        if peer is not None and peer.common_name and not expired:
            return user_of_certificate(peer)
        token = bearer_token(request.headers.get("authorization", ""))
        if token and self._rules.tokens:
            found = await self._owner(token, api)
            if found is not None:
                return found
        if token or expired or not self._rules.anonymous:
            raise Refused("Unauthorized", code=401)
        return ANONYMOUS

    async def require(self, user: User, request: Request, *, node_name: str, api: AsyncKubeAPI | None) -> None:
        """Return if the user may make this request to the node.

        Raises Refused: with 403, or with 500 if the API server cannot be asked.
        """
        if not self._rules.reviews:
            return
        verb, subresources = _VERBS.get(request.method, "get"), subresources_of(request.path)
        for subresource in subresources:
            attributes = node_attributes(verb=verb, subresource=subresource, node_name=node_name)
            try:
                if api is not None and await self._rights.allows(api, user, resourceAttributes=attributes):
                    return
            except APIError as error:
                raise Refused(_unanswered(user, verb, subresource), code=500) from error
            if api is None:
                raise Refused(_unanswered(user, verb, subresource), code=500)
        among = " ".join(subresources)
        raise Refused(f"Forbidden (user={user.name}, verb={verb}, resource=nodes, subresource(s)=[{among}])", code=403)

    async def _owner(self, token: str, api: AsyncKubeAPI | None) -> User | None:
        if api is None:
            return None
        try:
            found = await self._tokens.user(api, token)
        except APIError:
            return None
        if found is None or AUTHENTICATED in found.groups:
            return found
        return replace(found, groups=(*found.groups, AUTHENTICATED))


def subresources_of(path: str) -> tuple[str, ...]:
    """Return the subresources of a node that allow a path: permission for any one of them is enough."""
    return _SUBRESOURCES.get(path.strip("/").partition("/")[0], ("proxy",))


def node_attributes(*, verb: str, subresource: str, node_name: str) -> dict[str, str]:
    """Return the resource attributes of the review for a request to a node."""
    return {"verb": verb, "group": "", "version": "v1", "resource": "nodes", "subresource": subresource, "name": node_name}


def _unanswered(user: User, verb: str, subresource: str) -> str:
    return f"Authorization error (user={user.name}, verb={verb}, resource=nodes, subresource={subresource})"
