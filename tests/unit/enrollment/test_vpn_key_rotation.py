"""A node that replaces its VPN key: whether hub or node is killed, the node stays reachable, and peers match the records."""

from __future__ import annotations

import pytest
from hub_kit import CLOCK, keep
from node_kit import HUB_KEY as NODES_HUB_KEY
from node_kit import UNIT, Node, VPNCluster, killed_at_each_step
from old_peer import OldNode
from tenants_kit import FilePlace, Killed, Killer, SecretsPlace
from test_vpn_at_work import HUB_KEY, Network

from kubewright.apis.node_join_requests import VPN_KEY, VPN_KEY_ANSWER
from kubewright.base.errors import CertificateError, HostError, UsageError, WaitTimeout
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.enrollment.node.rotating import NODE_ROTATE, KeyRefused, NodeRotateOptions
from kubewright.enrollment.protocol import key_offers
from kubewright.enrollment.protocol.key_offers import AnswerState, KeyAnswer
from kubewright.host.states import TunnelPeerState
from kubewright.kube import core
from kubewright.kube.resources import NODE
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.engine import run
from kubewright.lifecycle.machine import TargetMachine
from kubewright.pki import wireguard
from operation_kit import stand_in_machine

RANDOM = SeededRandom(11)
OLD, NEW, OTHER, OTHER_HUB = (wireguard.new_private_key(RANDOM) for _ in range(4))
HUB = wireguard.public_key(HUB_KEY)
SMALL = "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
"""A point of small order: the shared secret of any key with it is zero."""


def given(current: str = OLD, new: str = NEW, node: str = "worker") -> key_offers.KeyOffer:
    return key_offers.offer(node, current=current, new=new, hub=HUB)


def proven(offer: key_offers.KeyOffer | None, *, node: str = "worker", current: str = OLD) -> bool:
    assert offer is not None
    return key_offers.is_proven(offer, node, current=wireguard.public_key(current), hub=HUB_KEY)


def test_an_offer_is_signed_with_both_keys_for_one_node_and_one_hub():
    offer = given()
    assert key_offers.read(offer.text) == offer
    assert proven(key_offers.read(offer.text))
    assert not proven(offer, node="other")
    assert not proven(offer, current=NEW)  # after the change it proves nothing any more
    assert not proven(given(current=OTHER))
    assert not proven(replace(offer, key=wireguard.public_key(OTHER)))
    assert not key_offers.is_proven(offer, "worker", current=wireguard.public_key(OLD), hub=OTHER)
    assert not proven(replace(offer, proof="é"))
    assert not proven(replace(offer, key=SMALL))
    with pytest.raises(CertificateError, match="yields the same secret with every other key"):
        wireguard.agreed(OLD, SMALL)


@pytest.mark.parametrize("text", ["", "x", f"{HUB}", f"{HUB} a b", "A" * 300, f"{'A' * 43}= proof", "k p"])
def test_invalid_offers_are_ignored(text):
    assert key_offers.read(text) is None


def test_answers_to_offers_are_read_back_unchanged():
    for answer in (KeyAnswer(state=AnswerState.WAITING, key=HUB), KeyAnswer(state=AnswerState.REFUSED, key=HUB, reason="it is another's")):
        assert key_offers.read_answer(answer.text) == answer
    assert key_offers.read_answer("perhaps x") is None


class Rotating(Network):
    """A hub with one node, whose handshakes are simulated."""

    def __init__(self, directory, **more: type[FilePlace | SecretsPlace]) -> None:
        directory.mkdir(exist_ok=True)
        super().__init__(directory, **more)
        self.calls: dict[str, float] = {}
        self.reads = 0
        seen = self.host.tunnel

        def tunnel(name, /):
            self.reads += 1
            found = seen(name)
            return replace(found, peers=tuple(self._called(peer) for peer in found.peers)) if found is not None else None

        self.host.tunnel = tunnel

    def _called(self, peer: TunnelPeerState) -> TunnelPeerState:
        return replace(peer, handshake=self.calls.get(peer.public_key, 0.0))

    async def joined(self) -> None:
        self.ask_with_key(OldNode("worker", "https://10.0.0.1:6443"), wireguard.public_key(OLD), uid="u1")
        assert not await self.serve(lambda: self.status("worker") == "True Issued" and self.ready())
        self.calls[wireguard.public_key(OLD)] = 5.0
        self.put(None)

    def put(self, offer: key_offers.KeyOffer | None, name: str = "worker") -> None:
        annotations = {VPN_KEY: offer.text} if offer is not None else {}
        self.api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "annotations": annotations}})

    def answer(self, name: str = "worker") -> str:
        return self.api.objects["nodes", "", name]["metadata"].get("annotations", {}).get(VPN_KEY_ANSWER, "")

    @property
    def events(self) -> list[str]:
        store = self.store()
        found = [line.event for line in store.journal()]
        store.close()
        return found


@pytest.fixture
def rotating(tmp_path):
    return Rotating(tmp_path / "hub")


async def test_the_old_key_is_valid_until_the_new_one_is_used(rotating):
    await rotating.joined()
    lease = rotating.records()["worker"].lease
    old, new = wireguard.public_key(OLD), wireguard.public_key(NEW)
    rotating.put(given())
    assert not await rotating.serve(lambda: rotating.answer() == f"waiting {new}")
    assert rotating.host.peers() == {old: frozenset({f"{lease}/32"}), new: frozenset()}
    assert rotating.records()["worker"].tunnel_key == old
    rotating.calls[new] = 4.0  # before the node used its old key again
    before = rotating.reads
    assert not await rotating.serve(lambda: rotating.reads > before + 2)
    assert rotating.records()["worker"].tunnel_key == old
    rotating.calls[new] = 6.0
    assert not await rotating.serve(lambda: rotating.answer() == f"taken {new}")
    assert rotating.records()["worker"].tunnel_key == new
    assert rotating.records()["worker"].lease == lease
    rotating.require_equal()
    assert rotating.events == ["issued", "vpn key changed"]


@pytest.mark.parametrize("place", [FilePlace, SecretsPlace], ids=["sqlite", "secrets"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_hub_killed_at_any_step_of_a_key_change_completes_it(tmp_path, after, place):
    new, kills = wireguard.public_key(NEW), 0
    for number in range(20):
        hub = Rotating(tmp_path / str(number), place=place)
        await hub.joined()
        hub.put(given())
        hub.calls[new] = 6.0
        killed = await hub.serve(lambda hub=hub: hub.answer() == f"taken {new}", killer=Killer(number, after=after))
        if not killed:
            break
        kills += 1
        assert not await hub.serve(lambda hub=hub: hub.answer() == f"taken {new}" and len(hub.host.peers()) == 1)
        assert hub.records()["worker"].tunnel_key == new
        hub.require_equal()
        assert hub.events.count("vpn key changed") == 1
    assert kills >= 2


async def test_unproven_offers_and_keys_of_other_nodes_are_refused(rotating):
    await rotating.joined()
    rotating.put(given(current=OTHER))
    assert not await rotating.serve(lambda: "does not prove possession" in rotating.answer())
    rotating.ask_with_key(OldNode("second", "https://10.0.0.1:6443"), wireguard.public_key(NEW), uid="u2")
    assert not await rotating.serve(lambda: rotating.status("second") == "True Issued")
    rotating.put(given())
    assert not await rotating.serve(lambda: "it is another node's" in rotating.answer())
    assert rotating.records()["worker"].tunnel_key == wireguard.public_key(OLD)
    rotating.require_equal()
    rotating.put(given(node="stranger"), "stranger")
    assert not await rotating.serve(lambda: "it is another node's" in rotating.answer())
    assert rotating.answer("stranger") == ""


async def test_withdrawn_offers_and_deleted_nodes_leave_no_peer(rotating):
    await rotating.joined()
    rotating.put(given())
    assert not await rotating.serve(lambda: len(rotating.host.peers()) == 2)
    rotating.put(None)
    assert not await rotating.serve(lambda: len(rotating.host.peers()) == 1)
    rotating.require_equal()


async def test_a_restored_state_finds_the_node_again(rotating):
    await rotating.joined()
    new = wireguard.public_key(NEW)
    before = rotating.records()["worker"]
    rotating.put(given())
    rotating.calls[new] = 6.0
    assert not await rotating.serve(lambda: rotating.answer() == f"taken {new}")
    store = rotating.store()
    keep(store, before)
    store.close()
    assert not await rotating.serve(lambda: rotating.records()["worker"].tunnel_key == new)


class OfferedCluster(VPNCluster):
    """A cluster whose hub sees an offer at once, and accepts it when the machine uses the key."""

    node: Node
    reason = ""
    deaf = False

    def hub(self) -> None:
        found = super().send(core.get(NODE, "worker"))
        offer = key_offers.read((found["metadata"].get("annotations") or {}).get(VPN_KEY, ""))
        if offer is None or self.deaf:
            return
        if offer.key != self.key:
            assert key_offers.is_proven(offer, "worker", current=self.key, hub=self.node.hub_key)
        used = wireguard.public_key(self.node.disk.tunnel("oi-wg").private_key) == offer.key
        state = AnswerState.REFUSED if self.reason else AnswerState.TAKEN if used else AnswerState.WAITING
        if state is AnswerState.TAKEN:
            self.key = offer.key
        annotations = {VPN_KEY_ANSWER: KeyAnswer(state=state, key=offer.key, reason=self.reason).text}
        super().send(core.patch(NODE, "worker", {"metadata": {"annotations": annotations}}, type="merge"))

    def send(self, call):
        if call.resource == NODE and call.verb == "get":
            self.hub()
        last = call.resource == NODE and call.verb == "patch" and self.killer.before()
        found = super().send(call)
        if last:
            raise Killed
        return found


class Changing(Node):
    """A machine in a VPN, and its cluster."""

    def __init__(self, root) -> None:
        super().__init__(root)
        self.cluster = OfferedCluster(ours=True)
        self.cluster.node = self
        self.join()
        self.disk.killer = Killer()
        self.cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"}})
        self.cluster.key = wireguard.public_key(self.key)

    hub_key = NODES_HUB_KEY
    """The private key of the hub."""

    def rotate(self, killer: Killer | None = None, *, mode: Mode = Mode.APPLY, hub_key: str = ""):
        self.cluster.killer = self.disk.killer = killer or Killer()
        machine = TargetMachine(at=lambda _: self.disk, clock=CLOCK, random=RANDOM, layout=self.layout, environment={})
        reached = stand_in_machine(machine, client=lambda *_: self.cluster)
        return run(NODE_ROTATE, NodeRotateOptions(hub_key=hub_key), reached, mode=mode, reporter=self.reporter)

    def require_changed(self, before: str) -> None:
        assert self.key != before
        assert self.disk.tunnel("oi-wg").private_key == self.key
        assert wireguard.public_key(self.key) == self.cluster.key
        assert self.disk.read(self.layout.state / "node-tunnel-next.key") is None
        assert self.disk.state(self.layout.oneinfra / "wg.key").mode == 0o600


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_node_killed_at_any_step_of_a_key_change_completes_it_with_the_same_key(tmp_path, after):
    kills, keys = 0, {}

    def change(node, killer):
        keys[node] = node.key
        node.rotate(killer)

    for node in killed_at_each_step(lambda number: Changing(tmp_path / str(number)), change, after=after):
        kills += 1
        offered = key_offers.read(node.cluster.get(NODE, "worker")["metadata"].get("annotations", {}).get(VPN_KEY, ""))
        used = wireguard.public_key(node.disk.tunnel("oi-wg").private_key)
        assert used in {node.cluster.key, offered.key if offered is not None else ""}  # whichever key is valid, the hub sees it
        finished = used == node.cluster.key and node.disk.read(node.layout.state / "node-tunnel-next.key") is None and used != keys[node]
        node.rotate()
        node.require_changed(keys[node])
        if offered is not None and used != wireguard.public_key(keys[node]) and not finished:
            assert node.cluster.key == offered.key
    assert kills >= 5


def test_each_run_replaces_the_key_again_and_shows_no_key(tmp_path):
    node = Changing(tmp_path)
    first = node.key
    done = node.rotate()
    second = node.key
    node.require_changed(first)
    node.rotate()
    node.require_changed(second)
    told = repr(done.changes) + repr(node.reporter.events)
    assert [key for key in (first, second, node.key) if key in told] == []


def test_a_plan_changes_nothing(tmp_path):
    node = Changing(tmp_path)
    before = node.key
    planned = {one.target: one.action.value for one in node.rotate(mode=Mode.PLAN).changes}
    assert (planned["node worker"], planned["key of tunnel oi-wg"]) == ("update", "update")
    assert (node.key, node.disk.tunnel("oi-wg").private_key) == (before, before)
    assert VPN_KEY not in node.cluster.get(NODE, "worker")["metadata"].get("annotations", {})


def test_a_refusal_of_the_hub_is_reported_and_the_old_key_stays(tmp_path):
    node = Changing(tmp_path)
    before, node.cluster.reason = node.key, "it is another node's"
    with pytest.raises(KeyRefused, match="refuses the new key of worker: it is another node's"):
        node.rotate()
    assert (node.key, node.disk.tunnel("oi-wg").private_key) == (before, before)


def test_answers_to_other_offers_are_ignored(tmp_path):
    node = Changing(tmp_path)
    before, node.cluster.reason = node.key, "the offer does not prove possession of the node's current key and of the new one"
    with pytest.raises(KeyRefused):
        node.rotate()
    node.cluster.reason, node.cluster.deaf = "", True
    node.hub_key = OTHER_HUB  # with which the proof is another one
    with pytest.raises(WaitTimeout, match="the hub to receive the new key"):
        node.rotate(hub_key=wireguard.public_key(OTHER_HUB))
    node.cluster.deaf = False
    node.rotate(hub_key=wireguard.public_key(OTHER_HUB))
    node.require_changed(before)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_killed_node_still_follows_a_new_key_of_the_hub(tmp_path, after):
    kills, key = 0, wireguard.public_key(OTHER_HUB)

    def follow(node, killer):
        node.hub_key = OTHER_HUB
        node.rotate(killer, hub_key=key)

    for node in killed_at_each_step(lambda number: Changing(tmp_path / str(number)), follow, after=after):
        kills += 1
        node.rotate(hub_key=key)
        unit = node.text(UNIT)
        assert (unit.count(key), unit.count(wireguard.public_key(NODES_HUB_KEY))) == (1, 0)
        assert wireguard.public_key(node.key) == node.cluster.key
    assert kills >= 6


@pytest.mark.parametrize("text", ["x", "A" * 44, SMALL[:-1]])
def test_an_invalid_key_of_the_hub_is_refused(tmp_path, text):
    node = Changing(tmp_path)
    before = node.text(UNIT)
    with pytest.raises(UsageError, match="is not a hub key"):
        node.rotate(hub_key=text)
    assert node.text(UNIT) == before


def test_the_old_key_stays_if_no_hub_answers(tmp_path):
    node = Changing(tmp_path)
    before, node.cluster.deaf = node.key, True
    with pytest.raises(WaitTimeout, match="the hub to receive the new key"):
        node.rotate()
    assert (node.key, node.disk.tunnel("oi-wg").private_key) == (before, before)
    node.cluster.deaf = False
    node.rotate()
    node.require_changed(before)


def test_machines_without_a_vpn_or_a_join_are_reported(tmp_path):
    node = Changing(tmp_path)
    node.disk.remove(node.layout.oneinfra / "wg.key")
    with pytest.raises(HostError, match=r"wg.key does not exist"):
        node.rotate()
    node.disk.remove_units("oi-wg", units=(UNIT,))
    with pytest.raises(HostError, match="is not in the VPN"):
        node.rotate()
    node.disk.remove(node.layout.oneinfra / "kubelet.conf")
    with pytest.raises(HostError, match="has not joined through a hub"):
        node.rotate()
