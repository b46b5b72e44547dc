"""The eviction policy: watermarks with hold and cool-down, and a budget."""

from msgspec import Struct

from colo_common.model.colocation_rules import ColocationRule, check_rules
from colo_common.model.invalid import InvalidInput
from colo_common.model.slo import VIOLATION_HARD_PCT, VIOLATION_SOFT_PCT
from colo_common.model.stall import STALL_HARD_PCT, STALL_SOFT_PCT

__all__ = ["EvictorPolicy"]


class EvictorPolicy(Struct, frozen=True, kw_only=True):
    """A signal acts when it stays at or above its `*_pct` for its hold; only a value below its `*_lower_pct` ends the hold.

    `satisfaction_pct`: batch work is starved when it gets less than this share of its CPU request on a node whose CPUs are at least
    `cpu_busy_pct` busy, until it gets `satisfaction_upper_pct`. `stall_pct`: online work stalls (`colo_common.model.stall`) at
    least so much while batch work uses `stall_batch_pct` of the node's CPUs or more; the reflex shrinks batch work long before.
    `slo_pct`: so many percent of the values of an online workload's own latency broke its SLO (`colo_common.model.slo`), the newest
    among them, while batch work uses `slo_batch_pct` or more.
    After an eviction the node has no other one for the signal's cool-down. `cluster_per_minute` bounds all evictions of any 60
    s; a gauge counts the refused ones. A gap between two samples above `gap_ms` ends every hold. `colocation`: batch work leaves
    a node that these rules close, as in a drain.
    """

    memory_pct: int = 92
    memory_lower_pct: int = 90
    memory_hold_ms: int = 3_000
    memory_cool_ms: int = 4_000
    cpu_pct: int = 97
    cpu_lower_pct: int = 94
    cpu_hold_ms: int = 15_000
    cpu_cool_ms: int = 20_000
    satisfaction_pct: int = 30
    satisfaction_upper_pct: int = 40
    cpu_busy_pct: int = 70
    satisfaction_hold_ms: int = 60_000
    satisfaction_cool_ms: int = 60_000
    stall_pct: int = STALL_HARD_PCT
    stall_lower_pct: int = STALL_SOFT_PCT
    stall_batch_pct: int = 5
    stall_hold_ms: int = 60_000
    stall_cool_ms: int = 300_000
    slo_pct: int = VIOLATION_HARD_PCT
    slo_lower_pct: int = VIOLATION_SOFT_PCT
    slo_batch_pct: int = 5
    slo_hold_ms: int = 60_000
    slo_cool_ms: int = 300_000
    grace_ms: int = 10_000
    overdue_ms: int = 30_000
    gap_ms: int = 10_000
    cluster_per_minute: int = 30
    colocation: tuple[ColocationRule, ...] = ()

    def validate(self) -> None:
        """Raise InvalidInput for the first value that is out of its range or contradicts another."""
        pairs = (
            ("memory_lower_pct", "memory_pct"),
            ("cpu_lower_pct", "cpu_pct"),
            ("satisfaction_pct", "satisfaction_upper_pct"),
            ("stall_lower_pct", "stall_pct"),
            ("slo_lower_pct", "slo_pct"),
        )
        for low, high in pairs:
            if not 0 < getattr(self, high) <= 100:
                raise InvalidInput(high, "must be 1 to 100", getattr(self, high))
            if not 0 <= getattr(self, low) < getattr(self, high):
                raise InvalidInput(low, f"must be at least 0 and below {high}", getattr(self, low))
        for name in ("stall_batch_pct", "slo_batch_pct"):
            if not 0 <= getattr(self, name) <= 100:
                raise InvalidInput(name, "must be 0 to 100", getattr(self, name))
        for name in self.__struct_fields__:
            if name.endswith("_ms") and getattr(self, name) < 0:
                raise InvalidInput(name, "must not be negative", getattr(self, name))
        if self.cluster_per_minute < 1:
            raise InvalidInput("cluster_per_minute", "must be at least 1", self.cluster_per_minute)
        check_rules(self.colocation, "policy_colocation")
