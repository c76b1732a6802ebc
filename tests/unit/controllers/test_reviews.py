"""Access reviews that several requests share: no result is older than the request for it. Time is virtual."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from kubewright.base.errors import ServerError
from kubewright.base.records import replace
from kubewright.controllers import approving, requests
from kubewright.controllers.certificates import SharedReviews

pytestmark = pytest.mark.looptime
TOOK = 1.0


@dataclass
class Rights:
    """An API server that takes a second for each review, and evaluates permissions half-way."""

    allowed: bool = True
    broken: bool = False
    asked: list[tuple[float, str]] = field(default_factory=list)

    async def create(self, review):
        self.asked.append((asyncio.get_running_loop().time(), review["spec"]))
        await asyncio.sleep(TOOK / 2)
        allowed = self.allowed
        await asyncio.sleep(TOOK / 2)
        if self.broken:
            raise ServerError("out of order", code=500)
        return {"status": {"allowed": allowed}}


def ask(reviews: SharedReviews, who: str = "a") -> asyncio.Task[bool]:
    return asyncio.create_task(reviews.allowed(who, {"spec": who}))


async def test_callers_before_the_request_is_sent_share_it():
    rights = Rights()
    reviews = SharedReviews(rights)
    assert await asyncio.gather(*(ask(reviews) for _ in range(20))) == [True] * 20
    assert rights.asked == [(0.0, "a")]


async def test_callers_while_it_is_in_flight_get_the_next_result():
    rights = Rights()
    reviews = SharedReviews(rights)
    first = ask(reviews)
    await asyncio.sleep(0.9 * TOOK)
    rights.allowed = False
    later = [ask(reviews) for _ in range(20)]
    assert await first is True
    assert await asyncio.gather(*later) == [False] * 20
    assert rights.asked == [(0.0, "a"), (TOOK, "a")]


async def test_no_result_is_cached():
    rights = Rights()
    reviews = SharedReviews(rights)
    assert await ask(reviews) is True
    rights.allowed = False
    assert await ask(reviews) is False
    assert (reviews._waiting, reviews._sent) == ({}, {})


async def test_different_reviews_do_not_wait_for_each_other():
    rights = Rights()
    reviews = SharedReviews(rights)
    await asyncio.gather(ask(reviews, "a"), ask(reviews, "b"))
    assert rights.asked == [(0.0, "a"), (0.0, "b")]


async def test_a_failure_is_raised_for_all_callers_and_not_kept():
    rights = Rights(broken=True)
    reviews = SharedReviews(rights)
    failed = [ask(reviews) for _ in range(3)]
    await asyncio.sleep(0.9 * TOOK)
    later = ask(reviews)
    assert [type(one) for one in await asyncio.gather(*failed, return_exceptions=True)] == [ServerError] * 3
    rights.broken = False
    assert await later is True
    assert len(rights.asked) == 2


async def test_a_cancelled_caller_does_not_cancel_the_review_of_others():
    reviews = SharedReviews(Rights())
    one, other = ask(reviews), ask(reviews)
    await asyncio.sleep(0.1)
    one.cancel()
    assert await other is True


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({}, True),
        ({"name": "another"}, True),
        ({"username": "system:bootstrap:fedcba"}, False),
        ({"uid": "2"}, False),
        ({"groups": ("system:nodes",)}, False),
        ({"extra": {"scopes": ["b"]}}, False),
    ],
)
def test_two_requests_of_one_user_share_a_review(other, same):
    fields = {"username": "system:bootstrap:abcdef", "uid": "1", "groups": ("a", "b"), "extra": {"scopes": ["a"]}}
    first = requests.SigningRequest(name="csr-1", signer=requests.CLIENT_KUBELET, request=b"", **fields)
    second = replace(first, **other)
    assert (approving.question(first, "nodeclient") == approving.question(second, "nodeclient")) is same
    assert (approving.review(first, "nodeclient") == approving.review(second, "nodeclient")) is same


def test_each_subresource_has_its_own_review():
    csr = requests.SigningRequest(name="csr-1", signer=requests.CLIENT_KUBELET, request=b"")
    assert approving.question(csr, "nodeclient") != approving.question(csr, "selfnodeclient")
