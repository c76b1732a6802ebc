"""The events that a change of a Node's status causes. Pure. Source: kubelet v1.36: pkg/kubelet/nodestatus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from kubewright.agent.status.pressures import PRESSURES
from kubewright.agent.status.setters import READY, find
from kubewright.base.records import dataclass

_READY: Final = {"True": "NodeReady", "False": "NodeNotReady"}


@dataclass(frozen=True)
class NodeEvent:
    """One event about a Node."""

    reason: str
    message: str
    kind: Literal["Normal", "Warning"] = "Normal"


def starting() -> NodeEvent:
    """Return the event of an agent that starts."""
    return NodeEvent("Starting", "Starting the kubewright agent.")


def shutting_down() -> NodeEvent:
    """Return the event of a machine that shuts down, in the kubelet's words."""
    return NodeEvent("Shutdown", "Shutdown manager detected shutdown event")


def events_between(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Iterator[NodeEvent]:
    """Yield the events of a Node that changed to `new`; without `old` it was just created.

    Pressure conditions are reported when they change, and the first time; Ready only when it changes; a reboot of the
    machine always.
    """
    name = new["metadata"]["name"]
    before = {} if old is None else old.get("status") or {}
    for row in PRESSURES:
        status = _status(new["status"], row.type)
        if status in _READY and status != _status(before, row.type):
            reason, _ = row.bad if status == "True" else row.good
            yield _status_event(name, f"Node{reason.removeprefix('Kubelet')}")
    ready, was_ready = _status(new["status"], READY), _status(before, READY)
    if was_ready and ready in _READY and ready != was_ready:
        yield _status_event(name, _READY[ready])
    boot, earlier = (holder.get("nodeInfo", {}).get("bootID", "") for holder in (new["status"], before))
    if earlier and boot != earlier:
        yield NodeEvent("Rebooted", f"Node {name} has been rebooted, boot id: {boot}", "Warning")


def scheduling_event(node: Mapping[str, Any], *, was: bool) -> NodeEvent | None:
    """Return the event of a Node that was cordoned or uncordoned. `was`: it was cordoned at the last check."""
    now = is_cordoned(node)
    return None if now == was else _status_event(node["metadata"]["name"], "NodeNotSchedulable" if now else "NodeSchedulable")


def is_cordoned(node: Mapping[str, Any]) -> bool:
    """Whether the Node is marked as unschedulable."""
    return node.get("spec", {}).get("unschedulable") is True


def _status_event(name: str, reason: str) -> NodeEvent:
    return NodeEvent(reason, f"Node {name} status is now: {reason}")


def _status(status: Mapping[str, Any], kind: str) -> str:
    found = find(status.get("conditions") or (), kind)
    return "" if found is None else str(found.get("status", ""))
