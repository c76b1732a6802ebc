"""The status of a Node: a table of setters that use what is known about the machine (kubelet v1.36: pkg/kubelet/nodestatus). Pure.

Pressure conditions change only when they flip, so a reason or message of another author stays. Ready rewrites both
each time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from kubewright.agent.status import resources
from kubewright.agent.status.facts import ARCHITECTURE, OPERATING_SYSTEM, NodeFacts
from kubewright.agent.status.pressures import PRESSURES
from kubewright.agent.status.snapshot import Snapshot
from kubewright.base.errors import HostError
from kubewright.base.records import dataclass
from kubewright.host.states import Image, RuntimeHandler
from kubewright.kube.core import Object

READY: Final = "Ready"
_STORAGE: Final = "ephemeral-storage"
_REQUIRED_CAPACITY: Final = ("cpu", "memory", "pods", _STORAGE)
PROVIDED_IPS: Final = "alpha.kubernetes.io/provided-node-ip"
SHUTTING_DOWN: Final = "node is shutting down"
_MOST_NAMES: Final = 5
"""How many names are reported of one image."""

NO_POD_CIDR: Final = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:the Node has no podCIDR yet"
)


def update_pressures(conditions: list[Object], *, now: str, under: Collection[str] = ()) -> None:
    """Update the pressure conditions of the list in place; `under` contains those that are True."""
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
    """Update the Ready condition of the list in place; it is True if there are no errors."""
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


def ready_errors(
    *,
    capacity: Mapping[str, str],
    runtime: Iterable[str] = (),
    network: Iterable[str] = (),
    storage: str = "",
    shutting_down: bool = False,
    isolates_storage: bool = True,
) -> list[str]:
    """Return why a node is not ready, in the kubelet's order: runtime, network, storage, shutdown, then capacity."""
    missing = [name for name in _REQUIRED_CAPACITY if name not in capacity and (isolates_storage or name != _STORAGE)]
    lacks = f"missing node capacity for resources: {', '.join(missing)}" if missing else ""
    return [*runtime, *network, *filter(None, (storage, SHUTTING_DOWN if shutting_down else "", lacks))]


def join_errors(errors: Sequence[str]) -> str:
    """Return a single error unchanged, several as `[a, b]` without duplicates."""
    unique = list(dict.fromkeys(errors))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def find(conditions: Iterable[Object], kind: str) -> Object | None:
    """Return the condition of a type, or None."""
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def is_true(holder: Mapping[str, Any], kind: str) -> bool:
    """Whether the object's status has this condition with status True."""
    found = find(holder.get("status", {}).get("conditions") or (), kind)
    return found is not None and found.get("status") == "True"


Failed = Callable[[str, str], None]
"""Receives the name of each setter that failed, and why."""


def ignore_failure(_setter: str, _reason: str) -> None:
    """Ignore that a setter failed."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The input of a setter: the new metadata and status, the facts, the observations, and the time (RFC 3339, whole seconds).

    `storage` says why the node's storage is not ready, '' if it is.
    """

    metadata: Object
    status: Object
    facts: NodeFacts
    snapshot: Snapshot
    pod_cidrs: tuple[str, ...]
    storage: str
    now: str


def compute(
    node: Mapping[str, Any],
    facts: NodeFacts,
    *,
    now: str,
    snapshot: Snapshot | None = None,
    storage: str = "",
    failed: Failed = ignore_failure,
) -> Object:
    """Return a copy of the Node with its current status and labels; the argument is not changed.

    Without a snapshot the node is as its facts say. If a setter fails, the others still run, and its part of the
    status stays unchanged.
    """
    new: Object = copied(dict(node))
    own = new.setdefault("metadata", {}).setdefault("labels", {})
    own[OPERATING_SYSTEM] = facts.profile.operating_system
    own[ARCHITECTURE] = facts.profile.architecture
    draft = Draft(
        metadata=new["metadata"],
        status=new.setdefault("status", {}),
        facts=facts,
        snapshot=snapshot or Snapshot(addresses=facts.addresses),
        pod_cidrs=pod_cidrs(node),
        storage=storage,
        now=now,
    )
    for name, setter in SETTERS.items():
        try:
            setter(draft)
        except HostError as error:
            failed(name, str(error))
    return new


def _set_provided_ips(metadata: Object, facts: NodeFacts) -> None:
    """Annotate the node's given addresses for an external cloud provider.

    In all other cases the annotation is removed.
    """
    if facts.external_cloud and facts.specified_ips:
        metadata.setdefault("annotations", {})[PROVIDED_IPS] = ",".join(facts.specified_ips)
    elif PROVIDED_IPS in metadata.get("annotations", {}):
        del metadata["annotations"][PROVIDED_IPS]


def copied(value: Any) -> Any:
    """Copy a JSON value. `copy.deepcopy` takes five times as long, and thousands of nodes do this."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def pod_cidrs(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the pod ranges that the controller manager assigned to a Node, none until then."""
    spec = node.get("spec", {})
    one = spec.get("podCIDR")
    return tuple(spec.get("podCIDRs") or ((one,) if one else ()))


def set_addresses(draft: Draft) -> None:
    """Write the InternalIPs and the host name. Raises HostError, and changes nothing, if no address was found.

    With an external cloud the cloud controller writes them: until it has, they are the given ones, or only the host
    name. An annotation tells it about given addresses, except those that do not belong to this machine.
    """
    facts, name = draft.facts, {"type": "Hostname", "address": draft.facts.name}
    if facts.specified_ips and draft.snapshot.address_trouble:
        raise HostError(draft.snapshot.address_trouble)
    _set_provided_ips(draft.metadata, facts)
    if facts.external_cloud and (draft.status.get("addresses") or not facts.node_ips):
        draft.status.setdefault("addresses", [name])
        return
    if draft.snapshot.address_trouble:
        raise HostError(draft.snapshot.address_trouble)
    rows = [{"type": "InternalIP", "address": address} for address in draft.snapshot.addresses]
    draft.status["addresses"] = [*rows, name]


def set_machine(draft: Draft) -> None:
    """Write capacity, allocatable and the machine's identifiers.

    Resources that others added to capacity stay, and are allocatable; extended ones that are only in allocatable are
    removed.
    """
    profile = draft.facts.profile
    own = resources.capacity(profile)
    capacity = draft.status.setdefault("capacity", {})
    others = {name: amount for name, amount in capacity.items() if name not in own}
    capacity.update(own)
    before = draft.status.get("allocatable") or {}
    kept = {name: amount for name, amount in before.items() if not resources.is_extended(name)}
    draft.status["allocatable"] = {**kept, **resources.allocatable(profile, others=others)}
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
        containerRuntimeVersion=draft.snapshot.runtime or profile.runtime,
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


def set_images(draft: Draft) -> None:
    """Write the images, the largest first, digests before tags; nothing for a machine that reports none."""
    snapshot = draft.snapshot
    if snapshot.images is None:
        return
    largest = sorted(snapshot.images, key=lambda image: (image.size, image.id), reverse=True)
    most = draft.facts.max_images
    rows = [_image(image) for image in (largest if most < 0 else largest[:most])]
    if rows:
        draft.status["images"] = rows
    else:
        draft.status.pop("images", None)


def _image(image: Image) -> Object:
    names = [*image.digests, *image.tags][:_MOST_NAMES]
    return {"names": names or None, **({"sizeBytes": image.size} if image.size else {})}


def set_runtime_handlers(draft: Draft) -> None:
    """Write the runtime's handlers of containers, if it has reported them."""
    if draft.snapshot.handlers:
        draft.status["runtimeHandlers"] = [_handler(one) for one in draft.snapshot.handlers]
    else:
        draft.status.pop("runtimeHandlers", None)


def _handler(handler: RuntimeHandler) -> Object:
    features = {"recursiveReadOnlyMounts": handler.recursive_read_only_mounts, "userNamespaces": handler.user_namespaces}
    return {"name": handler.name, "features": features}


def set_features(draft: Draft) -> None:
    """Write the runtime's features, if it has reported them."""
    if draft.snapshot.supplemental_groups_policy is not None:
        draft.status["features"] = {"supplementalGroupsPolicy": draft.snapshot.supplemental_groups_policy}


def set_declared_features(draft: Draft) -> None:
    """Remove the features that a kubelet declared on this Node: they concern pods, and none is implemented here."""
    draft.status.pop("declaredFeatures", None)


def set_pressures(draft: Draft) -> None:
    """Write the pressure conditions."""
    update_pressures(draft.status.setdefault("conditions", []), now=draft.now, under=draft.snapshot.pressures)


def set_ready(draft: Draft) -> None:
    """Write the Ready condition. A node that gives pods their addresses itself is ready only with a pod range."""
    facts, snapshot = draft.facts, draft.snapshot
    no_range = (NO_POD_CIDR,) if facts.needs_pod_range and not draft.pod_cidrs else ()
    errors = ready_errors(
        capacity=draft.status.get("capacity", {}),
        runtime=snapshot.runtime_errors,
        network=(*snapshot.network_errors, *no_range),
        storage=draft.storage,
        shutting_down=snapshot.shutting_down,
        isolates_storage=facts.isolates_storage,
    )
    update_ready(draft.status.setdefault("conditions", []), errors, now=draft.now)


SETTERS: Final[Mapping[str, Callable[[Draft], None]]] = {
    "addresses": set_addresses,
    "machine": set_machine,
    "versions": set_versions,
    "daemon endpoint": set_daemon_endpoint,
    "images": set_images,
    "platform": set_platform,
    "runtime handlers": set_runtime_handlers,
    "features": set_features,
    "pressures": set_pressures,
    "ready": set_ready,
    "declared features": set_declared_features,
}
"""In the kubelet's order, by the names that reports use.

Volumes have no setter: an agent that mounts none omits them.
"""
