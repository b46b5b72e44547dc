"""The limits by what memory carries, of all zones of a node: on the CPUs of a zone where it can have a ceiling, else on the node.

What is counted of a zone comes from the CPUs of that zone, so batch work elsewhere keeps what it has. Where the kernel keeps batch
work off no CPUs, or has just refused to, or where what the zones carry cannot be told apart, batch work gives up CPU of the node.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from colo_common.events.enforcement import MemoryTerms
from colo_common.model.reasons import Reason
from colo_executor.bandwidth import BandwidthPolicy, BandwidthState, Ended, LimitedCpus, bandwidth_limited
from colo_executor.local import FastReading
from colo_executor.zone_ceilings import CPU_MCPU, DecidedZone, ZoneReading, zone_floor_mcpu

__all__ = ["OF_BANDWIDTH", "BandwidthDecision", "decide_bandwidth"]

_ENDED: Final[dict[Ended, Reason]] = {
    "fell": Reason.MEMORY_BANDWIDTH_FELL,
    "otherwise": Reason.MEMORY_BANDWIDTH_OTHERWISE,
    "unknown": Reason.MEMORY_BANDWIDTH_UNKNOWN,
}

OF_BANDWIDTH: Final = (Reason.MEMORY_BANDWIDTH, *_ENDED.values())
"""Why such a limit takes from batch work, and why it ends."""


class BandwidthDecision(Struct, frozen=True, kw_only=True):
    """The states after a reading; the lowest limit of the node, and those of zones.

    `ended` says why a limit ended with it, None where none did. `terms` are those of the last one that began, fell or ended.
    """

    states: tuple[BandwidthState, ...] = ()
    node_mcpu: int | None = None
    zones_mcpu: tuple[tuple[int, int], ...] = ()
    ended: Reason | None = None
    terms: MemoryTerms | None = None


def decide_bandwidth(
    policy: BandwidthPolicy,
    last: BandwidthDecision,
    reading: FastReading,
    *,
    ceiling_mcpu: int | None,
    floor_mcpu: int,
    zones: Sequence[DecidedZone],
    takes_zones: bool,
    knows_use: bool,
    is_in_force: bool,
    now_ms: int,
) -> BandwidthDecision:
    """The limits that hold now, for a node of that ceiling (None: the rule has not decided yet) and floor.

    `zones` are the states of the rule that decides, in which a zone that is not named has all of its CPUs. `takes_zones` False: the
    kernel refuses their ceilings. `knows_use`: the rule counts what is used, so a zone of which that is not known has no ceiling.
    `is_in_force`: the kernel has the ceilings that were decided last; what it has not proves nothing at the floor.
    """
    if not policy.zone_bytes_per_s:
        return last if last == BandwidthDecision() else BandwidthDecision()
    capacity = reading.capacity_mcpu
    node = LimitedCpus(
        ceiling_mcpu=capacity if ceiling_mcpu is None else ceiling_mcpu,
        capacity_mcpu=capacity,
        floor_mcpu=floor_mcpu,
        batch_used_mcpu=reading.batch_used_mcpu,
    )
    ceilings = {each.zone: each.ceiling_mcpu for each in zones}
    places = {
        each.zone: _cpus_of(
            each, ceilings, zone_floor_mcpu(each.capacity_mcpu, capacity, floor_mcpu), knows_use=knows_use
        )
        for each in (reading.zones if takes_zones else ())
        if each.capacity_mcpu >= CPU_MCPU and not (knows_use and each.online_used_mcpu is None)
    }
    decided: list[BandwidthState] = []
    node_mcpu, zones_mcpu = None, list[tuple[int, int]]()
    ended, terms = None, last.terms
    for state in _noted(policy, last.states, reading):
        cpus = node if state.zone is None else places.get(state.zone, node)
        is_zone = cpus.core_mcpu is not None
        if is_zone != state.is_zone:
            # A limit of some CPUs is none of others.
            state = replace(state, is_zone=is_zone, limit_mcpu=None, floor_since_ms=None)
        after = bandwidth_limited(policy, state, cpus, now_ms, is_in_force=is_in_force)
        decided.append(after)
        has_ended = state.limit_mcpu is not None and after.limit_mcpu is None
        if has_ended or after.stepped_at_ms != state.stepped_at_ms:
            ended = _ENDED[after.ended] if has_ended else ended
            terms = _terms(policy, after)
        if after.limit_mcpu is None:
            continue
        if after.is_zone and after.zone is not None:
            zones_mcpu.append((after.zone, after.limit_mcpu))
        else:
            node_mcpu = after.limit_mcpu if node_mcpu is None else min(node_mcpu, after.limit_mcpu)
    return BandwidthDecision(
        states=tuple(decided), node_mcpu=node_mcpu, zones_mcpu=tuple(zones_mcpu), ended=ended, terms=terms
    )


def _noted(
    policy: BandwidthPolicy, states: Sequence[BandwidthState], reading: FastReading
) -> tuple[BandwidthState, ...]:
    """The states with what this reading says of their traffic, and one for each traffic that had none."""
    traffic = reading.memory
    if traffic is None:
        return tuple(states)
    known = {state.zone: state for state in states}
    for each in traffic.zones:
        known[each.zone] = replace(
            known.get(each.zone, BandwidthState(zone=each.zone)),
            bytes_per_s=each.bytes_per_s,
            most_bytes_per_s=policy.zone_bytes_per_s * max(1, each.zones),
            read_at_ms=traffic.at_ms,
        )
    return tuple(known.values())


def _cpus_of(reading: ZoneReading, ceilings: Mapping[int, int], floor_mcpu: int, *, knows_use: bool) -> LimitedCpus:
    """The CPUs of a zone. Waiting takes whole cores, and would take the last one where half of it is left; use takes CPUs."""
    core = CPU_MCPU * (1 if knows_use else reading.threads)
    return LimitedCpus(
        core_mcpu=core,
        ceiling_mcpu=min(reading.capacity_mcpu, ceilings.get(reading.zone, reading.capacity_mcpu)),
        capacity_mcpu=reading.capacity_mcpu,
        floor_mcpu=min(reading.capacity_mcpu, -(-floor_mcpu // core) * core),
        batch_used_mcpu=reading.batch_used_mcpu,
    )


def _terms(policy: BandwidthPolicy, state: BandwidthState) -> MemoryTerms:
    return MemoryTerms(
        zone=state.zone,
        bytes_per_s=state.bytes_per_s,
        most_bytes_per_s=state.most_bytes_per_s,
        mark_pct=policy.mark_pct,
    )
