"""The daemon's control socket: operations are completed even if the client that requested them disconnects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kubewright.base.clock import SystemClock
from kubewright.local import record
from kubewright.local.cluster.daemon_client import ControlClient
from kubewright.local.daemon.control_server import ControlServer
from kubewright.local.daemon.machines import MachineSupervisors
from kubewright.local.daemon_process import DaemonSettings
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord

NOBODY = {**LocalMachineRecord(name="", address="").ports, "api_server": 1}
FIRST = LocalMachineRecord(name="one-control-plane", address="127.0.0.11", ports=NOBODY)
SECOND = LocalMachineRecord(name="one-control-plane-2", address="127.0.0.12", ports=NOBODY)
CLUSTER = ClusterRecord(name="one", id="1" * 32, machines=(FIRST, SECOND))
GUARD = 600.0
"""Seconds after which a test counts as hanging."""


class SlowMachines(MachineSupervisors):
    """MachineSupervisors whose processes end when they are allowed to."""

    def __init__(self, paths: ClusterPaths) -> None:
        super().__init__(paths, CLUSTER, DaemonSettings())
        self.ending = asyncio.Event()
        self.let_go = asyncio.Event()
        self.told: list[str] = []

    async def begin(self, name: str) -> LocalMachineRecord:
        self.told.append(f"begin {name}")
        return await super().begin(name)

    async def end(self, names: Collection[str]) -> None:
        await self._ending()
        await super().end(names)
        self.told.append(f"ended {' '.join(names)}")

    async def stop(self) -> None:
        await self._ending()
        await super().stop()
        self.told.append("stopped")

    async def _ending(self) -> None:
        self.ending.set()
        await self.let_go.wait()


class Served:
    """A cluster's server and its clients."""

    def __init__(self, paths: ClusterPaths) -> None:
        self.paths = paths
        self.machines = SlowMachines(paths)
        self.stopping = asyncio.Event()
        self.server = ControlServer(paths, CLUSTER, self.machines, stopping=self.stopping, clock=SystemClock())

    async def ask(self, target: str, body: object) -> asyncio.StreamWriter:
        """Send a request without waiting for its answer."""
        _, writer = await asyncio.open_unix_connection(self.paths.socket)
        content = json.dumps(body).encode()
        writer.write(f"POST {target} HTTP/1.0\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content)
        return writer

    async def go(self, caller: asyncio.StreamWriter) -> None:
        """Disconnect a client; returns when the server has noticed, because it answers a later client."""
        caller.close()
        await caller.wait_closed()
        await self.answers()

    async def answers(self) -> None:
        """Wait until it answers; one answer may be late on a busy machine."""
        while not await asyncio.to_thread(ControlClient(self.paths).answers):
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        """End as the daemon does."""
        await self.server.stop()
        await self.machines.stop()
        await self.server.close()


@pytest.fixture
def where(tmp_path: Path) -> ClusterPaths:
    root = tmp_path / "one"
    root.mkdir(mode=0o700)
    record.save(CLUSTER, ClusterPaths(root).record)
    return ClusterPaths(root)


def run(where: ClusterPaths, body: Callable[[Served], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        served = Served(where)
        await served.machines.start()
        await served.server.start()
        try:
            async with asyncio.timeout(GUARD):
                await body(served)
        finally:
            served.machines.let_go.set()
            await served.end()

    asyncio.run(whole())


async def first_of(*events: asyncio.Event) -> None:
    tasks = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def test_a_cluster_is_stopped_even_if_the_client_disconnects(where: ClusterPaths) -> None:
    async def body(served: Served) -> None:
        caller = await served.ask("/stop", {})
        await first_of(served.stopping, served.machines.ending)
        await served.go(caller)
        served.machines.let_go.set()
        await served.stopping.wait()

    run(where, body)


def test_the_client_gets_an_answer_when_everything_has_stopped(where: ClusterPaths) -> None:
    async def body(served: Served) -> None:
        asking = asyncio.create_task(asyncio.to_thread(ControlClient(where).stop))
        await first_of(served.stopping, served.machines.ending)
        ending = asyncio.create_task(served.end())
        await served.machines.ending.wait()
        assert not asking.done()
        served.machines.let_go.set()
        assert await asking == {}
        assert served.machines.told == ["stopped"]
        await ending

    run(where, body)


def test_a_machine_is_stopped_even_if_the_client_disconnects(where: ClusterPaths) -> None:
    async def body(served: Served) -> None:
        caller = await served.ask("/end", {"machines": [SECOND.name]})
        await served.machines.ending.wait()
        await served.go(caller)
        served.machines.let_go.set()
        await asyncio.to_thread(ControlClient(where).begin, SECOND.name)
        assert served.machines.told == [f"ended {SECOND.name}", f"begin {SECOND.name}"]

    run(where, body)


def test_a_machine_is_started_again_only_after_it_has_stopped(where: ClusterPaths) -> None:
    async def body(served: Served) -> None:
        ends = await served.ask("/end", {"machines": [SECOND.name]})
        await served.machines.ending.wait()
        before = served.machines.supervisor(SECOND.name)
        begins = await served.ask("/begin", {"machine": SECOND.name})
        await served.go(ends)
        await served.go(begins)
        assert served.machines.told == []
        served.machines.let_go.set()
        await asyncio.to_thread(ControlClient(where).begin, SECOND.name)
        assert served.machines.told == [f"ended {SECOND.name}", *[f"begin {SECOND.name}"] * 2]
        assert served.machines.supervisor(SECOND.name) is not before

    run(where, body)


def test_the_daemon_stops_after_earlier_operations(where: ClusterPaths) -> None:
    async def body(served: Served) -> None:
        caller = await served.ask("/end", {"machines": [SECOND.name]})
        await served.machines.ending.wait()
        await served.go(caller)
        stopping = asyncio.create_task(served.server.stop())
        await served.answers()
        assert not stopping.done()
        served.machines.let_go.set()
        await stopping
        assert served.machines.told == [f"ended {SECOND.name}"]

    run(where, body)
