"""What the gateway knows of everybody, as metrics: what online work felt, and how far each service is behind."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from colo_gateway.harm import Harm

__all__ = ["GatewayMetrics"]


class GatewayMetrics(Collector):
    """Several gateways hear and ask the same: take the largest of them, never their sum."""

    def __init__(self, harm: Harm, pending: Callable[[], Mapping[str, int]]) -> None:
        self._harm = harm
        self._pending = pending

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """The metrics now."""
        yield CounterMetricFamily(
            "colo_gateway_online_measured_seconds_total",
            "time of online work on all nodes in samples that say what it waited for",
            value=self._harm.measured_ms / 1000,
        )
        yield CounterMetricFamily(
            "colo_gateway_online_harmed_seconds_total",
            "time of online work on all nodes in samples in which it was harmed",
            value=self._harm.harmed_ms / 1000,
        )
        pending = GaugeMetricFamily(
            "colo_gateway_pending_messages", "messages that wait on the bus for a service", labels=("of",)
        )
        for service, count in self._pending().items():
            pending.add_metric((service,), count)
        yield pending
