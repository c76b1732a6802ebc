"""Discovering a cluster by token: what is waited for, what is refused at once; the synchronous and asynchronous forms decide the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import trustme

from kubewright.base.clock import FakeClock
from kubewright.base.errors import APIError, Forbidden, NotFound, ServerError, TrustError, UsageError, WaitTimeout
from kubewright.base.events import SilentReporter
from kubewright.base.wait import InstantWaiter, PollingWaiter
from kubewright.discovery import token as discovery
from kubewright.discovery.token import Question
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import Response
from kubewright.kube.credentials import Access, BearerToken
from kubewright.pki.pins import Pin, PinMismatch, pin
from kubewright.tokens import cluster_info
from kubewright.tokens.cluster_info import ChangedClusterInfo, ForgedClusterInfo, MissingSignature
from kubewright.tokens.strings import parse

TOKEN = parse("abcdef.0123456789abcdef")
OTHER = parse("abcdef.ffffffffffffffff")
TYPED, NAMED = "https://10.0.0.9:6443", "https://cluster.example:6443"
CA = trustme.CA().cert_pem.bytes()
REFUSED = NoAnswer("refused", reason=Reason.REFUSED)
FORBIDDEN = Forbidden("RBAC is not there yet", code=403)


def info(*, signer=TOKEN, server: str = NAMED, ca: bytes = CA, signed: bool = True) -> dict:
    plain = cluster_info.config_map(server=server, ca_pem=ca)
    text = plain["data"]["kubeconfig"]
    return cluster_info.config_map(
        server=server,
        ca_pem=ca,
        signatures={f"jws-kubeconfig-{signer.id}": cluster_info.detached_signature(text, signer)} if signed else {},
    )


class Cluster:
    """Answers reads from a script whose last line repeats, and records the requests."""

    def __init__(self, *script: object, date: str = "") -> None:
        self.script = list(script)
        self.date = date
        self.asked: list[Access] = []
        self.open = 0

    def connect(self, access: Access) -> Cluster:
        self.asked.append(access)
        self.open += 1
        return self

    def get(self, resource, name, namespace=None):
        assert (resource.plural, namespace, name) == ("configmaps", "kube-public", "cluster-info")
        found = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(found, Exception):
            raise found
        return found

    def raw(self, method, path):
        assert (method, path) == ("GET", "/version")
        return Response(status=200, headers={"date": self.date} if self.date else {})

    def close(self) -> None:
        self.open -= 1


class Async:
    """The same cluster for the asynchronous form."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def get(self, resource, name, namespace=None):
        return self.cluster.get(resource, name, namespace)

    async def close(self) -> None:
        self.cluster.close()


Run = Callable[[Question, Cluster], tuple[Access, float]]


def run_sync(question: Question, cluster: Cluster) -> tuple[Access, float]:
    clock = FakeClock()
    found = discovery.discover(question, connect=cluster.connect, waiter=PollingWaiter(clock=clock, reporter=SilentReporter()), clock=clock)
    return found, clock.monotonic()


def run_async(question: Question, cluster: Cluster) -> tuple[Access, float]:
    import looptime

    async def main() -> tuple[Access, float]:
        loop = asyncio.get_running_loop()
        start = loop.time()
        found = await discovery.discover_async(question, connect=lambda access: Async(cluster.connect(access)), clock=FakeClock())
        return found, loop.time() - start

    with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop(start=0)) as runner:
        return runner.run(main())


@pytest.fixture(params=[run_sync, run_async], ids=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param


def question(**options: object) -> Question:
    return Question(server=TYPED, token=TOKEN, **options)


def test_a_signed_cluster_is_discovered_at_once(run: Run) -> None:
    cluster = Cluster(info())
    found, seconds = run(question(), cluster)
    assert found == Access(server=NAMED, ca_pem=CA, identity=BearerToken(TOKEN.text))
    assert seconds == 0
    assert cluster.asked == [Access(server=TYPED, verify=False)]
    assert cluster.open == 0


def test_with_pins_cluster_info_is_read_again_with_the_ca(run: Run) -> None:
    cluster = Cluster(info())
    run(question(pins=[Pin.parse(pin(CA))]), cluster)
    assert cluster.asked == [Access(server=TYPED, verify=False), Access(server=TYPED, ca_pem=CA)]
    assert cluster.open == 0


@pytest.mark.parametrize("error", [FORBIDDEN, REFUSED, ServerError("it starts", code=503)])
def test_a_failed_second_read_is_retried(run: Run, error: Exception) -> None:
    """Its connection is a new one, possibly to another server, which has just been started."""
    cluster = Cluster(info(), error, error, info())
    found, seconds = run(question(pins=[Pin.parse(pin(CA))]), cluster)
    assert found == Access(server=NAMED, ca_pem=CA, identity=BearerToken(TOKEN.text))
    assert cluster.asked == [Access(server=TYPED, verify=False), *[Access(server=TYPED, ca_pem=CA)] * 3]
    assert 0.05 <= seconds < 0.2
    assert cluster.open == 0


def test_a_second_read_that_keeps_failing_ends_at_the_discovery_timeout(run: Run) -> None:
    cluster = Cluster(info(), REFUSED)
    with pytest.raises(WaitTimeout, match="refused"):
        run(question(within=10, pins=[Pin.parse(pin(CA))]), cluster)
    assert 45 <= len(cluster.asked) <= 60


def test_a_starting_cluster_is_waited_for(run: Run) -> None:
    cluster = Cluster(REFUSED, REFUSED, NotFound("no", code=404), FORBIDDEN, info(signed=False), info(signed=False), info())
    _, seconds = run(question(), cluster)
    assert len(cluster.asked) == 7
    assert 0.05 < seconds < 1.2


def test_an_unknown_token_is_not_waited_for_long(run: Run) -> None:
    cluster = Cluster(FORBIDDEN, info(signed=False))
    with pytest.raises(MissingSignature) as caught:
        run(question(unknown_token=5), cluster)
    assert "abcdef" in str(caught.value)
    assert TOKEN.secret not in str(caught.value)
    assert 25 <= len(cluster.asked) <= 40
    assert cluster.open == 0


STRANGER = parse("zzzzzz.0123456789abcdef")
MADE = "2026-11-21T18:00:00Z"


@pytest.mark.parametrize(
    ("found", "date", "seconds"),
    [
        (info(signer=STRANGER), "Sat, 21 Nov 2026 18:00:11 GMT", 2),
        (info(signer=STRANGER), "Sat, 21 Nov 2026 18:00:09 GMT", 30),
        (info(signed=False), "Sat, 21 Nov 2026 18:00:31 GMT", 2),
        (info(signed=False), "Sat, 21 Nov 2026 18:00:29 GMT", 30),
        (info(signer=STRANGER), "", 30),
        (info(signer=STRANGER), "yesterday", 30),
        # a clock that was set back proves nothing
        (info(signer=STRANGER), "Sat, 21 Nov 2026 15:00:00 GMT", 30),
    ],
)
def test_a_token_is_unknown_if_the_cluster_has_had_time_to_sign(found: dict, date: str, seconds: float) -> None:
    aged = {**found, "metadata": {**found["metadata"], "creationTimestamp": MADE}}
    clock, cluster = FakeClock(), Cluster(aged, date=date)
    with pytest.raises(MissingSignature):
        discovery.discover(question(), connect=cluster.connect, waiter=PollingWaiter(clock=clock, reporter=SilentReporter()), clock=clock)
    assert seconds <= clock.monotonic() < seconds + 0.5
    assert cluster.open == 0


def test_a_new_token_is_waited_for() -> None:
    aged = {**info(signer=STRANGER), "metadata": {"creationTimestamp": MADE}}
    clock, cluster = FakeClock(), Cluster(aged, aged, aged, aged, info(), date="Sun, 22 Nov 2026 18:00:00 GMT")
    waiter = PollingWaiter(clock=clock, reporter=SilentReporter())
    assert discovery.discover(question(), connect=cluster.connect, waiter=waiter, clock=clock).server == NAMED
    assert len(cluster.asked) == 5


def test_discovery_of_a_silent_address_ends_with_the_last_error(run: Run) -> None:
    with pytest.raises(WaitTimeout) as caught:
        run(question(within=10), Cluster(REFUSED))
    assert "refused" in str(caught.value)
    assert TYPED in caught.value.what


FINAL = {
    "another token's signature": (info(signer=OTHER), {}, ForgedClusterInfo),
    "content changed after signing": (
        {**info(), "data": {**info()["data"], "kubeconfig": info(server="https://evil.example")["data"]["kubeconfig"]}},
        {},
        ForgedClusterInfo,
    ),
    "a CA that is not pinned": (info(), {"pins": [Pin(bytes(32))]}, PinMismatch),
    "a redirect": (NoAnswer("moved", reason=Reason.REDIRECTED), {}, APIError),
    "no kubeconfig": ({"data": {}}, {}, TrustError),
}


@pytest.mark.parametrize("case", FINAL)
def test_untrusted_answers_are_refused_at_once(run: Run, case: str) -> None:
    answer, options, kind = FINAL[case]
    cluster, clock = Cluster(answer), FakeClock()
    with pytest.raises(kind):
        run(question(**options), cluster)
    assert len(cluster.asked) == 1
    with pytest.raises(kind):
        discovery.discover(
            question(**options), connect=cluster.connect, waiter=PollingWaiter(clock=clock, reporter=SilentReporter()), clock=clock
        )
    assert clock.monotonic() == 0


def test_a_cluster_whose_second_answer_differs_is_refused(run: Run) -> None:
    cluster = Cluster(info(), info(server="https://other.example:6443"))
    with pytest.raises(ChangedClusterInfo):
        run(question(pins=[Pin.parse(pin(CA))]), cluster)


def test_a_ca_that_is_not_that_of_the_server_ends_discovery(run: Run) -> None:
    cluster = Cluster(info(), NoAnswer("untrusted", reason=Reason.UNTRUSTED))
    with pytest.raises(NoAnswer):
        run(question(pins=[Pin.parse(pin(CA))]), cluster)


def test_a_plan_reports_that_there_is_no_cluster_yet() -> None:
    with pytest.raises(WaitTimeout):
        discovery.discover(question(), connect=Cluster(REFUSED).connect, waiter=InstantWaiter(), clock=FakeClock())


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("10.0.0.1:6443", "https://10.0.0.1:6443"),
        ("10.0.0.1", "https://10.0.0.1:6443"),
        ("https://cluster.example:443/", "https://cluster.example:443"),
        ("[fd00::1]:7000", "https://[fd00::1]:7000"),
        ("[fd00::1]", "https://[fd00::1]:6443"),
    ],
)
def test_an_address_becomes_a_url(typed: str, url: str) -> None:
    assert discovery.server_url(typed) == url


@pytest.mark.parametrize("typed", ["", "http://10.0.0.1", "user:canary@10.0.0.1", "10.0.0.1:port", "10.0.0.1/path", "fd00::1", "a b"])
def test_an_invalid_address_is_refused(typed: str) -> None:
    with pytest.raises(UsageError) as caught:
        discovery.server_url(typed)
    assert "canary" not in str(caught.value)
