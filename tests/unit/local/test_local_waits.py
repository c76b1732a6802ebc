"""The waits of `up` tolerate temporary failures: one failed check does not stop a cluster that is about to be ready."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kubewright.base.clock import FakeClock
from kubewright.base.errors import NotFound, ServerError
from kubewright.base.events import SilentReporter
from kubewright.base.wait import PollingWaiter
from kubewright.http.failures import NoAnswer, Reason
from kubewright.local.cluster import up_phases

SLOW = NoAnswer("no answer to GET /nodes", reason=Reason.TIMED_OUT)
BROKEN = ServerError("etcdserver: request timed out", code=500)


def answering(*answers: Any) -> Any:
    """Return a function that raises or returns these, one at a time, and the last one for ever."""
    left = list(answers)

    def answer(*_: object, **__: object) -> Any:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return answer


def context(*, nodes: Any, status: Any = None, account: Any = None) -> Any:
    clock = FakeClock()
    return SimpleNamespace(
        clock=clock,
        waiter=PollingWaiter(clock=clock, reporter=SilentReporter()),
        run=SimpleNamespace(within=60.0, cluster=SimpleNamespace(total=1, workers=(), is_worker=lambda _: False)),
        control=SimpleNamespace(nodes=nodes, status=status),
        probe=SimpleNamespace(get=account),
        api=SimpleNamespace(list=lambda *_, **__: []),
        joins=None,
        mark=lambda _: None,
    )


@pytest.mark.parametrize("failure", [SLOW, BROKEN])
def test_one_failed_check_does_not_end_the_wait_for_nodes(failure: Exception) -> None:
    ready = {"ready": 1, "total": 1}
    ctx = context(nodes=answering(SLOW, ready), account=answering(failure, NotFound("not yet", code=404), {}))
    waits = [step.what for step in up_phases.nodes_ready(ctx)]
    assert waits == ["all nodes to be ready", "the default service account"]


def test_a_slow_daemon_is_asked_again_for_its_nodes() -> None:
    ctx = context(nodes=answering(SLOW, {"begun": True}), status=answering(SLOW, {"nodes": {"list": [], "outside": []}}))
    assert [step.what for step in up_phases.join_nodes(ctx)] == ["the daemon to know its nodes"]
