"""This machine's member of etcd, read from its manifests, also while an operation keeps them in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kubewright.apis import formats
from kubewright.apis.machine import url
from kubewright.base import yaml
from kubewright.base.errors import HostError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.host.desired import File
from kubewright.host.overlay import OverlayHost
from kubewright.lifecycle.steps import checkpoint
from kubewright.lifecycle.steps.checkpoint import ABSENT, Checkpoint, State
from kubewright.lifecycle.steps.component_versions import core
from kubewright.lifecycle.steps.detected_cluster import API_SERVER, ETCD, DetectedCluster, StaticPod, read_static_pod
from kubewright.lifecycle.steps.static_pods import MANIFEST_MODE
from kubewright.lifecycle.steps.stopping import StoppingPods

if TYPE_CHECKING:
    from kubewright.apis.machine import Layout
    from kubewright.host.seam import Host

FENCE: Final = "etcd-fence"
RESTORE: Final = "etcd-restore"
REPLACE: Final = "etcd-member-replace"
RESTORE_BACKUP: Final = "backup-restore"
"""The names of the operations in checkpoints."""
_PARKING: Final = (FENCE, RESTORE, REPLACE)
_API_SERVER_PORT: Final = "6443"
_OWN_PEER: Final = "initial-advertise-peer-urls"


@dataclass(frozen=True, kw_only=True)
class ThisMember:
    """A member of etcd and the API server on the same machine.

    `client_urls` begin with that of its loopback address. `manifests` are the contents of the manifests by component;
    there may be no API server. `peers` are the peer URLs of the other members by name: those in its manifest, and in the
    one that an interrupted replacement is going to start it with. `version` is that of its image.
    """

    name: str
    peer_url: str
    client_urls: tuple[str, ...]
    layout: Layout
    version: str
    kubernetes: str
    manifests: Mapping[str, bytes]
    peers: Mapping[str, str]
    pods: StoppingPods
    api_server: str = ""

    @property
    def paths(self) -> tuple[PurePosixPath, ...]:
        """The paths of the manifests."""
        return tuple(self.layout.manifest(name) for name in self.manifests)

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports of this machine for clients of etcd and of the API server. Other control planes are expected to use the same ones."""
        return tuple(port for one in (self.client_urls[0], self.api_server) if (port := urlsplit(one).port))


def parked(host: Host) -> Checkpoint | None:
    """Return the checkpoint that keeps the manifests of etcd and the API server; None if they are in place."""
    found = [one for one in checkpoint.every(host) if one.operation in _PARKING and one.state in (State.IN_PROGRESS, State.DONE)]
    last = found[-1] if found else None
    return last if last and any(swap.parks and host.state(swap.target) is None for swap in last.swaps) else None


def find(host: Host) -> ThisMember:
    """Read the manifests of this machine. Raises HostError if it has no member, or one with an unsupported manifest."""
    before = OverlayHost(host)
    kept = parked(host)
    for swap in kept.swaps if kept else ():
        if kept and swap.parks and host.state(swap.target) is None:
            content = checkpoint.content(host, kept, swap, side="new" if swap.before == ABSENT else "old")
            before.ensure(File(path=swap.target, content=content, mode=swap.new_mode))
    detected, path = DetectedCluster(before), host.layout.manifest(ETCD)
    etcd = read_static_pod(before, path)
    if etcd is None:
        raise HostError(
            "this machine has no member of etcd",
            detail=f"there is no {path}",
            remedy="run this on a control plane whose etcd runs as a static pod",
        )
    name, peer_url = etcd.argument("name"), etcd.argument(_OWN_PEER).partition(",")[0]
    clients = tuple(one for one in etcd.argument("listen-client-urls").split(",") if one)
    if etcd.argument("wal-dir") or not (name and peer_url and clients):
        raise _unsuitable(path, "it has --wal-dir, or no --name, --listen-client-urls or --initial-advertise-peer-urls")
    contents = {one: before.read(host.layout.manifest(one)) for one in (ETCD, API_SERVER)}
    server = detected.api_server
    port = _server_port(server, host.layout.manifest(API_SERVER)) if server else 0
    return ThisMember(
        name=name,
        peer_url=peer_url,
        client_urls=clients,
        layout=detected.layout,
        version=core(etcd.image_tag),
        kubernetes=server.image_tag if server else "",
        manifests={one: content for one, content in contents.items() if content is not None},
        peers={**_peers(etcd, own=peer_url), **_peers_of_replacement(host, path, own=peer_url)},
        pods=_pods(name, server, held=_held(etcd, path), port=port),
        api_server=url(server.argument("advertise-address"), port) if server else "",
    )


def _unsuitable(path: PurePosixPath, detail: str) -> HostError:
    return HostError(
        f"{path} is not a manifest that this command can work with",
        detail=detail,
        remedy="restore this member by hand, as etcd's documentation describes",
    )


def _peers(etcd: StaticPod, *, own: str) -> Mapping[str, str]:
    entries = (entry.partition("=") for entry in etcd.argument("initial-cluster").split(",") if entry)
    return {name: peer for name, _, peer in entries if peer != own}


def _peers_of_replacement(host: Host, path: PurePosixPath, *, own: str) -> Mapping[str, str]:
    """Return the peers in the manifest that an interrupted replacement has prepared: it names all members, unlike that of a first control plane."""
    begun = checkpoint.unfinished(checkpoint.every(host))
    if begun is None or begun.operation != REPLACE:
        return {}
    swap = next((one for one in begun.swaps if one.target == path), None)
    if swap is None:
        return {}
    body: Any = yaml.load(checkpoint.content(host, begun, swap, side="new"), source=str(path))
    return _peers(StaticPod(body=body), own=own)


def _pods(node: str, server: StaticPod | None, *, held: list[tuple[str, int]], port: int) -> StoppingPods:
    """Return the static pods, with the addresses on which they listen: etcd at `held`, the API server at a port."""
    if server is None:
        return StoppingPods(names=(ETCD,), node=node, held=tuple(held))
    return StoppingPods(names=(ETCD, API_SERVER), node=node, held=(*held, (server.argument("advertise-address"), port)))


def _held(etcd: StaticPod, path: PurePosixPath) -> list[tuple[str, int]]:
    """Return the addresses on which etcd listens. Raises HostError for a manifest whose URLs cannot be parsed."""
    urls = [one for flag in ("listen-peer-urls", "listen-client-urls") for one in etcd.argument(flag).split(",") if one]
    try:
        return [(parts.hostname or "", parts.port or 0) for parts in map(urlsplit, urls)]
    except ValueError as error:
        raise _unsuitable(path, str(error)) from error


def _server_port(server: StaticPod, path: PurePosixPath) -> int:
    """Return the port of the API server. Raises HostError for a manifest whose port is not a number."""
    text = server.argument("secure-port") or _API_SERVER_PORT
    if not formats.is_port(text):
        raise _unsuitable(path, f"--secure-port is {quoted(text)}")
    return int(text)


def edited(manifest: bytes, flags: Mapping[str, str]) -> bytes:
    """Return a static pod's manifest with other values of flags of its first container, and without other changes."""
    body: Any = yaml.load(manifest, source="manifest")
    container = body["spec"]["containers"][0]
    given = [f"--{name}={value}" for name, value in flags.items()]
    kept = {
        key: [word for word in container.get(key) or () if not any(str(word).startswith(f"--{name}=") for name in flags)]
        for key in ("command", "args")
    }
    if container.get("args"):  # these follow the words of the command, and the last value of a flag counts
        container["args"] = [*kept["args"], *given]
    if container.get("command"):
        words = kept["command"][1:] if container.get("args") else sorted([*kept["command"][1:], *given])
        container["command"] = [*kept["command"][:1], *words]
    return yaml.dump(body).encode()


def taken_over(host: Host, member: ThisMember, *, operation: str, goal: str, flags: Mapping[str, str], at: datetime) -> Checkpoint:
    """Return the checkpoint of an operation that starts etcd with other flags.

    It replaces a fence of this machine, and keeps its manifests instead.
    """
    fence = checkpoint.unfinished(checkpoint.every(host))
    if fence is not None and fence.operation == FENCE:
        checkpoint.finish(host, fence, State.DONE)
    contents = {**member.manifests, ETCD: edited(member.manifests[ETCD], flags)}
    files = [File(path=member.layout.manifest(name), content=content, mode=MANIFEST_MODE) for name, content in contents.items()]
    return checkpoint.prepare(host, operation=operation, goal=goal, files=files, at=at, parks=member.paths)
