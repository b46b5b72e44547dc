"""What a policy of overcommit promised on the machines of a trace, and which of it was broken."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from colo_common.events.node import NodeTopologyReported, NodeUsageSampled, ZoneUsage
from colo_common.model.estimator_rules import LAST
from colo_common.model.freshness import FreshnessPolicy
from colo_common.model.topology import uniform_topology
from colo_overcommit.allocatable import Resource
from colo_overcommit.core import OvercommitCore
from colo_overcommit.estimators.estimator import estimator_of
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.risk import RiskPolicy

__all__ = ["CPUS", "Kept", "Series", "by_formula", "expected_of", "kept", "kept_between", "promises_of"]

CPUS: Final = 100
"""Of each machine, so that a percent of it is a CPU."""
_MEMORY_BYTES: Final = 1 << 38
_GAP_S: Final = 3_600

#: Second and CPU in mcpu, in order.
Series = Sequence[tuple[int, int]]


class Kept(Struct, frozen=True, kw_only=True):
    """What a policy promised, in percent of the capacity, and by time in seconds what percentage of the promises was broken."""

    promised_pct: float
    broken_pct: Mapping[int, float]
    worst_pct: Mapping[int, float]


def promises_of(series: Series, risk: RiskPolicy, estimator: str = LAST, reclaim_pct: int = 75) -> list[int]:
    """The batch CPU in force after each sample, in mcpu, by the service's own core with its default policy otherwise."""
    policy = OvercommitPolicy(
        cpu_reclaim_pct=reclaim_pct,
        node_reserved_cpu_mcpu=0,
        risk=risk,
        estimator=estimator,
        # The trace has a sample a minute and gaps; what lateness does to a promise is not measured here.
        freshness=FreshnessPolicy(stale_after_ms=_GAP_S * 1_000, lost_after_ms=2 * _GAP_S * 1_000, warm_samples=1),
    )
    core = OvercommitCore(policy)
    topology = uniform_topology(sockets=1, zones_per_socket=1, cpus_per_zone=CPUS, memory_bytes_per_zone=_MEMORY_BYTES)
    core.handle(NodeTopologyReported(node="m", topology=topology), series[0][0] * 1_000)
    promised = []
    for seq, (second, used_mcpu) in enumerate(series, start=1):
        at_ms = second * 1_000
        zones = (ZoneUsage(zone=0, cpu_used_mcpu=used_mcpu, memory_used_bytes=0),)
        sample = NodeUsageSampled(
            node="m",
            at_ms=at_ms,
            sample_seq=seq,
            interval_ms=1_000,
            cpu_used_mcpu=used_mcpu,
            memory_used_bytes=0,
            zones=zones,
        )
        core.handle(sample, at_ms)
        published = core.nodes["m"].published
        promised.append(published.batch_cpu_mcpu if published else 0)
    return promised


def expected_of(series: Series, estimator: str) -> list[int]:
    """What an estimator expects after each sample, 0 while it has seen too little."""
    learner = estimator_of(estimator)
    found = []
    for second, used_mcpu in series:
        if learner is not None:
            learner.add(second * 1_000, used_mcpu)
        found.append((learner.expected() if learner is not None else None) or 0)
    return found


def by_formula(series: Series, expected: Sequence[int], reclaim_pct: int) -> list[int]:
    """What the formula gives after each sample, without the thresholds of publishing: a hundredth of the work of the core."""
    return [
        Resource(
            capacity=CPUS * 1_000,
            reclaim_pct=reclaim_pct,
            reserved=0,
            system_used=0,
            online_used=used_mcpu,
            held=0,
            online_expected=min(most_mcpu, CPUS * 1_000),
        ).allocatable
        for (_, used_mcpu), most_mcpu in zip(series, expected, strict=True)
    ]


def kept(machines: Iterable[Series], risk: RiskPolicy, times_s: Sequence[int], estimator: str = LAST) -> Kept:
    """The promises of all machines under a policy, and the shares that were broken within each time; of the second half of each."""
    seen = list(machines)
    promised = [promises_of(series, risk, estimator) for series in seen]
    return _kept(seen, promised, times_s, [len(series) // 2 for series in seen])


def kept_between(
    machines: Sequence[Series], promised: Sequence[Sequence[int]], times_s: Sequence[int], from_s: int
) -> Kept:
    """What `promised` says of each machine's samples, from a second of the trace on; of the machines that have samples there."""
    firsts = [bisect_left(series, (from_s, 0)) for series in machines]
    with_some = [number for number, series in enumerate(machines) if firsts[number] < len(series)]
    return _kept(
        [machines[number] for number in with_some],
        [promised[number] for number in with_some],
        times_s,
        [firsts[number] for number in with_some],
    )


def _kept(
    machines: Sequence[Series], promised: Sequence[Sequence[int]], times_s: Sequence[int], firsts: Sequence[int]
) -> Kept:
    broken: dict[int, list[float]] = {
        time_s: [
            _broken_pct(series, amounts, first, time_s)
            for series, amounts, first in zip(machines, promised, firsts, strict=True)
        ]
        for time_s in times_s
    }
    return Kept(
        promised_pct=_mean(
            [
                sum(amounts[first:]) / len(amounts[first:]) / (CPUS * 10)
                for amounts, first in zip(promised, firsts, strict=True)
            ]
        ),
        broken_pct={time_s: _mean(shares) for time_s, shares in broken.items()},
        worst_pct={time_s: round(max(shares), 2) for time_s, shares in broken.items()},
    )


def _broken_pct(series: Series, promised: Sequence[int], first: int, time_s: int) -> float:
    """The percentage of the promises from sample `first` on that a later sample within `time_s` broke."""
    judged = broken = 0
    # The samples of the time after the promise that could be its largest, with their numbers.
    ahead: deque[tuple[int, int]] = deque()
    following = first + 1
    for number in range(first, len(series)):
        end_s = series[number][0] + time_s
        while following < len(series) and series[following][0] <= end_s:
            while ahead and ahead[-1][1] <= series[following][1]:
                ahead.pop()
            ahead.append((following, series[following][1]))
            following += 1
        while ahead and ahead[0][0] <= number:
            ahead.popleft()
        if ahead:
            judged += 1
            broken += promised[number] > max(CPUS * 1_000 - ahead[0][1], 0)
    return 100 * broken / judged if judged else 0.0


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 2)
