"""The eviction signals. A level must last for its hold before it acts, and a small dip does not end the hold."""

from msgspec import Struct

from colo_common.events.node import NodeUsageSampled
from colo_common.model.reasons import Reason
from colo_common.model.slo import worst_online_violation
from colo_common.model.stall import worst_online_stall
from colo_common.model.topology import NodeTopology
from colo_evictor.policy import EvictorPolicy

__all__ = ["Level", "Signal", "levels"]


class Level(Struct, frozen=True, kw_only=True):
    """One reading of a signal: `high` starts or keeps a hold, `low` ends it; with neither a started hold goes on.

    `stall_group` is the online workload that stalls most, `slo_workload` the one that broke its SLO most often, for the signals
    that are about them.
    """

    reason: Reason
    value_pct: int
    threshold_pct: int
    high: bool
    low: bool
    hold_ms: int
    cool_ms: int
    stall_group: str = ""
    slo_workload: str = ""


class Signal(Struct, kw_only=True):
    """The hold of one signal on one node. `since_ms` is when the level became high, None when it is not held."""

    since_ms: int | None = None
    seen_ms: int = 0

    def feed(self, level: Level, now_ms: int, gap_ms: int) -> int | None:
        """Take a reading and return how long the level has held (ms), None without a hold. A gap above `gap_ms` ends the hold."""
        if level.low or now_ms - self.seen_ms > gap_ms:
            self.since_ms = None
        self.seen_ms = now_ms
        if level.high and self.since_ms is None:
            self.since_ms = now_ms
        return None if self.since_ms is None else now_ms - self.since_ms


def levels(
    topology: NodeTopology,
    sample: NodeUsageSampled,
    credited: tuple[int, int],
    batch_mcpu: tuple[int, int],
    policy: EvictorPolicy,
) -> tuple[Level, ...]:
    """The readings of all signals; the first that acts wins. `credited` (mcpu, bytes) is what terminating victims will free.

    `batch_mcpu` is what the node's batch replicas request and use (WatchedNode.batch_cpu).
    Percentages round down: a threshold is reached by a whole percent.
    """
    credited_mcpu, credited_bytes = credited
    memory_pct = max(sample.memory_used_bytes - credited_bytes, 0) * 100 // max(topology.memory_capacity_bytes, 1)
    cpu_pct = max(sample.cpu_used_mcpu - credited_mcpu, 0) * 100 // topology.cpu_capacity_mcpu
    requested_mcpu, used_mcpu = batch_mcpu
    satisfied_pct = 100 if requested_mcpu <= 0 else min(used_mcpu * 100 // requested_mcpu, 100)
    busy = cpu_pct >= policy.cpu_busy_pct
    return (
        Level(
            reason=Reason.MEMORY_WATERMARK,
            value_pct=memory_pct,
            threshold_pct=policy.memory_pct,
            high=memory_pct >= policy.memory_pct,
            low=memory_pct < policy.memory_lower_pct,
            hold_ms=policy.memory_hold_ms,
            cool_ms=policy.memory_cool_ms,
        ),
        Level(
            reason=Reason.CPU_WATERMARK,
            value_pct=cpu_pct,
            threshold_pct=policy.cpu_pct,
            high=cpu_pct >= policy.cpu_pct,
            low=cpu_pct < policy.cpu_lower_pct,
            hold_ms=policy.cpu_hold_ms,
            cool_ms=policy.cpu_cool_ms,
        ),
        Level(
            reason=Reason.CPU_SATISFACTION,
            value_pct=satisfied_pct,
            threshold_pct=policy.satisfaction_pct,
            high=busy and satisfied_pct < policy.satisfaction_pct,
            low=not busy or satisfied_pct >= policy.satisfaction_upper_pct,
            hold_ms=policy.satisfaction_hold_ms,
            cool_ms=policy.satisfaction_cool_ms,
        ),
        _online_stalled(topology, sample, used_mcpu, policy),
        _online_slo_broken(topology, sample, used_mcpu, policy),
    )


def _online_stalled(topology: NodeTopology, sample: NodeUsageSampled, batch_mcpu: int, policy: EvictorPolicy) -> Level:
    """Online work that stalls beside batch work. A stall that nobody knows, and a node without batch load, end the hold.

    Pressure of the whole node is never asked: it is high because batch work waits.
    """
    worst = worst_online_stall(sample.workloads)
    group, stall_pct = worst or ("", 0)
    is_blamed = batch_mcpu * 100 >= topology.cpu_capacity_mcpu * policy.stall_batch_pct
    return Level(
        reason=Reason.ONLINE_STALLED,
        value_pct=stall_pct,
        threshold_pct=policy.stall_pct,
        high=worst is not None and is_blamed and stall_pct >= policy.stall_pct,
        low=worst is None or not is_blamed or stall_pct < policy.stall_lower_pct,
        hold_ms=policy.stall_hold_ms,
        cool_ms=policy.stall_cool_ms,
        stall_group=group,
    )


def _online_slo_broken(
    topology: NodeTopology, sample: NodeUsageSampled, batch_mcpu: int, policy: EvictorPolicy
) -> Level:
    """Online work that breaks the SLO of its own latency beside batch work, and does so now.

    A rate that nobody knows, and a node without batch load, end the hold: nothing is evicted for a workload that fell silent.
    """
    worst = worst_online_violation(sample.workloads)
    violation_pct = 0 if worst is None else worst.violation_pct
    is_blamed = batch_mcpu * 100 >= topology.cpu_capacity_mcpu * policy.slo_batch_pct
    return Level(
        reason=Reason.ONLINE_SLO_BROKEN,
        value_pct=violation_pct,
        threshold_pct=policy.slo_pct,
        high=worst is not None and worst.breaks_slo and is_blamed and violation_pct >= policy.slo_pct,
        low=worst is None or not is_blamed or violation_pct < policy.slo_lower_pct,
        hold_ms=policy.slo_hold_ms,
        cool_ms=policy.slo_cool_ms,
        slo_workload="" if worst is None else worst.workload,
    )
