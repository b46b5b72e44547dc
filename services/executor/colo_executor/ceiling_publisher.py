"""Decides which changes of the batch ceiling are published, and how often."""

from typing import Final

from msgspec.structs import replace

from colo_common.events.effects import Publish
from colo_common.events.enforcement import EnforcementChanged, ZoneCeiling
from colo_common.model.reasons import Reason
from colo_executor.local import CeilingMoved, FrozenMoved
from colo_executor.zone_ceilings import moved_zones

__all__ = ["CeilingPublisher"]

_OF_LOAD: Final = frozenset(
    {
        Reason.ONLINE_LOAD,
        Reason.ONLINE_LOAD_FELL,
        Reason.ONLINE_STALL,
        Reason.ONLINE_STALL_CORES,
        Reason.ONLINE_STALL_FELL,
        Reason.ONLINE_STALL_OTHERWISE,
        Reason.ONLINE_SLO,
        Reason.ONLINE_SLO_KEPT,
        Reason.ONLINE_SLO_OTHERWISE,
        Reason.MEMORY_BANDWIDTH,
        Reason.MEMORY_BANDWIDTH_FELL,
        Reason.MEMORY_BANDWIDTH_OTHERWISE,
        Reason.MEMORY_BANDWIDTH_UNKNOWN,
    }
)


class CeilingPublisher:
    """Keeps the newest move of the ceiling until it is due: at most one fact an interval, and only for a move beyond the band."""

    def __init__(self, node: str, *, band_pct: int, interval_ms: int) -> None:
        self._node = node
        self._band_pct = band_pct
        self._interval_ms = interval_ms
        self._moved: CeilingMoved | None = None
        # Of the moves since the last published one: the newest reason of a fall and that of a rise.
        self._fell: Reason | None = None
        self._rose: Reason | None = None
        self._published_mcpu: int | None = None
        # The zones below their capacity, now and as they were last published.
        self._zones: tuple[ZoneCeiling, ...] = ()
        self._published_zones: tuple[ZoneCeiling, ...] = ()
        # Whether batch work keeps to whole cores, now and as it was last published.
        self._has_cores = self._published_cores = False
        self._published_at_ms: int | None = None
        self._is_frozen = False
        self._published_fact: EnforcementChanged | None = None

    def again(self, now_ms: int) -> list[Publish]:
        """The ceiling as it was published last, as a fact that moves nothing."""
        if self._published_fact is None:
            return []
        fact = replace(self._published_fact, at_ms=now_ms, ceiling_before_mcpu=self._published_fact.ceiling_mcpu)
        return [Publish(fact=fact, id=f"executor:ceiling-again:{self._node}:{now_ms}")]

    def frozen(self, moved: FrozenMoved, now_ms: int) -> list[Publish]:
        """The fact that batch work was frozen or runs again. It waits for no interval: the reflex limits how often it comes."""
        self._is_frozen = moved.is_frozen
        fact = replace(
            self._fact(moved, moved.reason, moved.ceiling_mcpu),
            stall_group=moved.group,
            stall_pct=moved.pct if moved.group else 0,
            slo_workload=moved.workload,
            violation_pct=moved.pct if moved.workload else 0,
        )
        self._published_fact = fact
        state = "frozen" if moved.is_frozen else "thawed"
        return [Publish(fact=fact, id=f"executor:{state}:{self._node}:{now_ms}")]

    def note(self, moved: CeilingMoved) -> None:
        """Note a move of the ceiling; it replaces an older move that was not published."""
        self._moved = moved
        before, self._zones = self._zones, tuple(each for each in moved.zones if each.ceiling_mcpu < each.capacity_mcpu)
        zone, _, has_more = moved_zones(before, self._zones)
        had_cores, self._has_cores = self._has_cores, moved.has_whole_cores
        if _rises(moved.before_mcpu, moved.ceiling_mcpu, has_more if zone is not None else had_cores):
            self._rose = moved.reason
        else:
            self._fell = moved.reason

    def due_ms(self, has_batch: bool) -> int | None:
        """When to publish the newest move (may lie in the past), or None when it is not to be published."""
        if self._moved is None or not self._concerns(self._moved, has_batch):
            return None
        if self._published_at_ms is None or self._moved.reason is Reason.SHUTDOWN_RESTORE:
            # The first move has no interval to keep, and after the last one there is no later moment.
            return 0
        return self._published_at_ms + self._interval_ms

    def publish_due(self, has_batch: bool, now_ms: int) -> list[Publish]:
        """The fact about the way from the last published ceiling to the newest, when due; its reason fits the direction."""
        due_ms = self.due_ms(has_batch)
        moved = self._moved
        if moved is None or due_ms is None or now_ms < due_ms:
            return []
        before_mcpu = moved.before_mcpu if self._published_mcpu is None else self._published_mcpu
        zone, zones, has_more = moved_zones(self._published_zones, self._zones)
        # Several moves may lie between, so the newest move's reason may contradict the direction of all of them together.
        rises = _rises(before_mcpu, moved.ceiling_mcpu, has_more if zone is not None else self._published_cores)
        along = self._rose if rises else self._fell
        self._published_mcpu, self._published_at_ms = moved.ceiling_mcpu, now_ms
        self._published_zones, self._published_cores = self._zones, self._has_cores
        self._moved = self._fell = self._rose = None
        fact = replace(
            self._fact(moved, along or moved.reason, before_mcpu),
            stall_group=moved.stall_group,
            stall_pct=moved.stall_pct,
            slo_workload=moved.slo_workload,
            violation_pct=moved.violation_pct,
            memory=moved.memory,
            zones=zones,
            zone=zone,
            zone_terms=tuple(each for each in moved.zone_terms if each.zone in {its.zone for its in zones}),
        )
        self._published_fact = fact
        return [Publish(fact=fact, id=f"executor:ceiling:{self._node}:{now_ms}")]

    def _fact(self, moved: CeilingMoved | FrozenMoved, reason: Reason, before_mcpu: int) -> EnforcementChanged:
        """The fact of a move of the ceiling, or of a freeze or thaw, without what online work suffered."""
        return EnforcementChanged(
            at_ms=moved.at_ms,
            node=self._node,
            reason=reason,
            ceiling_mcpu=moved.ceiling_mcpu,
            ceiling_before_mcpu=before_mcpu,
            online_cpu_used_mcpu=moved.online_used_mcpu,
            target_mcpu=moved.target_mcpu,
            knobs=moved.knobs,
            rule=moved.rule,
            capacity_mcpu=moved.capacity_mcpu,
            threshold_pct=moved.threshold_pct,
            system_cpu_used_mcpu=moved.system_used_mcpu,
            reserved_cpu_mcpu=moved.reserved_mcpu,
            observed=moved.observed,
            frozen=self._is_frozen,
            zones=self._zones,
            whole_cores=self._has_cores,
        )

    def _concerns(self, moved: CeilingMoved, has_batch: bool) -> bool:
        # Without batch work a ceiling that follows the load concerns nobody; an expired lease always does.
        if not has_batch and moved.reason in _OF_LOAD:
            return False
        if self._published_mcpu is None or moved_zones(self._published_zones, self._zones)[0] is not None:
            return True
        if self._published_cores != self._has_cores:
            return True
        band_mcpu = max(1, moved.capacity_mcpu * self._band_pct // 100)
        return abs(moved.ceiling_mcpu - self._published_mcpu) >= band_mcpu


def _rises(before_mcpu: int, ceiling_mcpu: int, has_more: bool) -> bool:
    """Whether batch work gets more; `has_more` decides where the ceiling is as before."""
    return ceiling_mcpu > before_mcpu or (ceiling_mcpu == before_mcpu and has_more)
