"""What the online work of one node requests, and the peak of its use that is expected, by zone: what the mid tier is computed from.

Source: the predictor of koordinator-sh/koordinator (pkg/koordlet/prediction), which takes what a pod requests above its expected
peak. Here the pods of a zone are predicted together, so that peaks at different times do not add up to more than ever was used.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from colo_common.events.node import WorkloadUsage
from colo_common.model.placement import attempt_key
from colo_common.model.qos import QosClass
from colo_common.model.quantity import ceil_div
from colo_overcommit.allocatable import ZoneInputs
from colo_overcommit.estimators.peak import PeakEstimator
from colo_overcommit.estimators.states import PeakState
from colo_overcommit.estimators.steps import STEP_MS
from colo_overcommit.held_by_batch import HeldByBatch
from colo_overcommit.histories import ProdHistory, ZoneHistory

__all__ = ["MEASURED_AFTER_MS", "ProdPeaks", "ProdUse"]

MEASURED_AFTER_MS: Final = 24 * STEP_MS
"""So long a replica is measured before its request may be given back: the estimator has not seen enough of it before."""


_NO_MID: Final[Mapping[int, tuple[int, int]]] = MappingProxyType({})


class ProdUse(Struct, frozen=True, kw_only=True):
    """The online work of one zone, as pairs of mcpu and bytes: what it requests, what of that was measured for long enough, and the
    expected peak, None while it is not known.

    Online work that colo did not place requests nothing that is known: its use counts as its request.
    """

    requested: tuple[int, int] = (0, 0)
    measured: tuple[int, int] = (0, 0)
    peak: tuple[int | None, int | None] = (None, None)


class ProdPeaks:
    """Learns the use of placed LS work in each zone. LSE and LSR work gives nothing back: no mid work may run on its CPUs.

    `since_ms` is when each replica that holds something was first measured.
    """

    __slots__ = ("_since_ms", "_zones")

    def __init__(self, history: ProdHistory | None = None) -> None:
        self._zones: dict[int, tuple[PeakEstimator, PeakEstimator]] = {}
        self._since_ms: dict[str, int] = {}
        if history is not None:
            self._since_ms = dict(history.since_ms)
            for each in history.zones:
                pair = self._zones[each.zone] = (PeakEstimator(), PeakEstimator())
                for estimator, state in zip(pair, (each.cpu, each.memory), strict=True):
                    if isinstance(state, PeakState):
                        estimator.restore(state)

    def history(self) -> ProdHistory:
        """What was learned."""
        zones = (
            ZoneHistory(zone=zone, cpu=cpu.state(), memory=memory.state())
            for zone, (cpu, memory) in self._zones.items()
        )
        return ProdHistory(zones=tuple(zones), since_ms=self._since_ms)

    def learn(
        self,
        held: HeldByBatch,
        inputs: Sequence[ZoneInputs],
        workloads: Iterable[WorkloadUsage],
        at_ms: int,
        mid_used: Mapping[int, tuple[int, int]] = _NO_MID,
    ) -> tuple[ProdUse, ...]:
        """Take a sample, and return the online work of each zone. A replica's use is divided evenly over its zones, rounded up.

        `mid_used` is what work of the mid tier uses by zone, in mcpu and bytes: it is no online work.
        """
        used = {attempt_key(work.replica, work.attempt): work for work in workloads if work.replica}
        self._since(held, used, at_ms)
        sums = {zone.zone: _Sums() for zone in inputs}
        for hold in held.online():
            now = used.get(hold.key)
            shares = [share for share in hold.shares if share.zone in sums]
            for share in shares:
                requested = (share.cpu_mcpu, share.memory_bytes)
                amounts = (0, 0) if now is None else (now.cpu_used_mcpu, now.memory_used_bytes)
                part = (ceil_div(amounts[0], len(shares)), ceil_div(amounts[1], len(shares)))
                since_ms = self._since_ms.get(hold.key)
                is_measured = since_ms is not None and at_ms - since_ms >= MEASURED_AFTER_MS
                sums[share.zone].add(requested, part, gives_back=since_ms is not None, is_measured=is_measured)
        return tuple(self._of_zone(zone, sums[zone.zone], mid_used.get(zone.zone, (0, 0)), at_ms) for zone in inputs)

    def _since(self, held: HeldByBatch, used: Mapping[str, WorkloadUsage], at_ms: int) -> None:
        keys = {hold.key for hold in held.online()}
        known = self._since_ms
        self._since_ms = {
            key: min(known.get(key, at_ms), at_ms)
            for key in sorted(keys)
            if key in known or (key in used and used[key].qos is QosClass.LS)
        }

    def _of_zone(self, zone: ZoneInputs, sums: "_Sums", mid_used: tuple[int, int], at_ms: int) -> ProdUse:
        pair = self._zones.setdefault(zone.zone, (PeakEstimator(), PeakEstimator()))
        for estimator, value in zip(pair, sums.shared, strict=True):
            estimator.add(at_ms, value)
        unknown = (
            max(zone.cpu.online_used - sums.placed[0] - mid_used[0], 0),
            max(zone.memory.online_used - sums.placed[1] - mid_used[1], 0),
        )
        return ProdUse(
            requested=(sums.requested[0] + unknown[0], sums.requested[1] + unknown[1]),
            measured=(sums.measured[0], sums.measured[1]),
            peak=(_peak(pair[0], sums.shared[0]), _peak(pair[1], sums.shared[1])),
        )


def _peak(estimator: PeakEstimator, used: int) -> int | None:
    """What is expected, and at least the use of now."""
    expected = estimator.expected()
    return None if expected is None else max(expected, used)


class _Sums:
    """Pairs of mcpu and bytes: requests of placed work, those measured for long enough, use of placed work, that of LS work."""

    __slots__ = ("measured", "placed", "requested", "shared")

    def __init__(self) -> None:
        self.requested, self.measured, self.placed, self.shared = [0, 0], [0, 0], [0, 0], [0, 0]

    def add(self, requested: tuple[int, int], used: tuple[int, int], *, gives_back: bool, is_measured: bool) -> None:
        for index in (0, 1):
            self.requested[index] += requested[index]
            self.placed[index] += used[index]
            if gives_back:
                self.shared[index] += used[index]
            if is_measured:
                self.measured[index] += requested[index]
