"""The reflex: sets the batch tier's ceiling from fast local readings, without the network.

It is a core of its own, because it must go on while the rest of the service waits for a server. One of two rules decides: by what
online work uses (`suppress`), or by what it waits for (`stall`); beside both, what online work says of its own latency (`slo`) and
what memory carries (`bandwidth`) set limits. Below the floor there is one more rung: batch work is frozen (`freeze`). On a machine
with several NUMA zones, online work that waits in one of them takes CPUs of that zone only (`zone_stalls`), and so does what fills
one of them (`zone_usage`) or its memory (`bandwidth_zones`). Where threads of one core run both kinds of work, batch work keeps to
whole cores when less of it does not relieve online work, and while online work breaks its SLO: what the other thread of a core
costs no ceiling takes away.
"""

from typing import Final, Literal, assert_never

from msgspec.structs import replace

from colo_common.events.effects import Wake
from colo_common.events.enforcement import ZoneCeiling
from colo_common.model.invalid import InvariantBroken
from colo_common.model.reasons import Reason
from colo_executor.bandwidth_zones import OF_BANDWIDTH, BandwidthDecision, decide_bandwidth
from colo_executor.freeze_cause import NO_HARM, FreezeHarm, harm_of_latency, harm_of_use, harm_of_waiting
from colo_executor.last_rung import THAWED, LastRung
from colo_executor.lease import (
    LastLease,
    LeasePhase,
    begun,
    expired_at,
    limit_mcpu,
    next_step_ms,
    phase_of,
    renewed,
)
from colo_executor.local import (
    CeilingFound,
    CeilingMoved,
    CeilingRefused,
    CeilingWritten,
    FastReading,
    FreezeRefused,
    FreezeWritten,
    FrozenFound,
    FrozenMoved,
    NoteMode,
    NoteViolation,
    RenewLease,
    SetCeiling,
    SetFrozen,
)
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.slo import SloState, noted, slo_limited
from colo_executor.stall import OnlineStalls, StallDecision, StallState, decide_stall, in_force, turns_of
from colo_executor.suppress import Suppress, SuppressDecision, bounds_mcpu, decide
from colo_executor.suppress import turns_of as use_turns_of
from colo_executor.zone_ceilings import ceilings_of, check_zones, moved_zones, sum_mcpu
from colo_executor.zone_stalls import ZoneMove, ZoneState, decide_zones, of_the_node, zones_in_force
from colo_executor.zone_usage import ZoneUse, ZoneUseMove, decide_zone_use

__all__ = ["MOVES", "Reflex", "ReflexEffect", "ReflexEvent"]

_JUST_RENEWED: Final = LastLease(age_ms=0)
_OF_SLO: Final = (Reason.ONLINE_SLO, Reason.ONLINE_SLO_KEPT, Reason.ONLINE_SLO_OTHERWISE)

MOVES: Final = (
    Reason.ONLINE_LOAD,
    Reason.ONLINE_LOAD_FELL,
    Reason.ONLINE_STALL,
    Reason.ONLINE_STALL_CORES,
    Reason.ONLINE_STALL_FELL,
    Reason.ONLINE_STALL_OTHERWISE,
    *_OF_SLO,
    *OF_BANDWIDTH,
    Reason.LEASE_EXPIRED,
    Reason.LEASE_RENEWED,
    Reason.LOAD_UNREADABLE,
    Reason.BATCH_FROZEN,
    *THAWED.values(),
)
"""Why the ceiling may move, or batch work be frozen or thawed."""

ReflexEvent = (
    FastReading
    | RenewLease
    | NoteMode
    | NoteViolation
    | CeilingWritten
    | CeilingFound
    | CeilingRefused
    | FreezeWritten
    | FreezeRefused
    | FrozenFound
    | Wake
)
ReflexEffect = SetCeiling | CeilingMoved | SetFrozen | FrozenMoved


class Reflex:
    """Owns the ceiling. `capacity_mcpu` is the node's capacity until the first reading brings another one.

    `last_lease` is that of an earlier executor, which goes on; `ceiling_mcpu`, `zones` and `has_whole_cores` are what it left.
    """

    def __init__(
        self,
        policy: ReflexPolicy,
        *,
        capacity_mcpu: int,
        now_ms: int,
        ceiling_mcpu: int | None = None,
        last_lease: LastLease = _JUST_RENEWED,
        zones: tuple[ZoneCeiling, ...] = (),
        has_whole_cores: bool = False,
    ) -> None:
        self.policy = policy
        self.lease = begun(policy.lease, now_ms, last_lease)
        self.refusals = 0
        self._capacity_mcpu = capacity_mcpu
        self._state: Suppress | StallState = _usage_from(ceiling_mcpu, now_ms)
        self._written_mcpu = ceiling_mcpu
        self._zones: tuple[ZoneState | ZoneUse, ...] = ()
        # What is to be written of the zones, and what was: a first reading decides on what an earlier executor left.
        self._wanted_zones = self._written_zones = zones
        self._wanted_cores = self._has_cores = has_whole_cores
        self._sets_retry_at_ms: int | None = None
        self._set_refusals = 0
        self._reading: FastReading | None = None
        self._read_at_ms = now_ms
        self._seen_ms = now_ms
        # Why the ceiling last fell, and why it last rose: the direction that the kernel shows in the end picks one of them.
        self._fell = Reason.ONLINE_LOAD
        self._rose = Reason.ONLINE_LOAD_FELL
        self._target_mcpu = 0
        self._stall_group, self._stall_pct = "", 0
        # Why the ceiling may rise again after something other than load held it down, and what holds it down now.
        self._restores: Reason | None = None
        self._limited_by = Reason.LEASE_EXPIRED
        self._slo = SloState()
        self._bandwidth = BandwidthDecision()
        self._blind = False
        self._retry_at_ms: int | None = None
        self._is_vm = False
        self._rung = LastRung(policy.freeze, policy.retry_ms, now_ms)

    @property
    def is_frozen(self) -> bool:
        """Whether the kernel freezes batch work, as it was last read back."""
        return self._rung.is_frozen

    @property
    def ceiling_mcpu(self) -> int | None:
        """The ceiling in the kernel, as it was last read back."""
        return self._written_mcpu

    @property
    def zones(self) -> tuple[ZoneCeiling, ...]:
        """The ceilings of zones below their capacity in the kernel, as they were last read back."""
        return self._written_zones

    @property
    def rule(self) -> Literal["usage", "stall"]:
        """The rule that decided last."""
        return "stall" if isinstance(self._state, StallState) else "usage"

    def phase(self, now_ms: int) -> LeasePhase:
        """The phase of the lease."""
        return phase_of(self.lease, self.policy.lease, now_ms)

    def handle(self, event: ReflexEvent, now_ms: int) -> list[ReflexEffect]:
        """The only way in. Same state, event and time give the same effects."""
        self._seen_ms = now_ms
        match event:
            case FastReading():
                return self._read(event, now_ms)
            case RenewLease():
                # A process that stood still in between renews nothing by what it had heard before.
                received_at_ms = now_ms if event.received_at_ms is None else min(event.received_at_ms, now_ms)
                was_stepping = self.phase(now_ms) is LeasePhase.STEPPING
                self.lease = renewed(self.lease, self.policy.lease, event.lease_ms, received_at_ms)
                if was_stepping and self.phase(now_ms) is LeasePhase.HELD:
                    self._restores = Reason.LEASE_RENEWED
                return []
            case NoteMode():
                self._is_vm = event.colocation_mode == "vm"
                return []
            case NoteViolation():
                self._slo = noted(self._slo, event.violation, now_ms)
                return []
            case CeilingWritten():
                return self._written(event, now_ms)
            case CeilingFound():
                self._found(event.ceiling_mcpu, now_ms)
                return []
            case CeilingRefused():
                return self._refused(now_ms)
            case FreezeWritten():
                return self._freeze_written(event, now_ms)
            case FreezeRefused():
                self._rung.refused(event, now_ms)
                return []
            case FrozenFound():
                thaws = self._rung.found(event, now_ms)
                return [*thaws] if event.is_frozen else self._freeze_written(FreezeWritten(is_frozen=False), now_ms)
            case Wake():
                return self._wake(now_ms)
            case _:
                assert_never(event)

    def deadline_ms(self) -> int | None:
        """When to send Wake: the end of `blind_ms`, the next step of the lease, or the next try of a refused ceiling or thaw."""
        if self._state.ceiling_mcpu is None:
            return None
        due = [self._retry_at_ms] if self._retry_at_ms is not None else []
        if (thaw_at_ms := self._rung.deadline_ms()) is not None:
            due.append(thaw_at_ms)
        if not self._blind:
            due.append(self._read_at_ms + self.policy.blind_ms)
            due.append(next_step_ms(self.lease, self.policy.lease, self._seen_ms))
        return min(due, default=None)

    def check(self) -> None:
        """Raise InvariantBroken when the ceiling is above what the node's capacity and the rule allow."""
        cap = self._capacity_mcpu
        if isinstance(self._state, Suppress):
            _, cap = bounds_mcpu(self.policy.suppress, self._capacity_mcpu)
        ceiling = self._state.ceiling_mcpu
        if ceiling is not None and self._reading is not None and ceiling > cap:
            raise InvariantBroken("batch ceiling above the cap", ceiling_mcpu=ceiling, cap_mcpu=cap)
        check_zones(self._zones)
        self._rung.check(is_blind=self._blind)

    def _read(self, reading: FastReading, now_ms: int) -> list[ReflexEffect]:
        if reading.capacity_mcpu < 1:
            return []
        self._capacity_mcpu = reading.capacity_mcpu
        self._reading = reading
        self._read_at_ms = now_ms
        self._blind = False
        ceiling = self._ceiling()
        stalls = reading.stalls if self._acts_on_stalls(reading) else None
        self._limit_by_bandwidth(reading, ceiling, now_ms, knows_use=stalls is None)
        limit = self._limits(reading, reading.capacity_mcpu if ceiling is None else ceiling, now_ms)
        if stalls is None:
            self._read_usage(reading, now_ms, limit)
        else:
            self._read_stalls(reading, stalls, now_ms, limit)
        self._choose_cores(reading, now_ms)
        self._time_trials(now_ms)
        self._judge_freeze(reading, now_ms)
        return [*self._write(now_ms), *self._rung.write(now_ms)]

    def _acts_on_stalls(self, reading: FastReading) -> bool:
        match self.policy.rule:
            case "usage":
                return False
            case "stall":
                return True
            case "auto":
                # A busy group whose waits nobody sees would never be protected by the stall rule.
                unseen = reading.stalls is not None and bool(reading.stalls.unseen)
                return bool(reading.low_priority) and not unseen and not self._is_vm

    def _read_usage(self, reading: FastReading, now_ms: int, limit: int | None) -> None:
        state = self._state
        knows_zones = any(zone.online_used_mcpu is not None for zone in reading.zones)
        if isinstance(state, StallState):
            # What the zones leave goes over to the node's ceiling where use is known of the node only.
            state = _usage_from(state.ceiling_mcpu if knows_zones else self._ceiling(), now_ms)
        most = None
        if knows_zones:
            most = self._decide_zone_use(reading, state, now_ms, may_grow=limit is None)
        else:
            self._zones = self._wanted_zones = ()
        decision = decide(
            self.policy.suppress,
            state,
            capacity_mcpu=reading.capacity_mcpu,
            online_used_mcpu=reading.online_used_mcpu,
            system_used_mcpu=max(reading.system_used_mcpu, reading.reserved_mcpu),
            now_ms=now_ms,
            limit_mcpu=limit,
            most_mcpu=most,
            other_turns=sum(use_turns_of(zone.use, now_ms) for zone in self._zones if isinstance(zone, ZoneUse)),
        )
        self._state = decision.state
        self._target_mcpu = decision.target_mcpu
        self._stall_group, self._stall_pct = "", 0
        self._note_reason(decision)

    def _decide_zone_use(self, reading: FastReading, state: Suppress, now_ms: int, *, may_grow: bool) -> int | None:
        """Decide the ceilings of the zones by use; returns the highest one of the node that they allow.

        While a refusal of the kernel is recent the node's ceiling is all there is.
        """
        floor, _ = bounds_mcpu(self.policy.suppress, reading.capacity_mcpu)
        decision = decide_zone_use(
            self.policy.suppress,
            tuple(zone for zone in self._zones if isinstance(zone, ZoneUse)),
            zones=() if self._are_sets_refused(now_ms) else reading.zones,
            capacity_mcpu=reading.capacity_mcpu,
            floor_mcpu=floor,
            batch_used_mcpu=reading.batch_used_mcpu,
            interrupts_mcpu=max(0, reading.system_used_mcpu - reading.reserved_mcpu),
            written=self._written_zones,
            now_ms=now_ms,
            may_grow=may_grow,
            other_turns=use_turns_of(state, now_ms),
            limits_mcpu=self._bandwidth.zones_mcpu,
        )
        self._zones, self._wanted_zones = decision.states, ceilings_of(decision.states)
        for move in decision.moves:
            self._note_zone_use(move)
        return decision.node_most_mcpu

    def _read_stalls(self, reading: FastReading, stalls: OnlineStalls, now_ms: int, limit: int | None) -> None:
        state = self._state
        if isinstance(state, Suppress):
            state = StallState(ceiling_mcpu=state.ceiling_mcpu, trial_since_ms=now_ms)
        floor, _ = bounds_mcpu(self.policy.suppress, reading.capacity_mcpu)
        if reading.zones or self._zones or self._wanted_zones:
            self._decide_zones(reading, stalls, state, floor, now_ms, may_grow=limit is None)
        decision = decide_stall(
            self.policy.stall,
            state,
            capacity_mcpu=reading.capacity_mcpu,
            floor_mcpu=floor,
            batch_used_mcpu=reading.batch_used_mcpu,
            stalls=of_the_node(stalls, self._stalled_zones, state.trial_group),
            now_ms=now_ms,
            limit_mcpu=limit,
            other_turns=sum(turns_of(zone.stall, now_ms) for zone in self._stalled_zones),
            may_take_cores=reading.shares_cores and not self._wanted_cores and not self._are_sets_refused(now_ms),
        )
        if decision.change == "cores":
            self._wanted_cores = True
        elif decision.change == "given-back" and state.on_cores:
            self._wanted_cores = False
        self._state = decision.state
        self._target_mcpu = self._ceiling() or 0
        self._note_stall(decision)

    def _decide_zones(
        self, reading: FastReading, stalls: OnlineStalls, state: StallState, floor: int, now_ms: int, *, may_grow: bool
    ) -> None:
        """Decide the ceilings of the zones. While a refusal of the kernel is recent the node's rule judges all groups."""
        is_refused = self._are_sets_refused(now_ms)
        decision = decide_zones(
            self.policy.stall,
            () if is_refused else self._stalled_zones,
            zones=() if is_refused else reading.zones,
            capacity_mcpu=reading.capacity_mcpu,
            floor_mcpu=floor,
            stalls=stalls,
            written=self._written_zones,
            now_ms=now_ms,
            may_grow=may_grow,
            other_turns=turns_of(state, now_ms),
            limits_mcpu=self._bandwidth.zones_mcpu,
        )
        self._zones, self._wanted_zones = decision.states, ceilings_of(decision.states)
        for move in decision.moves:
            self._note_stall(move)

    def _choose_cores(self, reading: FastReading, now_ms: int) -> None:
        """Keep batch work on whole cores while online work breaks its SLO; off them when nothing holds batch work down any more."""
        if not reading.shares_cores:
            self._wanted_cores = False
        elif self._slo.limit_mcpu is not None:
            self._wanted_cores = self._wanted_cores or not self._are_sets_refused(now_ms)
        elif isinstance(self._state, Suppress):
            # The usage rule always holds batch work down, and what it counts is no reason for whole cores.
            if self._wanted_cores:
                self._rose = self._restores or Reason.ONLINE_SLO_KEPT
            self._wanted_cores = False
        elif (self._ceiling() or 0) >= reading.capacity_mcpu:
            self._wanted_cores = False

    def _time_trials(self, now_ms: int) -> None:
        """Begin the trials whose shrink the kernel has, as it was read back; it may have been asked for long before."""
        has_shrink = self._ceiling() == self._written_mcpu and self._wanted_cores == self._has_cores
        if isinstance(self._state, StallState) and has_shrink:
            self._state = in_force(self._state, now_ms)
        if self._wanted_zones == self._written_zones and any(zone.stall.trial_group for zone in self._stalled_zones):
            self._zones = zones_in_force(self._stalled_zones, now_ms)

    @property
    def _has_wanted_sets(self) -> bool:
        return (self._wanted_zones, self._wanted_cores) == (self._written_zones, self._has_cores)

    @property
    def _stalled_zones(self) -> tuple[ZoneState, ...]:
        return tuple(zone for zone in self._zones if isinstance(zone, ZoneState))

    def _are_sets_refused(self, now_ms: int) -> bool:
        return self._sets_retry_at_ms is not None and now_ms < self._sets_retry_at_ms

    def _ceiling(self) -> int | None:
        """The ceiling for the whole of batch work: that of the node's rule, at most what all zones together leave."""
        ceiling, zones_mcpu = self._state.ceiling_mcpu, sum_mcpu(self._zones)
        return ceiling if ceiling is None or zones_mcpu is None else min(ceiling, zones_mcpu)

    def _note_stall(self, decision: StallDecision | ZoneMove) -> None:
        if decision.change == "none":
            return
        self._stall_group, self._stall_pct = decision.group, decision.stall_pct
        match decision.change:
            case "first" | "trial":
                self._fell = Reason.ONLINE_STALL
                self._restores = None
            case "cores":
                self._fell = Reason.ONLINE_STALL_CORES
            case "lease":
                self._fell = self._limited_by if isinstance(decision, StallDecision) else Reason.MEMORY_BANDWIDTH
            case "given-back":
                self._rose = Reason.ONLINE_STALL_OTHERWISE
            case "grow":
                self._rose = self._restores or Reason.ONLINE_STALL_FELL
                if isinstance(decision, StallDecision) and decision.state.ceiling_mcpu == self._capacity_mcpu:
                    self._restores = None

    def _note_zone_use(self, move: ZoneUseMove) -> None:
        match move.change:
            case "shrink":
                self._fell, self._restores = Reason.ONLINE_LOAD, None
            case "limit":
                self._fell = Reason.MEMORY_BANDWIDTH
            case "grow":
                self._rose = self._restores or Reason.ONLINE_LOAD_FELL

    def _note_reason(self, decision: SuppressDecision) -> None:
        match decision.change:
            case "none":
                return
            case "lease":
                self._fell = self._limited_by
            case "shrink":
                self._fell = Reason.ONLINE_LOAD
                self._restores = None
            case "first":
                self._fell = Reason.ONLINE_LOAD
            case "grow":
                self._rose = self._restores or Reason.ONLINE_LOAD_FELL
                if decision.ceiling_mcpu >= decision.target_mcpu:
                    self._restores = None

    def _wake(self, now_ms: int) -> list[ReflexEffect]:
        before = ceiling = self._ceiling()
        if before is None or ceiling is None:
            return []
        floor, _ = bounds_mcpu(self.policy.suppress, self._capacity_mcpu)
        if not self._blind and now_ms - self._read_at_ms >= self.policy.blind_ms:
            self._blind = True
            self._fell, ceiling = Reason.LOAD_UNREADABLE, min(ceiling, floor)
            # The floor holds, and nobody could tell when the harm is over.
            self._rung.thaw(Reason.LOAD_UNREADABLE, now_ms)
        elif not self._blind:
            limit = self._limit(ceiling, now_ms)
            if limit is not None and limit < ceiling:
                self._fell, ceiling = Reason.LEASE_EXPIRED, limit
        if ceiling < before:
            self._state = replace(self._state, ceiling_mcpu=ceiling)
        return [*self._write(now_ms), *self._rung.write(now_ms)]

    def _limits(self, reading: FastReading, ceiling: int, now_ms: int) -> int | None:
        """The lowest of the limits of an expired lease, of online latency and of memory, and which it is; None without a limit."""
        floor, _ = bounds_mcpu(self.policy.suppress, reading.capacity_mcpu)
        before = self._slo
        self._slo = slo_limited(
            self.policy.slo,
            before,
            ceiling_mcpu=ceiling,
            capacity_mcpu=reading.capacity_mcpu,
            floor_mcpu=floor,
            batch_used_mcpu=reading.batch_used_mcpu,
            now_ms=now_ms,
        )
        if before.limit_mcpu is not None and self._slo.limit_mcpu is None:
            self._restores = {"kept": Reason.ONLINE_SLO_KEPT, "otherwise": Reason.ONLINE_SLO_OTHERWISE}.get(
                self._slo.ended
            )
        found = [
            (self._limit(ceiling, now_ms), Reason.LEASE_EXPIRED),
            (self._slo.limit_mcpu, Reason.ONLINE_SLO),
            (self._bandwidth.node_mcpu, Reason.MEMORY_BANDWIDTH),
        ]
        limit, self._limited_by = min(
            ((mcpu, reason) for mcpu, reason in found if mcpu is not None),
            key=lambda one: one[0],
            default=(None, Reason.LEASE_EXPIRED),
        )
        return limit

    def _limit_by_bandwidth(self, reading: FastReading, ceiling: int | None, now_ms: int, *, knows_use: bool) -> None:
        floor, _ = bounds_mcpu(self.policy.suppress, reading.capacity_mcpu)
        self._bandwidth = decide_bandwidth(
            self.policy.bandwidth,
            self._bandwidth,
            reading,
            ceiling_mcpu=ceiling,
            floor_mcpu=floor,
            zones=self._zones,
            takes_zones=not self._are_sets_refused(now_ms),
            knows_use=knows_use,
            is_in_force=ceiling == self._written_mcpu and self._has_wanted_sets,
            now_ms=now_ms,
        )
        self._restores = self._bandwidth.ended or self._restores

    def _limit(self, ceiling: int, now_ms: int) -> int | None:
        if now_ms < expired_at(self.lease):
            return None
        floor, _ = bounds_mcpu(self.policy.suppress, self._capacity_mcpu)
        self.lease, limit = limit_mcpu(
            self.lease,
            self.policy.lease,
            ceiling_mcpu=ceiling,
            capacity_mcpu=self._capacity_mcpu,
            floor_mcpu=floor,
            now_ms=now_ms,
        )
        return limit

    def _write(self, now_ms: int) -> list[ReflexEffect]:
        ceiling = self._ceiling()
        if self._retry_at_ms is not None and now_ms < self._retry_at_ms:
            return []
        self._retry_at_ms = None
        has_sets = self._has_wanted_sets or self._are_sets_refused(now_ms)
        if ceiling is None or (ceiling == self._written_mcpu and has_sets):
            return []
        return [SetCeiling(ceiling_mcpu=ceiling, zones=self._wanted_zones, has_whole_cores=self._wanted_cores)]

    def _written(self, event: CeilingWritten, now_ms: int) -> list[ReflexEffect]:
        before, self._written_mcpu = self._written_mcpu, event.ceiling_mcpu
        self._retry_at_ms, self.refusals = None, 0
        zone, zones, has_more = moved_zones(self._written_zones, event.zones)
        had_cores, self._has_cores = self._has_cores, event.has_whole_cores
        self._written_zones = event.zones
        self._note_refused_sets(event, now_ms)
        self._time_trials(now_ms)
        before_mcpu = self._capacity_mcpu if before is None else before
        if before_mcpu == event.ceiling_mcpu and zone is None and had_cores == event.has_whole_cores:
            return []
        rises = event.ceiling_mcpu > before_mcpu
        if before_mcpu == event.ceiling_mcpu:
            rises = has_more if zone is not None else had_cores
        reason = self._rose if rises else self._fell
        broken = self._slo.violation if reason in _OF_SLO else None
        moved = CeilingMoved(
            at_ms=now_ms,
            reason=reason,
            ceiling_mcpu=event.ceiling_mcpu,
            before_mcpu=before_mcpu,
            online_used_mcpu=0 if self._reading is None else self._reading.online_used_mcpu,
            target_mcpu=self._target_mcpu,
            capacity_mcpu=self._capacity_mcpu,
            knobs=event.knobs,
            system_used_mcpu=0 if self._reading is None else self._reading.system_used_mcpu,
            reserved_mcpu=0 if self._reading is None else self._reading.reserved_mcpu,
            observed=event.observed,
            rule=self.rule,
            threshold_pct=100 if self.rule == "stall" else self.policy.suppress.threshold_pct,
            stall_group=self._stall_group,
            stall_pct=self._stall_pct,
            slo_workload="" if broken is None else broken.workload,
            violation_pct=0 if broken is None else broken.violation_pct,
            memory=self._bandwidth.terms if reason in OF_BANDWIDTH else None,
            zones=zones,
            zone=zone,
            zone_terms=tuple(each.terms for each in self._zones if isinstance(each, ZoneUse)),
            has_whole_cores=event.has_whole_cores,
        )
        return [moved]

    def _note_refused_sets(self, event: CeilingWritten, now_ms: int) -> None:
        """Try CPU sets that the kernel refused again later. Until then the zones are the node's, with what they were to leave, and
        nothing waits for whole cores.
        """
        if not event.sets_refused:
            self._sets_retry_at_ms, self._set_refusals = None, 0
            return
        self._sets_retry_at_ms = now_ms + self._wait_ms(self._set_refusals)
        self._set_refusals += 1
        self._wanted_cores = self._has_cores
        state = self._state
        if not isinstance(state, StallState):
            return
        ceiling = state.ceiling_mcpu
        # The readings so far lack the groups that are the node's from now on.
        state = replace(state, history=())
        if ceiling is not None and ceiling > event.ceiling_mcpu:
            since_ms = state.trial_since_ms if state.trial_group else now_ms
            state = replace(state, ceiling_mcpu=event.ceiling_mcpu, trial_since_ms=since_ms, has_grown=False)
        self._state = replace(state, calm_since_ms=None)

    def _found(self, found_mcpu: int | None, now_ms: int) -> None:
        """Somebody else wrote the ceiling. A lower one is where growth begins, as after a shrink; a higher one is written over."""
        decided_mcpu = self._ceiling()
        self._written_mcpu = found_mcpu
        if found_mcpu is None or decided_mcpu is None or found_mcpu >= decided_mcpu:
            return
        if isinstance(self._state, Suppress):
            self._state = replace(self._state, ceiling_mcpu=found_mcpu, moved="shrink", last_shrink_ms=now_ms)
        else:
            self._state = StallState(ceiling_mcpu=found_mcpu, trial_since_ms=now_ms)

    def _refused(self, now_ms: int) -> list[ReflexEffect]:
        self._retry_at_ms = now_ms + self._wait_ms(self.refusals)
        self.refusals += 1
        return []

    def _wait_ms(self, refusals: int) -> int:
        return min(self.policy.retry_ms << min(refusals, 16), self.policy.retry_most_ms)

    # ------------------------------------------------------------ the last rung

    def _judge_freeze(self, reading: FastReading, now_ms: int) -> None:
        if self.policy.freeze.by == "off":
            return
        floor, _ = bounds_mcpu(self.policy.suppress, reading.capacity_mcpu)
        ceiling = self._ceiling()
        self._rung.judge(
            self._harm(reading, floor, now_ms),
            is_at_floor=ceiling is not None and ceiling <= floor and ceiling == self._written_mcpu,
            may_freeze=reading.may_freeze,
            now_ms=now_ms,
        )

    def _harm(self, reading: FastReading, floor_mcpu: int, now_ms: int) -> FreezeHarm:
        """What online work suffers and may freeze batch work; while frozen, what it was frozen for, until that is clearly over."""
        by, cause = self.policy.freeze.by, self._rung.state.cause
        state, capacity = self._state, reading.capacity_mcpu
        found = NO_HARM
        if isinstance(state, StallState) and (cause is None or cause.group):
            used = reading.batch_used_mcpu
            found = harm_of_waiting(
                self.policy.stall, state, self._rung.state, batch_used_mcpu=used, capacity_mcpu=capacity, now_ms=now_ms
            )
        if found.cause is None and by in ("felt", "any") and (cause is None or cause.workload):
            found = harm_of_latency(
                self.policy.slo,
                self._slo,
                self._rung.state,
                floor_mcpu=floor_mcpu,
                least_ms=self.policy.freeze.least_ms,
            )
        is_of_use = cause is None or not (cause.group or cause.workload)
        if found.cause is None and by == "any" and isinstance(state, Suppress) and is_of_use:
            found = harm_of_use(
                self.policy.suppress,
                self._rung.state,
                capacity_mcpu=capacity,
                online_used_mcpu=reading.online_used_mcpu,
                system_used_mcpu=max(reading.system_used_mcpu, reading.reserved_mcpu),
            )
        return found

    def _freeze_written(self, event: FreezeWritten, now_ms: int) -> list[ReflexEffect]:
        return [self._flip(event, now_ms)] if self._rung.written(event, now_ms) else []

    def _flip(self, event: FreezeWritten, now_ms: int) -> FrozenMoved:
        reading, cause = self._reading, self._rung.cause
        return FrozenMoved(
            at_ms=now_ms,
            is_frozen=event.is_frozen,
            reason=self._rung.reason,
            ceiling_mcpu=self._written_mcpu or 0,
            capacity_mcpu=self._capacity_mcpu,
            online_used_mcpu=0 if reading is None else reading.online_used_mcpu,
            system_used_mcpu=0 if reading is None else reading.system_used_mcpu,
            reserved_mcpu=0 if reading is None else reading.reserved_mcpu,
            target_mcpu=self._target_mcpu,
            threshold_pct=100 if self.rule == "stall" else self.policy.suppress.threshold_pct,
            knobs=event.knobs,
            observed=event.observed,
            rule=self.rule,
            group="" if cause is None else cause.group,
            workload="" if cause is None else cause.workload,
            pct=0 if cause is None else cause.pct,
        )


def _usage_from(ceiling_mcpu: int | None, now_ms: int) -> Suppress:
    """The state of the usage rule with a ceiling that is in the kernel already. It counts as a shrink, so nothing grows at once."""
    if ceiling_mcpu is None:
        return Suppress()
    return Suppress(ceiling_mcpu=ceiling_mcpu, moved="shrink", last_shrink_ms=now_ms)
