"""The controllers of clusters of machines with an API in memory: LoadBalancer Services, and volumes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

from fake_api import FakeAPI, FakeClient

from busy import HANGS
from kubewright.base.clock import SystemClock
from kubewright.base.errors import HostError
from kubewright.base.randomness import SeededRandom
from kubewright.kube.credentials import Access
from kubewright.kube.daemons.controller import SharedInformer
from kubewright.kube.daemons.informers import Informer
from kubewright.kube.daemons.recorder import EventRecorder
from kubewright.kube.resources import NODE, SERVICE, Resource, named
from kubewright.local.paths import ClusterPaths
from kubewright.local.whole import members
from kubewright.local.whole.services import volumes
from kubewright.local.whole.services.cluster import ClusterServices
from kubewright.local.whole.services.load_balancers import LoadBalancers
from kubewright.local.whole.services.volumes import CLAIM, VOLUME, Provisioner
from kubewright.machines.network import Network

ONE, TWO = "172.30.4.61", "172.30.4.62"
POOL = ("172.30.4.211", "172.30.4.212")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANGS):
        while not condition():
            await asyncio.sleep(0.005)


class World:
    """An API in memory, with informers and controllers that run on it."""

    def __init__(self) -> None:
        self.api = FakeAPI()
        self.client = FakeClient(self.api, Access(server="https://api"))
        self.recorder = EventRecorder(self.client, component="test", instance="test", clock=SystemClock(), random=SeededRandom(1))
        self._informers: list[SharedInformer] = []

    def informer(self, resource: Resource) -> SharedInformer:
        self._informers.append(SharedInformer(Informer(self.client, resource)))
        return self._informers[-1]

    def reasons(self, kind: str) -> list[str]:
        events = [obj for obj in self.api.objects.values() if obj["kind"] == "Event"]
        return [event["reason"] for event in events if event["involvedObject"]["kind"] == kind]

    @asynccontextmanager
    async def running(self, controller: LoadBalancers | Provisioner) -> AsyncIterator[None]:
        works = [*(informer.run for informer in self._informers), self.recorder.run, controller.run]
        tasks = [asyncio.create_task(work()) for work in works]  # type: ignore[arg-type, var-annotated]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Routes:
    """The routes of a host."""

    def __init__(self) -> None:
        self.via: dict[str, str] = {"172.30.4.99": "another program's"}

    def routes(self) -> dict[str, str]:
        return dict(self.via)

    def route(self, address: str, via: str) -> None:
        self.via[address] = via

    def end_route(self, address: str) -> None:
        if self.via.pop(address, None) is None:
            raise HostError("no such route")


def service(name: str) -> dict[str, Any]:
    spec = {"type": "LoadBalancer", "ipFamilies": ["IPv4"]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def test_addresses_are_assigned_routed_moved_and_freed() -> None:
    world, routes, machines = World(), Routes(), {"one": (ONE,), "two": (TWO,)}
    balancers = LoadBalancers(
        world.client,
        services=world.informer(SERVICE),
        nodes=world.informer(NODE),
        slices=world.informer(named("EndpointSlice")),
        machines=lambda: machines,
        routes=routes,
        pool=POOL,
        events=world.recorder,
    )

    def addresses() -> dict[str, str]:
        stored = {name: obj for (kind, _, name), obj in world.api.objects.items() if kind == "services"}
        return {
            name: obj["status"]["loadBalancer"]["ingress"][0]["ip"]
            for name, obj in stored.items()
            if obj.get("status", {}).get("loadBalancer")
        }

    world.api.put(service("a"))
    async with world.running(balancers):
        await until(lambda: addresses() == {"a": POOL[0]})
        assert routes.via == {"172.30.4.99": "another program's", POOL[0]: ONE}
        del machines["one"]
        balancers.look_again()
        await until(lambda: routes.via.get(POOL[0]) == TWO)
        world.api.put(service("b"))
        world.api.put(service("c"))
        await until(lambda: world.reasons("Service").count("NoAddressLeft") == 1)
        world.api.remove(SERVICE, "a", "default")
        await until(lambda: sorted(addresses().values()) == sorted(POOL))
        for name in ("b", "c"):
            world.api.remove(SERVICE, name, "default")
        await until(lambda: routes.via == {"172.30.4.99": "another program's"})
    assert world.reasons("Service").count("AddressAssigned") == 3


class FakeMachine:
    """A machine that notes the different commands that are run in it; one is repeated if a retry comes while it runs."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def run(self, *command: str, within: float) -> None:
        text = " ".join(command)
        if text not in self.ran:
            self.ran.append(text)


def claim(uid: str, **spec: Any) -> dict[str, Any]:
    notes = {"volume.kubernetes.io/storage-provisioner": volumes.PROVISIONER, "volume.kubernetes.io/selected-node": "one"}
    base = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": volumes.CLASS_NAME}
    metadata = {"name": f"data-{uid}", "namespace": "default", "uid": uid, "annotations": notes}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {**base, **spec}}


async def test_volumes_are_made_and_deleted_in_their_machine_when_it_runs() -> None:
    world, machine, running, existing = World(), FakeMachine(), set[str](), {"one"}
    provisioner = Provisioner(
        world.client,
        claims=world.informer(CLAIM),
        volumes=world.informer(VOLUME),
        machine=lambda name: machine if name in running else None,  # type: ignore[arg-type, return-value]
        exists=lambda name: name in existing,
        events=world.recorder,
    )

    def stored() -> list[str]:
        return [name for kind, _, name in world.api.objects if kind == "persistentvolumes"]

    def release(name: str) -> None:
        world.api.put({**world.api.get(VOLUME, name), "status": {"phase": "Released"}})

    world.api.put(volumes.storage_class())
    world.api.put(claim("u1"))
    world.api.put(claim("u2", volumeMode="Block"))
    async with world.running(provisioner):
        await until(lambda: world.reasons("PersistentVolumeClaim") == ["ProvisioningFailed"])
        assert (stored(), machine.ran) == ([], [])  # its machine does not run
        running.add("one")
        provisioner.look_again()
        await until(lambda: stored() == ["pvc-u1"])
        assert machine.ran == ["mkdir -p -m 0777 /var/lib/kubewright/volumes/pvc-u1"]
        world.api.remove(CLAIM, "data-u1", "default")
        release("pvc-u1")
        await until(lambda: stored() == [])
        assert machine.ran[1:] == ["rm -rf --one-file-system /var/lib/kubewright/volumes/pvc-u1"]

        world.api.put(claim("u3"))
        await until(lambda: stored() == ["pvc-u3"])
        world.api.remove(CLAIM, "data-u3", "default")
        running.clear()
        existing.clear()  # the machine was removed, with its disk
        release("pvc-u3")
        await until(lambda: stored() == [])
    assert len(machine.ran) == 3


class States:
    """Two control planes and a worker that run."""

    def __init__(self) -> None:
        self.running = {"one": ("172.30.4.11",), "two": ("172.30.4.12",), "worker": ("172.30.4.61",)}
        self.readers: list[Callable[[], None]] = []

    def subscribe(self, reader: Callable[[], None]) -> None:
        self.readers.append(reader)

    def change(self, running: dict[str, tuple[str, ...]]) -> None:
        self.running = running
        for reader in self.readers:
            reader()

    def machine(self, _: str) -> None: ...

    def exists(self, name: str) -> bool:
        return name in self.running


KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://one:6443", certificate-authority-data: Y2E=}}]
users: [{name: u, user: {token: x}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


async def test_another_control_plane_takes_the_place_of_one_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    paths = ClusterPaths(tmp_path / "dev")
    directory = members.directory(paths)
    for name in ("one", "two"):
        kubeconfig = directory / name / "upper" / "etc" / "kubernetes" / "admin.conf"
        kubeconfig.parent.mkdir(parents=True)
        kubeconfig.write_text(KUBECONFIG)
    (directory / "range").write_text("172.30.4.0/24")
    apis = {f"https://172.30.4.{host}:6443": FakeAPI() for host in (11, 12)}
    services = ClusterServices(
        paths,
        States(),  # type: ignore[arg-type]
        connect=lambda access: apis[access.server].connect(access),
        every=0.01,
    )
    first, second = apis.values()
    task = asyncio.create_task(services.run())
    try:
        await until(lambda: len(first.made("GET", "/readyz")) > 2)
        assert len(first.made("watch", "services")) == 1  # the same connections as before
        assert second.calls == []
        first.fail("GET", "/readyz")
        await until(lambda: bool(second.made("watch", "services")))
        assert first.watchers == []
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_addresses_move_while_no_control_plane_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    paths, states, routes, api = ClusterPaths(tmp_path / "dev"), States(), Routes(), FakeAPI()
    directory = members.directory(paths)
    kubeconfig = directory / "one" / "upper" / "etc" / "kubernetes" / "admin.conf"
    kubeconfig.parent.mkdir(parents=True)
    kubeconfig.write_text(KUBECONFIG)
    (directory / "range").write_text("172.30.4.0/24")
    for name in ("routes", "route", "end_route"):
        monkeypatch.setattr(Network, name, lambda _, *given, name=name: getattr(routes, name)(*given))
    address = members.network_of(paths).spare()[0]
    api.put(service("web"))
    services = ClusterServices(paths, states, connect=api.connect, every=0.01)  # type: ignore[arg-type]
    task = asyncio.create_task(services.run())
    try:
        await until(lambda: routes.via.get(address) == "172.30.4.11")
        watches = len(api.made("watch", "services"))
        for name, host in (("worker", "172.30.4.61"), ("other", "172.30.4.62")):
            states.change({name: (host,)})
            await until(lambda host=host: routes.via.get(address) == host)
        assert len(api.made("watch", "services")) == watches
        states.change({"one": ("172.30.4.11",)})  # a control plane again, with new connections
        await until(lambda: len(api.made("watch", "services")) > watches and routes.via.get(address) == "172.30.4.11")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_machine_cannot_make_the_daemon_read_files_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    paths = ClusterPaths(tmp_path / "dev")
    directory = members.directory(paths)
    for name, text in (("one", KUBECONFIG.replace("token: x", "tokenFile: /etc/hostname")), ("two", KUBECONFIG)):
        kubeconfig = directory / name / "upper" / "etc" / "kubernetes" / "admin.conf"
        kubeconfig.parent.mkdir(parents=True)
        kubeconfig.write_text(text)
    (directory / "range").write_text("172.30.4.0/24")
    apis = {f"https://172.30.4.{host}:6443": FakeAPI() for host in (11, 12)}
    services = ClusterServices(paths, States(), connect=lambda access: apis[access.server].connect(access))  # type: ignore[arg-type]
    first, second = apis.values()
    task = asyncio.create_task(services.run())
    try:
        await until(lambda: bool(second.made("watch", "services")))
        assert first.calls == []
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
