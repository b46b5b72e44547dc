"""The order of victims: the least important replica first, then the one that uses most, then by name."""

from collections.abc import Iterable, Mapping
from typing import Final

from colo_common.events.eviction import VictimRank
from colo_common.events.node import WorkloadUsage
from colo_common.model.placement import Placement, attempt_key
from colo_common.model.qos import PriorityBand
from colo_common.model.reasons import Reason

__all__ = ["rank_victims"]

_BAND_ORDER: Final = {PriorityBand.FREE: 0, PriorityBand.BATCH: 1}


def rank_victims(
    workloads: Iterable[WorkloadUsage], placed: Mapping[str, Placement], terminating: Iterable[str], reason: Reason
) -> tuple[VictimRank, ...]:
    """Rank the batch and free replicas of a sample without the `terminating` ones (attempt keys): free first, lower priority first.

    `used` is memory for the memory watermark and CPU otherwise. Online work is never in the list. At most 20 rows.
    """
    excluded = set(terminating)
    by_memory = reason is Reason.MEMORY_WATERMARK
    rows = []
    for workload in workloads:
        key = attempt_key(workload.replica, workload.attempt)
        if not workload.replica or workload.band not in _BAND_ORDER or key in excluded:
            continue
        placement = placed.get(key)
        used = workload.memory_used_bytes if by_memory else workload.cpu_used_mcpu
        rank = VictimRank(
            replica=workload.replica,
            attempt=workload.attempt,
            priority=placement.priority if placement else 0,
            used=used,
            unit="bytes" if by_memory else "mcpu",
        )
        rows.append(((_BAND_ORDER[workload.band], rank.priority, -used, workload.replica), rank))
    return tuple(rank for _, rank in sorted(rows, key=lambda row: row[0])[:20])
