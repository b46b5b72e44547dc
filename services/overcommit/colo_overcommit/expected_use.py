"""What the online work of one node is expected to use, by zone, as terms of the formula."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final
from zlib import crc32

from msgspec.structs import replace

from colo_overcommit.allocatable import ZoneInputs
from colo_overcommit.estimators.estimator import Estimator, EstimatorChoice, Forecaster, Quantity, estimator_of
from colo_overcommit.estimators.rc_like import RcLikeEstimator, WorkPart
from colo_overcommit.histories import ZoneHistory

__all__ = ["ExpectedUse"]

Parts = Mapping[int, tuple[list[WorkPart], list[WorkPart]]]
_NO_PARTS: Final[Parts] = MappingProxyType({})
_NONE: Final[tuple[list[WorkPart], list[WorkPart]]] = ([], [])


class ExpectedUse:
    """Estimators of CPU and memory for each zone of a node. A zone that is new begins without a past.

    `since_ms`: zone -> since when it expects what it expects now of CPU and of memory, by the arrival of samples.
    """

    __slots__ = ("_expected", "_node", "_zones", "by_workload", "choice", "since_ms")

    def __init__(self, choice: EstimatorChoice, histories: Iterable[ZoneHistory] = (), node: str = "") -> None:
        """`choice`: not `last`. It goes on from histories of the same kind of estimator, which are those of `node`."""
        self.choice, self._node = choice, node
        self.by_workload = isinstance(estimator_of(choice.name), RcLikeEstimator)
        """Whether it learns the use of each workload, and not only of all online work together."""
        self._zones: dict[int, tuple[Estimator, Estimator]] = {}
        self._expected: dict[int, tuple[int, int]] = {}
        self.since_ms: dict[int, tuple[int, int]] = {}
        for each in histories:
            self._begin(each.zone, each)

    def histories(self) -> tuple[ZoneHistory, ...]:
        """What was learned of each zone."""
        return tuple(
            ZoneHistory(zone=zone, cpu=cpu.state(), memory=memory.state())
            for zone, (cpu, memory) in self._zones.items()
        )

    def look(self, choice: EstimatorChoice) -> None:
        """Look as far as this choice of the same estimator says from now on; what was learned stays."""
        self.choice = choice
        for pair in self._zones.values():
            for estimator in pair:
                if isinstance(estimator, Forecaster):
                    estimator.look(choice.outlook)

    def under(self, choice: EstimatorChoice) -> Mapping[int, tuple[int, int]]:
        """Zone -> the CPU and memory that it would expect if it looked as far as this choice of the same estimator says."""
        return {
            zone: (_foretold(cpu, choice), _foretold(memory, choice)) for zone, (cpu, memory) in self._zones.items()
        }

    def learn(
        self, inputs: tuple[ZoneInputs, ...], at_ms: int, parts: Parts = _NO_PARTS, *, now_ms: int
    ) -> tuple[ZoneInputs, ...]:
        """Take the measured terms of a sample of `at_ms`, and return them with what is expected; never more than the zone has.

        `parts`: zone -> what each online workload uses of its CPU and memory, for an estimator that learns `by_workload`. `now_ms`
        is when the sample arrived.
        """
        found = []
        for zone in inputs:
            pair = self._zones.get(zone.zone) or self._begin(zone.zone)
            cpu, memory = (
                replace(
                    resource,
                    online_expected=min(_learned(estimator, at_ms, resource.online_used, of), resource.capacity),
                )
                for estimator, resource, of in zip(
                    pair, (zone.cpu, zone.memory), parts.get(zone.zone, _NONE), strict=True
                )
            )
            found.append(replace(zone, cpu=cpu, memory=memory, expected_by=self.choice.text))
            self._note(zone.zone, (cpu.online_expected, memory.online_expected), now_ms)
        return tuple(found)

    def _note(self, zone: int, expected: tuple[int, int], now_ms: int) -> None:
        last, since = self._expected.get(zone), self.since_ms.get(zone, (now_ms, now_ms))
        if last != expected:
            self._expected[zone] = expected
            was = last or (-1, -1)
            self.since_ms[zone] = (
                since[0] if was[0] == expected[0] else now_ms,
                since[1] if was[1] == expected[1] else now_ms,
            )

    def _begin(self, zone: int, history: ZoneHistory | None = None) -> tuple[Estimator, Estimator]:
        cpu = estimator_of(self.choice.name, history.cpu if history else None, self._quantity(zone, of_memory=False))
        memory = estimator_of(
            self.choice.name, history.memory if history else None, self._quantity(zone, of_memory=True)
        )
        if cpu is None or memory is None:
            raise KeyError(self.choice.name)
        self._zones[zone] = (cpu, memory)
        return cpu, memory

    def _quantity(self, zone: int, *, of_memory: bool) -> Quantity:
        phase = crc32(f"{self._node}/{zone}/{of_memory}".encode()) / (1 << 32)
        return Quantity(of_memory, phase, outlook=self.choice.outlook)


def _foretold(estimator: Estimator, choice: EstimatorChoice) -> int:
    if isinstance(estimator, Forecaster):
        return estimator.foretold(choice.outlook) or 0
    return estimator.expected() or 0


def _learned(estimator: Estimator, at_ms: int, value: int, parts: list[WorkPart]) -> int:
    if isinstance(estimator, RcLikeEstimator):
        estimator.add(at_ms, value, parts)
    else:
        estimator.add(at_ms, value)
    return estimator.expected() or 0
