"""The work queue of controllers: each key once, pauses, fairness. Time is virtual."""

from __future__ import annotations

import asyncio

import pytest

from kubewright.http.metrics import Registry
from kubewright.kube.daemons.controller import NotNow, Workers
from kubewright.kube.daemons.queueing import ItemBackoff, QueueMetrics, TokenBucket, WorkQueue, certificate_limiter

pytestmark = pytest.mark.looptime


def queue(**options: float) -> WorkQueue[str]:
    return WorkQueue(ItemBackoff(**({"first": 0.2, "limit": 1000.0} | options)))


def now() -> float:
    return round(asyncio.get_running_loop().time(), 3)


async def test_a_key_is_queued_once():
    one = queue()
    for _ in range(100):
        one.add("a")
    assert len(one) == 1
    assert await one.get() == "a"
    assert len(one) == 0


async def test_a_key_added_during_its_processing_is_processed_again():
    one = queue()
    one.add("a")
    await one.get()
    one.add("a")
    one.add("a")
    assert len(one) == 0
    one.done("a")
    assert len(one) == 1
    assert await one.get() == "a"
    one.done("a")
    assert len(one) == 0


async def test_owners_take_turns():
    one = queue()
    for number in range(1000):
        one.add(f"noisy-{number}", owner="noisy")
    one.add("quiet-0", owner="quiet")
    one.add("quiet-1", owner="quiet")
    assert [await one.get() for _ in range(5)] == ["noisy-0", "quiet-0", "noisy-1", "quiet-1", "noisy-2"]


async def test_keys_of_preferred_owners_are_taken_first_but_others_get_every_fifth_turn():
    queue = WorkQueue(ItemBackoff(first=1.0, limit=1.0), preferred=lambda owner: str(owner).startswith("node"))
    for number in range(12):
        queue.add(f"join-{number}", owner=f"token-{number}")
    for number in range(6):
        queue.add(f"renewal-{number}", owner=f"node-{number}")
    assert len(queue) == 18
    taken = [await queue.get() for _ in range(9)]
    first = [f"renewal-{number}" for number in range(6)]
    assert taken == [*first[:4], "join-0", *first[4:], "join-1", "join-2"]


async def test_pauses_double_up_to_the_limit():
    one = queue(limit=3.0)
    assert [one.retry("a") for _ in range(6)] == [0.2, 0.4, 0.8, 1.6, 3.0, 3.0]
    one.forget("a")
    assert one.retry("a") == 0.2


async def test_a_failed_key_is_retried_after_its_pause():
    one = queue()
    one.retry("a")
    assert len(one) == 0
    assert await one.get() == "a"
    assert now() == 0.2


async def test_the_bucket_of_the_certificate_controllers_limits_many_failures():
    limiter = certificate_limiter()
    pauses = [limiter.delay(f"key-{number}") for number in range(110)]
    assert pauses[:100] == [0.2] * 100
    assert pauses[101:] == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])


async def test_the_bucket_fills_again():
    bucket = TokenBucket(rate=10, burst=2)
    assert [bucket.delay("") for _ in range(4)] == pytest.approx([0, 0, 0.1, 0.2])
    await asyncio.sleep(60)
    assert [bucket.delay("") for _ in range(3)] == pytest.approx([0, 0, 0.1])


async def test_the_earlier_of_two_times_for_a_key_counts():
    one = queue()
    one.add_after("a", 10)
    one.add_after("a", 5)
    one.add_after("a", 20)
    assert await one.get() == "a"
    assert now() == 5
    one.done("a")
    await asyncio.sleep(60)
    assert len(one) == 0


async def test_a_cancelled_reader_loses_no_key():
    one = queue()
    readers = [asyncio.create_task(one.get()) for _ in range(2)]
    await asyncio.sleep(0)
    one.add("a")
    readers[0].cancel()
    assert await asyncio.wait_for(readers[1], 1) == "a"


async def test_a_closed_queue_releases_readers_and_drops_waiting_keys():
    one = queue()
    reader = asyncio.create_task(one.get())
    await asyncio.sleep(0)
    one.add_after("later", 5)
    one.close()
    one.add("a")
    assert await reader is None
    assert await one.get() is None
    await asyncio.sleep(60)
    assert len(one) == 0


class Handler:
    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, float]] = []

    async def __call__(self, key: str) -> float | None:
        self.calls.append((key, now()))
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


async def working(handler, keys, *, seconds, count=1):
    one = queue()
    for key in keys:
        one.add(key)
    task = asyncio.create_task(Workers("test", queue=one, handle=handler, count=count).run())
    await asyncio.sleep(seconds)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return handler.calls


async def test_any_failure_is_retried():
    calls = await working(Handler(NotNow("not yet"), RuntimeError("a bug"), None), ["a"], seconds=5)
    assert calls == [("a", 0.0), ("a", 0.2), ("a", 0.6)]


async def test_keys_are_requeued_on_request():
    assert await working(Handler(30.0, None), ["a"], seconds=100) == [("a", 0.0), ("a", 30.0)]


async def test_one_failing_key_does_not_delay_others():
    calls = await working(Handler(NotNow("never"), None, None), ["a", "b", "c"], seconds=0.1)
    assert [key for key, _ in calls] == ["a", "b", "c"]


async def test_work_in_flight_ends_when_the_workers_stop_and_nothing_new_begins():
    ended: list[str] = []

    async def slow(key: str) -> None:
        await asyncio.sleep(3)
        ended.append(key)

    one = queue()
    for key in ("a", "b", "c"):
        one.add(key)
    task = asyncio.create_task(Workers("test", queue=one, handle=slow, count=2).run())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (sorted(ended), now()) == (["a", "b"], 3.0)


async def test_queues_are_counted_at_the_moments_of_client_go():
    registry = Registry()
    metrics = QueueMetrics(registry)
    one, other = (WorkQueue(ItemBackoff(first=0.2, limit=1000.0), name="certificate", metrics=metrics) for _ in range(2))

    def found() -> dict[str, float]:
        rows = (line.rpartition(" ") for line in registry.read().body.decode().splitlines() if line.startswith("workqueue_"))
        return {name.replace('{name="certificate"}', "").removeprefix("workqueue_"): float(value) for name, _, value in rows}

    for key in ("a", "a", "b"):
        one.add(key)
    other.add("a")
    assert (found()["depth"], found()["adds_total"]) == (3, 3)
    await asyncio.sleep(2)
    assert await one.get() == "a"
    one.add("a")  # while it is worked on: it counts as waiting
    await asyncio.sleep(3)
    one.done("a")
    one.retry("b")
    assert (found()["depth"], found()["adds_total"], found()["retries_total"]) == (3, 4, 1)
    assert (found()["queue_duration_seconds_count"], found()["queue_duration_seconds_sum"]) == (1, 2)
    assert (found()["work_duration_seconds_count"], found()["work_duration_seconds_sum"]) == (1, 3)
    one.close()
    assert found()["depth"] == 1
