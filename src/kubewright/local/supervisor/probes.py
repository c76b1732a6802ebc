"""The probes of a container: one attempt over the network, and the worker that evaluates the attempts.

Users wait for a cluster, so its start is watched closely: until a probe succeeds for the first time, it is tried every
few hundredths of a second, regardless of its period and initial delay. Those still determine when a *failure* counts,
so a component has the same time to start as under a kubelet: initial delay + failure threshold × period. After the
first success, the period applies.

An attempt uses only the event loop's streams: importing a full HTTP client (aiohttp: 60 ms) would delay noticing that
etcd is up, and only a status line is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, cast

from kubewright.apis.machine import host_port
from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass
from kubewright.http import tls
from kubewright.http.opening import opened
from kubewright.local.supervisor.pod import Container, HttpTarget, Probe, TcpTarget
from kubewright.local.supervisor.state import ProbeIdentity

STARTUP_PERIOD_REFUSED: Final = 0.025
"""Seconds to the next attempt while nothing listens: an attempt costs 0.2 ms here and nothing there."""
STARTUP_PERIOD: Final = 0.06
"""Seconds to the next attempt once there is an answer: with TLS an attempt costs both sides 1 to 2 ms."""
STARTUP_TIMEOUT: Final = 1.0
"""The longest attempt before the first success: an attempt that hangs during the start is repeated."""

_BODY: Final = 2048
"""Bytes of a response that are read for the reason of a failure."""
_SHOWN: Final = 200


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """The result of an attempt. `refused`: nothing listens yet, so another attempt is cheap."""

    ok: bool
    reason: str = ""
    refused: bool = False


class Prober(Protocol):
    """Makes probe attempts."""

    def attempt(self, target: HttpTarget | TcpTarget, *, timeout: float) -> Awaitable[ProbeResult]:
        """Make one attempt."""
        ...


class NetworkProber:
    """Makes attempts over the network.

    TLS certificates are not verified; a client certificate is presented if one is given and exists.
    """

    def __init__(self, *, default_host: str, identity: ProbeIdentity | None = None) -> None:
        self._host = default_host
        self._identity = identity
        self._anonymous: ssl.SSLContext | None = None
        self._identified: ssl.SSLContext | None = None
        self._identified_by: tuple[int, ...] = ()

    async def attempt(self, target: HttpTarget | TcpTarget, *, timeout: float) -> ProbeResult:
        """Make one attempt of at most `timeout` seconds. Never raises because of the component."""
        where = host_port(target.host or self._host, target.port)
        try:
            async with asyncio.timeout(timeout):
                return await self._attempt(target, where)
        except TimeoutError:
            return ProbeResult(ok=False, reason=f"{where} did not answer within {timeout:g} s")
        except ConnectionRefusedError:
            return ProbeResult(ok=False, reason=f"nothing listens on {where}", refused=True)
        except CertificateError as error:
            return ProbeResult(ok=False, reason=f"the probe's client certificate cannot be used: {error}")
        except (OSError, EOFError, ValueError) as error:  # ssl.SSLError is an OSError, a malformed response a ValueError
            return ProbeResult(ok=False, reason=f"{where}: {str(error) or type(error).__name__}")

    async def _attempt(self, target: HttpTarget | TcpTarget, where: str) -> ProbeResult:
        context = self._tls(target.port) if isinstance(target, HttpTarget) and target.secure else None
        host = target.host or self._host
        stream = _Stream(asyncio.StreamReader(limit=_BODY))
        bottom = await opened(stream, host, target.port, context=context)
        try:
            if isinstance(target, TcpTarget):
                return ProbeResult(ok=True)
            stream.transport.write(_request(target, where))
            status, body = await _answer(stream.reader)
        finally:
            # Not closed gracefully: that would wait for the peer's part of the TLS shutdown.
            bottom.abort()
        # The kubelet counts 200 to 399 as success (pkg/probe/http).
        return ProbeResult(ok=True) if 200 <= status < 400 else ProbeResult(ok=False, reason=_failure_text(target, where, status, body))

    def _tls(self, port: int) -> ssl.SSLContext:
        """Return the TLS context for a port, created again when the client certificate's files changed."""
        modified = self._modified() if self._identity is not None and port in self._identity.ports else ()
        if self._identity is None or not modified:
            self._anonymous = self._anonymous or tls.client_context(None, verify=False)
            return self._anonymous
        if self._identified is None or modified != self._identified_by:
            certificate, key = self._identity.certificate.read_bytes(), self._identity.key.read_bytes()
            self._identified = tls.client_context(None, certificate, key, verify=False)
            self._identified_by = modified
        return self._identified

    def _modified(self) -> tuple[int, ...]:
        if self._identity is None:
            return ()
        with contextlib.suppress(FileNotFoundError):
            return (self._identity.certificate.stat().st_mtime_ns, self._identity.key.stat().st_mtime_ns)
        return ()


class _Stream(asyncio.StreamReaderProtocol):
    """A connection's incoming data as a stream, and the transport for outgoing data."""

    transport: asyncio.WriteTransport

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.reader = reader

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)
        super().connection_made(transport)


def _request(target: HttpTarget, where: str) -> bytes:
    given = dict(target.headers)
    names = {name.lower() for name in given}
    usual = {"Host": where, "User-Agent": "kubewright-probe", "Accept": "*/*", "Connection": "close"}
    headers = {**{name: value for name, value in usual.items() if name.lower() not in names}, **given}
    lines = [f"GET {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("utf-8", "replace")


async def _answer(reader: asyncio.StreamReader) -> tuple[int, str]:
    """Return the status code, and the beginning of the body of a failure."""
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


def _failure_text(target: HttpTarget, where: str, status: int, body: str) -> str:
    # The health endpoints of Kubernetes list every check, `[+]name ok` or `[-]name failed: ...`: only the failed ones matter.
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    failed = [line for line in lines if line.startswith("[-]")] or lines
    text = "; ".join(failed)
    said = f": {text[:_SHOWN]}" if text else ""
    return f"GET {target.path} of {where} answered {status}{said}"


@dataclass(frozen=True, kw_only=True)
class ProbeStatus:
    """The current state of a process's probes. `reason` is why it is not ready, or why its liveness is in doubt."""

    started: bool = False
    ready: bool = False
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ProbeFailure:
    """The process must be stopped: its startup or liveness probe failed too often."""

    reason: str
    grace: float | None


@dataclass()
class ProbeCounter:
    """Counts the results of one probe. Pure: the caller passes the time."""

    probe: Probe
    successes: int = 0
    failures: int = 0
    _counted: float | None = None

    def count(self, *, ok: bool) -> None:
        """Count one result; a success ends a series of failures and vice versa."""
        self.successes = self.successes + 1 if ok else 0
        self.failures = 0 if ok else self.failures + 1

    def count_at(self, elapsed: float, *, ok: bool) -> None:
        """Count one of many results: failures count once per period, the first one after the initial delay."""
        if ok:
            self.count(ok=True)
            return
        self.successes = 0
        due = self.probe.initial_delay if self._counted is None else self._counted + self.probe.period
        if elapsed >= due:
            self._counted = elapsed
            self.failures += 1

    @property
    def passed(self) -> bool:
        """Whether there were enough consecutive successes."""
        return self.successes >= self.probe.success_threshold

    @property
    def failed(self) -> bool:
        """Whether there were enough consecutive failures."""
        return self.failures >= self.probe.failure_threshold


class ProbeWorker:
    """Monitors one process by the probes of its container and reports every change."""

    def __init__(self, container: Container, prober: Prober, *, changed: Callable[[ProbeStatus], None], running_for: float = 0.0) -> None:
        """Store the arguments. `running_for` is how many seconds an adopted process has been running."""
        self._container = container
        self._prober = prober
        self._changed = changed
        self._status = ProbeStatus()
        self._started = asyncio.get_running_loop().time() - running_for

    async def watch(self) -> ProbeFailure:
        """Probe until the process must be stopped, which may never happen. Cancelling is safe at any time."""
        startup, liveness, readiness = self._container.startup, self._container.liveness, self._container.readiness
        if startup is not None and (failure := await self._start_up(startup)) is not None:
            return failure
        self._report(started=True, ready=readiness is None, reason="" if readiness is None else self._status.reason)
        alive = asyncio.create_task(self._stay_alive(liveness) if liveness is not None else _forever())
        ready = asyncio.create_task(self._stay_ready(readiness) if readiness is not None else _forever())
        try:
            await asyncio.wait({alive, ready}, return_when=asyncio.FIRST_COMPLETED)
            return await (ready if ready.done() else alive)  # the readiness probe ends only by an internal error
        finally:
            alive.cancel()
            ready.cancel()
            await asyncio.wait({alive, ready})

    async def _start_up(self, probe: Probe) -> ProbeFailure | None:
        counter = ProbeCounter(probe)
        while True:
            result = await self._prober.attempt(probe.target, timeout=min(probe.timeout, STARTUP_TIMEOUT))
            counter.count_at(self._elapsed(), ok=result.ok)
            if counter.passed:
                return None
            if counter.failed:
                return ProbeFailure(reason=f"startup probe failed: {result.reason}", grace=probe.grace)
            self._report(reason=result.reason)
            await asyncio.sleep(_startup_period(result))

    async def _stay_alive(self, probe: Probe) -> ProbeFailure:
        counter = ProbeCounter(probe)
        await asyncio.sleep(max(0.0, probe.initial_delay - self._elapsed()))
        while True:
            result = await self._prober.attempt(probe.target, timeout=probe.timeout)
            counter.count(ok=result.ok)
            if counter.failed:
                return ProbeFailure(reason=f"liveness probe failed: {result.reason}", grace=probe.grace)
            await asyncio.sleep(probe.period)

    async def _stay_ready(self, probe: Probe) -> ProbeFailure:
        counter, before = ProbeCounter(probe), True
        while True:
            result = await self._prober.attempt(probe.target, timeout=min(probe.timeout, STARTUP_TIMEOUT) if before else probe.timeout)
            counter.count(ok=result.ok)
            if counter.passed:
                before = False
                self._report(started=True, ready=True)
            elif not result.ok and (before or counter.failed):
                self._report(started=True, ready=False, reason=result.reason)
            await asyncio.sleep(_startup_period(result) if before else probe.period)

    def _report(self, *, started: bool = False, ready: bool = False, reason: str = "") -> None:
        status = ProbeStatus(started=started, ready=ready, reason=reason)
        if status != self._status:
            self._status = status
            self._changed(status)

    def _elapsed(self) -> float:
        return asyncio.get_running_loop().time() - self._started


def _startup_period(result: ProbeResult) -> float:
    return STARTUP_PERIOD_REFUSED if result.refused else STARTUP_PERIOD


async def _forever() -> ProbeFailure:
    never: asyncio.Future[ProbeFailure] = asyncio.get_running_loop().create_future()
    return await never
