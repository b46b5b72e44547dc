"""The order of victims: the least important replica first, then the one that uses most, then by name."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from colo_common.events.eviction import VictimRank
from colo_common.events.node import WorkloadUsage
from colo_common.events.requests import HoldEntry
from colo_common.model.placement import attempt_key
from colo_common.model.reasons import Reason
from colo_evictor.watched import BATCH_BANDS

__all__ = ["rank_victims"]

_Why = Literal["", "band", "priority", "use", "name"]
# What the sort key of a candidate consists of, in order.
_COMPARED: Final[tuple[_Why, ...]] = ("band", "priority", "use", "name")


def rank_victims(
    workloads: Iterable[WorkloadUsage],
    placed: Mapping[str, HoldEntry],
    terminating: Iterable[str],
    reason: Reason,
    now_ms: int,
) -> tuple[VictimRank, ...]:
    """Rank the replicas of a sample that are no online work, without the `terminating` ones (attempt keys).

    The band decides first: free, batch, then mid, which leaves when nothing else is left to leave; within it the lower priority.
    The band is that of the placement, because a node shows only in which tree a replica runs. `used` is memory for the memory
    watermark and CPU otherwise. Online work is never in the list: neither by its placement nor by its node, since a placement
    that an older scheduler listed names no band.
    """
    excluded = set(terminating)
    by_memory = reason is Reason.MEMORY_WATERMARK
    rows = []
    for workload in workloads:
        key = attempt_key(workload.replica, workload.attempt)
        placement = placed.get(key)
        band = workload.band if placement is None else placement.band
        is_online = workload.band not in BATCH_BANDS or band not in BATCH_BANDS
        if not workload.replica or is_online or key in excluded:
            continue
        used = workload.memory_used_bytes if by_memory else workload.cpu_used_mcpu
        priority = placement.priority if placement else 0
        order = (BATCH_BANDS.index(band), priority, -used, workload.replica)
        rows.append((order, workload, placement, band, used))
    rows.sort(key=lambda row: row[0])
    return tuple(
        VictimRank(
            replica=workload.replica,
            attempt=workload.attempt,
            priority=order[1],
            used=used,
            unit="bytes" if by_memory else "mcpu",
            band=band,
            placed_ms=max(now_ms - placement.decided_at_ms, 0) if placement and placement.decided_at_ms else None,
            behind=_behind(rows[0][0], order),
        )
        for order, workload, placement, band, used in rows
    )


def _behind(first: tuple[int, int, int, str], order: tuple[int, int, int, str]) -> _Why:
    return next((why for why, a, b in zip(_COMPARED, first, order, strict=True) if a != b), "")
