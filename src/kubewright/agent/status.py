"""The status of a Node: a table of setters over what is known of the machine. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubewright.agent import conditions, labels, resources
from kubewright.agent.profile import NodeFacts
from kubewright.base.records import dataclass

JsonMap = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What a setter works on: the new status, the facts, and the moment (RFC 3339, whole seconds)."""

    status: JsonMap
    facts: NodeFacts
    pod_cidrs: tuple[str, ...]
    now: str


def compute(node: Mapping[str, Any], facts: NodeFacts, *, now: str) -> JsonMap:
    """Return a copy of the Node with the status and labels that it should have now; the argument is not changed."""
    new: JsonMap = copied(dict(node))
    own = new.setdefault("metadata", {}).setdefault("labels", {})
    own[labels.OPERATING_SYSTEM] = facts.profile.operating_system
    own[labels.ARCHITECTURE] = facts.profile.architecture
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
    conditions.set_pressures(draft.status.setdefault("conditions", []), now=draft.now)


def set_ready(draft: Draft) -> None:
    """Write the Ready condition: True once the Node has a pod range."""
    network = () if draft.pod_cidrs else (conditions.NO_POD_CIDR,)
    errors = conditions.ready_errors(capacity=draft.status.get("capacity", {}), network=network)
    conditions.set_ready(draft.status.setdefault("conditions", []), errors, now=draft.now)


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
