"""Facts about a node that need no observation: its real or invented machine, and its labels with their rules."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from typing import Final

import kubewright
from kubewright.agent.status.pressures import HARD_EVICTION
from kubewright.base.errors import ValidationError
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.base.records import dataclass, field, replace

HOST_NAME: Final = "kubernetes.io/hostname"
OPERATING_SYSTEM: Final = "kubernetes.io/os"
ARCHITECTURE: Final = "kubernetes.io/arch"
OLD_OPERATING_SYSTEM: Final = "beta.kubernetes.io/os"
OLD_ARCHITECTURE: Final = "beta.kubernetes.io/arch"

TOPOLOGY: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
)

RECONCILED: Final = (
    HOST_NAME,
    *TOPOLOGY,
    OPERATING_SYSTEM,
    ARCHITECTURE,
    "node.kubernetes.io/windows-build",
    OLD_OPERATING_SYSTEM,
    OLD_ARCHITECTURE,
)
"""The labels that an agent corrects on an existing Node, in the kubelet's order."""

_ALLOWED: Final = frozenset({HOST_NAME, OPERATING_SYSTEM, ARCHITECTURE, OLD_OPERATING_SYSTEM, OLD_ARCHITECTURE, *TOPOLOGY})
_ALLOWED_DOMAINS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_GUARDED_DOMAINS: Final = ("kubernetes.io", "k8s.io")

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*", re.ASCII)


def default_labels(*, host_name: str, operating_system: str, architecture: str) -> dict[str, str]:
    """Return the labels that every Node gets from its agent."""
    return {
        HOST_NAME: host_name,
        OPERATING_SYSTEM: operating_system,
        ARCHITECTURE: architecture,
        OLD_OPERATING_SYSTEM: operating_system,
        OLD_ARCHITECTURE: architecture,
    }


def check_labels(labels: Mapping[str, str]) -> None:
    """Require labels that a node may give itself.

    Raises ValidationError with every wrong key and value. The domains are those of NodeRestriction (the kubelet's
    `--node-labels`): in kubernetes.io and k8s.io only a fixed set, below kubelet.kubernetes.io and node.kubernetes.io
    any.
    """
    errors = [error for key, value in labels.items() for error in _label_errors(key, value)]
    if errors:
        raise ValidationError("the node's labels are not allowed", errors, remedy="use a domain of your own for labels of your own")


def _label_errors(key: str, value: str) -> list[FieldError]:
    rules = (
        (
            not _is_label_key(key),
            FieldErrorType.INVALID,
            key,
            "a key is an optional DNS subdomain and '/', then up to 63 of A-Z a-z 0-9 - _ .",
        ),
        (
            not _is_allowed(key),
            FieldErrorType.FORBIDDEN,
            key,
            "a node may not give itself this label: it belongs to kubernetes.io or k8s.io",
        ),
        (not _is_label_value(value), FieldErrorType.INVALID, value, "a value is empty, or up to 63 of A-Z a-z 0-9 - _ ."),
    )
    path = FieldPath("labels").key(key)
    return [FieldError(path=path, type=kind, value=shown, reason=reason) for broken, kind, shown, reason in rules if broken]


def _is_label_key(key: str) -> bool:
    domain, slash, name = key.rpartition("/")
    return _NAME.fullmatch(name) is not None and (not slash or _is_subdomain(domain))


def _is_label_value(value: str) -> bool:
    return not value or _NAME.fullmatch(value) is not None


def _is_allowed(key: str) -> bool:
    domain = key.rpartition("/")[0]
    return key in _ALLOWED or not _is_below(domain, _GUARDED_DOMAINS) or _is_below(domain, _ALLOWED_DOMAINS)


def _is_below(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == parent or domain.endswith(f".{parent}") for parent in parents)


def _is_subdomain(text: str) -> bool:
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


GIB: Final = 1 << 30
_ANY: Final = ("0.0.0.0", "::")  # noqa: S104 (this text identifies a family)
SIMULATED: Final = "kubewright.dev/simulated"
"""The annotation of a Node that says which parts of it are simulated: `machine` and `pods`, or only `pods`."""


@dataclass(frozen=True, kw_only=True)
class MachineProfile:
    """The machine behind one Node. Read once when an agent starts; changes are not seen before a restart, as with the kubelet.

    Sizes are bytes. `runtime` is `name://version`. `simulated` is the value of the annotation `kubewright.dev/simulated`, '' for none.
    """

    architecture: str
    kubelet_version: str
    cpu_millis: int
    memory: int
    ephemeral_storage: int
    """0 if the node does not isolate local storage, and so does not report it (kubelet: pkg/kubelet/cm, GetCapacity)."""
    operating_system: str = "linux"
    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    kernel_version: str = "Unknown"
    os_image: str = "Unknown"
    runtime: str = f"kubewright://{kubewright.__version__}"
    huge_pages: Mapping[str, int] = field(default_factory=dict)
    """Page size (`2Mi`) to bytes."""
    swap: int = 0
    max_pods: int = 110
    pods_per_core: int = 0
    reserved: Mapping[str, int] = field(default_factory=dict)
    """systemReserved and kubeReserved together: millicores for cpu, bytes for the others."""
    hard_eviction: Mapping[str, str] = field(default_factory=lambda: HARD_EVICTION)
    simulated: str = ""

    def named(self, name: str) -> MachineProfile:
        """Return the profile with its own identifiers, which are always the same for the same node name."""
        identity = hashlib.sha256(f"kubewright node {name}".encode()).digest()
        return replace(self, machine_id=identity[:16].hex(), system_uuid=str(uuid.UUID(bytes=identity[16:])))


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """The facts about a node that only its agent knows. Constant while the agent runs.

    Raises ValidationError for labels that a node may not give itself.
    """

    name: str
    profile: MachineProfile
    addresses: tuple[str, ...]
    """InternalIPs, the first one preferred: at most two, of different families. A local cluster's are loopback addresses."""
    kubelet_port: int = 10250
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[tuple[str, str, str], ...] = ()
    """Key, value and effect of each start-up taint; an agent cannot change them after registration (NodeRestriction)."""
    provider_id: str = ""
    attach_detach: bool = True
    """Whether the controller manager attaches and detaches the node's volumes."""
    max_images: int = 50
    """How many images the status lists; -1: all."""
    needs_pod_range: bool = True
    """Whether the node is ready only with `spec.podCIDR`, because its agent itself assigns pods their addresses."""
    external_cloud: bool = False
    """Whether a cloud controller knows the node's addresses."""
    node_ips: tuple[str, ...] = ()
    """The value of `--node-ip`: an unspecified address means its family."""
    isolates_storage: bool = True
    """Whether a node without ephemeral-storage in its capacity is not ready."""
    recreated: bool = False
    """Whether the machine was recreated under its name.

    If so, extended resources of an existing Node are zero until they are provided again.
    """

    def __post_init__(self) -> None:
        check_labels(dict(self.labels))

    @property
    def specified_ips(self) -> tuple[str, ...]:
        """The addresses among `node_ips` that belong to a single machine."""
        return tuple(one for one in self.node_ips if one not in _ANY)


def simulated_machine(*, kubelet_version: str, architecture: str = "amd64") -> MachineProfile:
    """Return the profile of a machine that does not exist. Use `named()` for each node made of it."""
    return MachineProfile(
        architecture=architecture,
        kubelet_version=kubelet_version,
        cpu_millis=4000,
        memory=16 * GIB,
        ephemeral_storage=100 * GIB,
        max_pods=110,
        boot_id="",
        kernel_version="simulated",
        os_image=f"kubewright {kubewright.__version__} (simulated)",
        simulated="machine,pods",
    )
