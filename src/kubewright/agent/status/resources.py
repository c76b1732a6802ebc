"""Capacity and allocatable of a Node: pure arithmetic over a `MachineProfile` (kubelet v1.36: nodestatus setters and container manager)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubewright.agent.status.facts import MachineProfile
from kubewright.agent.status.pressures import eviction_amount, is_off
from kubewright.base.quantity import Quantity

_EVICTION_RESOURCES: Final = {"memory.available": "memory", "nodefs.available": "ephemeral-storage"}
"""The eviction signals that reserve something, and what they reserve."""

_HUGE: Final = "hugepages-"


def capacity(profile: MachineProfile) -> dict[str, str]:
    """Return `status.capacity` in canonical quantities."""
    return _texts({**_machine(profile), "pods": pods(profile)})


def allocatable(profile: MachineProfile, *, others: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return `status.allocatable`: capacity without what is reserved, and memory without all huge pages.

    `others` are the resources that others added to the Node's capacity; pods can use all of them.
    """
    amounts = _machine(profile)
    reserved = reservation(profile)
    left = {name: max(0, amount - reserved.get(name, 0)) for name, amount in amounts.items()}
    given = others or {}
    huge = sum(amount for name, amount in amounts.items() if is_huge_page(name))
    huge += sum(Quantity.parse(amount).value for name, amount in given.items() if is_huge_page(name))
    return {**given, **_texts({**left, "memory": max(0, left["memory"] - huge), "pods": pods(profile)})}


def is_huge_page(name: str) -> bool:
    """Whether a resource is huge pages of one size."""
    return name.startswith(_HUGE)


def is_extended(name: str) -> bool:
    """Whether a resource is neither Kubernetes' own nor in its domain (kubernetes v1.36.3: pkg/apis/core/v1/helper)."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def pods(profile: MachineProfile) -> int:
    """Return how many pods the node accepts."""
    if profile.pods_per_core <= 0:
        return profile.max_pods
    return min(profile.cpu_millis // 1000 * profile.pods_per_core, profile.max_pods)


def reservation(profile: MachineProfile) -> dict[str, int]:
    """Return what is withheld from pods: millicores for cpu, bytes for the others."""
    amounts, machine = dict(profile.reserved), _machine(profile)
    for signal, resource in _EVICTION_RESOURCES.items():
        threshold = profile.hard_eviction.get(signal)
        if threshold and resource in machine and not is_off(threshold):
            amounts[resource] = amounts.get(resource, 0) + eviction_amount(threshold, machine[resource])
    return amounts


def same_amounts(left: Mapping[str, str], right: Mapping[str, str]) -> bool:
    """Whether two resource maps are equal, comparing quantities by value."""
    return left == right or (
        left.keys() == right.keys() and all(Quantity.parse(left[name]) == Quantity.parse(right[name]) for name in left)
    )


def _machine(profile: MachineProfile) -> dict[str, int]:
    huge = {f"{_HUGE}{size}": amount for size, amount in profile.huge_pages.items()}
    storage = {"ephemeral-storage": profile.ephemeral_storage} if profile.ephemeral_storage else {}
    return {"cpu": profile.cpu_millis, "memory": profile.memory, **storage, **huge}


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: _text(name, amount) for name, amount in amounts.items()}


def _text(name: str, amount: int) -> str:
    if name == "cpu":
        return str(Quantity.of_millis(amount))
    return str(Quantity.of_millis(amount * 1000) if name == "pods" else Quantity.of_bytes(amount))
