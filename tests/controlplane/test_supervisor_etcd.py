"""The supervisor with a real etcd: started from a manifest, observed through its health port with client certificates, killed, stopped, refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import local_kit
import pytest
import trustme

from kubewright.base import yaml
from kubewright.base.events import SilentReporter
from kubewright.local.mark import Mark
from kubewright.local.supervisor.process import DOWN, stop_orphans
from kubewright.local.supervisor.state import ComponentPhase, ComponentState, NodeAddress, ProbeIdentity
from kubewright.local.supervisor.supervisor import Supervisor
from loopback import free_address, is_free

PORTS = {"client": 2379, "peer": 2380, "metrics": 2381}


@pytest.fixture(scope="module")
def program() -> Path:
    return Path(local_kit.program("etcd"))


@dataclass(frozen=True)
class Place:
    """A machine's directories and address, with certificates for etcd and for probing it."""

    root: Path
    address: str
    program: Path

    def manifest(self, **flags: object) -> dict[str, Any]:
        """Return a manifest like kubeadm's, with health over HTTPS."""
        urls = {name: f"https://{self.address}:{port}" for name, port in PORTS.items()}
        pair = {"cert-file": self.root / "server.crt", "key-file": self.root / "server.key", "trusted-ca-file": self.root / "ca.crt"}
        given = {
            "name": "node1",
            "data-dir": "/var/lib/etcd",
            "listen-client-urls": urls["client"],
            "advertise-client-urls": urls["client"],
            "listen-peer-urls": urls["peer"],
            "initial-advertise-peer-urls": urls["peer"],
            "initial-cluster": f"node1={urls['peer']}",
            "listen-metrics-urls": urls["metrics"],
            "client-cert-auth": "true",
            "peer-client-cert-auth": "true",
            "heartbeat-interval": 10,
            "election-timeout": 100,
            **pair,
            **{f"peer-{name}": value for name, value in pair.items()},
            **flags,
        }

        def probe(path: str, **parts: object) -> dict[str, Any]:
            return {"httpGet": {"path": path, "port": "probe-port", "scheme": "HTTPS"}, "timeoutSeconds": 15, **parts}

        container = {
            "name": "etcd",
            "command": ["etcd", *(f"--{name}={value}" for name, value in given.items())],
            "ports": [{"name": "probe-port", "containerPort": PORTS["metrics"]}],
            "livenessProbe": probe("/livez", failureThreshold=8, initialDelaySeconds=10),
            "readinessProbe": probe("/readyz", periodSeconds=1),
            "startupProbe": probe("/readyz", failureThreshold=24, initialDelaySeconds=10),
            "volumeMounts": [{"name": "data", "mountPath": "/var/lib/etcd"}],
        }
        volume = {"name": "data", "hostPath": {"path": str(self.root / "data"), "type": "DirectoryOrCreate"}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "etcd", "namespace": "kube-system"},
            "spec": {"hostNetwork": True, "containers": [container], "volumes": [volume]},
        }

    def supervisor(self) -> Supervisor:
        return Supervisor(
            self.root / "manifests",
            self.root / "run",
            self.root / "logs",
            {"etcd": self.program},
            node=NodeAddress(name="node1", ip=self.address),
            mark=Mark(directory=str(self.root)),
            reporter=SilentReporter(),
            probe_identity=ProbeIdentity(
                certificate=self.root / "client.crt", key=self.root / "client.key", ports=frozenset({PORTS["metrics"]})
            ),
        )

    def write(self, manifest: dict[str, Any]) -> None:
        directory = self.root / "manifests"
        directory.mkdir(exist_ok=True)
        (directory / ".new").write_text(yaml.dump(manifest))
        (directory / ".new").rename(directory / "etcd.yaml")

    @contextlib.asynccontextmanager
    async def supervised(self, **flags: object) -> AsyncIterator[Supervisor]:
        self.write(self.manifest(**flags))
        supervisor = self.supervisor()
        await supervisor.start()
        try:
            yield supervisor
        finally:
            await supervisor.stop(DOWN)


@pytest.fixture
def place(tmp_path: Path, program: Path) -> Place:
    address = free_address(PORTS.values())
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    for name in ("server", "client"):
        leaf = authority.issue_cert(address, "127.0.0.1")  # our side of a connection to any loopback address is 127.0.0.1
        (tmp_path / f"{name}.crt").write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(str(tmp_path / f"{name}.key"))
    return Place(tmp_path, address, program)


async def _until(supervisor: Supervisor, condition: Callable[[ComponentState], bool]) -> ComponentState:
    """Wait for a state of etcd."""
    async with asyncio.timeout(600):
        async for states in supervisor.changes():
            if states and condition(states[0]):
                return states[0]
    raise AssertionError(supervisor.snapshot())


async def _ready(supervisor: Supervisor) -> None:
    await _until(supervisor, lambda state: state.ready)


async def test_etcd_starts_survives_a_kill_and_leaves_nothing(place: Place) -> None:
    async with place.supervised() as supervisor:
        await _ready(supervisor)
        (first,) = supervisor.snapshot()
        assert (first.phase, first.restarts) == (ComponentPhase.READY, 0)
        assert first.rss_bytes > 10_000_000
        assert (place.root / "data" / "member").is_dir()
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)
        async for states in supervisor.changes():
            if states[0].ready and states[0].pid != first.pid:
                break
        assert states[0].restarts == 1
        assert any(b'"msg":"ready to serve client requests"' in line for line in [line async for line in supervisor.read_log("etcd")])
        await supervisor.stop(DOWN)
    assert is_free(place.address, PORTS.values())
    assert list((place.root / "run").iterdir()) == []
    assert await stop_orphans(Mark(directory=str(place.root))) == []


async def test_etcd_is_adopted_by_the_next_supervisor(place: Place) -> None:
    place.write(place.manifest())
    first = place.supervisor()
    await first.start()
    await _ready(first)
    (before,) = first.snapshot()
    await first.release()
    async with place.supervised() as supervisor:
        await _ready(supervisor)
        (after,) = supervisor.snapshot()
        assert (after.pid, after.restarts, after.adopted) == (before.pid, 0, True)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"nope": "1"}, "flag provided but not defined: -nope"),
        ({"election-timeout": "1"}, "--election-timeout[1ms] should be at least as 5 times as --heartbeat-interval[10ms]"),
    ],
)
async def test_a_failing_start_is_reported_with_the_output_of_etcd(place: Place, flags: dict[str, object], said: str) -> None:
    async with place.supervised(**flags) as supervisor:
        state = await _until(supervisor, lambda state: state.phase is ComponentPhase.CRASH_LOOP)
        assert said in state.reason
        assert said in "\n".join(supervisor.last_lines("etcd"))


async def test_a_busy_port_is_reported(place: Place) -> None:
    with socket.create_server((place.address, PORTS["peer"])):
        async with place.supervised() as supervisor:
            state = await _until(supervisor, lambda state: state.phase is ComponentPhase.CRASH_LOOP)
    assert f"listen tcp {place.address}:2380: bind: address already in use" in state.reason


async def test_a_changed_manifest_restarts_etcd_with_its_data(place: Place) -> None:
    async with place.supervised() as supervisor:
        await _ready(supervisor)
        (before,) = supervisor.snapshot()
        member = _journal(place)
        place.write(place.manifest(**{"snapshot-count": 5000}))
        async with asyncio.timeout(600):
            async for states in supervisor.changes():
                if states and states[0].ready and states[0].manifest_hash != before.manifest_hash:
                    break
        assert states[0].pid != before.pid
        assert _journal(place) == member != []


def _journal(place: Place) -> list[str]:
    """The names of the files of etcd's journal, without the one that it prepares in the background."""
    return sorted(path.name for path in (place.root / "data" / "member" / "wal").glob("*.wal"))
