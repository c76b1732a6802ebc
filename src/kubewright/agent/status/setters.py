"""The status of a Node: a table of setters over what is known of the machine (kubelet v1.36: pkg/kubelet/nodestatus). Pure.

The pressure conditions change only on a flip: a reason or message that somebody else wrote stays. Ready rewrites both each time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from kubewright.agent.status import resources
from kubewright.agent.status.facts import ARCHITECTURE, OPERATING_SYSTEM, NodeFacts
from kubewright.base.records import dataclass
from kubewright.kube.core import Object


@dataclass(frozen=True, kw_only=True)
class Pressure:
    """One pressure condition: reason and message when True, and when False."""

    type: str
    bad: tuple[str, str]
    good: tuple[str, str]


PRESSURES: Final = (
    Pressure(
        type="MemoryPressure",
        bad=("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        good=("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ),
    Pressure(
        type="DiskPressure",
        bad=("KubeletHasDiskPressure", "kubelet has disk pressure"),
        good=("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ),
    Pressure(
        type="PIDPressure",
        bad=("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        good=("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ),
)

READY: Final = "Ready"
_REQUIRED_CAPACITY: Final = ("cpu", "memory", "pods", "ephemeral-storage")

NO_POD_CIDR: Final = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:the Node has no podCIDR yet"
)


def update_pressures(conditions: list[Object], *, now: str, under: Collection[str] = ()) -> None:
    """Bring the pressure conditions of the list up to date, in place; `under` names those that are True."""
    for row in PRESSURES:
        status = "True" if row.type in under else "False"
        reason, message = row.bad if row.type in under else row.good
        found = find(conditions, row.type)
        if found is None:
            found = {"type": row.type, "status": "Unknown"}
            conditions.append(found)
        if found.get("status") != status:
            found.update(status=status, reason=reason, message=message, lastTransitionTime=now)
        found["lastHeartbeatTime"] = now


def update_ready(conditions: list[Object], errors: Sequence[str], *, now: str) -> None:
    """Bring the Ready condition of the list up to date, in place; it is True if there are no errors."""
    status = "False" if errors else "True"
    old = find(conditions, READY)
    new = {
        "type": READY,
        "status": status,
        "lastHeartbeatTime": now,
        "lastTransitionTime": old["lastTransitionTime"] if old and old.get("status") == status else now,
        "reason": "KubeletNotReady" if errors else "KubeletReady",
        "message": join_errors(errors) if errors else "kubelet is posting ready status",
    }
    if old is None:
        conditions.append(new)
    else:
        conditions[conditions.index(old)] = new


def ready_errors(*, capacity: Mapping[str, str], network: Iterable[str]) -> list[str]:
    """Return why a node is not ready, in the kubelet's order: network, then capacity."""
    missing = [name for name in _REQUIRED_CAPACITY if name not in capacity]
    return [*network, *([f"missing node capacity for resources: {', '.join(missing)}"] if missing else [])]


def join_errors(errors: Sequence[str]) -> str:
    """Return one error as it is, several as `[a, b]` without duplicates."""
    unique = list(dict.fromkeys(errors))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def find(conditions: Iterable[Object], kind: str) -> Object | None:
    """Return the condition of a type, or None."""
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def is_true(holder: Mapping[str, Any], kind: str) -> bool:
    """Whether the object's status has this condition with status True."""
    found = find(holder.get("status", {}).get("conditions") or (), kind)
    return found is not None and found.get("status") == "True"


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What a setter works on: the new status, the facts, and the moment (RFC 3339, whole seconds)."""

    status: Object
    facts: NodeFacts
    pod_cidrs: tuple[str, ...]
    now: str


def compute(node: Mapping[str, Any], facts: NodeFacts, *, now: str) -> Object:
    """Return a copy of the Node with the status and labels that it should have now; the argument is not changed."""
    new: Object = copied(dict(node))
    own = new.setdefault("metadata", {}).setdefault("labels", {})
    own[OPERATING_SYSTEM] = facts.profile.operating_system
    own[ARCHITECTURE] = facts.profile.architecture
    draft = Draft(status=new.setdefault("status", {}), facts=facts, pod_cidrs=pod_cidrs(node), now=now)
    for setter in SETTERS:
        setter(draft)
    return new


def copied(value: Any) -> Any:
    """Copy a JSON value. `copy.deepcopy` takes five times as long, and thousands of nodes do this."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def pod_cidrs(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the pod ranges that the controller manager gave to a Node, none until then."""
    spec = node.get("spec", {})
    one = spec.get("podCIDR")
    return tuple(spec.get("podCIDRs") or ((one,) if one else ()))


def set_addresses(draft: Draft) -> None:
    """Write the InternalIPs and the host name."""
    rows = [{"type": "InternalIP", "address": address} for address in draft.facts.addresses]
    draft.status["addresses"] = [*rows, {"type": "Hostname", "address": draft.facts.name}]


def set_machine(draft: Draft) -> None:
    """Write capacity, allocatable and the machine's identifiers; resources that others added to either map stay."""
    profile = draft.facts.profile
    draft.status.setdefault("capacity", {}).update(resources.capacity(profile))
    draft.status.setdefault("allocatable", {}).update(resources.allocatable(profile))
    info = draft.status.setdefault("nodeInfo", {})
    info.update(machineID=profile.machine_id, systemUUID=profile.system_uuid, bootID=profile.boot_id)
    if profile.swap:
        info["swap"] = {"capacity": profile.swap}


def set_versions(draft: Draft) -> None:
    """Write the versions of kernel, system, runtime and agent."""
    profile = draft.facts.profile
    draft.status.setdefault("nodeInfo", {}).update(
        kernelVersion=profile.kernel_version,
        osImage=profile.os_image,
        containerRuntimeVersion=profile.runtime,
        kubeletVersion=profile.kubelet_version,
        kubeProxyVersion="",
    )


def set_daemon_endpoint(draft: Draft) -> None:
    """Write the port of the kubelet API. The key is `Port`, with a capital P."""
    draft.status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": draft.facts.kubelet_port}}


def set_platform(draft: Draft) -> None:
    """Write operating system and architecture, in Go's names."""
    profile = draft.facts.profile
    draft.status.setdefault("nodeInfo", {}).update(operatingSystem=profile.operating_system, architecture=profile.architecture)


def set_pressures(draft: Draft) -> None:
    """Write the pressure conditions: always False, nothing is evicted."""
    update_pressures(draft.status.setdefault("conditions", []), now=draft.now)


def set_ready(draft: Draft) -> None:
    """Write the Ready condition: True once the Node has a pod range."""
    network = () if draft.pod_cidrs else (NO_POD_CIDR,)
    errors = ready_errors(capacity=draft.status.get("capacity", {}), network=network)
    update_ready(draft.status.setdefault("conditions", []), errors, now=draft.now)


SETTERS: Final[tuple[Callable[[Draft], None], ...]] = (
    set_addresses,
    set_machine,
    set_versions,
    set_daemon_endpoint,
    set_platform,
    set_pressures,
    set_ready,
)
"""Images, runtime handlers, features and volumes have no setter: an agent that runs no containers leaves them out."""
