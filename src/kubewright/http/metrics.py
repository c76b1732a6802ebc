"""The metrics of a daemon, in the text forms that Prometheus reads.

prometheus-client does the work; it is not visible outside this package.

Costs 25 ms to import: for daemons only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar

import prometheus_client
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from kubewright.base import unexpected
from kubewright.http.messages import Response

DEFAULT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


M = TypeVar("M", bound=MetricWrapperBase)


class _Labelled(Generic[M]):
    """A metric with a value for each combination of labels."""

    def __init__(self, inner: M) -> None:
        self._inner = inner
        self._children: dict[tuple[str, ...], M] = {(): inner}

    def _child(self, labels: tuple[str, ...]) -> M:
        """Return the child of a combination, cached: the library's look-up costs more than counting."""
        found = self._children.get(labels)
        if found is None:
            found = self._children[labels] = self._inner.labels(*labels)
        return found


class Counter(_Labelled[prometheus_client.Counter]):
    """A number that only grows, for each combination of labels. Its name ends in `_total`."""

    def add(self, *labels: str) -> None:
        """Count one."""
        self._child(labels).inc()


class Gauge(_Labelled[prometheus_client.Gauge]):
    """A number that goes up and down, for each combination of labels."""

    def change(self, by: float, *labels: str) -> None:
        """Add an amount, which may be negative."""
        self._child(labels).inc(by)

    def follow(self, value: Callable[[], float], *labels: str) -> None:
        """Call a function for the value whenever the metrics are read."""
        self._child(labels).set_function(value)


class Histogram(_Labelled[prometheus_client.Histogram]):
    """The distribution of observed values, for each combination of labels."""

    def observe(self, value: float, *labels: str) -> None:
        """Count one value."""
        self._child(labels).observe(value)


class _Unexpected(Collector):
    """The number of unexpected errors in this process, by the work that failed."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            "kubewright_unexpected_errors", "Errors that are faults of kubewright, by the work that failed", labels=["work"]
        )
        for work, count in sorted(unexpected.counts().items()):
            family.add_metric([work], count)
        yield family


class Registry:
    """All metrics of one process, those of the process itself (`process_…`) and unexpected errors included."""

    def __init__(self) -> None:
        # Go's client has no `_created` series, and dashboards do not expect them. The setting is global to the process.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(_Unexpected())

    def counter(self, name: str, text: str, *, labels: Sequence[str] = ()) -> Counter:
        """Make a counter. Names are unique."""
        return Counter(prometheus_client.Counter(name, text, labels, registry=self._registry))

    def gauge(self, name: str, text: str, *, labels: Sequence[str] = ()) -> Gauge:
        """Make a gauge. Names are unique."""
        return Gauge(prometheus_client.Gauge(name, text, labels, registry=self._registry))

    def histogram(self, name: str, text: str, *, labels: Sequence[str] = (), buckets: Sequence[float] = DEFAULT_BUCKETS) -> Histogram:
        """Make a histogram. `buckets` are upper bounds in ascending order, without infinity. Names are unique."""
        return Histogram(prometheus_client.Histogram(name, text, labels, registry=self._registry, buckets=tuple(buckets)))

    def read(self, accept: str = "") -> Response:
        """Return all metrics in the format that an Accept header asks for: OpenMetrics, or Prometheus's text format."""
        encode, content_type = choose_encoder(accept)
        return Response(status=200, headers={"content-type": content_type}, body=encode(self._registry))
