"""The arithmetic of a verdict. Every number rounds against us: gains down, harm up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum

from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_sim.machine_reading import MachineLedger

__all__ = ["Verdict", "jain_fairness", "ratio_ceil", "ratio_floor", "verdict_from_ledgers"]

_MCPU_MS_PER_CORE_HOUR = 1_000 * 3_600_000
_MILLIONTHS = 1_000_000


class Verdict(Struct, frozen=True, kw_only=True):
    """The gain and the cost of batch work, over all machines and all their time.

    - `online_cpu_util_pct`: CPU the online services asked for, of capacity: the use without colo (down to 0.0001).
    - `cpu_util_pct`: CPU really used by both, of capacity (down to 0.0001).
    - `reclaimed_core_hours`: CPU time of batch replicas (down to 0.001); `completed_`, `wasted_` parts of it likewise,
      wasted rounded up.
    - `goodput_ratio`: completed of completed + wasted, 1.0 when nothing ended yet (down to a millionth).
    - `slo_violation_ratio`: share of machine time with a violation; `_alone_`: that would have happened without batch;
      `_added_`: the rest, colo's doing (all up to a millionth).
    - `worst_machine_violation_ratio`: of the machine with the largest share (up to a millionth).
    """

    machines: int
    machine_hours: float
    online_cpu_util_pct: float
    cpu_util_pct: float
    reclaimed_core_hours: float
    completed_core_hours: float
    wasted_core_hours: float
    goodput_ratio: float
    slo_violation_ratio: float
    slo_violation_alone_ratio: float
    slo_violation_added_ratio: float
    worst_machine_violation_ratio: float
    replicas_started: int
    replicas_completed: int
    oom_kills: int


def verdict_from_ledgers(ledgers: Iterable[MachineLedger]) -> Verdict:
    """Return the verdict over machines; all zeros (goodput 1.0) when there is none or no time has passed."""
    rows = tuple(ledgers)
    node_ms = sum(row.node_ms for row in rows)
    capacity = sum(row.node_ms * row.cpu_capacity_mcpu for row in rows)
    completed = sum(row.completed_mcpu_ms for row in rows)
    wasted = sum(row.wasted_mcpu_ms for row in rows)
    reclaimed = sum(row.batch_used_mcpu_ms for row in rows)
    used = reclaimed + sum(row.online_used_mcpu_ms for row in rows)
    demand = sum(row.online_demand_mcpu_ms for row in rows)
    violation_ms = sum(row.violation_ms for row in rows)
    alone_ms = sum(row.violation_alone_ms for row in rows)
    return Verdict(
        machines=len(rows),
        machine_hours=node_ms * 1_000 // 3_600_000 / 1_000,
        online_cpu_util_pct=_pct_floor(min(demand, capacity), capacity),
        cpu_util_pct=_pct_floor(used, capacity),
        reclaimed_core_hours=_core_hours(reclaimed),
        completed_core_hours=_core_hours(completed),
        wasted_core_hours=-(-wasted * 1_000 // _MCPU_MS_PER_CORE_HOUR) / 1_000,
        goodput_ratio=ratio_floor(completed, completed + wasted) if completed + wasted else 1.0,
        slo_violation_ratio=ratio_ceil(violation_ms, node_ms),
        slo_violation_alone_ratio=ratio_ceil(alone_ms, node_ms),
        slo_violation_added_ratio=ratio_ceil(violation_ms - alone_ms, node_ms),
        worst_machine_violation_ratio=max((ratio_ceil(row.violation_ms, row.node_ms) for row in rows), default=0.0),
        replicas_started=sum(row.replicas_started for row in rows),
        replicas_completed=sum(row.replicas_completed for row in rows),
        oom_kills=sum(row.oom_kills for row in rows),
    )


def ratio_floor(part: int, whole: int) -> float:
    """Return part / whole rounded down to a millionth; 0.0 of nothing."""
    return part * _MILLIONTHS // whole / _MILLIONTHS if whole else 0.0


def ratio_ceil(part: int, whole: int) -> float:
    """Return part / whole rounded up to a millionth; 0.0 of nothing."""
    return -(-part * _MILLIONTHS // whole) / _MILLIONTHS if whole else 0.0


def _pct_floor(part: int, whole: int) -> float:
    return part * _MILLIONTHS // whole / 10_000 if whole else 0.0


def _core_hours(mcpu_ms: int) -> float:
    return mcpu_ms * 1_000 // _MCPU_MS_PER_CORE_HOUR / 1_000


def jain_fairness(shares: Sequence[int | float]) -> float:
    """Return Jain's index (sum x)^2 / (n sum x^2), rounded down to a millionth: 1 when all are equal, 1/n when one has all.

    1.0 for nothing and for all zeros: nobody is treated worse than another. Jain, Chiu, Hawe, DEC-TR-301, 1984.
    """
    if any(share < 0 for share in shares):
        raise InvalidInput("shares", "must be at least 0", min(shares))
    squares = fsum(share * share for share in shares)
    if not squares:
        return 1.0
    total = fsum(shares)
    return int(min(1.0, total * total / (len(shares) * squares)) * _MILLIONTHS) / _MILLIONTHS
