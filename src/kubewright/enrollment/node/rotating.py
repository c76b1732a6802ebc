"""`node rotate-vpn-key`: replace the key of this machine's end of the VPN, which stays up.

The hub accepts the new key before this machine uses it, and keeps the old one valid until then. So the machine stays
reachable even if either side is killed half-way, and the same command continues with the same key.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.node_join_requests import VPN_KEY, VPN_KEY_ANSWER
from kubewright.base.change import Change, Lifetime
from kubewright.base.errors import APIError, HostError, NotFound, UsageError
from kubewright.base.events import Line, Waited
from kubewright.base.masking import remember
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.enrollment.node.joined_machine import JoinedMachine
from kubewright.enrollment.protocol import key_offers
from kubewright.enrollment.protocol.key_offers import AnswerState, KeyAnswer
from kubewright.host.desired import File, Service, Show, TunnelKey
from kubewright.host.states import TunnelState
from kubewright.kube import core
from kubewright.kube.objects import NodeMarks, ensure_node_marks
from kubewright.kube.resources import NODE
from kubewright.lifecycle.machine import TargetMachine
from kubewright.lifecycle.operation import Bound, Operation, Prepared
from kubewright.manifests import tunnels as units
from kubewright.manifests.tunnels import NODE_INTERFACE
from kubewright.pki import wireguard
from kubewright.workflow.phases import Phase, Phases

TOPIC: Final = "node-rotate"
_PRIVATE: Final = 0o700
_WITHIN: Final = 60.0
_LOOK, _LONGEST_LOOK = 0.1, 1.0
_AGAIN: Final = (
    "check that the hub runs (oneinfra's hub does not change keys); then run the same command again, which continues with this key"
)


class KeyRefused(APIError):
    """The hub refuses the new key. The message is the hub's."""


@dataclass(frozen=True, kw_only=True)
class NodeRotateOptions:
    """One call of `node rotate-vpn-key` or of one of its phases. `hub_key` is the hub's public key if that has changed, else ''."""

    hub_key: str = ""
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodeRotateContext(JoinedMachine):
    """One run. `hub_key` is the hub's new public key, '' if it has not changed."""

    hub_key: str = ""

    @property
    def key_path(self) -> PurePosixPath:
        """The file of the key that is used after the next boot."""
        return self.bound.host.layout.oneinfra / "wg.key"

    @property
    def next_key_path(self) -> PurePosixPath:
        """The file of the new key, until the hub has accepted it."""
        return self.bound.host.layout.next_tunnel_key

    @functools.cached_property
    def new(self) -> str:
        """The new private key: that of an interrupted run, otherwise a fresh one."""
        found = self.bound.host.read(self.next_key_path)
        return _key(found) if found is not None else wireguard.new_private_key(self.bound.machine.random)

    @property
    def current(self) -> str:
        """The private key in the file. Raises HostError if there is none."""
        found = self.bound.host.read(self.key_path)
        if found is None:
            raise HostError(f"{self.key_path} does not exist", remedy="join this machine again")
        return _key(found)

    def interface(self) -> TunnelState:
        """Read the state of the interface. Raises HostError if there is none."""
        found = self.bound.host.tunnel(NODE_INTERFACE)
        if found is None or not found.peers:
            raise HostError(f"the interface {NODE_INTERFACE} does not exist", remedy=f"start it: systemctl restart {NODE_INTERFACE}")
        return found

    def answer(self) -> KeyAnswer | None:
        """Return the hub's answer to the new key, None if there is none yet. Raises KeyRefused."""
        found = core.metadata(self.api.get(NODE, self.node)).get("annotations") or {}
        answer = key_offers.read_answer(str(found.get(VPN_KEY_ANSWER) or ""))
        if answer is None or answer.key != wireguard.public_key(self.new):
            return None
        if answer.state is AnswerState.REFUSED:
            raise KeyRefused(
                f"the hub refuses the new key of {self.node}: {answer.reason}",
                remedy=f"ask the operator of the hub; to start with another key, remove {self.next_key_path}",
            )
        return answer

    def say(self, text: str) -> None:
        """Report one line of progress."""
        self.bound.reporter.emit(Line(topic=TOPIC, text=text))


def _key(content: bytes) -> str:
    return remember(content.decode(errors="replace").strip())


def only_with_hub_key(ctx: NodeRotateContext) -> str | None:
    """Skip the phase if the hub's key has not changed."""
    return None if ctx.hub_key else "--hub-key was not given"


def follow_hub(ctx: NodeRotateContext) -> Iterator[Change | Waited]:
    """Use the hub's new key.

    The interface is recreated, because it reaches nobody with the old key. Raises WaitTimeout.
    """
    host, path = ctx.bound.host, units.unit_path(NODE_INTERFACE)
    unit = File(path=path, content=units.with_peer(host.read(path) or b"", ctx.hub_key), mode=0o644)
    change = host.ensure(Service(name=NODE_INTERFACE, enabled=True, units=(unit,)))
    yield change
    ctx.say("This machine uses the hub's new key" if change else "This machine already uses this key of the hub")
    yield ctx.bound.waiter.until(
        lambda: None if any(peer.handshake for peer in ctx.interface().peers) else "it has not answered",
        within=_WITHIN,
        saying="the hub to answer in the VPN",
        every=_LOOK,
        at_most=_LONGEST_LOOK,
        remedy="compare the key with `kubewright hub cluster list -o json` on the hub (vpnKey), then run the same command again",
    )


def make(ctx: NodeRotateContext) -> Iterator[Change]:
    """Store the new key before it is sent to anyone."""
    content = f"{ctx.new}\n".encode()
    wireguard.public_key(ctx.new)
    yield ctx.bound.host.ensure(
        File(path=ctx.next_key_path, content=content, show=Show.MADE, directory_mode=_PRIVATE, lifetime=Lifetime.EPHEMERAL)
    )


def until_used(ctx: NodeRotateContext) -> str | None:
    """Skip the phase if this machine uses the new key already, which implies that the hub has accepted it."""
    return f"{ctx.key_path} has the new key" if ctx.current == ctx.new else None


def offer(ctx: NodeRotateContext) -> Iterator[Change | Waited]:
    """Offer the new key, and wait until the hub accepts it. Raises KeyRefused, and WaitTimeout if no hub does."""
    [peer, *_] = ctx.interface().peers
    offered = key_offers.offer(ctx.node, current=ctx.current, new=ctx.new, hub=peer.public_key)
    try:
        before = core.metadata(ctx.api.get(NODE, ctx.node)).get("annotations") or {}
        old: dict[str, str | None] = {} if before.get(VPN_KEY) == offered.text else {VPN_KEY_ANSWER: None}  # the answer to an earlier offer
        yield ensure_node_marks(ctx.api, NodeMarks(name=ctx.node, annotations={**old, VPN_KEY: offered.text}))
    except NotFound as error:
        raise APIError(
            f"the Node {ctx.node} does not exist", remedy="make sure that the kubelet is running; or join this machine again"
        ) from error
    ctx.say(f"Offered the hub a new key for {ctx.node}")
    yield ctx.bound.waiter.until(
        lambda: None if ctx.answer() is not None else "it has not answered yet",
        within=_WITHIN,
        saying="the hub to receive the new key",
        every=_LOOK,
        at_most=_LONGEST_LOOK,
        remedy=_AGAIN,
    )


def use(ctx: NodeRotateContext) -> Iterator[Change]:
    """Switch to the new key: first for the next boot, then now."""
    yield ctx.bound.host.ensure(File(path=ctx.key_path, content=f"{ctx.new}\n".encode(), show=Show.MADE))
    yield ctx.bound.host.ensure(TunnelKey(name=NODE_INTERFACE, private_key=ctx.new))
    ctx.say("This machine uses the new key")


def taken(ctx: NodeRotateContext) -> Iterator[Waited]:
    """Wait until the hub has given this machine's place in the VPN to the new key. Raises WaitTimeout."""
    yield ctx.bound.waiter.until(
        lambda: _untaken(ctx),
        within=_WITHIN,
        saying="the hub to accept the new key",
        every=_LOOK,
        at_most=_LONGEST_LOOK,
        remedy=f"{_AGAIN}; `wg show {NODE_INTERFACE}` shows whether the hub answers",
    )
    ctx.say("The hub has accepted the new key")


def _untaken(ctx: NodeRotateContext) -> str | None:
    try:
        answer = ctx.answer()
    except KeyRefused:
        raise
    except APIError as error:  # the API server may be reachable only through the tunnel
        return str(error)
    return None if answer is not None and answer.state is AnswerState.TAKEN else "this machine has not connected with it yet"


def forget(ctx: NodeRotateContext) -> Iterator[Change]:
    """Remove the copy of the key, so that the next run makes a new one."""
    yield ctx.bound.host.remove(ctx.next_key_path)


PHASES: Final[Phases[NodeRotateContext]] = Phases(
    Phase("hub-key", "Use the hub's new key", run=follow_hub, condition=only_with_hub_key, flags="hub-key"),
    Phase("vpn-key", "Generate a new key", run=make),
    Phase("offer", "Offer the new key to the hub", run=offer, condition=until_used),
    Phase("use-key", "Use the new key", run=use),
    Phase("taken", "Wait until the hub has accepted the new key", run=taken),
    Phase("forget-key", "Remove the copy of the new key", run=forget),
)


def configure(request: NodeRotateOptions, machine: TargetMachine) -> Prepared[None]:
    """Require a machine that is in a VPN through a hub. Raises HostError, and UsageError for an invalid key of the hub."""
    if request.hub_key and not wireguard.is_key(request.hub_key):
        raise UsageError(
            f"{quoted(request.hub_key)} is not a hub key", remedy="pass the vpnKey that `kubewright hub cluster list -o json` shows"
        )
    here = machine.at(machine.layout)
    if here.state(here.layout.oneinfra / "kubelet.conf") is None:
        raise HostError("this machine has not joined through a hub", remedy="kubewright node join")
    if not units.is_ours(here.read(units.unit_path(NODE_INTERFACE))):
        raise HostError("this machine is not in the VPN of a hub", remedy="see `kubewright hub cluster add --help`, flags --vpn-…")
    return Prepared(configuration=None, host=here, only=request.only, skip=request.skip)


def context(request: NodeRotateOptions, _: None, bound: Bound) -> NodeRotateContext:
    """Make the context of the phases."""
    return NodeRotateContext(bound=bound, hub_key=request.hub_key)


NODE_ROTATE: Final = Operation(name="node rotate-vpn-key", phases=PHASES, configure=configure, context=context)
