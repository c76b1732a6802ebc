"""Probes: one attempt against small servers, what counts and when (in virtual time), and when a component is started again."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from supervisor_kit import Machine, is_ready, pod, ready, state_of, until

from busy import HANGS
from kubewright.base.fields import FieldPath
from kubewright.local.supervisor import termination
from kubewright.local.supervisor.pod import Container, HttpTarget, Probe, TcpTarget
from kubewright.local.supervisor.probes import (
    STARTUP_PERIOD,
    STARTUP_PERIOD_REFUSED,
    NetworkProber,
    ProbeCounter,
    ProbeFailure,
    ProbeResult,
    ProbeStatus,
    ProbeWorker,
)
from kubewright.local.supervisor.state import ComponentPhase, ProbeIdentity
from loopback import free_port

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@contextlib.asynccontextmanager
async def answering(answer: bytes | None, context: ssl.SSLContext | None = None) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Serve one answer, or none, to everybody; yields the port and what was asked."""
    asked: list[bytes] = []
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer or b"")
            await (writer.drain() if answer is not None else reader.read())
        writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.gather(*tasks)
        await asyncio.sleep(0)  # transports close one turn later


async def attempt(port: int, prober: NetworkProber | None = None, *, timeout: float = HANGS, **parts: object) -> ProbeResult:
    prober = prober or NetworkProber(default_host="127.0.0.1")
    return await prober.attempt(HttpTarget(port=port, **parts), timeout=timeout)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "ok", "reason"),
    [
        (OK, True, ""),
        (b"HTTP/1.1 302 Found\r\n\r\n", True, ""),
        (b"HTTP/1.1 399 Odd\n\n", True, ""),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False, "answered 400"),
        (b"HTTP/1.1 500 No\r\n\r\n[+]ping ok\n[-]etcd failed: reason withheld\nhealthz check failed\n", False, "answered 500: [-]etcd failed: reason withheld"),
        (b"HTTP/1.1 503 No\r\n\r\n" + b"x" * 9000, False, "answered 503: " + "x" * 200),
        (b"SSH-2.0-OpenSSH\r\n", False, "the answer is not HTTP"),
        (b"HTTP/1.1 abc\r\n\r\n", False, "invalid literal"),
        (b"", False, "the answer is not HTTP"),
    ],
)  # fmt: skip
async def test_a_probe_succeeds_by_status_code(answer: bytes, ok: bool, reason: str) -> None:
    async with answering(answer) as (port, asked):
        outcome = await attempt(port, path="/livez?x=1", headers=(("X-A", "b"), ("host", "else.where")))
        assert (outcome.ok, outcome.refused) == (ok, False)
        assert reason in outcome.reason
        assert len(asked) == 1
        assert asked[0] == (
            b"GET /livez?x=1 HTTP/1.1\r\nUser-Agent: kubewright-probe\r\nAccept: */*\r\nConnection: close\r\nX-A: b\r\nhost: else.where\r\n\r\n"
        )


@given(st.binary(max_size=200))
def test_no_response_breaks_a_probe(answer: bytes) -> None:
    async def once() -> ProbeResult:
        async with answering(answer) as (port, _):
            return await attempt(port)

    assert asyncio.run(once()).refused is False
    asyncio.set_event_loop(None)


async def test_closed_ports_and_missing_answers_are_distinguished() -> None:
    outcome = await attempt(1)
    assert outcome == ProbeResult(ok=False, reason="nothing listens on 127.0.0.1:1", refused=True)

    async with answering(None) as (port, _):
        assert await attempt(port, timeout=0.05) == ProbeResult(ok=False, reason=f"127.0.0.1:{port} did not answer within 0.05 s")
        assert (await NetworkProber(default_host="127.0.0.1").attempt(TcpTarget(port=port), timeout=HANGS)).ok
    assert not (await NetworkProber(default_host="nonsense.invalid").attempt(TcpTarget(port=1), timeout=5)).ok


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def context_of(authority: trustme.CA, *, ask: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("server.example").configure_cert(context)
    if ask:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_https_is_not_verified(authority: trustme.CA) -> None:
    async with answering(OK, context_of(authority, ask=False)) as (port, _):
        assert (await attempt(port, secure=True)).ok
        assert not (await attempt(port)).ok
    async with answering(OK) as (port, _):
        assert not (await attempt(port, secure=True, timeout=0.1)).ok


async def test_a_client_certificate_is_used_once_it_exists(authority: trustme.CA, tmp_path: Path) -> None:
    async with answering(OK, context_of(authority, ask=True)) as (port, _), answering(OK, context_of(authority, ask=True)) as (other, _):
        identity = ProbeIdentity(certificate=tmp_path / "client.crt", key=tmp_path / "client.key", ports=frozenset({port}))
        prober = NetworkProber(default_host="127.0.0.1", identity=identity)
        assert not (await attempt(port, prober, secure=True)).ok
        leaf = authority.issue_cert("client.example")
        identity.certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        identity.key.write_bytes(b"nonsense")
        assert "client certificate cannot be used" in (await attempt(port, prober, secure=True)).reason
        leaf.private_key_pem.write_to_path(str(identity.key))
        assert (await attempt(port, prober, secure=True)).ok
        assert not (await attempt(other, prober, secure=True)).ok


class Script:
    """Answers probes by a function of the time and the target's port; notes when it was asked."""

    def __init__(self, answer: Callable[[float, int], ProbeResult]) -> None:
        self.answer = answer
        self.asked: list[tuple[float, int]] = []

    async def attempt(self, target: HttpTarget | TcpTarget, *, timeout: float) -> ProbeResult:
        now = asyncio.get_running_loop().time()
        self.asked.append((round(now, 3), target.port))
        return self.answer(now, target.port)


STARTUP, LIVENESS, READINESS = 1, 2, 3
BAD = ProbeResult(ok=False, reason="bad")
REFUSED = ProbeResult(ok=False, reason="refused", refused=True)
GOOD = ProbeResult(ok=True)


def container(**parts: Probe) -> Container:
    return Container(name="etcd", command=("etcd",), path=FieldPath("spec.containers[0]"), **parts)  # type: ignore[arg-type]


def probe(port: int, **parts: object) -> Probe:
    return Probe(target=TcpTarget(port=port), **parts)  # type: ignore[arg-type]


async def watched(
    script: Script, found: Container, *, within: float, **parts: float
) -> tuple[ProbeFailure | None, list[tuple[float, ProbeStatus]]]:
    """Watch for this many (virtual) seconds."""
    told: list[tuple[float, ProbeStatus]] = []
    loop = asyncio.get_running_loop()
    watcher = ProbeWorker(found, script, changed=lambda health: told.append((round(loop.time(), 3), health)), **parts)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within):
            return await watcher.watch(), told
    return None, told


@pytest.mark.looptime
async def test_without_probes_a_process_is_ready_at_once() -> None:
    script = Script(lambda now, port: BAD)
    assert await watched(script, container(), within=1000) == (None, [(0, ProbeStatus(started=True, ready=True))])
    assert script.asked == []


@pytest.mark.looptime
async def test_startup_is_probed_closely_and_then_by_period() -> None:
    script = Script(lambda now, port: REFUSED if now < 1 else BAD if now < 2 or (port == READINESS and now < 3) else GOOD)
    found = container(
        startup=probe(STARTUP, initial_delay=10), readiness=probe(READINESS, period=5), liveness=probe(LIVENESS, initial_delay=10)
    )
    verdict, told = await watched(script, found, within=24)
    assert verdict is None
    assert [health for _, health in told] == [
        ProbeStatus(reason="refused"),
        ProbeStatus(reason="bad"),
        ProbeStatus(started=True, reason="bad"),
        ProbeStatus(started=True, ready=True),
    ]
    assert 3 <= told[-1][0] <= 3 + STARTUP_PERIOD
    startups = [now for now, port in script.asked if port == STARTUP]
    assert abs(len(startups) - (1 / STARTUP_PERIOD_REFUSED + 1 / STARTUP_PERIOD)) <= 3
    assert [now for now, port in script.asked if port == LIVENESS] == [10, 20]
    readiness = [now for now, port in script.asked if port == READINESS and now >= 3]
    assert [round(later - earlier, 3) for earlier, later in itertools.pairwise(readiness)] == [5, 5, 5, 5]


@pytest.mark.looptime
async def test_a_startup_has_the_same_time_as_with_a_kubelet() -> None:
    script = Script(lambda now, port: BAD)
    found = container(startup=probe(STARTUP, initial_delay=10, period=10, failure_threshold=24, grace=3))
    verdict, _ = await watched(script, found, within=1000)
    assert verdict == ProbeFailure(reason="startup probe failed: bad", grace=3)
    assert 240 <= asyncio.get_running_loop().time() <= 242


@pytest.mark.looptime
async def test_consecutive_liveness_failures_end_a_process() -> None:
    script = Script(lambda now, port: GOOD if now < 30 or 40 <= now < 50 else BAD)
    verdict, _ = await watched(script, container(liveness=probe(LIVENESS, failure_threshold=3)), within=1000)
    assert verdict == ProbeFailure(reason="liveness probe failed: bad", grace=None)
    assert asyncio.get_running_loop().time() == 70


@pytest.mark.looptime
async def test_readiness_changes_by_its_thresholds() -> None:
    script = Script(lambda now, port: BAD if 10 <= now < 11 or 20 <= now < 25 else GOOD)
    found = container(readiness=probe(READINESS, period=1, success_threshold=2))
    _, told = await watched(script, found, within=60)
    assert [health.ready for _, health in told] == [False, True, False, True]
    assert told[2][0] == pytest.approx(22, abs=1)
    assert told[3][0] == pytest.approx(26, abs=1)


@pytest.mark.looptime
async def test_an_adopted_process_has_no_initial_delay() -> None:
    script = Script(lambda now, port: GOOD)
    await watched(script, container(liveness=probe(LIVENESS, initial_delay=10)), within=5, running_for=100)
    assert script.asked[0] == (0, LIVENESS)


def test_startup_failures_count_once_per_period() -> None:
    tally = ProbeCounter(probe(STARTUP, initial_delay=10, period=10, failure_threshold=2))
    for elapsed in range(20):
        tally.count_at(elapsed, ok=False)
    assert (tally.failures, tally.failed) == (1, False)
    tally.count_at(20, ok=False)
    assert tally.failed
    tally.count_at(21, ok=True)
    assert (tally.failures, tally.passed) == (0, True)


async def test_a_component_that_stops_answering_is_restarted(tmp_path: Path) -> None:
    flag = tmp_path / "sick"
    code = (
        "import http.server, os, sys\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(500 if os.path.exists(sys.argv[1]) else 200); self.end_headers(); self.wfile.write(b'[-]disk failed')\n"
        "    def log_message(self, *a): pass\n"
        "s = http.server.HTTPServer(('127.0.0.1', int(sys.argv[2])), H); s.serve_forever()\n"
    )
    port = free_port()
    target = {"httpGet": {"port": port, "path": "/"}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 60}
    rows = {"livenessProbe": target, "readinessProbe": target, "startupProbe": target | {"failureThreshold": 60}}
    async with Machine(tmp_path).supervised(pod("etcd", "python", "-c", code, str(flag), str(port), container=rows)) as supervisor:
        await ready(supervisor)
        first = state_of(supervisor).pid
        flag.touch()
        state = await until(supervisor, lambda state: state.last_exit is not None)
        assert state.last_exit is not None
        assert state.last_exit.reason == f"liveness probe failed: GET / of 127.0.0.1:{port} answered 500: [-]disk failed"
        flag.unlink()
        state = await until(supervisor, lambda state: is_ready(state) and state.pid != first)
        assert (state.restarts, state.phase) == (1, ComponentPhase.READY)


@pytest.mark.parametrize(("failures", "seconds"), [(0, 0.1), (1, 0.1), (2, 1), (3, 2), (4, 4), (7, 32), (8, 60), (9, 60), (10_000, 60)])
def test_the_back_off_before_a_restart_grows(failures: int, seconds: float) -> None:
    assert termination.restart_delay(failures) == seconds


@pytest.mark.parametrize(
    ("failures", "ran", "ready", "expected"),
    [(0, 0.1, 0, 1), (1, 0.1, 0, 2), (5, 9, 9, 6), (5, 15, 10, 1), (5, 599, 0, 6), (5, 600, 0, 1)],
)
def test_a_healthy_run_resets_the_back_off(failures: int, ran: float, ready: float, expected: int) -> None:
    assert termination.failures_after(failures, ran=ran, ready=ready) == expected
