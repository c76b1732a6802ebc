"""Routes of our servers: a request value in, an answer value out. `serving` serves them.

A route is a method, a path pattern (`/containerLogs/{namespace}/{pod}/{container}`) and a handler that takes a
`Request` and returns a `Response` or a `Streaming`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from kubewright.base.records import dataclass, field
from kubewright.http.messages import Response

if TYPE_CHECKING:
    from kubewright.http.tls import Peer


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request to a server of ours. Header names are lower case."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    """The values that the braces of the route's pattern matched."""
    body: bytes = b""
    peer: Peer | None = None
    uid: int | None = None
    """The user id of the peer of a Unix socket."""


@dataclass(frozen=True, kw_only=True)
class Streaming:
    """An answer that is written as it is produced. The iterator is closed when the client disconnects."""

    chunks: AsyncIterator[bytes]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response | Streaming]]


@dataclass(frozen=True, kw_only=True)
class Route:
    """One route of a server. `method` may be `*`."""

    method: str
    pattern: str
    handler: Handler
