"""The certificate controllers: observe through an informer, decide (pure), write once with the observed resourceVersion."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable
from datetime import timedelta

from kubewright.base.clock import Clock
from kubewright.base.errors import Conflict, KubewrightError, NotFound
from kubewright.base.logs import verbose
from kubewright.base.randomness import Random
from kubewright.controllers import approving, authorities, cleaning, requests, signing
from kubewright.controllers.approving import Approve, Ask
from kubewright.controllers.authorities import AuthorityFiles
from kubewright.controllers.cleaning import Pending
from kubewright.controllers.requests import Nothing, Retry
from kubewright.controllers.signers import Signer
from kubewright.controllers.signing import Fail, Sign
from kubewright.controllers.telemetry import Telemetry
from kubewright.kube import core
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object, identity_of
from kubewright.kube.daemons.controller import NotNow, SharedInformer, Workers
from kubewright.kube.daemons.queueing import RateLimiter, WorkQueue, certificate_limiter
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST
from kubewright.pki.requests import request_signing

_log = logging.getLogger(__name__)

WORKERS = 16
"""Workers of each controller.

kube-controller-manager has 5; with more, etcd batches writes, which costs it and the API server less.
"""
QUEUE = "certificate"
"""The name of their queues in metrics, as in kube-controller-manager."""
REFUSED = "AccessReviewDenied"
"""The reason of the event about a request whose requester may not make it."""
EACH = 2
"""The verbosity from which each approval and signature is logged.

With masking, such a line costs a tenth of the work on a request.
"""
AT_A_TIME = 100
"""Requests that the cleaner reads before it lets others work: there may be so many that the lease would be lost in the meantime."""
REREAD = 1.0
"""Seconds between two checks of the files of a CA."""


class RequestController:
    """A queue of request names, fed by an informer.

    Requests without a certificate are processed when they change; deleted ones are forgotten.
    """

    name = ""

    def __init__(
        self,
        api: AsyncKubeAPI,
        csrs: SharedInformer,
        *,
        wanted: Callable[[Object], bool],
        telemetry: Telemetry,
        limiter: RateLimiter[str] | None = None,
        preferred: Callable[[Hashable], bool] = lambda _: False,
    ) -> None:
        self._api = api
        self._csrs = csrs
        self._wanted = wanted
        self._telemetry = telemetry
        self._queue: WorkQueue[str] = WorkQueue(limiter or certificate_limiter(), name=QUEUE, metrics=telemetry.queues, preferred=preferred)
        self._received_at: dict[str, float] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        self._csrs.subscribe(self._on_event)
        await self._csrs.wait_synced()
        await Workers(self.name, queue=self._queue, handle=self._handle, count=WORKERS, owner=self._owner).run()

    async def _handle(self, name: str) -> None:
        found = self._csrs.get(name)
        if found is None:
            self._on_deleted(name)
            return
        try:
            outcome = await self._dealt_with(name, found)
        except KubewrightError as error:
            self._telemetry.outcome(self.name, "retried" if isinstance(error, NotNow) else "error")
            raise
        heard = self._received_at.pop(name, None)
        if outcome:
            self._telemetry.outcome(self.name, outcome, seconds=_now() - heard if heard is not None else None)

    async def _dealt_with(self, name: str, found: Object) -> str:
        """Process a request and return the outcome; '' for nothing. Raises NotNow to have it retried."""
        raise NotImplementedError

    def _on_event(self, event: WatchEvent) -> None:
        name, _ = identity_of(event.object)
        if event.type is EventType.DELETED:
            self._on_deleted(name)
        elif not (event.object.get("status") or {}).get("certificate") and self._wanted(event.object):
            self._received_at.setdefault(name, _now())
            self._queue.add(name, owner=_maker(event.object))

    def _on_deleted(self, name: str) -> None:
        """Forget a request that was deleted."""
        self._queue.forget(name)
        self._received_at.pop(name, None)

    def _owner(self, name: str) -> str:
        """Return the requester: requesters with many requests delay only themselves."""
        return _maker(self._csrs.get(name) or {})


def _now() -> float:
    return asyncio.get_running_loop().time()


def _maker(csr: Object) -> str:
    return str((csr.get("spec") or {}).get("username") or "")


class Approver(RequestController):
    """Approves the requests of nodes."""

    name = "csrapproving"

    def __init__(self, api: AsyncKubeAPI, csrs: SharedInformer, *, telemetry: Telemetry) -> None:
        super().__init__(api, csrs, wanted=is_open, telemetry=telemetry)
        self._reviews = SharedReviews(api)
        self._refused: set[str] = set()

    async def _dealt_with(self, name: str, found: Object) -> str:
        csr = requests.read(found)
        answers: dict[str, bool] = {}
        while isinstance(decision := approving.decide(csr, answers), Ask):
            key, review = approving.question(csr, decision.subresource), approving.review(csr, decision.subresource)
            answers[decision.subresource] = await self._reviews.allowed(key, review)
        match decision:
            case Approve(message=message):
                await self._api.update(requests.with_condition(found, approving.condition(message)), subresource="approval")
                verbose(_log, EACH, "%s of %s is approved", name, csr.username)
                self._refused.discard(name)
                return "approved"
            case Retry(reason=reason, expected=expected):
                if expected and name not in self._refused:  # reported once, however often it is retried
                    self._refused.add(name)
                    self._telemetry.warn(found, reason=REFUSED, message=reason)
                raise NotNow(reason, quiet=expected)
            case Nothing():
                self._refused.discard(name)
                return ""

    def _on_deleted(self, name: str) -> None:
        super()._on_deleted(name)
        self._refused.discard(name)


class SigningController(RequestController):
    """Signs the approved requests for one signer."""

    def __init__(
        self,
        api: AsyncKubeAPI,
        csrs: SharedInformer,
        *,
        signer: Signer,
        files: AuthorityFiles,
        longest: timedelta,
        clock: Clock,
        random: Random,
        telemetry: Telemetry,
    ) -> None:
        super().__init__(api, csrs, wanted=lambda csr: _ready_for(signer, csr), telemetry=telemetry)
        self.name = signer.controller
        self._signer = signer
        self._files = files
        self._longest = longest
        self._clock = clock
        self._random = random

    async def _dealt_with(self, name: str, found: Object) -> str:
        csr = requests.read(found)
        authority = self._files.current()
        now = self._clock.now()
        decision = signing.decide(csr, self._signer, authority_ends=authorities.ends(authority), longest=self._longest, now=now)
        match decision:
            case Sign(request=request, usages=usages, valid=valid):
                assert not isinstance(authority, Retry)
                made = request_signing.issue(request, authority=authority, usages=usages, valid=valid, random=self._random)
                await self._api.update(requests.with_certificate(found, made), subresource="status")
                verbose(_log, EACH, "%s of %s is signed", name, csr.username)
                return "signed"
            case Fail(message=message):
                await self._api.update(requests.with_condition(found, signing.condition(message, now=now)), subresource="status")
                _log.info("%s of %s has failed: %s", name, csr.username, message)
                self._telemetry.warn(found, reason=signing.FAILURE, message=message)
                return "failed"
            case Retry(reason=reason, expected=expected):
                raise NotNow(reason, quiet=expected)
            case Nothing():
                return ""


def _conditions(csr: Object) -> set[str]:
    return {str(one.get("type")) for one in (csr.get("status") or {}).get("conditions") or ()}


def is_open(csr: Object) -> bool:
    """Whether a request has been neither approved nor denied."""
    return not _conditions(csr) & {requests.APPROVED, requests.DENIED}


def _ready_for(signer: Signer, csr: Object) -> bool:
    return (csr.get("spec") or {}).get("signerName") == signer.name and requests.APPROVED in _conditions(csr)


class Cleaner:
    """Deletes requests that are no longer needed: once all are known, and then every hour."""

    name = "csrcleaner"

    def __init__(self, api: AsyncKubeAPI, csrs: SharedInformer, *, clock: Clock, telemetry: Telemetry) -> None:
        self._api = api
        self._csrs = csrs
        self._clock = clock
        self._telemetry = telemetry

    async def run(self) -> None:
        """Work until cancelled."""
        await self._csrs.wait_synced()
        while True:
            await self.clean()
            await asyncio.sleep(cleaning.EVERY)

    async def clean(self) -> int:
        """Go through all requests once, and return how many were deleted. Failures are left to the next pass."""
        seen = {identity_of(csr)[0]: csr for csr in self._csrs.objects.values()}
        reasons = await self._reasons(seen.values())
        return sum([await self._delete(seen[name], name, reason) for name, reason in reasons.items()])

    async def _reasons(self, found: Iterable[Object]) -> dict[str, str]:
        """Return why requests are to be deleted, by name."""
        now = self._clock.now()
        reasons: dict[str, str] = {}
        pending: list[Pending] = []
        for number, one in enumerate(found, start=1):
            csr = requests.read(one)
            if (reason := cleaning.decide(csr, now=now)) is not None:
                reasons[csr.name] = reason
            if (row := cleaning.pending(csr)) is not None:
                pending.append(row)
            if not number % AT_A_TIME:
                await asyncio.sleep(0)
        replaced = {name: f"replaced by {newer}" for name, newer in cleaning.superseded(pending).items()}
        return {**replaced, **reasons}

    async def _delete(self, found: Object, name: str, reason: str) -> bool:
        uid, version = (str(core.metadata(found).get(key) or "") for key in ("uid", "resourceVersion"))
        try:
            await self._api.delete(CERTIFICATE_SIGNING_REQUEST, name, uid=uid, resource_version=version)
        except (NotFound, Conflict):  # it was decided in the meantime, or the name belongs to another request now
            return False
        except KubewrightError as error:
            _log.warning("%s: %s stays until the next pass: %s", self.name, name, error)
            self._telemetry.outcome(self.name, "error")
            return False
        self._telemetry.outcome(self.name, "deleted")
        _log.info("%s is deleted: %s", name, reason)
        return True


class SharedReviews:
    """Access reviews shared by concurrent identical questions: thousands of machines that join with one token are one user.

    A question that arrives while an identical review is in flight waits for the next review, so no answer is older than
    its question. Nothing is cached.

    asked ── the previous review has its answer ──> sent ──> answered, to all who asked before it was sent
    """

    def __init__(self, api: AsyncKubeAPI) -> None:
        self._api = api
        self._waiting: dict[Hashable, asyncio.Task[bool]] = {}
        self._sent: dict[Hashable, asyncio.Task[bool]] = {}

    async def allowed(self, key: Hashable, review: Object) -> bool:
        """Ask; equal reviews need equal keys. Raises APIError to all callers that share the review."""
        task = self._waiting.get(key)
        if task is None:
            task = self._waiting[key] = asyncio.create_task(self._ask(key, review), name="access review")
        return await asyncio.shield(task)  # cancelling one caller does not end the review for the others

    async def _ask(self, key: Hashable, review: Object) -> bool:
        before = self._sent.get(key)
        if before is not None:
            await asyncio.wait([before])
        self._sent[key] = self._waiting.pop(key)
        try:
            return bool(((await self._api.create(review)).get("status") or {}).get("allowed"))
        finally:
            if self._sent.get(key) is asyncio.current_task():
                del self._sent[key]
