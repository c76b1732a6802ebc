"""What a machine looks like to the cluster: real facts, or invented ones for a simulated node."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from typing import Final

import kubewright
from kubewright.agent.labels import check_labels
from kubewright.base.records import dataclass, field, replace

GIB: Final = 1 << 30
SIMULATED: Final = "kubewright.dev/simulated"
"""The annotation of a Node that says what of it is not real: `machine` and `pods`, or `pods` alone."""

HARD_EVICTION: Final[Mapping[str, str]] = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}
"""The kubelet's default hard eviction thresholds. Configuring one of them drops all others."""


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
        """Return the profile with identifiers of its own, the same ones for the same node name each time."""
        identity = hashlib.sha256(f"kubewright node {name}".encode()).digest()
        return replace(self, machine_id=identity[:16].hex(), system_uuid=str(uuid.UUID(bytes=identity[16:])))


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """What an agent knows about its node and the cluster cannot tell it. Constant while the agent runs.

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

    def __post_init__(self) -> None:
        check_labels(dict(self.labels))


def simulated_machine(
    *,
    kubelet_version: str,
    architecture: str = "amd64",
    cpu_millis: int = 4000,
    memory: int = 16 * GIB,
    ephemeral_storage: int = 100 * GIB,
    max_pods: int = 110,
    boot_id: str = "",
) -> MachineProfile:
    """Return the profile of a machine that does not exist. Use `named()` for each node made of it."""
    return MachineProfile(
        architecture=architecture,
        kubelet_version=kubelet_version,
        cpu_millis=cpu_millis,
        memory=memory,
        ephemeral_storage=ephemeral_storage,
        max_pods=max_pods,
        boot_id=boot_id,
        kernel_version="simulated",
        os_image=f"kubewright {kubewright.__version__} (simulated)",
        simulated="machine,pods",
    )
