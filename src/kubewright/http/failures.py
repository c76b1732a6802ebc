"""The error for a missing or unusable answer, with a reason that does not depend on the library."""

from __future__ import annotations

import enum
import socket
import sys
from collections.abc import Iterator
from typing import Final

from kubewright.base.errors import Unreachable


class Reason(enum.Enum):
    """The reason: a failure below HTTP, or in the form of the answer."""

    REFUSED = "connection refused"
    RESET = "connection lost"
    NO_ROUTE = "no route to the host"
    DNS = "the name does not resolve"
    UNTRUSTED = "the server's certificate is not trusted"
    TLS = "the TLS handshake failed"
    TIMED_OUT = "timed out"
    TRUNCATED = "the answer was cut short"
    TOO_LARGE = "the answer is larger than allowed"
    REDIRECTED = "the server answered with a redirect"
    PROXY = "the proxy failed"
    MALFORMED = "the response is not what was requested"
    CLOSED = "the client was closed"


_REMEDIES: Final = {
    Reason.REFUSED: "check that the server runs and listens on this address and port",
    Reason.RESET: "the server may be restarting: try again",
    Reason.NO_ROUTE: "check the address and the network in between",
    Reason.DNS: "check the name, /etc/hosts and the DNS servers of this machine",
    Reason.UNTRUSTED: "check that the CA is the server's own, and that the name is in its certificate",
    Reason.TLS: "check that the port speaks TLS 1.2 or later, and that the client certificate is accepted",
    Reason.TIMED_OUT: "check the load of the server, and firewalls in between",
    Reason.TRUNCATED: "try again; if it persists, check proxies in between",
    Reason.TOO_LARGE: "check that this is the server you mean",
    Reason.REDIRECTED: "use the address in the redirect, if you trust it",
    Reason.PROXY: "check HTTPS_PROXY and NO_PROXY",
    Reason.MALFORMED: "check that this is the server you mean, and proxies in between",
}


_NOT_VALID_NOW: Final = frozenset({"certificate is not yet valid", "certificate has expired"})
"""OpenSSL's words (x509_txt.c)."""
_CLOCKS: Final = "compare the clocks of both machines (`date -u`); if they agree, the server's certificate has to be renewed"


class NoAnswer(Unreachable):
    """There is no usable answer; `reason` says why."""

    def __init__(self, what: str, *, reason: Reason, detail: str = "") -> None:
        shown = reason.value if not detail or detail == reason.value else f"{reason.value} ({detail})"
        super().__init__(what, detail=shown, remedy=_CLOCKS if detail in _NOT_VALID_NOW else _REMEDIES.get(reason, ""))
        self.reason = reason


def no_answer(server: str, method: str, target: str, reason: Reason, *, detail: str = "") -> NoAnswer:
    """Make the error for one request; `server` is a URL without user information. The query is left out: it may be long."""
    return NoAnswer(f"no usable answer from {server} to {method} {target.partition('?')[0]}", reason=reason, detail=detail)


def reason_of(error: BaseException) -> tuple[Reason, str] | None:
    """Find the operating system's or ssl's error in a chain of causes; None if there is none."""
    ssl = sys.modules.get("ssl")  # if ssl was never imported, no error is of its class; the control socket's client does without it
    for cause in _chain(error):
        if ssl is not None and isinstance(cause, ssl.SSLCertVerificationError):
            return Reason.UNTRUSTED, cause.verify_message
        if ssl is not None and isinstance(cause, ssl.SSLError):
            return Reason.TLS, cause.reason or ""
        if isinstance(cause, socket.gaierror):
            return Reason.DNS, cause.strerror or ""
        if isinstance(cause, TimeoutError):
            return Reason.TIMED_OUT, ""
        if isinstance(cause, ConnectionRefusedError):
            return Reason.REFUSED, ""
        if isinstance(cause, ConnectionError):
            return Reason.RESET, ""
    for cause in _chain(error):
        if isinstance(cause, OSError) and cause.errno is not None:
            return Reason.NO_ROUTE, cause.strerror or ""
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Walk an error, the errors it wraps and its causes, each once."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop(0)
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [*one.args, getattr(one, "os_error", None), getattr(one, "reason", None), one.__cause__, one.__context__]
