"""The arithmetic of a verdict. Every number rounds against us: gains down, harm up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import fsum

from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_sim.machine_account import DELAY_STEP_PERMILLE, OnlineAccount
from colo_sim.machine_reading import MachineLedger

__all__ = ["OnlineVerdict", "Verdict", "jain_fairness", "ratio_ceil", "ratio_floor", "verdict_from_ledgers"]

_MCPU_MS_PER_CORE_HOUR = 1_000 * 3_600_000
_MILLIONTHS = 1_000_000


class OnlineVerdict(Struct, frozen=True, kw_only=True):
    """What online work felt, with batch work run in one way.

    - `harm_ratio`: share of machine time in which it got less CPU than it wanted or its delay was above the bound (up to a
      millionth); `longest_harm_s`: for how long at a time on one machine.
    - `delay_*_pct`: how much longer a request took than on an idle machine, over machine time (nearest rank, up to 1 %).
    - `batch_core_hours`: CPU time that batch work got (down to 0.001).
    """

    harm_ratio: float = 0.0
    longest_harm_s: float = 0.0
    delay_p50_pct: int = 0
    delay_p99_pct: int = 0
    delay_max_pct: int = 0
    batch_core_hours: float = 0.0


class Verdict(Struct, frozen=True, kw_only=True):
    """The gain and the cost of batch work, over all machines and all their time.

    - `online_cpu_util_pct`: CPU the online services asked for, of capacity: the use without colo (down to 0.0001).
    - `cpu_util_pct`: CPU really used by both, of capacity (down to 0.0001).
    - `reclaimed_core_hours`: CPU time of batch replicas (down to 0.001); `completed_`, `wasted_` parts of it likewise,
      wasted rounded up.
    - `goodput_ratio`: completed of completed + wasted, 1.0 when nothing ended yet (down to a millionth).
    - `with_batch`: what online work felt; `without_batch`: without any; `without_reflex`: the same batch replicas at their full
      request; `plain_requests`: as much batch work as CPU requests admit.
    - `added_harm_ratio`: share of machine time with harm that online work alone would not have had: colo's doing (up to a
      millionth); `longest_added_harm_s`: for how long at a time. `worst_machine_added_harm_ratio`: of the machine with most.
    - `plain_gain_ratio`: reclaimed core-hours of colo over those of plain requests (down to 0.01), None where those have none.
    - `evictions`: replicas that had to leave, `needless_evictions` of them without need (see `Tally.evicted`).
    """

    machines: int
    machine_hours: float
    online_cpu_util_pct: float
    cpu_util_pct: float
    reclaimed_core_hours: float
    completed_core_hours: float
    wasted_core_hours: float
    goodput_ratio: float
    with_batch: OnlineVerdict
    without_batch: OnlineVerdict
    without_reflex: OnlineVerdict
    plain_requests: OnlineVerdict
    added_harm_ratio: float
    longest_added_harm_s: float
    worst_machine_added_harm_ratio: float
    plain_gain_ratio: float | None
    evictions: int
    needless_evictions: int
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
    plain = sum(row.plain.batch_mcpu_ms for row in rows)
    return Verdict(
        machines=len(rows),
        machine_hours=node_ms * 1_000 // 3_600_000 / 1_000,
        online_cpu_util_pct=_pct_floor(min(demand, capacity), capacity),
        cpu_util_pct=_pct_floor(used, capacity),
        reclaimed_core_hours=_core_hours(reclaimed),
        completed_core_hours=_core_hours(completed),
        wasted_core_hours=-(-wasted * 1_000 // _MCPU_MS_PER_CORE_HOUR) / 1_000,
        goodput_ratio=ratio_floor(completed, completed + wasted) if completed + wasted else 1.0,
        with_batch=_online([row.with_batch for row in rows], node_ms),
        without_batch=_online([row.alone for row in rows], node_ms),
        without_reflex=_online([row.unreflexed for row in rows], node_ms),
        plain_requests=_online([row.plain for row in rows], node_ms),
        added_harm_ratio=ratio_ceil(sum(row.added_harm_ms for row in rows), node_ms),
        longest_added_harm_s=max((row.longest_added_harm_ms for row in rows), default=0) / 1_000,
        worst_machine_added_harm_ratio=max((ratio_ceil(row.added_harm_ms, row.node_ms) for row in rows), default=0.0),
        plain_gain_ratio=reclaimed * 100 // plain / 100 if plain else None,
        evictions=sum(row.evictions for row in rows),
        needless_evictions=sum(row.needless_evictions for row in rows),
        replicas_started=sum(row.replicas_started for row in rows),
        replicas_completed=sum(row.replicas_completed for row in rows),
        oom_kills=sum(row.oom_kills for row in rows),
    )


def _online(accounts: Sequence[OnlineAccount], node_ms: int) -> OnlineVerdict:
    delays: Counter[int] = Counter()
    for account in accounts:
        delays.update(account.delay_ms)
    return OnlineVerdict(
        harm_ratio=ratio_ceil(sum(account.harm_ms for account in accounts), node_ms),
        longest_harm_s=max((account.longest_harm_ms for account in accounts), default=0) / 1_000,
        delay_p50_pct=_delay_pct(delays, 50),
        delay_p99_pct=_delay_pct(delays, 99),
        delay_max_pct=_delay_pct(delays, 100),
        batch_core_hours=_core_hours(sum(account.batch_mcpu_ms for account in accounts)),
    )


def _delay_pct(delays: Counter[int], pct: int) -> int:
    """The smallest delay that at least `pct` percent of the time do not exceed, 0 of no time."""
    left_ms = -(-delays.total() * pct // 100)
    for step in sorted(delays):
        left_ms -= delays[step]
        if left_ms <= 0:
            return step * DELAY_STEP_PERMILLE // 10
    return 0


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
