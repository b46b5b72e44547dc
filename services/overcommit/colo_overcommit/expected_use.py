"""What the online work of one node is expected to use, by zone, as terms of the formula."""

from collections.abc import Iterable

from msgspec.structs import replace

from colo_overcommit.allocatable import ZoneInputs
from colo_overcommit.estimators.estimator import Estimator, estimator_of
from colo_overcommit.histories import ZoneHistory

__all__ = ["ExpectedUse"]


class ExpectedUse:
    """Estimators of CPU and memory for each zone of a node. A zone that is new begins without a past."""

    __slots__ = ("_name", "_zones")

    def __init__(self, name: str, histories: Iterable[ZoneHistory] = ()) -> None:
        """`name`: of an estimator, not `last`. It goes on from histories of the same estimator."""
        self._name = name
        self._zones: dict[int, tuple[Estimator, Estimator]] = {}
        for each in histories:
            self._begin(each.zone, each)

    def histories(self) -> tuple[ZoneHistory, ...]:
        """What was learned of each zone."""
        return tuple(
            ZoneHistory(zone=zone, cpu=cpu.state(), memory=memory.state())
            for zone, (cpu, memory) in self._zones.items()
        )

    def learn(self, inputs: tuple[ZoneInputs, ...], at_ms: int) -> tuple[ZoneInputs, ...]:
        """Take the measured terms of a sample, and return them with what is expected; never more than the zone has."""
        found = []
        for zone in inputs:
            pair = self._zones.get(zone.zone) or self._begin(zone.zone)
            cpu, memory = (
                replace(
                    resource, online_expected=min(_learned(estimator, at_ms, resource.online_used), resource.capacity)
                )
                for estimator, resource in zip(pair, (zone.cpu, zone.memory), strict=True)
            )
            found.append(replace(zone, cpu=cpu, memory=memory, expected_by=self._name))
        return tuple(found)

    def _begin(self, zone: int, history: ZoneHistory | None = None) -> tuple[Estimator, Estimator]:
        cpu = estimator_of(self._name, history.cpu if history else None)
        memory = estimator_of(self._name, history.memory if history else None, of_memory=True)
        if cpu is None or memory is None:
            raise KeyError(self._name)
        self._zones[zone] = (cpu, memory)
        return cpu, memory


def _learned(estimator: Estimator, at_ms: int, value: int) -> int:
    estimator.add(at_ms, value)
    return estimator.expected() or 0
