"""A tenant that works on a cluster in memory and a real store, which may be killed at any of its persistent steps."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from hub_kit import STATE_KEY, cluster
from old_peer import OldNode

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

from fake_api import FakeAPI, FakeClient

from busy import HANGS
from kubewright.apis import node_join_requests
from kubewright.apis.kubeconfig import parse, require_usable
from kubewright.apis.node_join_requests import LEAVE_PROOF, LEAVING_LABEL
from kubewright.base import yaml
from kubewright.base.clock import SystemClock
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.enrollment.hub.expiry import CertificateEnds
from kubewright.enrollment.hub.tenant_context import TenantContext
from kubewright.enrollment.hub.tenants import CROWD, MOST_MEMORY, Tenant
from kubewright.enrollment.protocol import leave_proofs
from kubewright.enrollment.protocol.leave_proofs import LeaveProof
from kubewright.enrollment.state.clusters import LoadedCluster
from kubewright.enrollment.state.secret_store import SecretStore
from kubewright.enrollment.state.sqlite_store import SQLiteStore
from kubewright.enrollment.state.store import HubStore
from kubewright.enrollment.state.store_thread import StoreThread
from kubewright.enrollment.vpn.hub_tunnels import HubTunnel
from kubewright.kube import core
from kubewright.kube.credentials import Access
from kubewright.kube.recording import RecordingKube
from kubewright.kube.resources import CONFIG_MAP, NODE_JOIN_REQUEST
from kubewright.pki import certificates, keys
from kubewright.pki.keys import Algorithm, KeyPool, PrivateKey

READS = frozenset({"get", "list", "watch"})
WRITES = ("keep", "tell", "forget", "save_verdict")
LOADED = LoadedCluster(cluster())
PREPARED = keys.generate(Algorithm.RSA_2048)


class Killed(BaseException):
    """The process has been killed."""


class Killer:
    """Kills before or after the step with a number, counted from 0 over store and cluster; after that nothing is done."""

    def __init__(self, at: int | None = None, *, after: bool = False) -> None:
        self.steps = 0
        self._at = at
        self._after = after
        self._dead = False

    def before(self) -> bool:
        """Count a step; raise if it must not be done. Returns whether to kill after it."""
        if self._dead:
            raise Killed
        mine, self.steps = self.steps == self._at, self.steps + 1
        if mine:
            self._dead = True
            if not self._after:
                raise Killed
        return mine


class KilledStore(SQLiteStore):
    """A store whose process may be killed at each write."""

    def __init__(self, path: Path, killer: Killer) -> None:
        self.killer = killer
        super().__init__(path, key=STATE_KEY, random=SeededRandom(3))


def _dying(name: str) -> Callable[..., object]:
    def write(self: KilledStore, *positional: object, **named: object) -> object:
        last = self.killer.before()
        done = getattr(SQLiteStore, name)(self, *positional, **named)
        if last:
            raise Killed
        return done

    return write


for _name in WRITES:
    setattr(KilledStore, _name, _dying(_name))


class FilePlace:
    """A state in a file."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "state.db"

    def open(self, killer: Killer | None = None) -> HubStore:
        return KilledStore(self._path, killer or Killer())


class KilledKube(RecordingKube):
    """A management cluster in memory, whose user may be killed at each write."""

    killer = Killer()

    def send(self, call: core.Call, /) -> core.Object:
        last = call.verb not in READS and self.killer.before()
        found = super().send(call)
        if last:
            raise Killed
        return found


class SecretsPlace:
    """A state in Secrets."""

    def __init__(self, _: Path) -> None:
        self._api = KilledKube()

    def open(self, killer: Killer | None = None) -> HubStore:
        self._api.killer = killer or Killer()
        return SecretStore(self._api, namespace="hubs", name="one", key=STATE_KEY, random=SeededRandom(3))


class TenantClient(FakeClient):
    """A client that may be killed at each write."""

    killer = Killer()
    hanging: frozenset[str] = frozenset()
    """Objects that cannot be written: the server does not answer."""

    async def send(self, call: core.Call, /) -> core.Object:
        if call.verb not in READS and call.name in self.hanging:
            await asyncio.Event().wait()
        last = call.verb not in READS and self.killer.before()
        found = await super().send(call)
        if last:
            raise Killed
        return found


class PreparedKeys(KeyPool):
    """Returns the same key to every caller: making keys takes longer than these tests."""

    def take(self, algorithm, /):
        return PREPARED

    def have(self, algorithms):
        return


def proof_of(
    node: OldNode, found: core.Object, *, uid: str, name: str = "", serving: bool = False, key: PrivateKey | None = None
) -> LeaveProof:
    """Return a proof that a node leaves, with the client certificate of an answer; or with another certificate, or another key."""
    results = node.results(found)
    user = require_usable(parse(yaml.load_one(results["kubeConfig"].encode(), source="kubeConfig"))).user
    client = (user.client_certificate_data, user.client_key_data)
    server = (results["kubeletServerCertificate"].encode(), results["kubeletServerPrivateKey"].encode())
    pair = certificates.pair_of(*(server if serving else client), source="the answer")
    return leave_proofs.prove(name or node.name, uid, replace(pair, key=key or pair.key))


class Bench:
    """A cluster in memory, a state in a file or in Secrets, and tenants for both, one after the other."""

    loaded = LOADED

    def __init__(self, directory: Path, *, place: type[FilePlace | SecretsPlace] = FilePlace) -> None:
        self.place = place(directory)
        self.api = FakeAPI()
        self.hanging: frozenset[str] = frozenset()

    def tunnel(self) -> HubTunnel | None:
        """The hub's end of the VPN, created again for each tenant."""
        return None

    async def serve(
        self,
        until: Callable[[], bool],
        *,
        killer: Killer | None = None,
        within: float = HANGS,
        crowd: int = CROWD,
        memory: int = MOST_MEMORY,
    ) -> bool:
        """Serve until a condition holds, or until the process is killed; returns whether it was."""
        chosen = killer or Killer()
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # of several workers that are killed only one is asked
        client = TenantClient(self.api, Access(server="https://api"))
        client.killer, client.hanging = chosen, self.hanging
        store = StoreThread(self.place.open(chosen))
        ctx = TenantContext(
            loaded=self.loaded,
            api=client,
            store=store,
            clock=SystemClock(),
            random=SeededRandom(4),
            ends=CertificateEnds(self.loaded.cluster.kubelet_config),
            tunnel=self.tunnel(),
        )
        tenant = Tenant(ctx, keys=PreparedKeys(), crowd=crowd, memory=memory)
        self.tenant = tenant
        self.failure: BaseException | None = None
        task = asyncio.create_task(tenant.run())
        try:
            async with asyncio.timeout(within):
                while not task.done() and not until():
                    await asyncio.sleep(0.005)
            return task.done()
        finally:
            task.cancel()
            [self.failure] = await asyncio.gather(task, return_exceptions=True)
            store.close()

    def store(self) -> HubStore:
        return self.place.open()

    def ask(self, node: OldNode, *, uid: str = "") -> None:
        self.send(node.request(LOADED.public_key), uid=uid or f"uid-of-{node.name}")

    def send(self, request: core.Object, *, uid: str) -> None:
        request["metadata"] |= {"uid": uid}
        self.api.put(request)

    def request(self, name: str) -> core.Object | None:
        return self.api.objects.get((NODE_JOIN_REQUEST.plural, "", name))

    def leaving(self, node: OldNode, *, uid: str = "uid", **changes: str) -> None:
        """Write a Node whose machine leaves, with a proof from its own credentials."""
        proof = proof_of(node, self.request(node.name), uid=uid).text
        metadata = {"name": node.name, "uid": uid, "labels": {LEAVING_LABEL: "true"}, "annotations": {LEAVE_PROOF: proof, **changes}}
        self.api.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata})

    def status(self, name: str) -> str:
        found = self.request(name)
        condition = node_join_requests.condition_of(found) if found is not None else None
        return f"{condition.status} {condition.reason}".strip() if condition is not None else ""

    def ready(self) -> bool:
        return (CONFIG_MAP.plural, "oneinfra-system", "oneinfra-join") in self.api.objects
