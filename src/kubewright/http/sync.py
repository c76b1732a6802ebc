"""HTTP for commands: a pool to one server, and downloads.

urllib3 does the work; it is not visible outside this package. The environment is ignored: no .netrc, no proxy but the
given one, no CA but the context's.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util import Timeout

from kubewright.base.clock import Clock, SystemClock
from kubewright.base.deadlines import Deadline, holding
from kubewright.base.messages import shown_url
from kubewright.http import failures, messages, tracing
from kubewright.http.deadlines import connected
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import CHUNK, REQUEST_TIMEOUT, Headers, Limits, Request, Response, header_pairs
from kubewright.http.proxies import Proxies, Proxy, origin
from kubewright.http.tls import host_context

REDIRECTS: Final = 5
STALL: Final = 30.0
"""Seconds without a byte after which a download counts as stalled."""

_REDIRECT_CODES: Final = frozenset({301, 302, 303, 307, 308})


class Transport(messages.Transport):
    """A pool of connections to one server; thread-safe.

    `base` is `https://host:port`, possibly with a path that precedes every target; `server_name` is the name that the
    certificate must have, if it is not the host. Opens nothing before the first request.
    """

    def __init__(
        self,
        base: str,
        *,
        context: ssl.SSLContext | None = None,
        proxy: Proxy | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
        server_name: str = "",
    ) -> None:
        _, self._server, self._prefix = origin(base)
        self._limits = limits or Limits()
        self._clock = clock or SystemClock()
        self._manager = _manager(context, proxy, connections=self._limits.connections, server_name=server_name)

    def exchange(self, request: Request, /, *, timeout: float | None = REQUEST_TIMEOUT) -> Response:
        deadline = Deadline(timeout, clock=self._clock)
        with self._opened(request, deadline, timeout) as answer:
            answer.bound(self._limits.body, deadline)
            return Response(status=answer.status, headers=answer.headers, body=answer.read())

    @contextmanager
    def open(self, request: Request, /, *, timeout: float | None = REQUEST_TIMEOUT, stall: float | None = None) -> Iterator[Streamed]:
        with self._opened(request, Deadline(timeout, clock=self._clock), timeout) as answer:
            answer.allow_silence(stall)
            yield answer

    def close(self) -> None:
        self._manager.clear()

    @contextmanager
    def _opened(self, request: Request, deadline: Deadline, timeout: float | None) -> Iterator[Streamed]:
        complete = Request(request.method, f"{self._server}{self._prefix}{request.target}", headers=request.headers, body=request.body)
        trace = tracing.begin(complete.method, complete.target, clock=self._clock)
        with closing(_open(self._manager, complete, Timeout(connect=self._limits.connect, read=timeout), deadline, trace)) as answer:
            yield answer


class Streamed:
    """An answer whose body is still arriving. Implements `messages.Stream`. `url` is its source, after redirects."""

    def __init__(self, answer: urllib3.BaseHTTPResponse, *, method: str, url: str) -> None:
        self._answer = answer
        self._method = method
        self.url = url
        self.status = answer.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in answer.headers.items()}
        self._deadline = Deadline(None)
        self._most: int | None = None
        self._ended = False

    def bound(self, most: int | None, deadline: Deadline) -> None:
        """Limit the size of the body in bytes, and the time until it is complete."""
        self._most, self._deadline = most, deadline

    def allow_silence(self, seconds: float | None) -> None:
        """Set how long the server may be silent between two chunks of the body."""
        sock = getattr(self._answer.connection, "sock", None)
        if sock is not None:
            sock.settimeout(seconds)

    def chunks(self) -> Iterator[bytes]:
        count = 0
        while chunk := self._next():
            count += len(chunk)
            if self._most is not None and count > self._most:
                raise self._failure(Reason.TOO_LARGE, f"more than {self._most} bytes")
            yield chunk

    def read(self) -> bytes:
        return b"".join(self.chunks())

    def close(self) -> None:
        """Return the connection to the pool if the body was read to its end, otherwise close it."""
        if self._ended:
            self._answer.release_conn()
        else:
            self._answer.close()

    def _next(self) -> bytes:
        try:
            with holding(self._deadline):
                chunk = self._answer.read1(CHUNK, decode_content=False)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _failure(error, self._method, self.url) from error
        if not chunk:
            remaining = getattr(self._answer, "length_remaining", None)
            if remaining:
                raise self._failure(Reason.TRUNCATED, f"{remaining} bytes are missing")
            self._ended = True
        return chunk

    def _failure(self, reason: Reason, detail: str) -> NoAnswer:
        return failures.no_answer(_shown(self.url), self._method, urlsplit(self.url).path, reason, detail=detail)


class Downloads:
    """Streaming GETs of any URL, with proxies, a limited number of redirects, and a timeout for silent servers.

    The answer, including redirects, must begin within `connect` and `stall` seconds together; afterwards `stall`
    applies to each wait for the body.
    """

    def __init__(self, context: ssl.SSLContext, *, proxies: Proxies | None = None, connect: float = 10.0, stall: float = STALL) -> None:
        self._context = context
        self._proxies = proxies or Proxies()
        self._timeouts = Timeout(connect=connect, read=stall)
        self._head = connect + stall
        self._managers: dict[Proxy | None, urllib3.PoolManager] = {}

    @contextmanager
    def get(
        self,
        url: str,
        /,
        *,
        start: int = 0,
        headers: Headers | None = None,
        most: int | None = None,
        redirects: int = REDIRECTS,
        within: float | None = None,
    ) -> Iterator[Streamed]:
        """Open a URL; `start` requests the bytes from this offset (answers: 206, 200 from a server without ranges, or 416 past the end).

        Follows up to `redirects` redirects, but never from https to http. `most` limits the size of the body,
        `within` the seconds for everything; without it there is no limit of time for the body. Every status code is
        an answer. Raises NoAnswer, also for too many redirects.
        """
        whole = Deadline(within)
        with holding(whole):
            answer = self._follow(url, {**(headers or {}), **({"range": f"bytes={start}-"} if start else {})}, redirects)
        try:
            answer.bound(most, whole)
            yield answer
        finally:
            answer.close()

    def close(self) -> None:
        """Close every connection. Idempotent."""
        for manager in self._managers.values():
            manager.clear()

    def _follow(self, url: str, headers: Headers, redirects: int) -> Streamed:
        current, head = url, Deadline(self._head)
        for _ in range(redirects + 1):
            proxy = self._proxies.for_url(current)
            if proxy not in self._managers:
                self._managers[proxy] = _manager(self._context, proxy, connections=1)
            trace = tracing.begin("GET", current, query=False)
            manager = self._managers[proxy]
            answer = _open(manager, Request("GET", current, headers=headers), self._timeouts, head, trace)
            place = answer.headers.get("location")
            if answer.status not in _REDIRECT_CODES or place is None:
                return answer
            answer.close()
            following = _joined(current, place)
            if urlsplit(following).scheme != "https" and urlsplit(current).scheme == "https":
                raise failures.no_answer(_shown(current), "GET", urlsplit(current).path, Reason.REDIRECTED, detail="to a place without TLS")
            current = following
        raise failures.no_answer(_shown(url), "GET", urlsplit(url).path, Reason.REDIRECTED, detail=f"more than {redirects} times")


class _Connecting(HTTPConnection):
    """A connection whose socket keeps deadlines. Its timeout applies to opening it as a whole, including a proxy's CONNECT and TLS."""

    def connect(self) -> None:
        timeout = self.timeout
        with holding(Deadline(timeout if isinstance(timeout, (int, float)) else None)):
            super().connect()

    def _new_conn(self) -> socket.socket:
        silence = self.timeout if isinstance(self.timeout, (int, float)) else None
        return connected(self._dns_host, self.port or self.default_port, silence=silence, options=self.socket_options or ())


class _SecureConnecting(_Connecting, HTTPSConnection):
    """The same with TLS, without urllib3's warning about unverified contexts, because the creator of the context chose that."""

    def connect(self) -> None:
        super().connect()
        self.is_verified = True


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connecting


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnecting


def _manager(context: ssl.SSLContext | None, proxy: Proxy | None, *, connections: int, server_name: str = "") -> urllib3.PoolManager:
    named: dict[str, Any] = {"server_hostname": server_name} if server_name else {}
    if proxy is None:
        manager = urllib3.PoolManager(num_pools=4, maxsize=connections, ssl_context=context, **named)
    else:
        authorization = proxy.authorization()
        manager = urllib3.ProxyManager(
            proxy.url,
            num_pools=4,
            maxsize=connections,
            proxy_headers={"proxy-authorization": authorization} if authorization is not None else None,
            ssl_context=context,
            proxy_ssl_context=_proxy_context(proxy),
            **named,
        )
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
    return manager


def _proxy_context(proxy: Proxy) -> ssl.SSLContext | None:
    """Return the context for TLS to the proxy itself: the machine's trust, never the cluster's CA."""
    return host_context() if proxy.url.startswith("https:") else None


def _open(manager: urllib3.PoolManager, request: Request, timeouts: Timeout, deadline: Deadline, trace: tracing.Trace) -> Streamed:
    """Send a request (its target is a URL) and read the head of its answer, by the deadline."""
    method, url = request.method, request.target
    headers = urllib3.HTTPHeaderDict({"user-agent": "kubewright", "accept-encoding": "identity"})
    for name, value in header_pairs(request.headers):
        headers.add(name, value)
    try:
        with holding(deadline):
            answer = manager.urlopen(
                method, url, headers=headers, body=request.body, timeout=timeouts, redirect=False, retries=False, preload_content=False
            )
    except (urllib3.exceptions.HTTPError, OSError) as error:
        failure = _failure(error, method, url)
        trace.failed(failure.what)
        raise failure from error
    trace.answered(answer.status)
    return Streamed(answer, method=method, url=url)


def _joined(current: str, place: str) -> str:
    """Return the target of a redirect. Raises NoAnswer if its Location is not a URL."""
    try:
        following = urljoin(current, place)
        _ = urlsplit(following).port
    except ValueError as error:
        raise failures.no_answer(
            _shown(current), "GET", urlsplit(current).path, Reason.REDIRECTED, detail="to something that is not a URL"
        ) from error
    return following


def _failure(error: Exception, method: str, url: str) -> NoAnswer:
    reason, detail = _reason(error)
    return failures.no_answer(_shown(url), method, urlsplit(url).path, reason, detail=detail)


def _reason(error: Exception) -> tuple[Reason, str]:
    if isinstance(error, urllib3.exceptions.ProxyError) or "Tunnel connection failed" in str(error):
        below = failures.reason_of(error)
        return Reason.PROXY, below[0].value if below and below[0] is not Reason.RESET else ""
    if isinstance(error, urllib3.exceptions.NameResolutionError):
        return Reason.DNS, ""
    below = failures.reason_of(error)
    if below is not None:
        return below
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return Reason.TIMED_OUT, ""
    if isinstance(error, urllib3.exceptions.ProtocolError):
        return Reason.TRUNCATED if "ncomplete" in str(error) or "InvalidChunkLength" in str(error) else Reason.MALFORMED, ""
    return Reason.MALFORMED, type(error).__name__


def _shown(url: str) -> str:
    """Return scheme, host and port of a URL, without its path, which errors name separately."""
    scheme, _, rest = shown_url(url).partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"
