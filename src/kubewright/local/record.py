"""The description of a local cluster that its state directory keeps between runs."""

from __future__ import annotations

import ipaddress
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

from kubewright.apis.kubeadm.serving_certificates import SELF_SIGNED, STOCK, STRICT
from kubewright.apis.machine import Addresses, Ports, url
from kubewright.base import yaml
from kubewright.base.change import unified_diff
from kubewright.base.errors import ConfigurationChanged, DocumentError, HostError, UsageError
from kubewright.base.level import KUBERNETES
from kubewright.base.masking import mask
from kubewright.base.messages import quoted, reason_of
from kubewright.base.patterns import Pattern
from kubewright.base.randomness import Random
from kubewright.base.records import asdict, dataclass, field, fields, replace
from kubewright.host.desired import File
from kubewright.host.filesystem.files import Files
from kubewright.local import mounts, published
from kubewright.local.mounts import Mount
from kubewright.local.paths import is_name
from kubewright.local.published import PublishedPort

CONTROL_PLANE = "control-plane"
FORMAT = 3
STOCK_CONTROLLERS = "kube-controller-manager"
OWN_CONTROLLERS = "kubewright"
PROCESSES = "processes"
MACHINES = "machines"
DEFAULT_CNI = "default"
NO_CNI = "none"
DISKS = ("kubewright", "machines")
"""The end of the path of the machines' disks (`machines.places`)."""
_ID: Final = Pattern(r"[0-9a-f]{32}")
_ID_BYTES: Final = 16
_NUMBER: Final = Pattern(r"-[1-9][0-9]{0,5}")


@dataclass(frozen=True, kw_only=True)
class LocalMachineRecord:
    """One machine that runs components. Its address and ports stay the same for the cluster's life.

    `leaving` means that it is being removed from the cluster: it stays in the record until everything of it is removed.
    """

    name: str
    address: str
    second_address: str = ""
    """Its address of the other family in a dual-stack cluster of machines."""
    role: str = CONTROL_PLANE
    leaving: bool = False
    ports: Mapping[str, int] = field(default_factory=lambda: asdict(Ports()))

    @property
    def node_addresses(self) -> tuple[str, ...]:
        """The addresses of its Node, at most one of each family."""
        return tuple(filter(None, (self.address, self.second_address)))

    @property
    def addresses(self) -> Addresses:
        """The machine's addresses: its own replaces every loopback address of kubeadm."""
        return Addresses(advertise=self.address, loopback=self.address, etcd_loopback=self.address, ports=Ports(**self.ports))

    @property
    def etcd_client_url(self) -> str:
        """The client URL of its etcd."""
        return url(self.address, self.ports["etcd_client"])

    @property
    def etcd_peer_url(self) -> str:
        """The peer URL of its etcd, which identifies the member."""
        return url(self.address, self.ports["etcd_peer"])


@dataclass(frozen=True, kw_only=True)
class ClusterRecord:
    """A local cluster. `nodes` is the number of workers; `config` the text of the user's document, '' without one.

    `id` is random and never changes: all processes of the cluster carry it. `gaps` are the numbers of workers that were
    removed while workers with higher numbers stayed, in ascending order.
    """

    name: str
    id: str
    machines: tuple[LocalMachineRecord, ...]
    nodes: int = 3
    gaps: tuple[int, ...] = ()
    kubernetes_version: str = KUBERNETES
    config: str = ""
    controllers: str = STOCK_CONTROLLERS
    """The controllers that approve and sign certificate requests: `kube-controller-manager` or `kubewright`."""
    kind: str = PROCESSES
    """What the machines are: `processes` of a user, or whole `machines` with systemd, a container runtime and a kubelet."""
    serving_certificates: str = SELF_SIGNED
    """Who signs the certificates of kubelets' own API: each kubelet itself, or the cluster by the policy of its approver."""
    publish: tuple[str, ...] = ()
    """The published ports of a cluster of machines, as `local.published` writes them."""
    mounts: tuple[str, ...] = ()
    """The directories and files of the host that machines see, as `local.mounts` writes them."""
    begun: tuple[str, ...] = ()
    """The paths in machines at which an `up` that has not ended, or was killed, may have mounted something else than `mounts`."""
    client_certificates: str = STOCK
    """Who approves client certificates of nodes: `stock`, or with `strict` the policy too."""
    registry_config: str = ""
    """The directory of containerd's hosts files that machines see, '' if there is none."""
    disks: str = ""
    """The directory that has the disks of its machines, '' for a cluster of processes, and if an earlier version made it."""
    cni: str = DEFAULT_CNI
    """The network of pods in a cluster of machines: ours is the `default`; with `none` the user installs a network plugin."""
    made: bool = False
    """Whether it has ever come up: from then on its configuration is fixed."""
    format: int = FORMAT

    @property
    def control_plane(self) -> LocalMachineRecord:
        """The first control plane machine, which the others join, and which is removed last."""
        return self.machines[0]

    @property
    def further(self) -> tuple[LocalMachineRecord, ...]:
        """The control plane machines that join the first one, without those that leave."""
        return tuple(machine for machine in self.machines[1:] if not machine.leaving)

    @property
    def leaving(self) -> tuple[LocalMachineRecord, ...]:
        """The machines that are being removed, the last one first."""
        return tuple(machine for machine in reversed(self.machines) if machine.leaving)

    @property
    def is_whole(self) -> bool:
        """Whether it consists of whole machines, which need root."""
        return self.kind == MACHINES

    @property
    def removal(self) -> str:
        """The command that removes the cluster, for hints."""
        return f"{'sudo ' if self.is_whole else ''}kubewright down --name {self.name}"

    @property
    def published(self) -> tuple[PublishedPort, ...]:
        """The published ports."""
        return tuple(map(published.parse, self.publish))

    @property
    def mounted(self) -> tuple[Mount, ...]:
        """The directories and files of the host that machines see, without that of registries."""
        return mounts.parse_all(self.mounts)

    @property
    def own_controllers(self) -> bool:
        """Whether kubewright's own controllers run instead of the same ones in kube-controller-manager."""
        return self.controllers == OWN_CONTROLLERS

    @property
    def strict(self) -> bool:
        """Whether the cluster signs the certificates of kubelets."""
        return self.serving_certificates == STRICT

    @property
    def strict_clients(self) -> bool:
        """Whether each node needs a token of its own for its first client certificate."""
        return self.client_certificates == STRICT

    @property
    def runs_controllers(self) -> bool:
        """Whether kubewright's controllers are a component of the cluster, for any purpose."""
        return self.own_controllers or self.strict

    @property
    def alone(self) -> bool:
        """Whether there is only one control plane, and none that is still leaving."""
        return len(self.machines) == 1

    @property
    def total(self) -> int:
        """The desired number of nodes: workers, and one for each control plane."""
        return 1 + len(self.further) + self.nodes

    def machine(self, name: str) -> LocalMachineRecord | None:
        """Return a machine by its name, None if there is none."""
        return next((machine for machine in self.machines if machine.name == name), None)

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of the worker nodes."""
        return tuple(f"{self.name}-worker-{number}" for number in self.numbers)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the workers: the lowest ones that are not gaps."""
        return tuple(number for number in range(1, self.nodes + len(self.gaps) + 1) if number not in self.gaps)[: self.nodes]

    def is_worker(self, node: str) -> bool:
        """Return whether a name is that of a worker of this cluster, regardless of their current number."""
        prefix, _, number = node.rpartition("-")
        return prefix == f"{self.name}-worker" and number.isascii() and number.isdigit()

    def scaled(self, nodes: int) -> ClusterRecord:
        """Return the record with another number of workers: gaps are filled first, and the workers with the highest numbers go first."""
        scaled = replace(self, nodes=nodes, gaps=tuple(sorted(set(self.gaps)))[max(0, nodes - self.nodes) :])
        highest = max(scaled.numbers, default=0)
        return replace(scaled, gaps=tuple(number for number in scaled.gaps if 0 < number < highest))

    def without(self, worker: str) -> ClusterRecord:
        """Return the record without one of its workers; the others keep their names."""
        number = self.numbers[self.workers.index(worker)]
        less = replace(self, nodes=self.nodes - 1, gaps=(*self.gaps, number))
        return less.scaled(less.nodes)

    def shrunk(self, control_planes: int) -> ClusterRecord:
        """Return the record with the control planes beyond a number marked as leaving. The first one stays."""
        kept = {self.control_plane.name, *(machine.name for machine in self.further[: control_planes - 1])}
        return replace(
            self, machines=tuple(machine if machine.name in kept else replace(machine, leaving=True) for machine in self.machines)
        )

    def settled(self) -> ClusterRecord:
        """Return the record without the machines that leave."""
        return replace(self, machines=tuple(machine for machine in self.machines if not machine.leaving))

    def free_name(self) -> str:
        """Return the name of the next control plane machine; one that is leaving still has its own."""
        return next(name for name in _names(self.name) if self.machine(name) is None)


def new_id(random: Random) -> str:
    """Return an id for a new cluster."""
    return random.token_bytes(_ID_BYTES).hex()


def first_name(cluster: str) -> str:
    """Return the name of the first control plane machine of a cluster."""
    return next(_names(cluster))


def _names(cluster: str) -> Iterator[str]:
    yield f"{cluster}-{CONTROL_PLANE}"
    yield from (f"{cluster}-{CONTROL_PLANE}-{number}" for number in itertools.count(2))


def load(path: Path) -> ClusterRecord | None:
    """Read a record; None if there is none.

    Raises HostError, naming the file, if it cannot be read or contains something else.
    """
    try:
        found = json.loads(path.read_bytes())
        machines = tuple(_require_types(LocalMachineRecord(**machine)) for machine in found.pop("machines"))
        found |= {name: tuple(found.get(name, ())) for name in _LISTS}
        return _whole(_require_types(ClusterRecord(**found, machines=machines)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HostError(f"cannot read {path}", detail=error.strerror or "", remedy="check its owner and mode") from error
    except (ValueError, KeyError, TypeError, AttributeError, UsageError) as error:
        raise HostError(
            f"{path} does not describe a cluster of this version of kubewright",
            detail=reason_of(error),
            remedy=f"remove the cluster with `kubewright down --name {path.parent.name}`, then bring it up again",
        ) from error


_LISTS: Final = ("gaps", "publish", "mounts", "begun")
_KINDS: Final = {
    "str": str,
    "int": int,
    "bool": bool,
    "Mapping[str, int]": dict,
    "tuple[LocalMachineRecord, ...]": tuple,
    "tuple[str, ...]": tuple,
    "tuple[int, ...]": tuple,
}
T = TypeVar("T", LocalMachineRecord, ClusterRecord)


def _require_types(value: T) -> T:
    """Require that every field is of its type. Raises ValueError."""
    for row in fields(value):
        found = getattr(value, row.name)
        if type(found) is not _KINDS[str(row.type)]:
            raise ValueError(f"{row.name} is {quoted(found)}")
    return value


def _whole(record: ClusterRecord) -> ClusterRecord:
    """Require a consistent record. Raises ValueError."""
    if record.format != FORMAT or record.nodes < 0:
        raise ValueError(f"format {record.format}, {record.nodes} nodes")
    if record.gaps and (any(type(number) is not int for number in record.gaps) or record.scaled(record.nodes) != record):
        raise ValueError(f"gaps {record.gaps}")
    if not _ID.fullmatch(record.id):
        raise ValueError(f"id {quoted(record.id)}")
    for machine in record.machines:
        for text in (machine.address, *filter(None, (machine.second_address,))):
            ipaddress.ip_address(text)
        if machine.ports.keys() != LocalMachineRecord(name="", address="").ports.keys() or any(
            type(port) is not int for port in machine.ports.values()
        ):
            raise ValueError(f"ports {machine.ports}")
    names = [machine.name for machine in record.machines]
    if not names or len(set(names)) != len(names) or {machine.role for machine in record.machines} != {CONTROL_PLANE}:
        raise ValueError("it has no control plane, or its machines are invalid")
    if not is_name(record.name) or not all(_is_control_plane(record.name, name) for name in names):
        raise ValueError(f"the names {', '.join(map(quoted, (record.name, *names)))}")
    if record.kind not in {PROCESSES, MACHINES} or record.cni not in {DEFAULT_CNI, NO_CNI}:
        raise ValueError(f"kind {quoted(record.kind)}, cni {quoted(record.cni)}")
    if any(type(text) is not str for text in (*record.publish, *record.mounts)):
        raise ValueError(f"published ports {record.publish}, mounts {record.mounts}")
    if record.published != published.added((), record.published) or tuple(map(str, record.mounted)) != record.mounts:
        raise ValueError(f"published ports {record.publish}, mounts {record.mounts}")
    if any(type(text) is not str or not text.startswith("/") for text in record.begun):
        raise ValueError(f"paths of mounts {record.begun}")
    if record.disks and (not record.disks.startswith("/") or PurePosixPath(record.disks).parts[-len(DISKS) :] != DISKS):
        raise ValueError(f"disks {quoted(record.disks)}")
    if record.control_plane.leaving:
        raise ValueError("its first control plane leaves")
    return record


def _is_control_plane(cluster: str, name: str) -> bool:
    """Return whether a name is one that `_names` yields: root uses it in paths, and the record may be another user's file."""
    rest = name.removeprefix(f"{cluster}-{CONTROL_PLANE}")
    return rest != name and (not rest or _NUMBER.fullmatch(rest) is not None)


def save(record: ClusterRecord, path: Path) -> None:
    """Replace the record atomically."""
    Files().write(File(path=PurePosixPath(path), content=(json.dumps(asdict(record), indent=1) + "\n").encode(), mode=0o600))


def require_same(
    record: ClusterRecord,
    *,
    kubernetes_version: str | None,
    config: str | None,
    controllers: str | None = None,
    serving_certificates: str | None = None,
    client_certificates: str | None = None,
    cni: str | None = None,
) -> None:
    """Refuse another configuration for an existing cluster; None means that the caller did not specify one.

    Raises ConfigurationChanged with the difference.
    """
    remedy = f"use the original one, or remove the cluster first with `{record.removal}`"
    if kubernetes_version not in {None, record.kubernetes_version}:
        raise ConfigurationChanged(
            f"cluster {quoted(record.name)} runs Kubernetes {record.kubernetes_version}, not {kubernetes_version}", remedy=remedy
        )
    if controllers not in {None, record.controllers}:
        raise ConfigurationChanged(
            f"cluster {quoted(record.name)} has the controllers of {record.controllers}, not {controllers}", remedy=remedy
        )
    if serving_certificates not in {None, record.serving_certificates}:
        found = record.serving_certificates
        raise ConfigurationChanged(
            f"cluster {quoted(record.name)} has {found} serving certificates, not {serving_certificates}", remedy=remedy
        )
    if client_certificates not in {None, record.client_certificates}:
        found = record.client_certificates
        raise ConfigurationChanged(
            f"cluster {quoted(record.name)} has {found} client certificates, not {client_certificates}", remedy=remedy
        )
    if cni not in {None, record.cni}:
        raise ConfigurationChanged(f"cluster {quoted(record.name)} was created with --cni {record.cni}, not {cni}", remedy=remedy)
    if config is not None and not _same_documents(record.config, config):
        diff = mask(unified_diff(record.config, config, name="--config"))
        raise ConfigurationChanged(f"cluster {quoted(record.name)} was created with another configuration", detail=diff, remedy=remedy)


def _same_documents(before: str, after: str) -> bool:
    """Compare the meaning: comments and order are ignored."""
    if before == after:
        return True
    try:
        return [document.value for document in yaml.load_all(before)] == [document.value for document in yaml.load_all(after)]
    except DocumentError:
        return False
