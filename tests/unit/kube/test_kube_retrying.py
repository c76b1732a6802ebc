"""Requests that are retried while an API server starts."""

from __future__ import annotations

import pytest

from kubewright.base.clock import FakeClock
from kubewright.base.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from kubewright.kube.resources import CONFIG_MAP
from kubewright.kube.retrying import RetryingKube

BODY = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "default"}}


def refusal(kind):
    return kind("no") if kind is Unreachable else kind("no", code=500)


class Flaky:
    """Answers each call with the next of some errors, then successfully."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = []

    def send(self, call):
        return self.answer(call.verb)

    def exchange(self, request):
        return self.answer(request.method)

    def answer(self, verb: str):
        self.calls.append(verb)
        if self.errors:
            raise self.errors.pop(0)
        return {"items": []} if verb == "list" else {"verb": verb}


CALLS = {
    "get": lambda api: api.get(CONFIG_MAP, "x", "default"),
    "list": lambda api: api.list(CONFIG_MAP, "default"),
    "create": lambda api: api.create(BODY),
    "update": lambda api: api.update(BODY),
    "patch": lambda api: api.patch(CONFIG_MAP, "x", {}, "default"),
    "delete": lambda api: api.delete(CONFIG_MAP, "x", "default"),
}


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize("kind", [Unreachable, ServerError, TooManyRequests, Forbidden, Unauthorized])
def test_temporary_errors_are_retried(verb, kind):
    inner, clock = Flaky(refusal(kind), refusal(kind)), FakeClock()
    assert CALLS[verb](RetryingKube(inner, clock=clock, within=10)) in ({"verb": verb}, [])
    assert inner.calls == [verb] * 3
    assert clock.monotonic() == pytest.approx(0.02 + 0.04)


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize("kind", [AlreadyExists, Conflict, Invalid])
def test_permanent_errors_are_final(verb, kind):
    inner, clock = Flaky(refusal(kind)), FakeClock()
    with pytest.raises(kind):
        CALLS[verb](RetryingKube(inner, clock=clock, within=10))
    assert (inner.calls, clock.monotonic()) == ([verb], 0.0)


@pytest.mark.parametrize(("verb", "count"), [("create", 2), ("get", 1), ("update", 1), ("delete", 1)])
def test_not_found_is_retried_only_for_a_missing_namespace(verb, count):
    inner = Flaky(refusal(NotFound))
    api = RetryingKube(inner, clock=FakeClock(), within=10)
    if count == 1:
        with pytest.raises(NotFound):
            CALLS[verb](api)
    else:
        CALLS[verb](api)
    assert len(inner.calls) == count


def test_pauses_grow_to_half_a_second_and_the_last_error_is_raised():
    class Down(Flaky):
        def answer(self, verb: str):
            self.calls.append(clock.monotonic())
            raise Unreachable(f"try {len(self.calls)}")

    clock = FakeClock()
    inner = Down()
    with pytest.raises(Unreachable) as caught:
        RetryingKube(inner, clock=clock, within=3).get(CONFIG_MAP, "x", "default")
    pauses = [round(after - before, 2) for before, after in zip(inner.calls, inner.calls[1:], strict=False)]
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5, 0.5, 0.38]
    assert caught.value.what == f"try {len(inner.calls)}"
    assert clock.monotonic() <= 3


def test_raw_requests_are_passed_on_unchanged():
    inner = Flaky(refusal(ServerError))
    with pytest.raises(ServerError):
        RetryingKube(inner, clock=FakeClock(), within=3).raw("GET", "/readyz")
    assert inner.calls == ["GET"]
