"""Find a cluster by an address and a token, and verify it.

Source: kubeadm v1.36: cmd/kubeadm/app/discovery/token.

cluster-info is read without verifying TLS, as anyone may, until it has a signature by our token. The signature, and
with pins also the CA's public key, prove the cluster's identity; with pins cluster-info is then read again over a
connection that is verified with the pinned CA. Only this second reading makes the rest of the bundle trustworthy:
kubeadm verifies with the whole bundle, to which anyone who knows the token can add a CA. Anonymous users may not
watch cluster-info, so it is polled, every 50 ms at first and up to 200 ms apart later.

kubeadm polls every 5 s, and waits the whole 5 minutes even if the token is unknown. Here a cluster that answers
without knowing the token gets `UNKNOWN_TOKEN` seconds: its controller signs within a second once it runs, but a join
right after init may come before that. If the cluster has existed for longer (`SETTLED` seconds if it has signatures
of other tokens), `UNSIGNED` seconds are enough for a token that was just created.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from kubewright.apis.machine import API_SERVER_PORT
from kubewright.base.clock import Clock
from kubewright.base.durations import format_seconds
from kubewright.base.errors import APIError, TrustError, UsageError, WaitTimeout
from kubewright.base.messages import quoted, shown_url
from kubewright.base.records import dataclass
from kubewright.base.wait import LOOK_AT_LEAST, Waiter, look_until
from kubewright.http import failures
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.proxies import origin
from kubewright.kube.api import AsyncKubeAPI, KubeAPI
from kubewright.kube.core import Object
from kubewright.kube.credentials import Access, BearerToken
from kubewright.kube.resources import CONFIG_MAP
from kubewright.pki.pins import Pin
from kubewright.tokens import cluster_info
from kubewright.tokens.cluster_info import MissingSignature, VerifiedCluster
from kubewright.tokens.strings import BootstrapTokenString

WITHIN: Final = 300.0
"""kubeadm's default of timeouts.discovery, in seconds."""
UNKNOWN_TOKEN: Final = 30.0
UNSIGNED: Final = 2.0
SETTLED: Final = 10.0
_EVERY: Final = 0.05
_AT_MOST: Final = 0.2
_FINAL: Final = frozenset({Reason.REDIRECTED})
_FINAL_VERIFIED: Final = _FINAL | {Reason.UNTRUSTED}
_PATH: Final = f"/api/v1/namespaces/{cluster_info.NAMESPACE}/configmaps/{cluster_info.NAME}"
_REMEDY: Final = "check the address, and that a control plane runs there"


@dataclass(frozen=True, kw_only=True)
class Question:
    """The parameters of a discovery: where, with which token, and which CA keys are trusted.

    `unknown_token` and `within` are seconds.
    """

    server: str
    token: BootstrapTokenString
    pins: Sequence[Pin] = ()
    within: float = WITHIN
    unknown_token: float = UNKNOWN_TOKEN

    @property
    def unverified(self) -> Access:
        """The access for the first reading, without verification."""
        return Access(server=self.server, verify=False)

    def verified(self, cluster: VerifiedCluster) -> Access:
        """The access for the second reading: the address that the user gave (as in kubeadm), trusting only pinned CAs."""
        return Access(server=self.server, ca_pem=cluster.pinned_pem)

    def answer(self, cluster: VerifiedCluster) -> Access:
        """The result: the server that the cluster names, which need not be the one that the user gave."""
        return Access(server=cluster.server, ca_pem=cluster.ca_pem, identity=BearerToken(self.token.text))


class UnpinnedServer(TrustError):
    """cluster-info contains a pinned CA and others, and the server has no certificate of a pinned one."""

    def __init__(self, *, server: str, why: str) -> None:
        super().__init__(
            f"{server} does not prove that it has a certificate of the CA that you pinned",
            detail=f"{why}; it lists that CA and others, which anyone who knows the token can do",
            remedy="if the cluster is changing its CA, a new join command pins all of them (kubewright token create --print-join-command on "
            "a control-plane node); if that one fails too, another server answers in its place",
        )


class Search:
    """The decisions of one discovery, without I/O: it receives what was read, or the error, and decides whether to continue.

    `start` and `now` are seconds of the caller's clock; `clock` decides which certificates are valid. `access` is the
    access for the next reading, `answer` the result at the end, `reason` why there is none yet.
    """

    def __init__(self, question: Question, *, start: float, clock: Clock) -> None:
        self.question = question
        self._clock = clock
        self.access = question.unverified
        self.answer: Access | None = None
        self.reason = ""
        self._found: VerifiedCluster | None = None
        self._start = start
        self.end = start + question.within
        """The end of the time limit."""
        self._unsigned_since: float | None = None

    def read(self, found: Mapping[str, object], *, now: float, age: float = 0.0) -> bool:
        """Process what was read; `age` is the age of the ConfigMap in seconds, 0 if unknown.

        Returns whether to read again at once. Raises TrustError if waiting cannot help, including a token that
        remains unknown.
        """
        question = self.question
        if self._found is not None:
            self._found.require_same(found, server=question.server)
        else:
            self._found = self._verified(found, now=now, age=age)
            if self._found is None:
                return False
            if question.pins:
                self.access = question.verified(self._found)
                return True
        self.answer = question.answer(self._found)
        return False

    def _verified(self, found: Mapping[str, object], *, now: float, age: float) -> VerifiedCluster | None:
        """Return the cluster; None while its signature may still come."""
        question = self.question
        try:
            return cluster_info.verify(found, token=question.token, pinned=question.pins, server=question.server, now=self._clock.now())
        except MissingSignature as missing:
            self._unsigned_since = now if self._unsigned_since is None else self._unsigned_since
            settled = age >= (SETTLED if cluster_info.is_signed(found) else UNKNOWN_TOKEN)
            patience = min(UNSIGNED, question.unknown_token) if settled else question.unknown_token
            if now - self._unsigned_since >= patience or now >= self.end:
                raise
            self.reason = missing.detail
            return None

    def failed(self, error: APIError) -> None:
        """Handle a failed reading.

        Raises errors that waiting cannot fix: a redirect, and a server whose CA is not pinned.
        """
        if isinstance(error, NoAnswer) and error.reason in (_FINAL if self._found is None else _FINAL_VERIFIED):
            if self._found is not None and error.reason is Reason.UNTRUSTED and self._found.holds_unpinned:
                raise UnpinnedServer(server=self.question.server, why=error.detail) from error
            raise error
        self.reason = str(error)

    def give_up(self, *, now: float) -> None:
        """Raise WaitTimeout if there is no answer and the time limit has passed."""
        if self.answer is None and now >= self.end:
            raise WaitTimeout(
                f"gave up waiting for {self.saying} after {format_seconds(now - self._start)}", detail=self.reason, remedy=_REMEDY
            )

    @property
    def saying(self) -> str:
        """The text that says what the discovery waits for."""
        return f"the cluster at {self.question.server} to prove its identity"


def server_url(endpoint: str) -> str:
    """Make a URL of the server that a user gave as `host`, `host:port` or a URL. Raises UsageError."""
    text = endpoint if "://" in endpoint else f"https://{endpoint}"
    scheme, server, path = origin(text, what=f"the address {quoted(_shown(text, endpoint))}" if "@" not in endpoint else "the address")
    if scheme != "https" or path:
        raise UsageError(f"{quoted(_shown(text, endpoint))} is not the address of an API server", remedy="write it like 10.0.0.1:6443")
    return server if urlsplit(server).port is not None else f"{server}:{API_SERVER_PORT}"


def _shown(text: str, endpoint: str) -> str:
    """Return the user's text without possible secrets; `text` is its URL."""
    return shown_url(text) if text == endpoint else shown_url(text).removeprefix("https://")


def discover(question: Question, *, connect: Callable[[Access], KubeAPI], waiter: Waiter, clock: Clock) -> Access:
    """Find a cluster, and return the access for a machine that has only the token.

    `connect` makes a client for an access. Raises TrustError for a cluster that cannot be trusted or does not know
    the token, and WaitTimeout with the last reason if nothing could be read.
    """
    search = Search(question, start=clock.monotonic(), clock=clock)

    def look() -> str | None:
        more = True
        try:
            with look_until(search.end, clock=clock):
                while more:
                    found, age = _look(connect, search.access, token=question.token)
                    more = search.read(found, now=clock.monotonic(), age=age)
        except APIError as error:
            search.failed(error)
        search.give_up(now=clock.monotonic())
        return None if search.answer is not None else search.reason

    if look() is not None:  # even a plan reads once
        within = search.end - clock.monotonic()
        waiter.until(look, within=within, saying=search.saying, every=_EVERY, at_most=_AT_MOST, remedy=_REMEDY)
    if search.answer is None:  # the waiter of a plan returns at once
        raise WaitTimeout(f"there is no cluster at {question.server} yet", detail=search.reason, remedy="start its control plane first")
    return search.answer


async def discover_async(question: Question, *, connect: Callable[[Access], AsyncKubeAPI], clock: Clock) -> Access:
    """The asynchronous form of `discover`."""
    loop = asyncio.get_running_loop()
    search, pause = Search(question, start=loop.time(), clock=clock), _EVERY
    while True:
        try:
            async with asyncio.timeout(max(search.end - loop.time(), LOOK_AT_LEAST)):
                while search.read(await _look_async(connect, search.access), now=loop.time()):
                    pass  # the next reading is verified
        except TimeoutError:
            search.failed(failures.no_answer(question.server, "GET", _PATH, Reason.TIMED_OUT))
        except APIError as error:
            search.failed(error)
        search.give_up(now=loop.time())
        if search.answer is not None:
            return search.answer
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _AT_MOST)


def _look(connect: Callable[[Access], KubeAPI], access: Access, *, token: BootstrapTokenString) -> tuple[Object, float]:
    """Read cluster-info over a new connection and close it: the next reading may reach another server.

    Returns cluster-info and its age, 0 if the age is unknown or does not matter because the token's signature is
    present.
    """
    client = connect(access)
    try:
        found = client.get(CONFIG_MAP, cluster_info.NAME, cluster_info.NAMESPACE)
        return found, 0.0 if cluster_info.is_signed(found, by=token.id) else _age(client, found)
    finally:
        client.close()


def _age(client: KubeAPI, found: Object) -> float:
    """Return an object's age in seconds by the server's clock, because ours may be wrong."""
    from email.utils import parsedate_to_datetime

    made = (found.get("metadata") or {}).get("creationTimestamp")
    try:
        there = client.raw("GET", "/version").headers.get("date", "")
        return (parsedate_to_datetime(there) - datetime.fromisoformat(str(made))).total_seconds()
    except (APIError, ValueError, TypeError):
        return 0.0


async def _look_async(connect: Callable[[Access], AsyncKubeAPI], access: Access) -> Object:
    client = connect(access)
    try:
        return await client.get(CONFIG_MAP, cluster_info.NAME, cluster_info.NAMESPACE)
    finally:
        await client.close()
