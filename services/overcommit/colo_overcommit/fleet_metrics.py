"""The sums over the fleet as metrics, computed once for each reading of the metrics page."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from colo_common.events.fleet import FleetTotals
from colo_overcommit.known_node import KnownNode
from colo_overcommit.queries import fleet_totals

__all__ = ["FleetMetrics"]

#: Metric -> its description, and for each value of the label `what` the field of FleetTotals.
_SUMS: Final = {
    "colo_overcommit_fleet_cpu_mcpu": (
        "CPU of all nodes: capacity, used (measured), batch (promised), held by batch work, overdrawn (held and cannot be given)",
        ("capacity", "used", "batch", "held", "overdrawn"),
        "{}_cpu_mcpu",
    ),
    "colo_overcommit_fleet_memory_bytes": (
        "memory of all nodes, as the CPU",
        ("capacity", "used", "batch", "held", "overdrawn"),
        "{}_memory_bytes",
    ),
}
# Two sums have their resource first.
_FIELDS: Final = {
    "capacity_cpu_mcpu": "cpu_capacity_mcpu",
    "used_cpu_mcpu": "cpu_used_mcpu",
    "capacity_memory_bytes": "memory_capacity_bytes",
    "used_memory_bytes": "memory_used_bytes",
}


class FleetMetrics(Collector):
    """Gauges of these nodes; one pass over them for each reading, as for the question of the fleet."""

    def __init__(self, nodes: Callable[[], Mapping[str, KnownNode]]) -> None:
        self._nodes = nodes

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges now."""
        yield from _families(fleet_totals(self._nodes()))

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The gauges without a pass over the nodes: registering them needs the names only."""
        yield from _families(fleet_totals({}))


def _families(totals: FleetTotals) -> Iterator[GaugeMetricFamily]:
    nodes = GaugeMetricFamily(
        "colo_overcommit_fleet_nodes", "nodes by the freshness of their samples", labels=("freshness",)
    )
    for freshness, count in totals.nodes.items():
        nodes.add_metric((freshness,), count)
    yield nodes
    yield GaugeMetricFamily(
        "colo_overcommit_overdrawn_nodes",
        "nodes where batch work holds more than could be promised now: broken promises",
        value=totals.overdrawn_nodes,
    )
    for name, (description, whats, pattern) in _SUMS.items():
        family = GaugeMetricFamily(name, description, labels=("what",))
        for what in whats:
            field = pattern.format(what)
            family.add_metric((what,), getattr(totals, _FIELDS.get(field, field)))
        yield family
