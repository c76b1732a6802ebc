"""Metrics of a hub."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kubewright.http.metrics import Registry

_BUCKETS: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0, 600.0)


class HubMetrics:
    """The metrics of a hub, `kubewright_hub_…`."""

    def __init__(self, registry: Registry) -> None:
        labels = ("cluster", "protocol", "outcome")
        self._outcomes = registry.counter("kubewright_hub_joins_total", "Requests that were answered, by outcome.", labels=labels)
        self._latency = registry.histogram(
            "kubewright_hub_join_seconds", "Seconds from a request to its answer.", labels=labels, buckets=_BUCKETS
        )
        self._ends = registry.gauge(
            "kubewright_hub_certificate_end_timestamp_seconds",
            "When the first certificate of a node expires that nothing renews.",
            labels=("cluster",),
        )
        self._clusters = registry.gauge("kubewright_hub_clusters", "Tenant clusters that are served.")

    def outcome(self, cluster: str, protocol: str, outcome: str, seconds: float) -> None:
        """Count an answer and how long it took."""
        self._outcomes.add(cluster, protocol, outcome)
        self._latency.observe(seconds, cluster, protocol, outcome)

    def follow_ends(self, cluster: str, first: Callable[[], float]) -> None:
        """Show when the first certificate of a cluster's nodes expires."""
        self._ends.follow(first, cluster)

    def follow_clusters(self, count: Callable[[], float]) -> None:
        """Show how many clusters are served."""
        self._clusters.follow(count)
