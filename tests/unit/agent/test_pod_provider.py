"""A node whose pods a custom provider runs: the provider's calls, the pod status, and when a deletion is confirmed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from agent_running import agent_of, joined, running
from agent_values import facts, pod
from fake_api import FakeAPI
from fake_controllers import START
from test_machine_agent import Source
from test_pod_playing import delete, new

from kubewright.agent.dependencies import Duties
from kubewright.kube.core import Object
from kubewright.kube.resources import POD

pytestmark = [pytest.mark.looptime]


class Provider:
    """Runs nothing, and records its calls."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.known: list[str] = []
        self.statuses: dict[str, dict[str, Any]] = {}
        self.fail: dict[str, int] = {}
        self.takes = 0.0
        self.graces: list[float] = []
        self.at_once = 0
        self.moments: list[float] = []
        self._changed: Callable[[str], None] = lambda _: None

    def begin(self, changed: Callable[[str], None], /) -> None:
        self._changed = changed

    def listed(self, pods: Sequence[Object], /) -> None:
        self.known = [one["metadata"]["name"] for one in pods]

    async def run(self, pod: Object, /) -> None:
        await self._do("run", pod)
        self.statuses[pod["metadata"]["uid"]] = {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}

    def status(self, pod: Object, /) -> Mapping[str, Any] | None:
        return self.statuses.get(pod["metadata"]["uid"])

    async def stop(self, pod: Object, /, *, grace: float) -> None:
        self.graces.append(grace)
        await self._do("stop", pod)
        self.statuses[pod["metadata"]["uid"]] = {"phase": "Failed"}

    def becomes(self, uid: str, **status: Any) -> None:
        self.statuses[uid] = {**self.statuses.get(uid, {}), **status}
        self._changed(uid)

    async def _do(self, what: str, pod: Object) -> None:
        self.asked.append((what, pod["metadata"]["name"]))
        self.moments.append(asyncio.get_running_loop().time())
        self.at_once += 1
        try:
            await asyncio.sleep(self.takes)
            if self.fail.get(what, 0) > 0:
                self.fail[what] -= 1
                raise RuntimeError("no room")
        finally:
            self.at_once -= 1


def made(api: FakeAPI, provider: Provider) -> Any:
    return agent_of(api, store=joined(now=START), facts=facts(needs_pod_range=False), source=Source(), duties=Duties(), pods=provider)


def status_of(api: FakeAPI, name: str = "web") -> dict[str, Any]:
    found: dict[str, Any] = api.get(POD, name, "default")["status"]
    return found


async def test_a_pod_is_passed_to_the_provider_once_and_its_status_is_written():
    api, provider = FakeAPI(), Provider()
    new(api, "old")
    async with running(made(api, provider)):
        await asyncio.sleep(5)
        assert provider.known == ["old"]
        new(api)
        await asyncio.sleep(5)
        assert provider.asked == [("run", "old"), ("run", "web")]
        assert (status_of(api)["phase"], status_of(api)["podIP"]) == ("Running", "10.1.2.3")
        await asyncio.sleep(600)
        assert len(provider.asked) == 2
        assert len(api.made("patch", "pods/status")) == 2
        provider.becomes("uid-of-web", phase="Succeeded")
        await asyncio.sleep(1)
        assert status_of(api)["phase"] == "Succeeded"


async def test_a_changed_pod_is_passed_again_and_status_writes_are_no_change():
    api, provider = FakeAPI(), Provider()
    async with running(made(api, provider)):
        new(api)
        await asyncio.sleep(5)
        found = api.get(POD, "web", "default")
        found["spec"]["containers"][0]["image"] = "other:2"
        api.put(found)
        await asyncio.sleep(5)
    assert provider.asked == [("run", "web")] * 2


async def test_a_deletion_is_confirmed_when_the_provider_has_stopped_the_pod():
    api, provider = FakeAPI(), Provider()
    async with running(made(api, provider)):
        new(api)
        await asyncio.sleep(5)
        provider.takes = 7.0
        delete(api, "web")
        await asyncio.sleep(6)
        assert api.made("delete", "pods") == []
        await asyncio.sleep(3)
        [confirmed] = api.made("delete", "pods")
    assert confirmed.body == {"grace": 0, "uid": "uid-of-web"}
    assert provider.asked == [("run", "web"), ("stop", "web")]
    assert provider.graces == [30.0]
    assert [call.body["status"]["phase"] for call in api.made("patch", "pods/status")] == ["Running", "Failed"]


async def test_a_pod_that_is_still_being_started_is_not_waited_for():
    api, provider = FakeAPI(), Provider()
    provider.takes = 100.0
    async with running(made(api, provider)):
        new(api)
        await asyncio.sleep(5)
        delete(api, "web")
        await asyncio.sleep(1)
        assert provider.asked == [("run", "web"), ("stop", "web")]
        assert provider.at_once == 1
        await asyncio.sleep(110)
    assert len(api.made("delete", "pods")) == 1


@pytest.mark.parametrize("what", ["run", "stop"])
async def test_failing_provider_calls_are_retried_with_backoff(what: str):
    api, provider = FakeAPI(), Provider()
    provider.fail = {what: 4}
    async with running(made(api, provider)):
        new(api)
        await asyncio.sleep(1)
        if what == "stop":
            delete(api, "web")
        await asyncio.sleep(100)
        moments = [at for at, (asked, _) in zip(provider.moments, provider.asked, strict=True) if asked == what]
    assert [round(later - earlier) for earlier, later in itertools.pairwise(moments)] == [2, 4, 8, 16]
    assert len(api.made("delete", "pods")) == (1 if what == "stop" else 0)


async def test_a_pod_that_vanishes_at_once_is_stopped_nevertheless():
    api, provider = FakeAPI(), Provider()
    async with running(made(api, provider)):
        new(api)
        await asyncio.sleep(5)
        provider.fail = {"stop": 1}
        api.remove(POD, "web", "default")
        await asyncio.sleep(5)
    assert provider.asked == [("run", "web"), ("stop", "web"), ("stop", "web")]
    assert provider.graces == [0.0, 0.0]


async def test_a_pod_that_never_ran_here_is_stopped_and_mirror_pods_are_ignored():
    api, provider = FakeAPI(), Provider()
    api.put(pod("old", deletionTimestamp="2026-01-02T03:04:05Z", deletionGracePeriodSeconds=30))
    api.put(pod("etcd-node-1", annotations={"kubernetes.io/config.mirror": "x"}))
    async with running(made(api, provider)):
        await asyncio.sleep(5)
    assert provider.known == ["old"]
    assert provider.asked == [("stop", "old")]
    assert len(api.made("delete", "pods")) == 1


async def test_a_stopped_pod_whose_removal_was_cut_off_is_removed_again():
    api, provider = FakeAPI(), Provider()
    for name, finalizers in (("old", []), ("held", ["example.org/hold"])):
        api.put(pod(name, deletionTimestamp="2026-01-02T03:04:05Z", deletionGracePeriodSeconds=0, finalizers=finalizers))
    async with running(made(api, provider)):
        await asyncio.sleep(5)
        assert sorted(provider.asked) == [("stop", "held"), ("stop", "old")]
        assert api.made("delete", "pods") == []
        await asyncio.sleep(60)
    assert [call.name for call in api.made("delete", "pods")] == ["old"]


async def test_a_stopped_agent_leaves_pods_running():
    api, provider = FakeAPI(), Provider()
    provider.takes = 100.0
    async with running(made(api, provider)):
        new(api)
        await asyncio.sleep(5)
    assert provider.asked == [("run", "web")]
    assert provider.at_once == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}
