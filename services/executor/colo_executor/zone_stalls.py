"""The ceilings of single NUMA zones, from what online work feels that runs in one zone alone.

Batch work in another zone is not why such work waits for a CPU, so it gives up CPUs of that zone only. Each zone has a state of the
stall rule of its own; the rest of online work is judged by the node's. Where cores have several threads it gives up whole cores:
what would be left on the other thread of a core slows online work down as well.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from colo_common.events.enforcement import ZoneCeiling
from colo_executor.stall import OnlineStalls, StallChange, StallPolicy, StallState, decide_stall, in_force, turns_of
from colo_executor.zone_ceilings import CPU_MCPU, ZoneReading, whole_cpus, zone_floor_mcpu

__all__ = ["ZoneDecision", "ZoneMove", "ZoneState", "decide_zones", "of_the_node", "zones_in_force"]

_RESTING: Final = ("none", "first")


class ZoneState(Struct, frozen=True, kw_only=True):
    """The state of the rule in one zone, whose ceiling is in whole cores. `policy` is the node's with steps of whole cores."""

    zone: int
    capacity_mcpu: int
    floor_mcpu: int
    policy: StallPolicy
    stall: StallState

    @property
    def ceiling_mcpu(self) -> int:
        """What batch work may use in the zone."""
        return self.capacity_mcpu if self.stall.ceiling_mcpu is None else self.stall.ceiling_mcpu


class ZoneMove(Struct, frozen=True, kw_only=True):
    """The ceiling of a zone changed; `group` waits most there, for `stall_pct` percent of the time."""

    zone: int
    group: str
    stall_pct: int
    change: StallChange


class ZoneDecision(Struct, frozen=True, kw_only=True):
    """The states after a reading, in the order of the zones, and those whose ceiling it changed."""

    states: tuple[ZoneState, ...] = ()
    moves: tuple[ZoneMove, ...] = ()


def decide_zones(
    policy: StallPolicy,
    states: tuple[ZoneState, ...],
    *,
    zones: Sequence[ZoneReading],
    capacity_mcpu: int,
    floor_mcpu: int,
    stalls: OnlineStalls,
    written: Sequence[ZoneCeiling],
    now_ms: int,
    may_grow: bool,
    other_turns: int = 0,
    limits_mcpu: Sequence[tuple[int, int]] = (),
) -> ZoneDecision:
    """The next ceiling of each zone, in whole cores rounded down, from its floor to its capacity.

    A zone that had no state begins with the ceiling that the kernel has (`written`), which counts as a shrink. A zone's floor is
    its part of the node's `floor_mcpu` of `capacity_mcpu`, in whole CPUs and one at least. It is 0 where cores are shared and batch
    work may leave the zone; what that takes from the node's floor the other zones keep. `may_grow` False (an expired lease): no
    ceiling rises. `limits_mcpu` are zones with the most that other rules leave of them, whose ceilings do not rise either.
    `other_turns` as `decide_stall` has them.
    """
    known = {state.zone: state for state in states}
    turns = {zone: turns_of(state.stall, now_ms) for zone, state in known.items()}
    decided: list[ZoneState] = []
    moves: list[ZoneMove] = []
    for reading in zones:
        if reading.capacity_mcpu < CPU_MCPU:
            continue
        zone = reading.zone
        elsewhere = sum(state.ceiling_mcpu for state in decided)
        elsewhere += sum(
            _kept_mcpu(known, other) for other in zones if other.zone not in {zone, *(s.zone for s in decided)}
        )
        floor = _floor_mcpu(reading, capacity_mcpu, floor_mcpu, elsewhere)
        state = _state_now(policy, known.get(zone), reading, floor, written, now_ms)
        before = state.ceiling_mcpu
        names = {name for name, its in stalls.zones if its == zone}
        limit = dict(limits_mcpu).get(zone)
        if not names and before >= state.capacity_mcpu and not state.stall.trial_group and limit is None:
            # Nobody to judge and nothing to give back.
            decided.append(state if not state.stall.history else replace(state, stall=replace(state.stall, history=())))
            continue
        decision = decide_stall(
            state.policy,
            state.stall,
            capacity_mcpu=reading.capacity_mcpu,
            floor_mcpu=floor,
            batch_used_mcpu=reading.batch_used_mcpu,
            stalls=_only(stalls, names),
            now_ms=now_ms,
            limit_mcpu=limit if may_grow else before if limit is None else min(before, limit),
            other_turns=other_turns + sum(turns.values()) - turns.get(zone, 0),
        )
        after = before if decision.state.ceiling_mcpu is None else decision.state.ceiling_mcpu
        ceiling = max(floor, _whole_cores(after, reading))
        state = replace(state, stall=replace(decision.state, ceiling_mcpu=ceiling))
        turns[zone] = turns_of(state.stall, now_ms)
        decided.append(state)
        if ceiling != before and decision.change not in _RESTING:
            moves.append(
                ZoneMove(zone=zone, group=decision.group, stall_pct=decision.stall_pct, change=decision.change)
            )
    return ZoneDecision(states=tuple(decided), moves=tuple(moves))


def zones_in_force(states: Sequence[ZoneState], now_ms: int) -> tuple[ZoneState, ...]:
    """The states once the kernel has their ceilings, with which a trial begins."""
    return tuple(replace(state, stall=in_force(state.stall, now_ms)) for state in states)


def of_the_node(stalls: OnlineStalls, states: Sequence[ZoneState], trial_group: str) -> OnlineStalls:
    """What the node's rule judges: groups that no zone's does, and those of a zone that has no more to give than its floor.

    A zone judges to the end of its trial. A group for which the node's trial is under way (`trial_group`) is judged to its end.
    """
    judged = {state.zone for state in states if state.ceiling_mcpu > state.floor_mcpu or state.stall.trial_group}
    left_out = {name for name, zone in stalls.zones if zone in judged and name != trial_group}
    return _only(stalls, {name for name, _ in stalls.total_us} - left_out) if left_out else stalls


def _state_now(
    policy: StallPolicy,
    state: ZoneState | None,
    reading: ZoneReading,
    floor_mcpu: int,
    written: Sequence[ZoneCeiling],
    now_ms: int,
) -> ZoneState:
    """The state with the capacity of this reading; who had all of the zone has all of it when it grows."""
    capacity = reading.capacity_mcpu
    if state is not None and (state.capacity_mcpu, state.floor_mcpu) == (capacity, floor_mcpu):
        return state
    if state is None:
        found = {each.zone: each.ceiling_mcpu for each in written}.get(reading.zone, capacity)
        stall = StallState(ceiling_mcpu=whole_cpus(found, floor_mcpu, capacity), trial_since_ms=now_ms)
    else:
        had_all = state.ceiling_mcpu >= state.capacity_mcpu
        ceiling = capacity if had_all else whole_cpus(state.ceiling_mcpu, floor_mcpu, capacity)
        stall = replace(state.stall, ceiling_mcpu=ceiling)
    return ZoneState(
        zone=reading.zone,
        capacity_mcpu=capacity,
        floor_mcpu=floor_mcpu,
        policy=_in_whole_cores(policy, capacity, reading.threads * CPU_MCPU),
        stall=stall,
    )


def _kept_mcpu(known: Mapping[int, ZoneState], reading: ZoneReading) -> int:
    """What batch work has of a zone that was not decided yet."""
    if reading.capacity_mcpu < CPU_MCPU:
        return 0
    state = known.get(reading.zone)
    return reading.capacity_mcpu if state is None else min(state.ceiling_mcpu, reading.capacity_mcpu)


def _floor_mcpu(reading: ZoneReading, capacity_mcpu: int, floor_mcpu: int, elsewhere_mcpu: int) -> int:
    """The least that batch work has of the zone: its part, and what the other zones lack of the node's floor and of one CPU."""
    part = zone_floor_mcpu(reading.capacity_mcpu, capacity_mcpu, floor_mcpu)
    lacking = max(floor_mcpu, CPU_MCPU) - elsewhere_mcpu
    needed = min(reading.capacity_mcpu, max(0, -(-lacking // CPU_MCPU)) * CPU_MCPU)
    return needed if reading.threads > 1 and reading.may_leave else max(part, needed)


def _whole_cores(ceiling_mcpu: int, reading: ZoneReading) -> int:
    """The ceiling in whole cores, rounded down; the whole zone where it is that, also if a core of it is not whole."""
    core_mcpu = reading.threads * CPU_MCPU
    return ceiling_mcpu if ceiling_mcpu >= reading.capacity_mcpu else ceiling_mcpu // core_mcpu * core_mcpu


def _in_whole_cores(policy: StallPolicy, capacity_mcpu: int, core_mcpu: int) -> StallPolicy:
    """The policy with a step of growth of a core at least, as much slower as it is larger."""
    least_pct = min(100, -(-100 * core_mcpu // capacity_mcpu))
    if policy.grow_step_pct >= least_pct:
        return policy
    interval_ms = -(-policy.grow_interval_ms * least_pct // policy.grow_step_pct)
    return replace(policy, grow_step_pct=least_pct, grow_interval_ms=interval_ms)


def _only(stalls: OnlineStalls, names: set[str]) -> OnlineStalls:
    return replace(
        stalls,
        total_us=tuple(pair for pair in stalls.total_us if pair[0] in names),
        throttled_us=tuple(pair for pair in stalls.throttled_us if pair[0] in names),
        unseen=(),
        zones=(),
    )
