"""A supervisor that dies leaves its processes running; the next one adopts or ends them, and loses none."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from supervisor_kit import NODE, Machine, alive, eventually, is_ready, pod, ready, script, state_of, until

from kubewright.local.mark import Mark
from kubewright.local.supervisor.process import stop_orphans
from kubewright.local.supervisor.state import ComponentPhase, NodeAddress

SUPERVISE = """
import asyncio, sys
from pathlib import Path
from supervisor_kit import Machine
async def main():
    await Machine(Path(sys.argv[1])).supervisor().start()
    print("started", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    yield Machine(tmp_path)
    await stop_orphans(Mark(directory=str(tmp_path)))


@contextlib.contextmanager
def killed_supervisor(machine: Machine):
    """Run a supervisor in a separate process while the block runs, then kill it with -9."""
    path = os.pathsep.join(part for part in (str(Path(__file__).parent), *sys.path) if part)
    child = subprocess.Popen(
        [sys.executable, "-c", SUPERVISE, str(machine.root)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"started\n"
        yield
    finally:
        child.kill()
        child.communicate()


def record_pid(machine: Machine, name: str = "etcd") -> int:
    import json

    try:
        return int(json.loads((machine.run / f"{name}.json").read_text())["pid"])
    except FileNotFoundError:
        return 0


async def running(machine: Machine, name: str = "etcd") -> int:
    await eventually(lambda: record_pid(machine, name))
    return record_pid(machine, name)


async def test_a_process_is_adopted_and_not_restarted(machine: Machine) -> None:
    machine.write(script("echo hello; exec sleep 1000"))
    with killed_supervisor(machine):
        pid = await running(machine)
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: record_pid(machine) != pid)
        pid = record_pid(machine)
    assert alive(pid)
    async with machine.supervised() as supervisor:
        await ready(supervisor)
        state = state_of(supervisor)
        assert (state.pid, state.restarts, state.adopted) == (pid, 1, True)
        while not (lines := [line async for line in supervisor.read_log("etcd")]):
            await asyncio.sleep(0.01)
        assert set(lines) == {b"hello\n"}  # the first process may have been killed before it wrote anything
        os.kill(pid, signal.SIGKILL)
        state = await until(supervisor, lambda state: is_ready(state) and state.pid != pid)
        assert (state.restarts, state.adopted) == (2, False)
        assert state.last_exit is not None
        assert (state.last_exit.code, state.last_exit.signal) == (None, None)
    assert not alive(state.pid)


async def test_an_adopted_process_stops_with_its_supervisor(machine: Machine) -> None:
    machine.write(pod())
    with killed_supervisor(machine):
        pid = await running(machine)
    async with machine.supervised() as supervisor:
        await ready(supervisor)
    assert not alive(pid)
    assert list(machine.run.iterdir()) == []


async def test_a_lost_record_loses_no_process(machine: Machine) -> None:
    machine.write(pod())
    with killed_supervisor(machine):
        pid = await running(machine)
    (machine.run / "etcd.json").write_text("{")
    async with machine.supervised() as supervisor:
        await ready(supervisor)
        assert (state_of(supervisor).pid, state_of(supervisor).restarts) == (pid, 0)


async def test_a_process_of_another_manifest_is_replaced(machine: Machine) -> None:
    machine.write(pod())
    with killed_supervisor(machine):
        pid = await running(machine)
    machine.write(script("echo changed; exec sleep 1000"))
    async with machine.supervised() as supervisor:
        await ready(supervisor)
        state = state_of(supervisor)
        assert (state.restarts, state.adopted) == (0, False)
        assert not alive(pid)


async def test_a_process_without_a_manifest_is_stopped(machine: Machine) -> None:
    path = machine.write(pod())
    with killed_supervisor(machine):
        pid = await running(machine)
    path.unlink()
    async with machine.supervised() as supervisor:
        await eventually(lambda: not alive(pid))
        await eventually(lambda: supervisor.snapshot() == [])


async def test_a_process_whose_manifest_is_now_broken_keeps_running(machine: Machine) -> None:
    machine.write(pod())
    with killed_supervisor(machine):
        pid = await running(machine)
    machine.write("{", "etcd")
    async with machine.supervised() as supervisor:
        await until(supervisor, lambda state: state.phase is ComponentPhase.WAITING)
        assert alive(pid)
        machine.write(pod())
        state = await until(supervisor, is_ready)
        assert (state.pid, state.reason) == (pid, "")


async def test_a_process_that_died_in_the_meantime_counts_as_a_restart(machine: Machine) -> None:
    machine.write(pod())
    with killed_supervisor(machine):
        pid = await running(machine)
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not alive(pid))
    async with machine.supervised() as supervisor:
        await ready(supervisor)
        assert state_of(supervisor).restarts == 1


async def test_a_released_process_is_adopted_in_the_same_daemon(machine: Machine) -> None:
    machine.write(pod())
    first = machine.supervisor()
    await first.start()
    await ready(first)
    pid = state_of(first).pid
    await first.release()
    await first.release()
    async with machine.supervised() as second:
        await ready(second)
        assert state_of(second).pid == pid
        os.kill(pid, signal.SIGKILL)
        state = await until(second, lambda state: state.last_exit is not None)
        assert state.last_exit is not None
        assert state.last_exit.signal == signal.SIGKILL


async def test_another_machine_of_the_cluster_keeps_its_processes(machine: Machine) -> None:
    machine.write(pod())
    with killed_supervisor(machine):
        pid = await running(machine)
    other = Machine(machine.root / "other")
    async with other.supervised(mark=machine.mark, node=NodeAddress(name="node2", ip=NODE.ip)):
        await asyncio.sleep(0.1)
        assert alive(pid)


async def test_a_sweep_stops_only_processes_of_a_dead_daemon(machine: Machine) -> None:
    machine.write(pod("etcd"))
    machine.write(script("trap '' TERM; while :; do sleep 0.05; done", "kube-apiserver"))
    with killed_supervisor(machine):
        pids = [await running(machine, name) for name in ("etcd", "kube-apiserver")]
    daemon = subprocess.Popen(["/bin/sleep", "1000"], env=machine.mark.variables)  # noqa: ASYNC220
    try:
        assert await stop_orphans(machine.mark) == ["etcd", "kube-apiserver"]
        assert [alive(pid) for pid in pids] == [False, False]
        assert await stop_orphans(machine.mark) == []
        assert daemon.poll() is None
    finally:
        daemon.kill()
        daemon.wait()
