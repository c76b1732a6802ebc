"""Looking up the addresses of host names, for callers that limit how long they wait.

`getaddrinfo` has no timeout: with a DNS server that does not answer, it blocks for ten seconds or more
(resolv.conf(5), `timeout` and `attempts`). Event loops call it in a few threads, so that such a name delays other
names and the end of the loop. Here each name is looked up in a separate daemon thread, which continues alone if the
caller gives up.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

Addresses = Sequence[tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]]
"""The result of `getaddrinfo`: family, kind, protocol, canonical name, and socket address."""

_lock: Final = threading.Lock()
_running: Final[dict[tuple[str, int], Future[Addresses]]] = {}


def look_up(host: str, port: int) -> Future[Addresses]:
    """Start looking up a name, or join a running lookup of it. An address is its own result, at once.

    The future fails with socket.gaierror and cannot be cancelled. Raises socket.gaierror for a text that is neither
    an address nor a possible name.
    """
    require_name(host)
    future: Future[Addresses] = Future()
    with suppress(socket.gaierror):
        future.set_result(_addresses(host, port, socket.AI_NUMERICHOST))
        return future
    with _lock:
        if (found := _running.get((host, port))) is not None:
            return found
        _running[host, port] = future
        future.set_running_or_notify_cancel()
    threading.Thread(target=_resolve, args=(host, port, future), name="resolver", daemon=True).start()
    return future


def require_name(host: str) -> None:
    """Require a host to be a name, or an address in a form that Go's dialer accepts.

    The C library also accepts `127.1`, and `010.0.0.1`, which it reads as 8.0.0.1. For Go these are names that do not
    exist. Raises socket.gaierror.
    """
    try:
        socket.inet_aton(host)
    except OSError:
        return
    try:
        socket.inet_pton(socket.AF_INET, host)
    except OSError as error:
        why = "an IPv4 address has four decimal numbers without leading zeros"
        raise socket.gaierror(socket.EAI_NONAME, why) from error


def _resolve(host: str, port: int, future: Future[Addresses]) -> None:
    """Runs in the thread."""
    try:
        found = _addresses(host, port)
    except Exception as error:  # raised where the result is awaited
        _done(host, port)
        future.set_exception(error)
    else:
        _done(host, port)
        future.set_result(found)


def _done(host: str, port: int) -> None:
    with _lock:
        del _running[host, port]


def _addresses(host: str, port: int, flags: int = 0) -> Addresses:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError as error:  # a label is empty or too long
        raise socket.gaierror(socket.EAI_NONAME, "not a host name") from error
