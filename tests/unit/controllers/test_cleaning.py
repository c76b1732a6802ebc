"""csrcleaner: each limit on either side, times that were never set, and replaced requests.

kube-controller-manager v1.36: pkg/controller/certificates/cleaner
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from controllers_kit import CLIENT_USAGES, NOW, authority, condition, csr, request

from kubewright.base.clock import rfc3339
from kubewright.base.randomness import SeededRandom
from kubewright.controllers import cleaning, requests
from kubewright.pki.requests import request_signing
from kubewright.pki.requests.request_signing import Period

AT = NOW.replace(microsecond=0)
HOUR, DAY, SECOND = timedelta(hours=1), timedelta(hours=24), timedelta(seconds=1)


def certificate(ends) -> bytes:
    valid = Period(not_before=AT - DAY, not_after=ends)
    details = requests.read(csr()).details()
    return request_signing.issue(
        request_signing.verified(details), authority=authority(), usages=CLIENT_USAGES, valid=valid, random=SeededRandom(1)
    )


FRESH = certificate(AT + DAY)


@pytest.mark.parametrize(
    ("kind", "issued", "limit"), [("Approved", FRESH, HOUR), ("Denied", b"", HOUR), ("Failed", b"", HOUR), ("Approved", b"", DAY)]
)
def test_a_decided_request_is_deleted_after_its_time(kind, issued, limit):
    def found(age):
        conditions = [condition(kind, lastUpdateTime=rfc3339(AT - age))]
        return cleaning.decide(requests.read(csr(conditions=conditions, certificate=issued, created="2020-01-01T00:00:00Z")), now=AT)

    assert found(limit - SECOND) is None
    assert found(limit) is None
    assert found(limit + SECOND) is not None


def test_an_undecided_request_is_deleted_after_a_day():
    def found(age):
        return cleaning.decide(requests.read(csr(created=rfc3339(AT - age))), now=AT)

    assert (found(DAY - SECOND), found(DAY)) == (None, None)
    assert found(DAY + SECOND) == "not decided for more than 24 hours"


@pytest.mark.parametrize("kind", ["Approved", "Denied", "Failed"])
@pytest.mark.parametrize("updated", [None, "", "yesterday"])
def test_a_time_that_was_never_set_deletes_nothing(kind, updated):
    made = csr(conditions=[condition(kind, lastUpdateTime=updated)], created="2020-01-01T00:00:00Z")
    assert cleaning.decide(requests.read(made), now=AT) is None


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        (certificate(AT + SECOND), False),
        (certificate(AT), False),
        (certificate(AT - SECOND), True),
        (certificate(AT - SECOND) + FRESH, True),
        (FRESH + certificate(AT - SECOND), False),
        (b"no certificate", False),
    ],
)
def test_an_expired_certificate_takes_its_request_with_it(text, gone):
    made = csr(conditions=[condition("Approved", lastUpdateTime=rfc3339(AT))], certificate=text)
    assert (cleaning.decide(requests.read(made), now=AT) == "its certificate has expired") is gone


def test_every_limit_is_needed():
    """For each row there is a request that only this row deletes."""
    old = "2020-01-01T00:00:00Z"
    cases = [
        csr(conditions=[condition("Approved", lastUpdateTime=rfc3339(AT - HOUR - SECOND))], certificate=FRESH),
        csr(conditions=[condition("Denied", lastUpdateTime=old)]),
        csr(conditions=[condition("Failed", lastUpdateTime=old)]),
        csr(created=old),
        csr(conditions=[condition("Approved", lastUpdateTime=rfc3339(AT))], certificate=certificate(AT - SECOND)),
        csr(conditions=[condition("Approved", lastUpdateTime=old)]),
    ]
    assert [cleaning.decide(requests.read(made), now=AT) for made in cases] == [limit.name for limit in cleaning.LIMITS]


def test_older_pending_requests_of_the_same_kind_are_superseded():
    def made(name, age, **fields: object):
        return requests.read(csr(name=name, created=rfc3339(AT - timedelta(minutes=age)), **fields))

    other = request(subject=[("2.5.4.10", "system:nodes"), ("2.5.4.3", "system:node:b")])
    found = [
        made("new", 0),
        made("young", 15),
        made("old", 16),
        made("older", 60),
        made("other-name", 60, text=other),
        made("other-user", 60, username="system:node:a"),
        made("other-signer", 60, signer="kubernetes.io/kubelet-serving"),
        made("decided", 60, conditions=[condition("Denied")]),
        made("unreadable", 60, text=b"nonsense"),
    ]
    pending = [row for csr in found if (row := cleaning.pending(csr)) is not None]
    assert len(pending) == 7
    assert cleaning.superseded(pending) == {"old": "new", "older": "new"}
