"""The state of the container runtime after repeated queries. Pure. Source: kubelet v1.36: pkg/kubelet/runtime.go."""

from __future__ import annotations

import re
from typing import Final

from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass, replace
from kubewright.base.versions import Version
from kubewright.host.seam import RuntimeVersion
from kubewright.host.states import NETWORK_READY, READY, RuntimeHandler, RuntimeStatus

SILENCE: Final = 30.0
"""Seconds without a report that the runtime is ready, after which it counts as down."""
UNCHECKED: Final = "container runtime status check may not have completed yet"
DOWN: Final = "container runtime is down"
NETWORK_UNKNOWN: Final = "network state unknown"
UNKNOWN: Final = "Unknown"
"""The version of a runtime that does not answer, or not with a version."""
_NUMBERS: Final = Pattern(r"\s*v?((?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,19})+)(?![0-9])", re.ASCII)


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


def shown_version(reported: RuntimeVersion) -> str:
    """Return the name and version of a runtime as a Node reports them (kubelet v1.36: pkg/kubelet/kuberuntime, newRuntimeVersion).

    What follows the numbers is shown only if it is a semantic version.
    """
    return f"{reported.name}://{_canonical(reported.version)}"


def _canonical(text: str) -> str:
    try:
        return str(Version.parse(text.strip())).removeprefix("v")
    except ValueError:
        numbers = _NUMBERS.match(text)
    return ".".join(str(int(number)) for number in numbers[1].split(".")) if numbers else UNKNOWN


def _unmet(status: RuntimeStatus, kind: str) -> str:
    """Return a condition that is not true, in the kubelet's words; '' for one that is.

    A missing condition is not true, and is written as Go writes it.
    """
    found = next((one for one in status.conditions if one.type == kind), None)
    if found is None:
        return "<nil>"
    return "" if found.status else f"{kind}=false reason:{found.reason} message:{found.message}"
