"""An agent survives unexpected errors: each kind of request fails once because of a simulated bug. Time is virtual."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest
from agent_running import MemoryCredentialStore, agent_of, joined
from agent_values import pod
from fake_api import Call, FakeAPI
from fake_controllers import Controllers

from kubewright.agent.dependencies import Duties
from kubewright.agent.lasting_node import LastingNode
from kubewright.agent.periodic import Periodic, Tasks
from kubewright.base import unexpected

pytestmark = pytest.mark.looptime

MINUTES = 60.0
KINDS = (
    ("create", "certificatesigningrequests"),
    ("watch", "certificatesigningrequests"),
    ("create", "nodes"),
    ("get", "nodes"),
    ("patch", "nodes/status"),
    ("create", "leases"),
    ("update", "leases"),
    ("create", "csinodes"),
    ("create", "events"),
    ("list", "pods"),
    ("watch", "pods"),
    ("patch", "pods/status"),
)


def count() -> int:
    return sum(unexpected.counts().values())


def break_once(api: FakeAPI, verb: str, what: str) -> list[Call]:
    """Let one call of a kind fail because of a simulated bug; the call is in the list then."""
    broken: list[Call] = []

    def fault(call: Call) -> Exception | None:
        if (call.verb, call.what) != (verb, what) or broken:
            return None
        broken.append(call)
        return RuntimeError("File descriptor 34 is used by transport")

    api.faults.append(fault)
    return broken


async def lives(api: FakeAPI, node: LastingNode) -> None:
    """Require a node that is ready, renews its lease, sends its status, and runs its pod."""
    async with asyncio.timeout(10 * MINUTES):
        while not (node.agent.is_ready and api.objects.get(("pods", "default", "web"), {}).get("status", {}).get("phase") == "Running"):
            await asyncio.sleep(1)
    before = len(api.calls)
    await asyncio.sleep(11 * MINUTES)
    made = {(call.verb, call.what) for call in api.calls[before:]}
    assert {("update", "leases"), ("patch", "nodes/status")} <= made


@pytest.mark.parametrize(("verb", "what"), KINDS)
async def test_a_bug_in_any_request_is_reported_and_the_node_continues(verb: str, what: str, caplog) -> None:
    api, store = FakeAPI(), MemoryCredentialStore()
    Controllers(api)
    broken, before = break_once(api, verb, what), count()
    duties = Duties(csi_node=True, events=True, returns=True)
    node = LastingNode(lambda: agent_of(api, store=store, duties=duties))
    api.put(pod())
    await lives(api, node)
    await node.end()
    assert len(broken) == 1
    assert count() - before == 1
    told = [record for record in caplog.records if record.name == unexpected.__name__]
    assert [record.exc_info[0] for record in told if record.exc_info] == [RuntimeError]


async def test_a_malformed_pod_in_a_watch_does_not_affect_the_others(caplog) -> None:
    api, before = FakeAPI(), count()
    Controllers(api)
    node = LastingNode(lambda: agent_of(api, store=joined()))
    await node.agent.ready.wait()
    odd = pod(name="odd")
    del odd["spec"]["containers"]
    api.put(odd)
    api.put(pod())
    await lives(api, node)
    await node.end()
    assert count() > before


@pytest.mark.parametrize("which", ["work", "wait", "idle"])
async def test_rounds_continue_with_growing_pauses(which: str) -> None:
    times: list[float] = []
    before = count()

    def failing(result: float | bool) -> Callable[[], float | bool]:
        def call() -> float | bool:
            times.append(asyncio.get_running_loop().time())
            if len(times) <= 4:
                raise KeyError("odd")
            return result

        return call

    async def work() -> None:
        if which == "work":
            failing_work()

    failing_work = failing(0)
    functions = {
        "wait": lambda: 0.25,
        "idle": lambda: False,
        **({which: failing(0.25 if which == "wait" else False)} if which != "work" else {}),
    }
    rounds = Periodic("rounds of a test", work, **functions)
    rounds.start()
    await asyncio.sleep(0.1)
    rounds.soon()  # changes in the meantime do not make it a busy loop
    await asyncio.sleep(20)
    await rounds.stop()
    pauses = [round(later - earlier, 2) for earlier, later in itertools.pairwise(times)]
    assert pauses[:5] == [0.5, 1.0, 2.0, 4.0, 0.25]
    assert count() - before == 4


async def test_a_failed_task_is_restarted() -> None:
    tasks, before, runs = Tasks(), count(), []

    async def work() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise KeyError("odd")

    await tasks.start("a task of a test", work)
    assert (len(runs), count() - before) == (3, 2)
    await tasks.stop()


async def test_cancelling_the_stop_of_rounds_ends_it() -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(MINUTES)
        finally:
            await asyncio.sleep(1)

    rounds = Periodic("rounds of a test", work, wait=lambda: 1.0)
    rounds.start()
    await asyncio.sleep(1)
    stopping = asyncio.create_task(rounds.stop())
    await asyncio.sleep(0.5)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
