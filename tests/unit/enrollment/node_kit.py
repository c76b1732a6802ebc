"""Machines that join through a hub, in memory or below a directory, and the cluster whose hub answers; a run may be killed at each step."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from hub_kit import API_CA, CLOCK, cluster
from tenants_kit import LOADED, Killed, Killer, PreparedKeys

from kubewright.apis.kubeconfig import parse, require_usable
from kubewright.apis.machine import Layout
from kubewright.apis.node_join_requests import VPN_NETWORKS, Condition
from kubewright.base import yaml
from kubewright.base.errors import APIError
from kubewright.base.events import RecordingReporter
from kubewright.base.randomness import SeededRandom
from kubewright.enrollment.hub import issuing
from kubewright.enrollment.node.operation import NODE_JOIN
from kubewright.enrollment.node.request import NodeJoinOptions
from kubewright.enrollment.protocol import answers, requests
from kubewright.enrollment.state.clusters import LoadedCluster
from kubewright.enrollment.vpn.network import VPN
from kubewright.host.filesystem.files import Files
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.host.seam import Host
from kubewright.host.states import TunnelPeerState, TunnelState
from kubewright.http.messages import Response
from kubewright.kube.recording import RecordingKube
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.engine import run
from kubewright.lifecycle.machine import TargetMachine
from kubewright.manifests import kubelet, tunnels
from kubewright.pki import certificates, wireguard
from operation_kit import stand_in_machine

TOKEN = "abcdef.0123456789abcdef"
LEFT_OUT = ("preflight", "kubelet-install", "kubelet-start", "node-ready")
PUBLISHED = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "oneinfra-join", "namespace": "oneinfra-system"}}


class HubCluster(RecordingKube):
    """A cluster whose hub answers at once, once for each name."""

    loaded = LOADED
    lease: tuple[str, ...] = ()
    version = b'{"gitVersion": "v1.36.3"}'
    refusals: tuple[APIError, ...] = ()
    """The answers to the next calls: an API server that has just started refuses everybody."""
    ready = 200
    """The status of `/readyz`."""

    def __init__(self, **data: str) -> None:
        super().__init__()
        self.create({**PUBLISHED, "data": {"joinKey": LOADED.public_key, **data}})
        self.killer = Killer()
        self.condition = Condition(status="True", reason="Issued")
        self.change = lambda answer: answer
        self.created = 0

    def send(self, call):
        if self.refusals:
            refusal, *self.refusals = self.refusals
            raise refusal
        if call.verb != "create" or call.resource.kind != "NodeJoinRequest":
            return super().send(call)
        last = self.killer.before()
        found = super().send(self.answered(call))
        self.created += 1
        if last:
            raise Killed
        return found

    def exchange(self, request):
        if (request.method, request.target) == ("GET", "/readyz"):
            return Response(status=self.ready, headers={}, body=b"")
        assert (request.method, request.target) == ("GET", "/version")
        return Response(status=200, headers={}, body=self.version)

    def answered(self, call):
        wanted = requests.read(call.body, join_key=LOADED.join_key)
        given = {"lease": self.lease, "key_source": PreparedKeys(), "started": CLOCK.now(), "random": SeededRandom(5)}
        issued = issuing.issue(self.loaded, call.name, wanted, **given)
        status = answers.write(self.change(issued.answer), wanted.key, random=SeededRandom(6))
        changed = copy.copy(call)
        changed.__dict__["body"] = {**call.body, "status": {**status, "conditions": [self.condition.document(CLOCK.now())]}}
        return changed


class Dying:
    """A host whose process may be killed before or after each of its actions."""

    killer = Killer()

    def ensure(self, desired, /):
        last = self.killer.before()
        change = super().ensure(desired)
        if last:
            raise Killed
        return change

    def remove(self, path, /, *, own=()):
        last = self.killer.before()
        change = super().remove(path, own=own)
        if last:
            raise Killed
        return change


class KilledHost(Dying, RealHost):
    pass


class Box:
    def __init__(self, root: Path) -> None:
        self.layout = Layout.below(PurePosixPath(root))
        self.cluster = HubCluster()
        self.seed = 7
        self.reporter = RecordingReporter()

    def join(self, *, killer: Killer | None = None, mode: Mode = Mode.APPLY, **more: object):
        chosen = killer or Killer()
        self.cluster.killer = chosen
        machine = TargetMachine(
            at=lambda layout: self.host(layout, chosen), clock=CLOCK, random=SeededRandom(self.seed), layout=self.layout, environment={}
        )
        given = {"node": "worker", "server": "https://10.0.0.1:6443", "ca_pem": API_CA[0].encode(), "token": TOKEN, "skip": LEFT_OUT}
        pin = {"fingerprint": str(LOADED.recipient.pin), "sans": ("10.0.0.5",)}
        reached = stand_in_machine(machine, client=lambda *_: self.cluster)
        return run(NODE_JOIN, NodeJoinOptions(**{**given, **pin, **more}), reached, mode=mode, reporter=self.reporter)

    def host(self, layout: Layout, killer: Killer) -> Host:
        host = KilledHost(layout=layout, files=Files(durable=False), environment={})
        host.killer = killer
        return host

    def require_whole(self) -> None:
        place = Path(self.layout.oneinfra)
        pair = certificates.pair_of((place / "kubelet.crt").read_bytes(), (place / "kubelet.key").read_bytes(), source="serving")
        assert pair.leaf.names.ips == ("127.0.0.1", "::1", "10.0.0.5")
        user = require_usable(parse(yaml.load_one((place / "kubelet.conf").read_bytes(), source="kubelet.conf"))).user
        client = certificates.pair_of(user.client_certificate_data, user.client_key_data, source="client")
        assert client.leaf.common_name == "system:node:worker"
        assert {path.name: path.stat().st_mode & 0o777 for path in place.iterdir()} == dict.fromkeys(
            ("kubelet.crt", "kubelet.key", "kubelet-client-ca.crt", "kubelet.conf"), 0o600
        )
        assert not (Path(self.layout.state) / "node-join.key").exists()


UNIT = tunnels.unit_path("oi-wg")
HUB_KEY = wireguard.new_private_key(SeededRandom(1))
# a network to which no test machine belongs (RFC 2544)
WIDE = VPN(networks=("198.18.0.0/16",), endpoint="hub.example:51820", interface="wg-a")
WITH_SERVICES = tuple(phase for phase in LEFT_OUT if phase not in {"kubelet-start", "preflight"})


class VPNCluster(HubCluster):
    lease = ("198.18.0.7",)

    def __init__(self, *, ours: bool) -> None:
        super().__init__(**({VPN_NETWORKS: "198.18.0.0/16"} if ours else {}))
        self.loaded = LoadedCluster(cluster(vpn=WIDE, vpn_key=HUB_KEY, key_algorithm="ECDSA-P256"))


class Interface:
    """The interface of a machine in memory: it exists while its service runs, with the key of the file at its start, or one set since."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.key = ""

    def state(self, name, /):
        service = self._disk.service(name)
        if self._disk.read(UNIT) is None or service is None or not service.running:
            return None
        key = self.key or (self._disk.read(self._disk.layout.oneinfra / "wg.key") or b"").decode().strip()
        peer = (self._disk.read(UNIT) or b"").decode().partition(" peer ")[2][:44]
        peers = (TunnelPeerState(public_key=peer, networks=frozenset(), keepalive=20, handshake=1.0 if self._disk.heard else 0.0),)
        return TunnelState(private_key=key, port=1, addresses=frozenset(), mtu=1420, up=True, forwards=True, peers=peers)

    def set_key(self, desired, /):
        self.key = desired.private_key

    def remove(self, name, found, /):
        self.key = ""


class Disk(Dying, OverlayHost):
    """A machine in memory, with systemd: what is written stays when a run is killed."""

    heard = True
    """Whether the hub answers in the VPN."""

    @functools.cached_property
    def _tunnels(self):
        return Interface(self)

    def knows(self, name, state):
        """Add a service of a package."""
        self._planned_services._planned[name] = state


class Node(Box):
    def __init__(self, root: Path, *, ours: bool = True, programs: tuple[str, ...] = ("ip", "wg", "wireguard-go", "kubelet")) -> None:
        (root / "machine" / "run").mkdir(parents=True)  # of the lock, which is a real one
        super().__init__(root / "machine")
        self.cluster = VPNCluster(ours=ours)
        for name in programs:
            (root / name).write_text("#!/bin/sh\necho 'Device does not exist.' >&2\nexit 1\n")
            (root / name).chmod(0o755)
        self.disk = Disk(RealHost(layout=Layout.below(PurePosixPath(root / "machine")), environment={"PATH": str(root)}))

    def host(self, layout, killer):
        self.disk.killer = killer
        return self.disk

    def join(self, **more: object):
        return super().join(**{"skip": ("preflight", *WITH_SERVICES), **more})

    def text(self, path: PurePosixPath) -> str:
        return (self.disk.read(path) or b"").decode()

    @property
    def key(self) -> str:
        return self.text(self.layout.oneinfra / "wg.key").strip()

    def require_tunnel(self, *, ours: bool) -> None:
        unit, drop_in = self.text(UNIT), self.text(kubelet.JOINED_DROP_IN)
        assert wireguard.is_key(wireguard.public_key(self.key))
        assert self.key not in unit + drop_in
        assert self.disk.state(self.layout.oneinfra / "wg.key").mode == 0o600
        assert f"peer {wireguard.public_key(HUB_KEY)} endpoint hub.example:51820" in unit
        assert ("--node-ip=198.18.0.7 " in drop_in) is ours
        service = self.disk.service("oi-wg")
        assert (service.running, service.enabled) == (True, True)
        assert self.disk.read(self.layout.state / "node-tunnel.key") is None


def killed_at_each_step(make: Callable[[int], Box], act: Callable[[Box, Killer], object], *, after: bool, most: int = 60) -> Iterator[Box]:
    """Create a machine for each step, and kill it there; yields the killed ones, until a run needs fewer steps."""
    for number in range(most):
        box = make(number)
        try:
            act(box, Killer(number, after=after))
        except Killed:
            yield box
        else:
            return
    raise AssertionError("a run does not end")
