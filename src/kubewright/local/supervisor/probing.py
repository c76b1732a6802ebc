"""One probe attempt: a GET or a connection, made anew each time as the kubelet does, with nothing but the event loop's streams.

A full HTTP client would be imported before etcd could be seen to be up (aiohttp: 60 ms); what is needed of it is a status line.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Final

from kubewright.apis.addresses import host_port
from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass
from kubewright.local.supervisor.model import ProbeIdentity
from kubewright.local.supervisor.pod import HttpTarget, TcpTarget

_BODY: Final = 2048
"""Bytes of an answer that are read to say why it failed."""
_SHOWN: Final = 200


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an attempt showed. `refused`: nothing listens yet, so another attempt costs next to nothing."""

    ok: bool
    reason: str = ""
    refused: bool = False


class Prober:
    """Makes attempts. TLS certificates are not verified; a client certificate is shown where one was given and exists."""

    def __init__(self, *, default_host: str, identity: ProbeIdentity | None = None) -> None:
        self._host = default_host
        self._identity = identity
        self._anonymous: ssl.SSLContext | None = None
        self._identified: ssl.SSLContext | None = None
        self._stamp: tuple[int, ...] = ()

    async def attempt(self, target: HttpTarget | TcpTarget, *, timeout: float) -> Outcome:
        """Try once, for at most `timeout` seconds. Never raises for what a component does."""
        where = host_port(target.host or self._host, target.port)
        try:
            async with asyncio.timeout(timeout):
                return await self._attempt(target, where)
        except TimeoutError:
            return Outcome(ok=False, reason=f"{where} did not answer within {timeout:g} s")
        except ConnectionRefusedError:
            return Outcome(ok=False, reason=f"nothing listens on {where}", refused=True)
        except CertificateError as error:
            return Outcome(ok=False, reason=f"the probe's client certificate cannot be used: {error}")
        except (OSError, EOFError, ValueError) as error:  # ssl.SSLError is an OSError, a garbled answer a ValueError
            return Outcome(ok=False, reason=f"{where}: {str(error) or type(error).__name__}")

    async def _attempt(self, target: HttpTarget | TcpTarget, where: str) -> Outcome:
        context = self._tls(target.port) if isinstance(target, HttpTarget) and target.secure else None
        host = target.host or self._host
        reader, writer = await asyncio.open_connection(host, target.port, ssl=context, limit=_BODY)
        try:
            if isinstance(target, TcpTarget):
                return Outcome(ok=True)
            writer.write(_request(target, where))
            status, body = await _answer(reader)
        finally:
            # Not closed in good order: that would wait for the peer's part of the TLS shutdown.
            writer.transport.abort()
        # The kubelet counts 200 to 399 as success (pkg/probe/http).
        return Outcome(ok=True) if 200 <= status < 400 else Outcome(ok=False, reason=_why(target, where, status, body))

    def _tls(self, port: int) -> ssl.SSLContext:
        """Return the context for HTTPS at a port, made again when the client certificate's files changed."""
        from kubewright.http import tls

        stamp = self._look() if self._identity is not None and port in self._identity.ports else ()
        if self._identity is None or not stamp:
            self._anonymous = self._anonymous or tls.client_context(None, verify=False)
            return self._anonymous
        if self._identified is None or stamp != self._stamp:
            certificate, key = self._identity.certificate.read_bytes(), self._identity.key.read_bytes()
            self._identified = tls.client_context(None, certificate, key, verify=False)
            self._stamp = stamp
        return self._identified

    def _look(self) -> tuple[int, ...]:
        if self._identity is None:
            return ()
        with contextlib.suppress(FileNotFoundError):
            return (self._identity.certificate.stat().st_mtime_ns, self._identity.key.stat().st_mtime_ns)
        return ()


def _request(target: HttpTarget, where: str) -> bytes:
    given = dict(target.headers)
    names = {name.lower() for name in given}
    usual = {"Host": where, "User-Agent": "kubewright-probe", "Accept": "*/*", "Connection": "close"}
    headers = {**{name: value for name, value in usual.items() if name.lower() not in names}, **given}
    lines = [f"GET {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("utf-8", "replace")


async def _answer(reader: asyncio.StreamReader) -> tuple[int, str]:
    """Return the status code, and the beginning of what came with a failure."""
    content = b""
    while b"\n" not in content and len(content) < _BODY:
        if not (piece := await reader.read(_BODY)):
            break
        content += piece
    words = content.split(b"\r\n", 1)[0].split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/"):
        raise ValueError("the answer is not HTTP")
    status = int(words[1])
    if status < 400:
        return status, ""
    while len(content) < _BODY and (piece := await reader.read(_BODY)):
        content += piece
    return status, content.partition(b"\r\n\r\n")[2].decode("utf-8", "replace")


def _why(target: HttpTarget, where: str, status: int, body: str) -> str:
    # The health endpoints of Kubernetes list every check, `[+]name ok` or `[-]name failed: ...`: only the failed ones matter.
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    failed = [line for line in lines if line.startswith("[-]")] or lines
    text = "; ".join(failed)
    said = f": {text[:_SHOWN]}" if text else ""
    return f"GET {target.path} of {where} answered {status}{said}"
