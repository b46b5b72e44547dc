"""The ceilings of single NUMA zones by what online work uses in each of them: the usage rule, zone by zone.

The ceiling of the node holds batch work below what online work leaves of the node, wherever the two run. Where online work fills
one zone that is not enough there, so batch work gives up CPUs of that zone too, by the same formula. The least that it keeps is
a CPU, which is much of a small zone: where that is too much, the ceiling of the node gives way as well.
"""

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from colo_common.events.enforcement import ZoneCeiling, ZoneTerms
from colo_executor.suppress import Suppress, SuppressPolicy, bounds_mcpu, decide, left_mcpu, may_turn, turned, turns_of
from colo_executor.zone_ceilings import CPU_MCPU, ZoneReading, whole_cpus, zone_floor_mcpu

__all__ = ["ZoneUse", "ZoneUseDecision", "ZoneUseMove", "decide_zone_use"]

_OVER_PCT: Final = 5
"""A zone is narrowed when all work there uses so much more of it than the threshold, and batch work so much of it at all: what the
node's ceiling leaves uneven between the zones of a node is not worth a CPU set."""


class ZoneUse(Struct, frozen=True, kw_only=True):
    """The state of the rule in one zone. `use.ceiling_mcpu` None: batch work has all of it.

    `terms` are those of the last reading. `spare_since_ms`: since when batch work uses less than the highest ceiling by a CPU.
    """

    zone: int
    capacity_mcpu: int
    floor_mcpu: int
    terms: ZoneTerms
    use: Suppress = Suppress()
    spare_since_ms: int | None = None

    @property
    def ceiling_mcpu(self) -> int:
        """What batch work may use in the zone, in whole CPUs."""
        if self.use.ceiling_mcpu is None:
            return self.capacity_mcpu
        return whole_cpus(self.use.ceiling_mcpu, self.floor_mcpu, self.capacity_mcpu)


class ZoneUseMove(Struct, frozen=True, kw_only=True):
    """The ceiling of a zone changed, where it fell by a limit of another rule or by this one."""

    zone: int
    change: Literal["shrink", "grow", "limit"]


class ZoneUseDecision(Struct, frozen=True, kw_only=True):
    """The states after a reading, in the order of the zones, and those whose ceiling it changed."""

    states: tuple[ZoneUse, ...] = ()
    moves: tuple[ZoneUseMove, ...] = ()

    @property
    def node_most_mcpu(self) -> int | None:
        """The highest ceiling of the node that all zones allow."""
        found = (state.terms.node_most_mcpu for state in self.states)
        return min((mcpu for mcpu in found if mcpu is not None), default=None)


def decide_zone_use(
    policy: SuppressPolicy,
    states: tuple[ZoneUse, ...],
    *,
    zones: Sequence[ZoneReading],
    capacity_mcpu: int,
    floor_mcpu: int,
    batch_used_mcpu: int,
    interrupts_mcpu: int,
    written: Sequence[ZoneCeiling],
    now_ms: int,
    may_grow: bool,
    other_turns: int = 0,
    limits_mcpu: Sequence[tuple[int, int]] = (),
) -> ZoneUseDecision:
    """The next ceiling of each zone of which the use of online work is known, in whole CPUs, from one CPU to its capacity.

    It is what `suppress.decide` says of the zone alone, rounded down to whole CPUs: (capacity + reserved) x threshold_pct // 100 -
    online used - reserved - the zone's part of `interrupts_mcpu`, which is what the system uses of the node beside reserved CPUs.
    A zone is narrowed when online and batch work together use 5 % of it more than the threshold, of which batch work uses 5 % at
    least; it has all its CPUs again when nothing holds its ceiling down any more and batch work leaves a CPU of it unused for
    `grow_hold_ms`. A zone that had no state begins with the ceiling that the kernel has (`written`), which counts as a shrink.

    Where a zone is at its floor, the node's ceiling is at most what all batch work of the node uses (`batch_used_mcpu`) times what
    batch work may use in that zone, which is what is left there or at least its part of the node's floor, by what it uses there,
    rounded down. What it uses of the zone above its floor does not count: it has lost those CPUs with this reading.

    `may_grow` False (an expired lease): no ceiling rises. `limits_mcpu` are zones with the most that other rules leave of them, and
    these ceilings do not rise either. `other_turns` as `suppress.decide` has them.
    """
    known = {state.zone: state for state in states}
    turns = {zone: turns_of(state.use, now_ms) for zone, state in known.items()}
    decided: list[ZoneUse] = []
    moves: list[ZoneUseMove] = []
    for reading in zones:
        if reading.online_used_mcpu is None or reading.capacity_mcpu < CPU_MCPU:
            continue
        zone = reading.zone
        floor = zone_floor_mcpu(reading.capacity_mcpu, capacity_mcpu, floor_mcpu)
        state = _state_now(known.get(zone), reading, reading.online_used_mcpu, floor, written, now_ms)
        total = reading.capacity_mcpu + reading.reserved_mcpu
        part = -(-interrupts_mcpu * total // max(1, capacity_mcpu))
        state = replace(state, terms=replace(state.terms, system_used_mcpu=part))
        others = other_turns + sum(turns.values()) - turns.get(zone, 0)
        limit = dict(limits_mcpu).get(zone)
        if not may_grow and state.use.ceiling_mcpu is not None:
            limit = state.use.ceiling_mcpu if limit is None else min(limit, state.use.ceiling_mcpu)
        own = replace(policy, floor_mcpu=floor, floor_pct=0)
        after = _next(own, state, reading, others, now_ms, limit, may_grow=may_grow)
        turns[zone] = turns_of(after.use, now_ms)
        most = _node_most_mcpu(policy, after, reading, batch_used_mcpu, floor_mcpu * total // max(1, capacity_mcpu))
        after = replace(after, terms=replace(after.terms, node_most_mcpu=most))
        decided.append(after)
        if after.ceiling_mcpu > state.ceiling_mcpu:
            moves.append(ZoneUseMove(zone=zone, change="grow"))
        elif after.ceiling_mcpu < state.ceiling_mcpu:
            is_limited = after.ceiling_mcpu == dict(limits_mcpu).get(zone)
            moves.append(ZoneUseMove(zone=zone, change="limit" if is_limited else "shrink"))
    return ZoneUseDecision(states=tuple(decided), moves=tuple(moves))


def _node_most_mcpu(
    policy: SuppressPolicy, state: ZoneUse, reading: ZoneReading, batch_used_mcpu: int, least_mcpu: int
) -> int | None:
    """The ceiling of the node at which batch work uses no more of the zone than it may, where CPUs of the zone are not enough."""
    if state.use.ceiling_mcpu is None or state.ceiling_mcpu > state.floor_mcpu or reading.batch_used_mcpu < 1:
        return None
    total = reading.capacity_mcpu + reading.reserved_mcpu
    terms = state.terms
    left = left_mcpu(policy, total, terms.online_used_mcpu, terms.reserved_mcpu + terms.system_used_mcpu)
    kept = min(reading.batch_used_mcpu, state.ceiling_mcpu)
    return (batch_used_mcpu - reading.batch_used_mcpu + kept) * max(left, least_mcpu) // kept


def _next(
    policy: SuppressPolicy,
    state: ZoneUse,
    reading: ZoneReading,
    other_turns: int,
    now_ms: int,
    limit_mcpu: int | None,
    *,
    may_grow: bool,
) -> ZoneUse:
    """The state after the reading; the terms are of it already, and `policy` has the floor of the zone."""
    total = reading.capacity_mcpu + reading.reserved_mcpu
    online, system = state.terms.online_used_mcpu, state.terms.reserved_mcpu + state.terms.system_used_mcpu
    use, batch = state.use, reading.batch_used_mcpu
    if use.ceiling_mcpu is None:
        over = batch - left_mcpu(policy, total, online, system)
        if min(batch, over) * 100 < total * _OVER_PCT and limit_mcpu is None:
            return state
        use = replace(use, ceiling_mcpu=reading.capacity_mcpu)
    use = decide(
        policy,
        use,
        capacity_mcpu=total,
        online_used_mcpu=online,
        system_used_mcpu=system,
        now_ms=now_ms,
        limit_mcpu=use.ceiling_mcpu if limit_mcpu is None and not may_grow else limit_mcpu,
        other_turns=other_turns,
    ).state
    state = replace(state, use=use)
    _, cap = bounds_mcpu(policy, total)
    if use.ceiling_mcpu is None or use.ceiling_mcpu < cap or batch > state.ceiling_mcpu - CPU_MCPU:
        return replace(state, spare_since_ms=None)
    since_ms = now_ms if state.spare_since_ms is None else state.spare_since_ms
    is_due = now_ms - since_ms >= policy.grow_hold_ms
    if not is_due or not may_grow or limit_mcpu is not None or not may_turn(policy, use, now_ms, other_turns):
        return replace(state, spare_since_ms=since_ms)
    return replace(state, use=replace(turned(use, now_ms), ceiling_mcpu=None), spare_since_ms=None)


def _state_now(
    state: ZoneUse | None,
    reading: ZoneReading,
    online_used_mcpu: int,
    floor_mcpu: int,
    written: Sequence[ZoneCeiling],
    now_ms: int,
) -> ZoneUse:
    """The state with capacity, floor and terms of this reading."""
    terms = ZoneTerms(zone=reading.zone, online_used_mcpu=online_used_mcpu, reserved_mcpu=reading.reserved_mcpu)
    use = Suppress()
    if state is not None:
        use = state.use
    elif found := next((each.ceiling_mcpu for each in written if each.zone == reading.zone), None):
        use = Suppress(ceiling_mcpu=found, moved="shrink", last_shrink_ms=now_ms)
    return ZoneUse(
        zone=reading.zone,
        capacity_mcpu=reading.capacity_mcpu,
        floor_mcpu=floor_mcpu,
        terms=terms,
        use=use,
        spare_since_ms=None if state is None else state.spare_since_ms,
    )
