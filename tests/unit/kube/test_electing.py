"""Leader election: one leader at a time, even if it is paused, cut off or killed. Time is virtual."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

from fake_api import FakeAPI

from kubewright.base.clock import FakeClock
from kubewright.base.randomness import SeededRandom
from kubewright.kube.credentials import Access
from kubewright.kube.daemons.electing import Election, FencedKube, LeaderElector, LeadershipLost
from kubewright.kube.resources import CONFIG_MAP, LEASE

pytestmark = pytest.mark.looptime
ELECTION = Election(name="controllers")
OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}


def candidate(api, name):
    return LeaderElector(api.connect(Access(server="https://api")), ELECTION, identity=name, clock=FakeClock(), random=SeededRandom(1))


def lease(api):
    return api.get(LEASE, "controllers", "kube-system")["spec"]


async def for_ever():
    await asyncio.Event().wait()


async def start(one, lead=for_ever):
    task = asyncio.create_task(one.run(lead))
    await asyncio.sleep(0.1)
    return task


async def end(*tasks: asyncio.Task):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_first_candidate_leads_at_once():
    api = FakeAPI()
    one = candidate(api, "one")
    task = await start(one)
    assert one.leads
    assert {key: lease(api)[key] for key in ("holderIdentity", "leaseDurationSeconds", "leaseTransitions")} == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 0,
    }
    await end(task)


async def test_a_stopping_leader_releases_the_lease():
    api = FakeAPI()
    one, two = candidate(api, "one"), candidate(api, "two")
    first, second = await start(one), await start(two)
    assert (one.leads, two.leads, two.holder) == (True, False, "one")
    await end(first)
    assert lease(api)["holderIdentity"] == ""
    await asyncio.sleep(4.5)
    assert (one.leads, two.leads) == (False, True)
    assert lease(api)["leaseTransitions"] == 1
    await end(second)


async def test_the_lease_of_a_dead_leader_is_waited_for():
    api = FakeAPI()
    one, two = candidate(api, "one"), candidate(api, "two")
    first = await start(one)
    first.cancel()
    api.fail("get", "leases", times=1)  # it cannot release the lease
    await asyncio.gather(first, return_exceptions=True)
    assert lease(api)["holderIdentity"] == "one"
    second = await start(two)
    await asyncio.sleep(14)
    assert not two.leads
    await asyncio.sleep(6)
    assert two.leads
    await end(second)


async def test_a_leader_that_cannot_renew_steps_down_before_its_lease_expires():
    api = FakeAPI()
    one = candidate(api, "one")
    stopped: list[float] = []

    async def lead():
        try:
            await for_ever()
        finally:
            stopped.append(asyncio.get_running_loop().time())

    task = await start(one, lead)
    api.fail("get", "leases")
    with pytest.raises(LeadershipLost):
        await task
    assert len(stopped) == 1
    assert 10 <= stopped[0] < 15


async def test_one_failed_renewal_is_survived():
    api = FakeAPI()
    one = candidate(api, "one")
    task = await start(one)
    api.fail("get", "leases", times=3)
    await asyncio.sleep(60)
    assert one.leads
    await end(task)


async def test_a_paused_leader_notices_the_lost_lease_before_its_next_write():
    """A process that is stopped and continues sees its clock jump; no renewal has run when it is about to write."""
    api = FakeAPI()
    one = candidate(api, "one")
    task = await start(one)
    fenced = FencedKube(api.connect(Access(server="https://api")), require=one.require)
    await fenced.create(OBJECT)
    one._renewed_at -= 11
    with pytest.raises(LeadershipLost):
        await fenced.create({**OBJECT, "metadata": {"name": "late", "namespace": "b"}})
    assert await fenced.get(CONFIG_MAP, "a", "b")
    assert len(api.made("create", "configmaps")) == 1
    await end(task)


async def test_a_renewal_counts_from_the_moment_before_it_was_sent():
    api = FakeAPI()
    one = candidate(api, "one")
    client = one._api
    send = client.send

    async def slow(call):
        answer = await send(call)
        await asyncio.sleep(4)
        return answer

    client.send = slow
    task = asyncio.create_task(one.run(for_ever))
    await asyncio.sleep(8.1)
    assert one._renewed_at == 0.0
    await end(task)


async def test_leadership_ends_with_the_work():
    api = FakeAPI()
    one = candidate(api, "one")

    async def broken():
        raise LeadershipLost("the work failed")

    with pytest.raises(LeadershipLost):
        await one.run(broken)
    assert lease(api)["holderIdentity"] == ""
