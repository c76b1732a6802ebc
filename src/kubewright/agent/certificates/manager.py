"""One certificate of a node and its rotation: for the API server, or for serving.

Source: client-go v0.36: util/certificate.

The caller chooses the template, the store and the issuer; each certificate has its own manager, and all of them use
this code.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from kubewright.agent.certificates.bootstrap import Issuer
from kubewright.agent.certificates.store import PairStore, PendingKey
from kubewright.agent.certificates.templates import CertificateTemplate
from kubewright.agent.dependencies import Seams, Timings
from kubewright.agent.periodic import Tasks
from kubewright.base.errors import (
    APIError,
    CertificateError,
    CertificateMismatch,
    Forbidden,
    KubewrightError,
    NotFound,
    Unauthorized,
    Unreachable,
    WaitTimeout,
)
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, replace
from kubewright.discovery import csr, node_requests
from kubewright.discovery.csr import RequestedCertificate, RequestRefused
from kubewright.kube.core import Object
from kubewright.pki import certificates, keys
from kubewright.pki.certificates import Pair
from kubewright.pki.keys import Algorithm, PrivateKey

EARLIEST: Final = 0.7
SPREAD: Final = 0.2

_log = logging.getLogger(__name__)

_PAUSE = 1.0
"""Minimum seconds between two rotations.

A signer that backdates short-lived certificates may issue some that are due immediately.
"""
_LONGEST_SLEEP = 60.0
"""Seconds after which the wall clock is read again: it may have been set, or the machine may have been suspended."""
_BACKDATED: Final = timedelta(minutes=5)
"""How long before its issue a certificate becomes valid: kube-controller-manager's signer backdates by this for slow clocks."""
_UNAPPROVED: Final = 3.0
"""Seconds that a request may be pending before we check whether anything approves it: most are approved within two."""
_LOOKED_AGAIN: Final = 60.0
"""Seconds until the next check: a binding may be added while the request waits."""
_NOT_ALLOWED = "it may not request a certificate yet: the API server does not know the permissions of bootstrap tokens"
"""The text for a 403 in messages: its own text lists roles.

The refusal is temporary while a cluster starts; the log has the whole text.
"""


def rotation_point(*, not_before: datetime, not_after: datetime, random: Random) -> datetime:
    """Return when to rotate: after 70 to 90 % of the certificate's validity, a random part for each certificate."""
    return not_before + (not_after - not_before) * (EARLIEST + SPREAD * random.uniform())


@dataclass(frozen=True, kw_only=True)
class WaitingRequest:
    """An open certificate request.

    An approved request waits for its signer.
    """

    name: str
    """'' if the server has chosen the name: the request cannot be found again by it after a restart."""
    since: datetime
    approved: bool = False
    explanation: str = ""
    """What it waits for, in a sentence, as `join` says it."""


REASONS: Final = (
    "waiting-approval",
    "not-signed",
    "denied",
    "failed",
    "token-rejected",
    "not-allowed",
    "server-unreachable",
    "wrong-clock",
)
"""Errors that mean that there is no new certificate, or none that is valid by the machine's clock."""


@dataclass(frozen=True, kw_only=True)
class CertificateView:
    """The state of one certificate.

    `trouble` is why the last attempt to replace it failed, '' if it succeeded. `reason` is the same for programs, as
    a word of `REASONS`; `denied` and `failed` include the reason of the decision: `denied:REASON`. '' if there is no
    problem.
    """

    expires: datetime | None = None
    rotates_at: datetime | None = None
    waiting: WaitingRequest | None = None
    trouble: str = ""
    reason: str = ""
    errors: int = 0
    """Attempts that failed since the start."""


class CertificateManager:
    """Keeps one certificate of a node.

        made ── use() or obtain() ──> there is one ── keep_renewed() ──> renewed in time ── stop() ──> stopped

    `template` returns what the certificate has to contain now, None while that is not known; `issuer` is called for
    each attempt; `taken` is called with each new pair once it is stored.
    """

    def __init__(
        self,
        node_name: str,
        *,
        template: Callable[[], CertificateTemplate | None],
        store: PairStore,
        issuer: Callable[[], Awaitable[Issuer]],
        taken: Callable[[Pair], Awaitable[None]],
        timings: Timings,
        seams: Seams,
        pending: PendingKey | None = None,
    ) -> None:
        """Keep the arguments. Without `pending`, a request that is open when the process ends is not resumed."""
        self._node_name = node_name
        self._template = template
        self._store = store
        self._issuer = issuer
        self._taken = taken
        self._timings = timings
        self._seams = seams
        self._pending = pending
        self._tasks = Tasks()
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._requested: CertificateTemplate | None = None
        self._refusals = 0
        self._ahead = timedelta(0)
        self._overdue = False
        self.current: Pair | None = None
        """The newest pair, even if it has expired."""
        self.view = CertificateView()
        self.server_healthy = False
        """Whether the API server answered the last request, even with a refusal (client-go: ServerHealthy)."""

    @property
    def is_expired(self) -> bool:
        """Whether there was a certificate and it has expired."""
        return self.current is not None and self._seams.clock.now() >= self.current.leaf.not_after + self._ahead

    def use(self, pair: Pair, *, ahead: timedelta = timedelta(0)) -> None:
        """Make a stored pair the current one at the start.

        `ahead`: by how much the machine's clock is fast, as far as we know.
        """
        leaf = pair.leaf
        self.current = pair
        self._refusals = 0
        self._ahead = ahead
        rotates = rotation_point(not_before=leaf.not_before, not_after=leaf.not_after, random=self._seams.random)
        self.view = CertificateView(expires=leaf.not_after, rotates_at=rotates, errors=self.view.errors)
        if ahead:
            way = "ahead of" if ahead > timedelta(0) else "behind"
            trouble = f"the clock of this machine is about {certificates.span(abs(ahead))} {way} that of the cluster: set it"
            self.view = replace(self.view, trouble=trouble, reason="wrong-clock")
            _log.warning("node %s: %s", self._node_name, trouble)

    async def obtain(self, *, instead: Callable[[], Pair | None] = lambda: None) -> Pair:
        """Get a certificate and make it the current one.

        Retries until it succeeds: after 2, 4, 8, 16 and then every 32 seconds. After refusals the waits keep growing,
        up to half an hour, because each attempt leaves a request behind. Before each attempt, `instead` may return a
        pair that makes a request unnecessary.
        """
        tried = 0
        while True:
            tried += 1
            try:
                pair, ahead = instead(), timedelta(0)
                if pair is None:
                    pair = await self._obtain_once()
                    ahead = self._how_far_ahead(pair)
                break
            except KubewrightError as error:
                self._failed(error)
            await asyncio.sleep(self._timings.certificate_retry(tried, self._seams.random, refusals=self._refusals))
        self.use(pair, ahead=ahead)
        await self._taken(pair)
        return pair

    def keep_renewed(self) -> None:
        """Rotate the certificate when it is due, or when it no longer matches the template, until stopped."""
        template = self._template()
        if template is None:
            self._later(_LONGEST_SLEEP)  # `template_changed` may be called before `keep_renewed`
        else:
            self._later(0.0 if self._lacks(template) else max(_PAUSE, self._seconds_left()))

    def renew_now(self) -> None:
        """Replace a certificate before it is due, because the API server no longer accepts it.

        Does nothing before `keep_renewed`, or while it is already being replaced.
        """
        if self._timer is not None and self._renewing is None:
            self._timer.cancel()
            self._renewing = self._tasks.start("renewing a certificate", self._renew)

    def template_changed(self) -> None:
        """Check the certificate against the template, and begin to replace it at once if it lacks something.

        A request that is open for something else is abandoned. Nothing is requested while there is no template, and a
        certificate that contains more than the template stays.
        """
        wanted = self._template()
        if wanted is None or wanted == self._requested:
            return
        suffices = self.current is not None and not wanted.missing(self.current.leaf)
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
            self._forget_pending()
            self.view = replace(self.view, waiting=None, trouble="", reason="")
        elif suffices:
            return
        self.keep_renewed()

    async def stop(self) -> None:
        """Stop rotating. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.stop()

    def _lacks(self, template: CertificateTemplate) -> bool:
        """Whether there is no certificate, or it lacks something that was not requested: what a signer has omitted is not requested again."""
        return self.current is None or (template != self._requested and bool(template.missing(self.current.leaf)))

    def _seconds_left(self) -> float:
        """Return the seconds until the certificate is to be rotated."""
        if self.view.rotates_at is None:
            return 0.0
        return (self.view.rotates_at + self._ahead - self._seams.clock.now()).total_seconds()

    def _how_far_ahead(self, pair: Pair) -> timedelta:
        """Return by how much our clock is ahead of the signer's.

        Zero if a certificate issued just now is valid by ours too.
        """
        leaf, now = pair.leaf, self._seams.clock.now()
        if leaf.not_before <= now < leaf.not_after:
            return timedelta(0)
        return now - leaf.not_before - min(_BACKDATED, (leaf.not_after - leaf.not_before) / 2)

    def _is_right_again(self) -> bool:
        """Whether the clock, which was wrong when the certificate was issued, has been set: the certificate is valid by it now."""
        leaf = self.current.leaf if self.current is not None and self._ahead else None
        return leaf is not None and leaf.not_before <= self._seams.clock.now() < leaf.not_after

    def _later(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(min(seconds, _LONGEST_SLEEP), self._look_at_the_clock)

    def _look_at_the_clock(self) -> None:
        if self._is_right_again():
            self._ahead = timedelta(0)
            self.view = replace(self.view, trouble="", reason="")
        template = self._template()
        if template is not None and self._renewing is None and (self._lacks(template) or self._seconds_left() <= 0):
            self._renewing = self._tasks.start("renewing a certificate", self._renew)
        else:
            self.keep_renewed()

    async def _renew(self) -> None:
        await self.obtain()
        self._renewing = None
        self.keep_renewed()

    async def _obtain_once(self) -> Pair:
        """Make a key, have it certified and store both.

        Until the certificate is issued, the key is only in memory, or in the file of the pending request.
        """
        template = self._template()
        if template is None:
            raise CertificateError(
                f"node {self._node_name} has no address to request a certificate for", remedy="wait until its Node has one"
            )
        issuer = await self._issuer()
        made = None if self._pending is None else self._pending.made
        key = keys.generate(Algorithm.ECDSA_P256) if self._pending is None else self._pending.take()
        wanted = template.request(key, named=self._pending is not None, lifetime=self._timings.certificate_lifetime)
        self._requested = template
        try:
            pair = self._checked(await self._awaited(issuer, wanted), key)
            if made is not None:
                self._require_unexpired(pair, made=made)
        except CertificateError:
            self._forget_pending()  # denied, failed, deleted or unusable: this request will never be issued
            raise
        self._store.keep_pair(pair)
        self.server_healthy = True
        self._forget_pending()
        if lacking := template.missing(pair.leaf):
            _log.warning("the certificate that node %s was given lacks %s; it is used until it expires", self._node_name, lacking)
        return pair

    async def _awaited(self, issuer: Issuer, wanted: RequestedCertificate) -> bytes:
        explaining: asyncio.Task[None] | None = None

        def seen(request: Object) -> None:
            nonlocal explaining
            self._saw(request, name=wanted.name)
            if explaining is None and node_requests.is_pending(request):
                explaining = self._tasks.start("explaining a pending request", partial(self._explain, issuer, request))

        try:
            return await issuer.obtain(wanted, within=self._timings.certificate_wait, seen=seen)
        except CertificateError:
            self.view = replace(self.view, waiting=None)  # the request will never be issued
            raise
        finally:
            if explaining is not None:
                explaining.cancel()

    async def _explain(self, issuer: Issuer, request: Object) -> None:
        """Check repeatedly whether anything approves a request that stays pending.

        Ends only when cancelled, or if that cannot be found out.
        """
        binding = node_requests.approver_of(request)
        if binding is None:
            return
        pause = _UNAPPROVED
        while True:
            await asyncio.sleep(pause)
            pause = _LOOKED_AGAIN
            with suppress(KubewrightError):
                approvable = await issuer.may(binding)
                by_policy = not approvable and await issuer.may(node_requests.BY_POLICY)
                explanation = node_requests.status_of(request, approvable=approvable, by_policy=by_policy).text
                waiting = self.view.waiting
                if waiting is not None and not waiting.approved:
                    self.view = replace(self.view, waiting=replace(waiting, explanation=explanation))

    def _saw(self, request: Object, *, name: str) -> None:
        """Record the state of the open request.

        `name` is '' for a request that cannot be found again by its name. Earlier problems are cleared, except that an
        earlier request timed out.
        """
        made, approved = request["metadata"].get("creationTimestamp"), csr.is_approved(request)
        known = self.view.waiting if self.view.waiting is not None and self.view.waiting.name == name else None
        since = known.since if known is not None else self._seams.clock.now()
        if made:
            since = datetime.fromisoformat(made)
        same = known is not None and known.approved == approved
        explanation = known.explanation if known is not None and same else node_requests.status_of(request).text
        waiting = WaitingRequest(name=name, since=since, approved=approved, explanation=explanation)
        trouble = self.view.trouble if self._overdue else ""
        self.view = replace(self.view, waiting=waiting, trouble=trouble, reason="not-signed" if approved else "waiting-approval")

    def _checked(self, content: bytes, key: PrivateKey) -> Pair:
        pair = Pair(certificates=tuple(certificates.parse(content, source=f"the certificate of node {self._node_name}")), key=key)
        if not certificates.fits(pair.leaf, key):
            raise CertificateMismatch(
                f"the certificate that node {self._node_name} was given is for another key", remedy="see which signer the cluster has"
            )
        return pair

    def _require_unexpired(self, pair: Pair, *, made: float) -> None:
        """Raise CertificateError if an open request was answered so long ago that its certificate has expired since.

        Both times are compared by the machine's own clock, which may be wrong (kubelet: certificate/bootstrap, ensureCompatible).
        """
        leaf, now = pair.leaf, self._seams.clock.now()
        if now >= leaf.not_after and now.timestamp() - made >= leaf.lifetime.total_seconds():
            raise CertificateError(
                f"the certificate that node {self._node_name} was given while it was down has expired",
                remedy="nothing: it is requested again",
            )

    def _forget_pending(self) -> None:
        if self._pending is not None:
            self._pending.forget()

    def _failed(self, error: KubewrightError) -> None:
        self._refusals = self._refusals + 1 if isinstance(error, RequestRefused) else 0
        if isinstance(error, APIError):  # a request that exists and is not approved reveals nothing new
            self.server_healthy = isinstance(error, Unauthorized | Forbidden | NotFound)
        self._overdue = isinstance(error, WaitTimeout)
        trouble = _NOT_ALLOWED if isinstance(error, Forbidden) else str(error)
        reason = self.view.reason if isinstance(error, WaitTimeout) else reason_of(error)
        self.view = replace(self.view, trouble=trouble, reason=reason, errors=self.view.errors + 1)
        _log.info("node %s has no new certificate yet: %s", self._node_name, error)


def reason_of(error: KubewrightError) -> str:
    """Return the word of `CertificateView.reason` for an error."""
    if isinstance(error, RequestRefused):
        return f"{error.verdict.lower()}:{error.reason}"
    rows: tuple[tuple[type[KubewrightError], str], ...] = (
        (Unauthorized, "token-rejected"),
        (Forbidden, "not-allowed"),
        (Unreachable, "server-unreachable"),
    )
    return next((word for kind, word in rows if isinstance(error, kind)), "failed")
