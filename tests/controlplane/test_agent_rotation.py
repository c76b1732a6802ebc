"""Certificates with lifetimes of minutes, signed by the real kube-controller-manager."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest
from agent_cluster import agent_cluster, all_ready

from kubewright.agent.dependencies import Seams
from kubewright.agent.status.facts import NodeFacts, simulated_machine
from kubewright.base.randomness import SystemRandom
from kubewright.fleet.nodes import Fleet
from kubewright.kube import resources
from kubewright.pki import certificates


class Earliest(SystemRandom):
    """Rotates at 70 % of the lifetime: 8 s after a certificate of 140 s, backdated by 300 s, was issued."""

    def uniform(self) -> float:
        return 0.0


async def test_certificates_rotate_while_the_node_stays_ready(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory):
    machine = simulated_machine(kubelet_version="v1.36.3")
    with agent_cluster(tmp_path_factory.mktemp("rotation"), signing_duration="140s") as cluster:
        fleet = Fleet(
            tmp_path,
            facts=lambda name: NodeFacts(name=name, profile=machine.named(name), addresses=(cluster.address,)),
            seams=Seams(random=Earliest()),
        )
        bootstrap = cluster.bootstrap()
        try:
            await fleet.add("turn-1", bootstrap=bootstrap)
            await all_ready(cluster, fleet)
            async with asyncio.timeout(600):
                agent, pki = fleet.agents()[0], tmp_path / "turn-1" / "pki"
                before = agent.client.access.identity
                while agent.client.access.identity == before:
                    await asyncio.sleep(0.05)
            files = sorted(pki.glob("kubelet-client-2*.pem"))
            old, new = (certificates.parse_pair(path.read_bytes(), source=str(path)).leaf for path in files[:2])
            assert new.not_after > old.not_after
            node = await agent.client.get(resources.NODE, "turn-1")
            assert any(row["type"] == "Ready" and row["status"] == "True" for row in node["status"]["conditions"])
            assert agent.view().trouble == ""
            requests = await agent.client.list(resources.CERTIFICATE_SIGNING_REQUEST)
            assert {item["spec"]["username"] for item in requests} == {f"system:bootstrap:{cluster.token.id}", "system:node:turn-1"}
            assert (pki / "kubelet-client-current.pem").resolve() > files[0]  # on a slow machine, of a later rotation
            assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
        finally:
            await fleet.stop()
            await bootstrap.close()
