"""The gauges of NUMA zones, which are computed when they are read, because the reflex has no time to set them."""

from collections.abc import Callable, Sequence
from functools import partial

from colo_common.events.enforcement import ZoneCeiling
from colo_common.runtime.metrics import Metrics
from colo_executor.local import FastReading

__all__ = ["ZoneGauges"]

_WHOLE = "all"


class ZoneGauges:
    """`held` returns the ceilings of zones that are below their capacity."""

    def __init__(self, metrics: Metrics, held: Callable[[], Sequence[ZoneCeiling]]) -> None:
        self._held = held
        self._reading: FastReading | None = None
        self._shown: set[int] = set()
        self._shown_memory: set[str] = set()
        self._ceilings = metrics.gauge(
            "colo_executor_batch_zone_ceiling_mcpu",
            "what batch work may use of a NUMA zone, where the machine has several",
            ("zone",),
        )
        self._traffic = metrics.gauge(
            "colo_executor_memory_traffic_bytes_per_s",
            "what the CPUs of a NUMA zone (all: of the machine) read from memory and write to it, where that is counted",
            ("zone",),
        )

    def show(self, reading: FastReading) -> None:
        """Show what this reading says, and zones that were not shown so far."""
        self._reading = reading
        for zone in reading.zones:
            if zone.zone not in self._shown:
                self._shown.add(zone.zone)
                self._ceilings.labels(str(zone.zone)).set_function(partial(self._ceiling, zone.zone))
        for traffic in () if reading.memory is None else reading.memory.zones:
            name = _name(traffic.zone)
            if name not in self._shown_memory:
                self._shown_memory.add(name)
                self._traffic.labels(name).set_function(partial(self._bytes_per_s, name))

    def _ceiling(self, zone: int) -> float:
        has = () if self._reading is None else self._reading.zones
        known = {each.zone: each.capacity_mcpu for each in has} | {
            each.zone: each.ceiling_mcpu for each in self._held()
        }
        return float(known.get(zone, 0))

    def _bytes_per_s(self, name: str) -> float:
        memory = None if self._reading is None else self._reading.memory
        known = {} if memory is None else {_name(each.zone): each.bytes_per_s for each in memory.zones}
        return float(known.get(name, 0))


def _name(zone: int | None) -> str:
    return _WHOLE if zone is None else str(zone)
