"""A tenant with a VPN: the hub's interface has the peers of the records, whatever is killed, changed or refused."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath

import pytest
from hub_kit import cluster, drop, event, put, sqlite
from old_peer import OldNode
from tenants_kit import LOADED, Bench, FakeAPI, FilePlace, Killer, SecretsPlace, TenantClient

from busy import HANGS
from kubewright.apis.join_records import JoinRecord, State
from kubewright.apis.machine import Layout
from kubewright.base.clock import SystemClock
from kubewright.base.errors import HostError
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.enrollment.hub.hub import Hub
from kubewright.enrollment.protocol import requests
from kubewright.enrollment.protocol.fields import SymmetricKey
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.enrollment.state.clusters import LoadedCluster
from kubewright.enrollment.state.store_thread import StoreThread
from kubewright.enrollment.vpn import leases as leases_of
from kubewright.enrollment.vpn.hub_tunnels import LINGER, HubTunnel
from kubewright.enrollment.vpn.network import VPN
from kubewright.host.desired import Tunnel
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.kube.credentials import Access
from kubewright.pki import wireguard

ENDPOINT = "https://10.0.0.1:6443"
RANDOM = SeededRandom(1)
HUB_KEY = wireguard.new_private_key(RANDOM)
WIDE = VPN(networks=("10.64.0.0/16",), endpoint="hub.example:51820", interface="wg-a")
NARROW = replace(WIDE, networks=("10.64.0.0/29",))


class Interfaces(OverlayHost):
    """A machine whose interfaces outlive the hub's process. `refuses` is why they cannot be changed; `looks` counts."""

    def __init__(self, directory: Path) -> None:
        programs = directory / "bin"
        programs.mkdir()
        for name in ("ip", "nft", "wg", "wireguard-go"):
            (programs / name).write_text("#!/bin/sh\necho 'Device does not exist.' >&2\nexit 1\n")
            (programs / name).chmod(0o755)
        super().__init__(RealHost(layout=Layout.below(PurePosixPath(directory)), environment={"PATH": str(programs)}))
        self.refuses = ""
        self.looks = 0

    def ensure(self, desired, /):
        if self.refuses:
            raise HostError(self.refuses)
        self.looks += isinstance(desired, Tunnel)
        return super().ensure(desired)

    def set_peers(self, name, /, **changes: object):
        if self.refuses:
            raise HostError(self.refuses)
        return super().set_peers(name, **changes)

    def peers(self, name: str = "wg-a") -> dict[str, frozenset[str]]:
        found = self.tunnel(name)
        return {peer.public_key: peer.networks for peer in found.peers} if found is not None else {}


class Network(Bench):
    """A bench whose cluster has a VPN."""

    def __init__(self, directory: Path, vpn: VPN = WIDE, **more: type[FilePlace | SecretsPlace]) -> None:
        super().__init__(directory, **more)
        self.vpn = vpn
        self.loaded = LoadedCluster(cluster(vpn=vpn, vpn_key=HUB_KEY, key_algorithm="ECDSA-P256"))
        self.host = Interfaces(directory)
        self.linger = LINGER

    def tunnel(self) -> HubTunnel:
        return HubTunnel(self.vpn, HUB_KEY, host=self.host, linger=self.linger)

    def ask_with_key(self, node: OldNode, public: str, *, uid: str) -> None:
        wanted = JoinRequest(endpoint=ENDPOINT, tunnel_key=public, key=SymmetricKey(node.key))
        ends = {"runtime_endpoint": "a", "image_endpoint": "b", "random": RANDOM}
        self.send(requests.write(node.name, wanted, recipient=LOADED.recipient, **ends), uid=uid)

    def records(self) -> dict[str, JoinRecord]:
        store = self.store()
        found = {one.node: one for one in store.records()}
        store.close()
        return found

    def require_equal(self) -> None:
        active = [one for one in self.records().values() if one.active]
        assert self.host.peers() == {one.tunnel_key: frozenset(f"{text}/32" for text in one.leases) for one in active}


def new_key() -> str:
    return wireguard.public_key(wireguard.new_private_key(RANDOM))


@pytest.fixture
def network(tmp_path):
    return Network(tmp_path)


@pytest.mark.parametrize("place", [FilePlace, SecretsPlace], ids=["sqlite", "secrets"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_hub_killed_at_any_step_assigns_one_address_and_has_one_peer(tmp_path, after, place):
    kills, leases = 0, set()
    for number in range(30):
        directory = tmp_path / str(number)
        directory.mkdir()
        network = Network(directory, place=place)
        network.ask(OldNode("worker", ENDPOINT))

        def issued(network=network):
            return network.status("worker") == "True Issued" and network.ready()

        killed = await network.serve(issued, killer=Killer(number, after=after))
        if killed:
            kills += 1
            assert not await network.serve(issued)
        network.require_equal()
        leases |= set(network.records()["worker"].leases)
        assert len(network.host.peers()) == 1
        if not killed:
            break
    assert kills >= 9
    assert len(leases) == 1  # the same for a name each time


async def test_concurrent_joins_get_different_addresses(network):
    for number in range(40):
        network.ask(OldNode(f"w-{number}", ENDPOINT))
    assert not await network.serve(lambda: all(network.status(f"w-{number}") == "True Issued" for number in range(40)))
    network.require_equal()
    assert len({lease for one in network.records().values() for lease in one.leases}) == 40


async def test_a_node_waits_while_the_network_is_full(tmp_path):
    network = Network(tmp_path, NARROW)
    for number in range(6):
        network.ask(OldNode(f"w-{number}", ENDPOINT))

    def states() -> list[str]:
        return sorted(network.status(f"w-{number}") for number in range(6))

    assert not await network.serve(lambda: states() == ["True Issued"] * 5 + ["Unknown NoAddress"])
    given = {lease for one in network.records().values() for lease in one.leases}
    assert given == {f"10.64.0.{number}" for number in range(2, 7)}
    [waiting] = [f"w-{number}" for number in range(6) if network.status(f"w-{number}") == "Unknown NoAddress"]
    store = network.store()
    store.forget(next(iter(network.records().values())), event())
    store.close()
    assert not await network.serve(lambda: network.status(waiting) == "True Issued")
    network.require_equal()


async def test_another_key_of_the_same_machine_replaces_its_peer_and_keeps_its_address(network):
    node, first, second = OldNode("worker", ENDPOINT), new_key(), new_key()
    network.ask_with_key(node, first, uid="u1")
    assert not await network.serve(lambda: network.status("worker") == "True Issued")
    assert set(network.host.peers()) == {first}
    lease = network.records()["worker"].lease
    network.ask_with_key(node, second, uid="u2")
    assert not await network.serve(lambda: network.status("worker") == "True Issued")
    assert (set(network.host.peers()), network.records()["worker"].lease) == ({second}, lease)
    network.require_equal()


async def test_a_key_of_another_node_is_refused(network):
    public = new_key()
    network.ask_with_key(OldNode("w-1", ENDPOINT), public, uid="u1")
    assert not await network.serve(lambda: network.status("w-1") == "True Issued")
    network.ask_with_key(OldNode("w-2", ENDPOINT), public, uid="u2")
    assert not await network.serve(lambda: network.status("w-2") == "False KeyTaken")
    assert list(network.records()) == ["w-1"]


async def test_addresses_of_foreign_nodes_are_not_assigned(network):
    [lease] = leases_of.pick(network.vpn.pools, "worker", kept=(), owners=lambda _: {})
    status = {"addresses": [{"type": "InternalIP", "address": lease}]}
    network.api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "control"}, "status": status})
    network.ask(OldNode("worker", ENDPOINT))
    assert not await network.serve(lambda: network.status("worker") == "True Issued")
    assert network.records()["worker"].leases not in {(), (lease,)}


async def test_claimed_addresses_block_no_one_and_those_of_control_planes_are_not_assigned(tmp_path):
    network = Network(tmp_path, NARROW)
    rows = [{"type": "InternalIP", "address": f"10.64.0.{number}"} for number in range(8)]
    roles = {"node-role.kubernetes.io/control-plane": ""}
    for name, labels, claimed in (("thief", {}, rows), ("control", roles, rows[4:5])):
        metadata = {"name": name, "labels": labels}
        network.api.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"addresses": claimed}})
    names = [f"w-{number}" for number in range(4)]
    for name in names:
        network.ask(OldNode(name, ENDPOINT))
    assert not await network.serve(lambda: all(network.status(name) == "True Issued" for name in names))
    assert {one.lease for one in network.records().values()} == {"10.64.0.2", "10.64.0.3", "10.64.0.5", "10.64.0.6"}
    network.ask(OldNode("late", ENDPOINT))
    assert not await network.serve(lambda: network.status("late") == "Unknown NoAddress")


async def test_a_node_cannot_request_a_vpn_address_as_name(network):
    network.ask(OldNode("worker", ENDPOINT, ("10.64.0.9",)))
    assert not await network.serve(lambda: network.status("worker") == "False SanNotAllowed")


async def test_the_peer_of_a_leaving_node_is_removed_after_a_while(network):
    network.ask(OldNode("stays", ENDPOINT))
    for linger in (0.3, 3.0, 30.0):  # on a busy machine, a short time is over before the Node is gone
        network.linger = linger
        worker = OldNode(f"worker-{linger}", ENDPOINT)
        network.ask(worker)
        assert not await network.serve(lambda name=worker.name: network.status(name) == network.status("stays") == "True Issued")
        network.leaving(worker)
        seen: list[int] = []

        def gone(name=worker.name, seen=seen) -> bool:
            if ("nodes", "", name) not in network.api.objects:
                seen.append(len(network.host.peers()))
            return bool(seen) and seen[-1] == 1

        assert not await network.serve(gone)
        network.require_equal()
        left = network.records()[worker.name]
        assert (left.state, left.lease, left.tunnel_key) == (State.LEFT, "", "")
        if seen[0] == 2:
            return
    pytest.fail("the peer was removed before its Node each time")


async def test_a_missing_interface_is_reported_and_the_join_continues_later(network):
    network.host.refuses = "wg is not installed"
    network.ask(OldNode("worker", ENDPOINT))
    assert not await network.serve(lambda: network.status("worker") == "Unknown VPNUnavailable")
    assert "wg is not installed" in network.request("worker")["status"]["conditions"][0]["message"]
    assert "vpn" not in network.request("worker")["status"]
    network.host.refuses = ""
    assert not await network.serve(lambda: network.status("worker") == "True Issued")
    network.require_equal()


async def test_changes_of_the_interface_are_repaired_at_the_next_check(network):
    network.ask(OldNode("worker", ENDPOINT))
    assert not await network.serve(lambda: network.status("worker") == "True Issued")
    network.host.remove_tunnel("wg-a")
    tunnel = network.tunnel()
    tunnel.load(network.records().values())
    before = network.host.looks
    await asyncio.gather(*(tunnel.follow() for _ in range(20)))
    network.require_equal()
    assert network.host.looks - before == 1  # of the first one; the others had nothing to add


async def test_a_join_updates_the_interface_and_recreates_a_removed_one(network):
    network.ask(OldNode("worker", ENDPOINT))
    assert not await network.serve(lambda: network.status("worker") == "True Issued")
    tunnel, records = network.tunnel(), list(network.records().values())
    tunnel.load(records)
    await tunnel.follow()
    looks = network.host.looks
    more = replace(records[0], node="more", lease="10.64.9.9", tunnel_key=new_key())
    tunnel.put(more)
    await tunnel.follow()
    assert (network.host.looks, len(network.host.peers())) == (looks, 2)
    tunnel.put(replace(more, state=State.LEFT))
    await tunnel.follow()
    assert (network.host.looks, len(network.host.peers())) == (looks, 1)
    network.host.remove_tunnel("wg-a")
    tunnel.put(more)
    await tunnel.follow()
    assert (network.host.looks, len(network.host.peers())) == (looks + 1, 2)
    network.host.refuses = "wg is not installed"
    tunnel.put(replace(more, node="third", lease="10.64.9.8", tunnel_key=new_key()))
    with pytest.raises(HostError):
        await tunnel.follow()
    network.host.refuses = ""
    await tunnel.follow()
    assert (network.host.looks, len(network.host.peers())) == (looks + 2, 3)


async def test_the_config_map_announces_the_vpn(network):
    assert not await network.serve(network.ready)
    assert network.api.objects["configmaps", "oneinfra-system", "oneinfra-join"]["data"]["vpn"] == "10.64.0.0/16"


async def test_the_interface_of_a_removed_or_renamed_cluster_is_removed(tmp_path):
    host = Interfaces(tmp_path)
    state = sqlite(tmp_path)
    first = cluster(vpn=WIDE, vpn_key=HUB_KEY, key_algorithm="ECDSA-P256")
    state.save_cluster(first, event())
    store, apis = StoreThread(sqlite(tmp_path)), FakeAPI()
    hub = Hub(store, connect=lambda _: TenantClient(apis, Access(server="https://api")), clock=SystemClock(), random=RANDOM, host=host)
    task = asyncio.create_task(hub.run())
    try:
        async with asyncio.timeout(HANGS):
            while host.tunnel("wg-a") is None:
                await asyncio.sleep(0.01)
            put(state, replace(first, vpn=replace(WIDE, interface="wg-b")))
            while host.tunnel("wg-b") is None or host.tunnel("wg-a") is not None:
                await asyncio.sleep(0.01)
            drop(state)
            while host.tunnel("wg-b") is not None:
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        store.close()
        state.close()
