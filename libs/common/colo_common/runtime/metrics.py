"""Numbers of a process for Prometheus: one registry, names `colo_<service>_<noun>_<unit>`, labels from closed sets."""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.registry import Collector

from colo_common.model.invalid import InvariantBroken

__all__ = ["CONTENT_TYPE", "Metrics", "ServiceMetrics", "Timing", "Waiting"]

Kind = TypeVar("Kind")

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

# From 50 us (one event in a core) to 10 s (a server that is almost away).
SECONDS: Final = (
    0.00005,
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
)


class Timing(Collector):
    """A distribution of seconds for one thread, without locks, because every event observes one. Exposed as a Histogram is."""

    def __init__(self, name: str, description: str) -> None:
        self._name = name
        self._description = description
        self._created_s = time.time()
        self._counts = [0] * (len(SECONDS) + 1)
        self._sum_s = 0.0

    def observe(self, span_s: float) -> None:
        """Count one span of this many seconds."""
        self._counts[bisect_left(SECONDS, span_s)] += 1
        self._sum_s += span_s

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The counts so far, for the registry."""
        family = HistogramMetricFamily(self._name, self._description)
        bounds = [*(repr(float(bound)) for bound in SECONDS), "+Inf"]
        family.add_metric((), list(zip(bounds, accumulate(self._counts), strict=True)), self._sum_s)
        family.add_sample(f"{self._name}_created", {}, self._created_s)
        yield family


class Waiting:
    """How much waits in all services of the process together; `gauge` shows it. One that has ended counts no more."""

    def __init__(self, gauge: Gauge) -> None:
        self._counts: list[Callable[[], int]] = []
        self.gauge = gauge
        gauge.set_function(lambda: float(self.total()))

    @contextmanager
    def counting(self, count: Callable[[], int]) -> Iterator[None]:
        """Add what this returns for as long as the context is open."""
        self._counts.append(count)
        try:
            yield
        finally:
            self._counts.remove(count)

    def total(self) -> int:
        """What waits now."""
        return sum(count() for count in self._counts)


class Metrics:
    """The registry. Asking twice for a name gives the same metric, so that many services in one process may share it."""

    def __init__(self, version: str = "") -> None:
        self.registry = CollectorRegistry()
        self._known: dict[str, Counter | Gauge | Histogram | Timing] = {}
        self._waiting: dict[str, Waiting] = {}
        if version:
            self.gauge("colo_build_info", "1, labelled with the version that runs", ("version",)).labels(version).set(1)

    def counter(self, name: str, description: str, labels: Sequence[str] = ()) -> Counter:
        """A number that only grows; its name ends in _total."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = Counter(name, description, labels, registry=self.registry)
        return _as(Counter, found, name)

    def gauge(self, name: str, description: str, labels: Sequence[str] = ()) -> Gauge:
        """A number that goes up and down."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = Gauge(name, description, labels, registry=self.registry)
        return _as(Gauge, found, name)

    def waiting(self, name: str, description: str) -> Waiting:
        """A gauge of what waits in all services of the process."""
        found = self._waiting.get(name)
        if found is None:
            found = self._waiting[name] = Waiting(self.gauge(name, description))
        return found

    def histogram(
        self, name: str, description: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS
    ) -> Histogram:
        """A distribution, of seconds unless other buckets are given."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = Histogram(name, description, labels, buckets=buckets, registry=self.registry)
        return _as(Histogram, found, name)

    def timing(self, name: str, description: str) -> Timing:
        """A distribution of seconds on a hot path."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = Timing(name, description)
            self.registry.register(found)
        return _as(Timing, found, name)

    def register(self, collector: Collector) -> None:
        """Add metrics that are computed together when the page is read."""
        self.registry.register(collector)

    def text(self) -> bytes:
        """The exposition text of all metrics; its content type is CONTENT_TYPE."""
        return generate_latest(self.registry)


class ServiceMetrics:
    """The metrics of the generic shell, one set for every service."""

    def __init__(self, metrics: Metrics, service: str) -> None:
        prefix = f"colo_{service.replace('-', '_')}"
        self.handled = metrics.counter(f"{prefix}_events_handled_total", "events that the core handled", ("type",))
        self.handle_seconds = metrics.timing(f"{prefix}_handle_seconds", "time of one event in the core")
        self.inbox_items = metrics.waiting(f"{prefix}_inbox_items", "items that wait for the core")
        self.outgoing_messages = metrics.waiting(f"{prefix}_outgoing_messages", "messages that wait for the bus")
        self.dead_letters = metrics.counter(
            f"{prefix}_dead_letters_total", "messages that could not be decoded or handled"
        )
        self.malformed = metrics.counter(
            f"{prefix}_telemetry_malformed_total", "lossy messages that could not be decoded or handled"
        )
        self.refusals = metrics.counter(f"{prefix}_refusals_total", "requests and local events that broke a rule")
        self.store_losses = metrics.counter(
            f"{prefix}_store_losses_total", "times that the store was emptied or started again, and rows were put back"
        )
        self.unrestored_items = metrics.waiting(
            f"{prefix}_unrestored_items",
            "what was accepted, and a lost store cannot be given back: such as jobs to be submitted again",
        )
        self.facts_missed = metrics.counter(
            f"{prefix}_facts_missed_total",
            "times that a stream had discarded messages before this service received them",
        )
        self.conflicts = metrics.counter(
            f"{prefix}_conflicts_total", "records refused because another version was found"
        )
        self.record_seconds = metrics.histogram(
            f"{prefix}_record_seconds", "time of one write to the store, retries included"
        )
        self.publish_seconds = metrics.histogram(f"{prefix}_publish_seconds", "time of one publish, retries included")
        self.dropped = metrics.counter(f"{prefix}_messages_dropped_total", "messages given up", ("why",))
        self.retries = metrics.counter(
            f"{prefix}_retries_total", "tries of the store or the bus that failed", ("port",)
        )


def _as(kind: type[Kind], found: object, name: str) -> Kind:
    if not isinstance(found, kind):
        raise InvariantBroken(
            "a metric is asked for as two kinds", name=name, first=type(found).__name__, then=kind.__name__
        )
    return found
