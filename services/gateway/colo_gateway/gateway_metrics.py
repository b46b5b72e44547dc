"""What the gateway knows of everybody, as metrics: what online work felt, and how far each service is behind."""

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from colo_gateway.harm import Harm
from colo_gateway.survey import ServiceSurvey

__all__ = ["GatewayMetrics"]


class GatewayMetrics(Collector):
    """Several gateways hear and ask the same: take the largest of them, never their sum."""

    def __init__(self, harm: Harm, survey: ServiceSurvey) -> None:
        self._harm = harm
        self._survey = survey

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
        for service, count in self._survey.pending.items():
            pending.add_metric((service,), count)
        yield pending
