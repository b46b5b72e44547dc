"""Numbers of a process for Prometheus: one registry, names `colo_<service>_<noun>_<unit>`, labels from closed sets."""

from collections.abc import Sequence
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from colo_common.model.invalid import InvariantBroken

__all__ = ["CONTENT_TYPE", "Metrics", "ServiceMetrics"]

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


class Metrics:
    """The registry. Asking twice for a name gives the same metric, so that many services in one process may share it."""

    def __init__(self, version: str = "") -> None:
        self.registry = CollectorRegistry()
        self._known: dict[str, Counter | Gauge | Histogram] = {}
        if version:
            self.gauge("colo_build_info", "1, labelled with the version that runs", ("version",)).labels(version).set(1)

    def counter(self, name: str, says: str, labels: Sequence[str] = ()) -> Counter:
        """A number that only grows; its name ends in _total."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = Counter(name, says, labels, registry=self.registry)
        return _as(Counter, found, name)

    def gauge(self, name: str, says: str, labels: Sequence[str] = ()) -> Gauge:
        """A number that goes up and down."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = Gauge(name, says, labels, registry=self.registry)
        return _as(Gauge, found, name)

    def histogram(
        self, name: str, says: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS
    ) -> Histogram:
        """A distribution, of seconds unless other buckets are given."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = Histogram(name, says, labels, buckets=buckets, registry=self.registry)
        return _as(Histogram, found, name)

    def text(self) -> bytes:
        """The exposition text of all metrics; its content type is CONTENT_TYPE."""
        return generate_latest(self.registry)


class ServiceMetrics:
    """What the generic shell counts for every service."""

    def __init__(self, metrics: Metrics, service: str) -> None:
        prefix = f"colo_{service.replace('-', '_')}"
        self.handled = metrics.counter(f"{prefix}_events_handled_total", "events that the core handled", ("type",))
        self.handle_seconds = metrics.histogram(f"{prefix}_handle_seconds", "time of one event in the core")
        self.inbox_items = metrics.gauge(f"{prefix}_inbox_items", "items that wait for the core")
        self.outgoing_messages = metrics.gauge(f"{prefix}_outgoing_messages", "messages that wait for the bus")
        self.dead_letters = metrics.counter(
            f"{prefix}_dead_letters_total", "messages that could not be decoded or handled"
        )
        self.refusals = metrics.counter(f"{prefix}_refusals_total", "requests and local events that broke a rule")
        self.conflicts = metrics.counter(
            f"{prefix}_conflicts_total", "records refused because another version was found"
        )
        self.record_seconds = metrics.histogram(
            f"{prefix}_record_seconds", "time of one write to the store, retries included"
        )
        self.publish_seconds = metrics.histogram(f"{prefix}_publish_seconds", "time of one publish, retries included")
        self.published = metrics.counter(f"{prefix}_messages_published_total", "messages that the bus took", ("type",))
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
