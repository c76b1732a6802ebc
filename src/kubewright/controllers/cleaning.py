"""csrcleaner: delete requests that are no longer needed, and requests that a newer one replaced.

Source: Kubernetes v1.36, pkg/controller/certificates/cleaner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass
from kubewright.controllers.requests import APPROVED, DENIED, FAILED, SigningRequest
from kubewright.pki import certificates

EVERY: Final = 3600.0
"""Seconds between two passes."""
DECIDED: Final = timedelta(hours=1)
PENDING: Final = timedelta(hours=24)
SUPERSEDED: Final = timedelta(minutes=15)
"""A pending request that is this much older than its newest successor is deleted.

A node whose requests are not approved makes about 95 a day.
"""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """One reason to delete a request.

    `since` returns the times from which the limit may count; one of them is enough.
    """

    name: str
    after: timedelta
    since: Callable[[SigningRequest], Iterable[datetime | None]]


def _updated(kind: str, csr: SigningRequest) -> list[datetime | None]:
    return [one.updated for one in csr.conditions if one.type == kind]


def _issued(csr: SigningRequest) -> Iterable[datetime | None]:
    return _updated(APPROVED, csr) if csr.certificate else ()


def _unissued(csr: SigningRequest) -> Iterable[datetime | None]:
    return () if csr.certificate else _updated(APPROVED, csr)


def _pending(csr: SigningRequest) -> Iterable[datetime | None]:
    return () if csr.conditions else (csr.created,)


def _ended(csr: SigningRequest) -> Iterable[datetime | None]:
    """Return when the first certificate expires; None if it cannot be read."""
    if not csr.certificate or not csr.has(APPROVED):
        return ()
    try:
        return (certificates.first(csr.certificate, source=f"the certificate of {csr.name}").not_after,)
    except CertificateError:
        return ()


LIMITS: Final = (
    Limit(name="issued for more than an hour", after=DECIDED, since=_issued),
    Limit(name="denied for more than an hour", after=DECIDED, since=lambda csr: _updated(DENIED, csr)),
    Limit(name="failed for more than an hour", after=DECIDED, since=lambda csr: _updated(FAILED, csr)),
    Limit(name="not decided for more than 24 hours", after=PENDING, since=_pending),
    Limit(name="its certificate has expired", after=timedelta(0), since=_ended),
    Limit(name="approved and not signed for more than 24 hours", after=PENDING, since=_unissued),
)
"""kube-controller-manager's limits. A time that was never set deletes nothing."""


def decide(csr: SigningRequest, *, now: datetime) -> str | None:
    """Return why a request is to be deleted; None if it stays."""
    for limit in LIMITS:
        if any(since is not None and now - since > limit.after for since in limit.since(csr)):
            return limit.name
    return None


class Pending(NamedTuple):
    """A pending request: its kind is its requester, signer and common name."""

    name: str
    kind: tuple[str, str, str]
    created: datetime


def pending(csr: SigningRequest) -> Pending | None:
    """Return what counts of a pending request; None for one that was decided, or that cannot be read."""
    if csr.conditions or csr.created is None:
        return None
    try:
        return Pending(csr.name, (csr.username, csr.signer, csr.details().common_name), csr.created)
    except CertificateError:
        return None


def superseded(found: Iterable[Pending]) -> dict[str, str]:
    """Return the requests replaced by a newer one of the same kind, each with the newer one's name."""
    known = list(found)
    newest: dict[tuple[str, str, str], Pending] = {}
    for one in known:
        if one.kind not in newest or one.created > newest[one.kind].created:
            newest[one.kind] = one
    return {one.name: newest[one.kind].name for one in known if newest[one.kind].created - one.created > SUPERSEDED}
