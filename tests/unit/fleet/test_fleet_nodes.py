"""Many nodes in one process, with an API in memory, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

from agent_running import KnownCluster
from fake_api import FakeAPI
from fake_controllers import Controllers, LoopClock

from kubewright.agent.certificates.bootstrap import Issuer
from kubewright.agent.dependencies import Seams
from kubewright.agent.status.facts import NodeFacts, simulated_machine
from kubewright.agent.view import NodePhase
from kubewright.base.errors import Unauthorized, UsageError
from kubewright.base.randomness import SeededRandom
from kubewright.fleet.nodes import Fleet
from kubewright.kube.credentials import Access, BearerToken
from kubewright.kube.resources import NODE

pytestmark = [pytest.mark.looptime]

TOKEN = Access(server="https://10.0.0.9:6443", ca_pem=b"-----BEGIN CERTIFICATE-----\n", identity=BearerToken("abcdef.0123456789abcdef"))
MACHINE = simulated_machine(kubelet_version="v1.36.3")


def fleet_of(api: FakeAPI, directory: Path, **changes: Any) -> Fleet:
    def facts(name: str) -> NodeFacts:
        return NodeFacts(name=name, profile=MACHINE.named(name), addresses=("127.0.0.11",))

    seams = Seams(connect=api.connect, clock=changes.pop("clock", LoopClock()), random=SeededRandom(5))
    return Fleet(directory, facts=facts, seams=seams, **changes)


async def all_ready(fleet: Fleet) -> None:
    """Wait until every running node has been ready."""
    await asyncio.gather(*(agent.ready.wait() for agent in fleet.agents()))


class Refusing:
    """The bootstrap with a token that no longer exists."""

    async def admit(self) -> tuple[Access, Issuer]:
        raise Unauthorized("no such token", code=401)


def entries(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def names(count: int) -> list[str]:
    return [f"worker-{number}" for number in range(count)]


async def test_nodes_join_and_are_ready(tmp_path: Path):
    api = FakeAPI()
    Controllers(api)
    fleet = fleet_of(api, tmp_path)
    await fleet.add(*names(5), bootstrap=KnownCluster(TOKEN, connect=api.connect))
    await all_ready(fleet)
    views = [agent.view() for agent in fleet.agents()]
    assert [(view.name, view.phase) for view in views] == [(name, NodePhase.READY) for name in names(5)]
    stored = [obj for (plural, _, _), obj in api.objects.items() if plural == "nodes"]
    assert len({node["status"]["nodeInfo"]["machineID"] for node in stored}) == 5
    assert len({call.identity for call in api.calls if call.what == "leases"}) == 5
    await fleet.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_no_more_nodes_join_at_once_than_allowed(tmp_path: Path):
    api = FakeAPI()
    controllers = Controllers(api)
    controllers.sign_after = None
    fleet = fleet_of(api, tmp_path, joins=3)
    await fleet.add(*names(10), bootstrap=KnownCluster(TOKEN, connect=api.connect))
    await asyncio.sleep(5)
    assert len(api.made("create", "certificatesigningrequests")) == 3
    assert [view.phase for view in [agent.view() for agent in fleet.agents()]] == [NodePhase.JOINING] * 3 + [NodePhase.NEW] * 7
    await fleet.stop()


async def test_adding_a_node_twice_changes_nothing(tmp_path: Path):
    api = FakeAPI()
    Controllers(api)
    fleet = fleet_of(api, tmp_path)
    bootstrap = KnownCluster(TOKEN, connect=api.connect)
    await fleet.add("worker-0", bootstrap=bootstrap)
    await all_ready(fleet)
    await asyncio.sleep(1)
    before = len(api.calls)
    await fleet.add("worker-0", bootstrap=bootstrap)
    await asyncio.sleep(1)
    assert len(api.calls) == before
    assert len(fleet.agents()) == 1
    await fleet.stop()


async def test_nodes_whose_token_is_gone_join_with_another(tmp_path: Path):
    api = FakeAPI()
    Controllers(api)
    fleet = fleet_of(api, tmp_path)
    await fleet.add("worker-0", bootstrap=KnownCluster(TOKEN, connect=api.connect))
    await all_ready(fleet)
    await fleet.add(*names(20), bootstrap=Refusing())
    await asyncio.sleep(100)
    assert sorted(fleet.outside()) == sorted(names(20)[1:])
    member = fleet.agents()[0]
    before = asyncio.get_running_loop().time()
    await fleet.add(*names(20), bootstrap=KnownCluster(TOKEN, connect=api.connect))
    await all_ready(fleet)
    assert asyncio.get_running_loop().time() - before < 5
    assert fleet.outside() == []
    assert sorted(agent.name for agent in fleet.agents()) == sorted(names(20))
    assert member in fleet.agents()
    await fleet.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_waiting_nodes_with_a_certificate_do_not_count_as_new(tmp_path: Path):
    api = FakeAPI()
    controllers = Controllers(api)
    first = fleet_of(api, tmp_path)
    await first.add(*names(3), bootstrap=KnownCluster(TOKEN, connect=api.connect))
    await all_ready(first)
    await first.stop()
    controllers.range_after = None
    for name in names(3):
        api.remove(NODE, name)
    second = fleet_of(api, tmp_path, joins=1)
    await second.add(*names(3))
    await asyncio.sleep(0.1)
    assert [view.phase for view in [agent.view() for agent in second.agents()]] == [NodePhase.CONNECTING, NodePhase.NEW, NodePhase.NEW]
    assert second.outside() == []
    agents = second.agents()
    await second.add(*names(3), bootstrap=Refusing())
    assert second.agents() == agents
    await second.stop()


async def test_nodes_without_a_token_or_a_certificate_cannot_join(tmp_path: Path):
    fleet = fleet_of(FakeAPI(), tmp_path)
    await fleet.add(*names(2))
    await asyncio.sleep(1)
    assert fleet.outside() == names(2)
    await fleet.stop()


async def test_a_restarted_fleet_requests_no_certificates(tmp_path: Path):
    api = FakeAPI()
    Controllers(api)
    first = fleet_of(api, tmp_path)
    assert await first.without_certificates(*names(3)) == names(3)
    await first.add(*names(3), bootstrap=KnownCluster(TOKEN, connect=api.connect))
    await all_ready(first)
    await first.stop()
    second = fleet_of(api, tmp_path)
    assert await second.without_certificates(*names(4)) == ["worker-3"]
    await second.add(*names(3))
    await all_ready(second)
    assert len(api.made("create", "certificatesigningrequests")) == 3
    await second.stop()


async def test_other_tasks_run_while_many_nodes_are_started(tmp_path: Path):
    class Watched(LoopClock):
        looks = 0

        def now(self) -> datetime:
            self.looks += 1
            return super().now()

    async def tick() -> None:
        while True:
            turns.append((clock.looks, len(fleet.agents())))
            await asyncio.sleep(0)

    turns: list[tuple[int, int]] = []
    clock = Watched()
    fleet = fleet_of(FakeAPI(), tmp_path, clock=clock)
    ticker = asyncio.create_task(tick())
    assert await fleet.without_certificates(*names(40)) == names(40)
    looked = len(turns)
    await fleet.add(*names(40))
    ticker.cancel()
    assert clock.looks >= 40
    assert max(later - earlier for (earlier, _), (later, _) in itertools.pairwise(turns[:looked])) <= 2
    assert max(later - earlier for (_, earlier), (_, later) in itertools.pairwise(turns)) <= 2
    assert len(fleet.agents()) == 40
    await fleet.stop()


async def test_a_fleet_stopped_while_nodes_are_added_starts_no_more(tmp_path: Path):
    fleet = fleet_of(FakeAPI(), tmp_path)
    adding = asyncio.create_task(fleet.add(*names(40)))
    await asyncio.sleep(0)
    assert len(fleet.agents()) < 40
    await fleet.stop()
    await adding
    assert fleet.agents() == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_removed_node_is_forgotten(tmp_path: Path):
    api = FakeAPI()
    Controllers(api)
    fleet = fleet_of(api, tmp_path)
    await fleet.add(*names(2), bootstrap=KnownCluster(TOKEN, connect=api.connect))
    await all_ready(fleet)
    await fleet.remove("worker-0", "never-there")
    assert entries(tmp_path) == ["worker-1"]
    assert [view.name for view in [agent.view() for agent in fleet.agents()]] == ["worker-1"]
    assert await fleet.without_certificates(*names(2)) == ["worker-0"]
    await fleet.stop()


async def test_a_restarted_node_registers_again_with_its_certificate(tmp_path: Path):
    api = FakeAPI()
    Controllers(api)
    fleet = fleet_of(api, tmp_path)
    await fleet.add(*names(2), bootstrap=KnownCluster(TOKEN, connect=api.connect))
    await all_ready(fleet)
    api.remove(NODE, "worker-0")
    await fleet.restart("worker-0", "never-there")
    await all_ready(fleet)
    assert [call.name for call in api.made("create", "nodes")] == ["worker-0", "worker-1", "worker-0"]
    assert len(api.made("create", "certificatesigningrequests")) == 2
    assert sorted(view.name for view in [agent.view() for agent in fleet.agents()]) == names(2)
    await fleet.stop()


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "UPPER", "-a", "a..b", ".", "a" * 254, "a\n"])
async def test_an_invalid_name_starts_nothing(tmp_path: Path, name: str):
    api = FakeAPI()
    fleet = fleet_of(api, tmp_path / "nodes")
    for verb in (fleet.add, fleet.remove):
        with pytest.raises(UsageError):
            await verb("worker-0", name)
    assert fleet.agents() == []
    assert entries(tmp_path) == []


async def test_renewals_of_nodes_that_start_together_are_spread(tmp_path: Path):
    api = FakeAPI()
    Controllers(api)
    fleet = fleet_of(api, tmp_path, joins=100)
    await fleet.add(*names(60), bootstrap=KnownCluster(TOKEN, connect=api.connect))
    await all_ready(fleet)
    start = asyncio.get_running_loop().time()
    await asyncio.sleep(30)
    moments = [call.at - start for call in api.made("update", "leases") if 10 <= call.at - start < 20]
    buckets = [sum(1 for moment in moments if second <= moment < second + 1) for second in range(10, 20)]
    assert 55 <= len(moments) <= 65
    assert max(buckets) <= 15
    await fleet.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
