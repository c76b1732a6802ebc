"""The state of the container runtime after repeated queries. Pure. Source: kubelet v1.36: pkg/kubelet/runtime.go."""

from __future__ import annotations

from typing import Final

from kubewright.base.records import dataclass, replace
from kubewright.host.states import NETWORK_READY, READY, Condition, RuntimeHandler, RuntimeStatus

SILENCE: Final = 30.0
"""Seconds without a report that the runtime is ready, after which it counts as down."""
UNCHECKED: Final = "container runtime status check may not have completed yet"
DOWN: Final = "container runtime is down"
NETWORK_UNKNOWN: Final = "network state unknown"


@dataclass(frozen=True, kw_only=True)
class RuntimeHealth:
    """The observed state of a container runtime.

    `ready_at` is when it last reported that it is ready, in seconds of a monotonic clock.
    """

    ready_at: float | None = None
    trouble: str = ""
    network: str = NETWORK_UNKNOWN
    handlers: tuple[RuntimeHandler, ...] = ()
    supplemental_groups_policy: bool | None = None

    def updated(self, status: RuntimeStatus, *, now: float) -> RuntimeHealth:
        """Return the state after a query.

        What the runtime reports about its network counts even if the runtime itself is not ready. A query without an
        answer changes nothing; only time passes.
        """
        unready, no_network = _unmet(status, READY), _unmet(status, NETWORK_READY)
        network = f"container runtime network not ready: {no_network}" if no_network else ""
        if unready:
            return replace(self, trouble=f"container runtime not ready: {unready}", network=network)
        return RuntimeHealth(
            ready_at=now,
            network=network,
            handlers=tuple(sorted(status.handlers, key=lambda one: one.name)),
            supplemental_groups_policy=status.supplemental_groups_policy,
        )

    def errors(self, now: float) -> tuple[str, ...]:
        """Return the reasons why a node with this runtime is not ready; none if it is."""
        return tuple(filter(None, (self._silence(now), self.trouble)))

    def _silence(self, now: float) -> str:
        if self.ready_at is None:
            return UNCHECKED
        return DOWN if now - self.ready_at >= SILENCE else ""


def _unmet(status: RuntimeStatus, kind: str) -> str:
    """Return a condition that is not true, in the kubelet's words; '' for one that is.

    A missing condition is not true.
    """
    found = next((one for one in status.conditions if one.type == kind), Condition(type=kind, status=False))
    return "" if found.status else f"{kind}=false reason:{found.reason} message:{found.message}"
