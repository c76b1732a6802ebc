"""Telemetry of the controllers: metrics, and events for users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kubewright.base.records import dataclass
from kubewright.kube.daemons.queueing import QueueMetrics
from kubewright.kube.daemons.recorder import EventRecorder

if TYPE_CHECKING:
    from kubewright.http.metrics import Registry

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)


class ControllerMetrics:
    """The metrics of a controllers' process: the work queues' by client-go's names, and those of ours, `kubewright_controllers_…`."""

    def __init__(self, registry: Registry) -> None:
        self.queues = QueueMetrics(registry)
        labels = ("controller", "outcome")
        self.outcomes = registry.counter("kubewright_controllers_outcomes_total", "What controllers did, by outcome.", labels=labels)
        self.latency = registry.histogram(
            "kubewright_controllers_latency_seconds",
            "Seconds from when a controller first heard of a certificate request to its write about it.",
            labels=labels,
            buckets=BUCKETS,
        )
        self._leader = registry.gauge(
            "leader_election_master_status", "Gauge of if the reporting system is master of the relevant lease.", labels=("name",)
        )

    def leads(self, lease: str, value: Callable[[], bool]) -> None:
        """Show whether this process is the leader, under client-go's name."""
        self._leader.follow(lambda: float(value()), lease)


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """The destinations of the controllers' reports. Without metrics and events, nothing is reported."""

    metrics: ControllerMetrics | None = None
    events: EventRecorder | None = None

    @property
    def queues(self) -> QueueMetrics | None:
        """The metrics of work queues."""
        return self.metrics.queues if self.metrics is not None else None

    def outcome(self, controller: str, outcome: str, *, seconds: float | None = None) -> None:
        """Count an outcome; if it was written, also how long it took."""
        if self.metrics is None:
            return
        self.metrics.outcomes.add(controller, outcome)
        if seconds is not None:
            self.metrics.latency.observe(seconds, controller, outcome)

    def warn(self, about: Mapping[str, Any], *, reason: str, message: str) -> None:
        """Send an event about an object."""
        if self.events is not None:
            self.events.event(about, kind="Warning", reason=reason, message=message)
