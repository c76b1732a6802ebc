"""The node of a control plane of a local cluster: when its agent starts."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath

from supervisor_kit import Machine

from busy import HANGS
from kubewright.apis.machine import Layout
from kubewright.base.clock import SystemClock
from kubewright.host.desired import Directory
from kubewright.host.filesystem.files import Files
from kubewright.local.daemon.machine_node import MachineNode
from kubewright.local.record import LocalMachineRecord


async def _started(node: MachineNode, *, within: float) -> bool:
    """Wait for the agent for a limited time. Returns whether it has started."""
    try:
        async with asyncio.timeout(within):
            while node.agent is None:
                await asyncio.sleep(0.01)
    except TimeoutError:
        return False
    return True


def _mode(path: PurePosixPath) -> int | None:
    return Path(path).stat().st_mode & 0o777 if Path(path).exists() else None


async def test_the_agent_starts_only_after_kubelet_start_has_made_the_directory_of_the_kubelet(tmp_path: Path) -> None:
    layout = Layout.below(PurePosixPath(tmp_path))
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    machine = LocalMachineRecord(name="one", address="127.0.0.1", ports={"api_server": port, "kubelet": 0})
    async with server, Machine(tmp_path).supervised() as supervisor:
        node = MachineNode(machine, supervisor, layout=layout, kubelet_version="v1.36.3", clock=SystemClock())
        node.start()
        try:
            assert not await _started(node, within=0.3)
            assert _mode(layout.kubelet) is None
            Files().make(Directory(path=layout.kubelet, mode=0o700))
            assert await _started(node, within=HANGS)
        finally:
            await node.stop()
    assert _mode(layout.kubelet) == 0o700
