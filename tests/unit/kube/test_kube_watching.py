"""The informer against a scripted API: list, watch, bookmarks, too old, disconnects, refusals. Time is virtual."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from kubewright.base import errors
from kubewright.base.clock import FakeClock
from kubewright.base.randomness import SeededRandom
from kubewright.http.failures import NoAnswer, Reason
from kubewright.kube import resources
from kubewright.kube.answers import EventType, WatchEvent, persist
from kubewright.kube.daemons.informers import Allowance, Informer

pytestmark = pytest.mark.looptime


def pod(name: str, version: str = "1", uid: str = "u") -> dict:
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "ns", "resourceVersion": version, "uid": uid}}


def bookmark(version: str) -> WatchEvent:
    return WatchEvent(EventType.BOOKMARK, {"metadata": {"resourceVersion": version}})


LOST = NoAnswer("lost", reason=Reason.RESET)
GONE = errors.Gone("too old", code=410)


class Script:
    """Answers lists and watches from two scripts; an exception in a script is raised at that point. At the end it waits for ever."""

    def __init__(self, lists: list[object], watches: list[list[object]]) -> None:
        self.lists, self.watches = lists, watches
        self.asked: list[tuple[str, str]] = []
        self.times: list[float] = []

    async def list_versioned(
        self, resource, namespace=None, *, label_selector="", field_selector="", resource_version="", slim=None, most=0
    ):
        self._note("list", resource_version)
        found = self.lists.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def watch(self, resource, *, namespace=None, field_selector="", label_selector="", resource_version="", seconds=0):
        self._note("watch", resource_version)
        assert 300 <= seconds <= 600
        for event in self.watches.pop(0) if self.watches else [asyncio.Event()]:
            if isinstance(event, asyncio.Event):
                await event.wait()
            if isinstance(event, float):
                await asyncio.sleep(event)
                continue
            if isinstance(event, Exception):
                raise event
            yield event

    def _note(self, verb: str, version: str) -> None:
        self.asked.append((verb, version))
        self.times.append(asyncio.get_running_loop().time())


async def take(events: AsyncIterator[WatchEvent], count: int) -> list[tuple[str, str]]:
    found = []
    async for kind, obj in events:
        found.append((kind.value, (obj.get("metadata") or {}).get("name", "")))
        if len(found) == count:
            break
    await events.aclose()
    return found


def informer(script: Script, **options: object) -> Informer:
    return Informer(script, resources.POD, namespace="ns", random=SeededRandom(1), **options)


async def test_existing_objects_come_first_and_then_changes() -> None:
    script = Script(
        [([pod("a"), pod("b")], "5")],
        [[WatchEvent(EventType.MODIFIED, pod("a", "6")), bookmark("9"), WatchEvent(EventType.DELETED, pod("b", "10"))]],
    )
    watched = informer(script)
    assert await take(watched.events(), 5) == [("ADDED", "a"), ("ADDED", "b"), ("SYNCED", ""), ("MODIFIED", "a"), ("DELETED", "b")]
    assert script.asked == [("list", "0"), ("watch", "5")]
    assert watched.synced
    assert list(watched.objects) == [("ns", "a")]


async def test_a_watch_continues_from_the_last_bookmark() -> None:
    script = Script([([], "5")], [[2.0, bookmark("9")], [2.0, LOST], [2.0, WatchEvent(EventType.ADDED, pod("a", "11"))]])
    assert await take(informer(script).events(), 2) == [("SYNCED", ""), ("ADDED", "a")]
    assert script.asked == [("list", "0"), ("watch", "5"), ("watch", "9"), ("watch", "9")]


async def test_an_expired_version_lists_again_and_reports_only_differences() -> None:
    script = Script(
        [([pod("a"), pod("b"), pod("c")], "5"), ([pod("a"), pod("b", "7"), pod("d", "8")], "20")],
        [[GONE], [WatchEvent(EventType.ADDED, pod("e", "21"))]],
    )
    found = await take(informer(script).events(), 9)
    assert found[4:] == [("DELETED", "c"), ("MODIFIED", "b"), ("ADDED", "d"), ("SYNCED", ""), ("ADDED", "e")]
    assert script.asked == [("list", "0"), ("watch", "5"), ("list", ""), ("watch", "20")]
    assert script.times[2] == script.times[1]


async def test_a_server_to_which_every_version_is_too_old_is_retried_with_pauses() -> None:
    script = Script([([], str(number)) for number in range(6)], [[GONE]] * 5)
    await take(informer(script).events(), 6)
    lists = [when for (verb, _), when in zip(script.asked, script.times, strict=True) if verb == "list"]
    pauses = [later - before for before, later in itertools.pairwise(lists)]
    assert pauses[0] == 0
    assert pauses[1:] == sorted(pauses[1:])
    assert pauses[-1] >= 0.8


async def test_failures_are_reported_and_retried_with_backoff() -> None:
    told: list[errors.APIError] = []
    forbidden = errors.Forbidden("no", code=403)
    script = Script([LOST, forbidden, LOST, LOST, LOST, LOST, LOST, LOST, ([], "5")], [])
    assert await take(informer(script, failed=told.append).events(), 1) == [("SYNCED", "")]
    assert told == [LOST, forbidden, *[LOST] * 6]
    pauses = [later - before for before, later in itertools.pairwise(script.times)]
    assert pauses == sorted(pauses)
    assert 0.1 <= pauses[0] <= 0.15
    assert 5.0 <= pauses[-1] <= 7.5


async def test_retry_after_of_the_server_is_respected() -> None:
    script = Script([errors.TooManyRequests("busy", code=429, retry_after=3.0), ([], "5")], [])
    await take(informer(script).events(), 1)
    assert script.times[1] - script.times[0] == 3.0


async def test_a_server_that_asks_to_wait_for_a_day_is_asked_again_after_a_minute() -> None:
    script = Script([errors.ServerError("maintenance", code=503, retry_after=86400.0), ([], "5")], [])
    await take(informer(script).events(), 1)
    assert script.times[1] - script.times[0] == 60.0


async def test_watches_that_end_at_once_do_not_spin() -> None:
    script = Script([([], "5")], [[], [], [], [WatchEvent(EventType.ADDED, pod("a"))]])
    await take(informer(script).events(), 2)
    assert script.times[-1] - script.times[1] >= 0.1 + 0.2


async def test_watches_that_end_at_once_with_events_do_not_spin_either() -> None:
    turns = [[WatchEvent(EventType.ADDED, pod(f"p{number}", str(number + 6)))] for number in range(8)]
    script = Script([([], "5")], turns)
    assert len(await take(informer(script).events(), 9)) == 9
    assert script.times[-1] - script.times[1] >= 0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 5.0


async def test_a_server_cannot_take_more_memory_than_all_informers_together_may() -> None:
    large = {**pod("large"), "data": {str(number): {} for number in range(1000)}}
    allowance = Allowance(300_000)
    first = informer(Script([([large], "5")], []), allowance=allowance)
    assert await take(first.events(), 2) == [("ADDED", "large"), ("SYNCED", "")]
    script = Script([([], "5")], [[2.0, WatchEvent(EventType.ADDED, {**large, "metadata": pod("other")["metadata"]})]])
    second = informer(script, allowance=allowance)
    with pytest.raises(errors.Flooded, match="more than 300000 bytes"):
        await take(second.events(), 2)
    assert second.objects == {}
    assert script.asked == [("list", "0"), ("watch", "5")]


async def test_replaced_and_deleted_objects_give_their_memory_back() -> None:
    large = {"data": {str(number): {} for number in range(500)}}
    turn = [1.5]
    for number in range(20):
        turn += [WatchEvent(EventType.ADDED, {**pod("a", "6"), **large}), WatchEvent(EventType.MODIFIED, {**pod("a", "7"), **large})]
        turn += [WatchEvent(EventType.DELETED, pod("a", "8"))] if number % 2 else []
    watched = informer(Script([([], "5")], [turn]), allowance=Allowance(200_000))
    assert len(await take(watched.events(), 51)) == 51


async def test_objects_are_kept_and_told_as_they_are_slimmed() -> None:
    def slim(obj: dict) -> dict:
        return {"metadata": obj["metadata"]}

    script = Script([([], "5")], [[WatchEvent(EventType.ADDED, {**pod("a"), "spec": {"nodeName": "x"}}), bookmark("9")], [2.0]])
    watched = informer(script, slim=slim)
    assert await take(watched.events(), 2) == [("SYNCED", ""), ("ADDED", "a")]
    assert watched.objects == {("ns", "a"): {"metadata": pod("a")["metadata"]}}


def test_calls_are_retried_until_their_timeout() -> None:
    answers, clock = iter([LOST, errors.Forbidden("no", code=403), "done"]), FakeClock()

    def call() -> str:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    assert persist(call, clock=clock) == "done"

    def hopeless() -> str:
        raise LOST

    start = clock.monotonic()
    with pytest.raises(NoAnswer):
        persist(hopeless, clock=clock, within=10)
    assert clock.monotonic() - start == pytest.approx(10, abs=0.6)


@pytest.mark.parametrize(
    "error", [errors.Invalid("bad", code=422), NoAnswer("x", reason=Reason.UNTRUSTED), errors.StatusError("x", code=400)]
)
def test_permanent_errors_are_not_retried(error: errors.APIError) -> None:
    calls = []

    def call() -> None:
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        persist(call, clock=FakeClock())
    assert len(calls) == 1
