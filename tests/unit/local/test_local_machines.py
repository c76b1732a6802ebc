"""The machines of a cluster in its daemon: which are supervised, and which are nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kubewright.base.errors import HostError
from kubewright.base.records import replace
from kubewright.local import record
from kubewright.local.daemon.machines import MachineSupervisors
from kubewright.local.daemon_process import DaemonSettings
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord

FIRST = LocalMachineRecord(name="one-control-plane", address="127.0.0.11")
SECOND = LocalMachineRecord(name="one-control-plane-2", address="127.0.0.12")
CLUSTER = ClusterRecord(name="one", id="1" * 32, machines=(FIRST,))


@pytest.fixture
def where(tmp_path: Path) -> ClusterPaths:
    root = tmp_path / "one"
    root.mkdir()
    record.save(CLUSTER, ClusterPaths(root).record)
    return ClusterPaths(root)


def run(where: ClusterPaths, body: Callable[[MachineSupervisors], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        machines = MachineSupervisors(where, CLUSTER, DaemonSettings())
        await machines.start()
        try:
            await body(machines)
        finally:
            await machines.stop()

    asyncio.run(whole())


def test_every_machine_of_the_record_is_supervised(where: ClusterPaths) -> None:
    async def body(machines: MachineSupervisors) -> None:
        assert machines.first == FIRST
        assert machines.supervised() == [FIRST]
        assert machines.supervisor("") is machines.supervisor(FIRST.name)
        assert machines.snapshot() == [(FIRST.name, machines.supervisor(""), [])]
        with pytest.raises(KeyError):
            machines.supervisor(SECOND.name)

    run(where, body)
    assert Path(where.layout(FIRST.name).manifests).is_dir()


def test_a_machine_added_later_is_found_in_the_record(where: ClusterPaths) -> None:
    async def body(machines: MachineSupervisors) -> None:
        with pytest.raises(HostError, match='no machine "one-control-plane-2"'):
            await machines.begin(SECOND.name)
        record.save(replace(CLUSTER, machines=(FIRST, SECOND)), where.record)
        assert await machines.begin(SECOND.name) == SECOND
        supervisor = machines.supervisor(SECOND.name)
        assert await machines.begin(SECOND.name) == SECOND
        assert machines.supervisor(SECOND.name) is supervisor
        assert machines.supervised() == [FIRST, SECOND]

    run(where, body)


def test_a_machine_with_a_reused_name_is_another_machine(where: ClusterPaths) -> None:
    async def body(machines: MachineSupervisors) -> None:
        record.save(replace(CLUSTER, machines=(FIRST, SECOND)), where.record)
        await machines.begin(SECOND.name)
        await machines.end([SECOND.name, "one-control-plane-3"])
        assert machines.supervised() == [FIRST]
        moved = replace(SECOND, address="127.0.0.14")
        record.save(replace(CLUSTER, machines=(FIRST, moved)), where.record)
        assert await machines.begin(SECOND.name) == moved

    run(where, body)


def test_a_machine_whose_start_failed_is_started_on_the_next_request(where: ClusterPaths) -> None:
    async def body(machines: MachineSupervisors) -> None:
        record.save(replace(CLUSTER, machines=(FIRST, SECOND)), where.record)
        in_the_way = where.machine(SECOND.name)
        in_the_way.write_bytes(b"")
        with pytest.raises(OSError, match="Not a directory"):
            await machines.begin(SECOND.name)
        assert machines.supervised() == [FIRST]
        in_the_way.unlink()
        await machines.begin(SECOND.name)
        assert machines.supervised() == [FIRST, SECOND]

    run(where, body)
    assert Path(where.layout(SECOND.name).manifests).is_dir()


def test_a_machine_whose_stop_was_interrupted_is_supervised_again(where: ClusterPaths) -> None:
    async def body(machines: MachineSupervisors) -> None:
        record.save(replace(CLUSTER, machines=(FIRST, SECOND)), where.record)
        await machines.begin(SECOND.name)
        before = machines.supervisor(SECOND.name)
        ending = asyncio.create_task(machines.end([SECOND.name]))
        await asyncio.sleep(0)
        ending.cancel()
        await asyncio.wait({ending})
        assert ending.cancelled()
        await machines.begin(SECOND.name)
        assert machines.supervisor(SECOND.name) is not before

    run(where, body)
