"""How much batch work may use while the memory of a NUMA zone, or of the machine, carries all that it can.

Who waits for memory waits on its CPU, and neither CPU use nor a run queue shows it. What memory carries can be counted (resctrl),
what it can carry nobody but the operator knows. At the mark batch work gives up CPUs step by step; below the calm mark it may grow
again, and for a while no further than where memory is busy. Traffic that does not fall with batch work at the floor is not batch
work's, which then gets its CPU back and is left alone for a while.
"""

from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from colo_common.model.invalid import InvalidInput
from colo_common.model.ranges import check_ranges

__all__ = [
    "BandwidthPolicy",
    "BandwidthState",
    "Ended",
    "LimitedCpus",
    "MemoryTraffic",
    "ZoneTraffic",
    "bandwidth_limited",
]

_LEAST_BYTES_PER_S: Final = 100_000_000
_MOST_BYTES_PER_S: Final = 1_000_000_000_000_000

Ended = Literal["fell", "unknown", "otherwise"]


class BandwidthPolicy(Struct, frozen=True, kw_only=True):
    """The parameters of the limit. `zone_bytes_per_s` is what the memory of one NUMA zone sustains; 0: the rule is off.

    The limit begins when the traffic of a zone is at least `mark_pct` of that and batch work uses `blamed_pct` of its CPUs; it
    falls by `step_pct` of them with each reading at the mark, `step_interval_ms` after the last step, and ends below `calm_pct`.
    In between it stays, for `hold_ms` after the zone was last at the mark, and batch work that has grown again stays where it is.
    At the floor traffic must have fallen by `relief_pct` percent of itself, or below the mark, within `excuse_after_ms`; else
    batch work is not the cause, and there is no limit for `excuse_ms`. A reading older than `stale_ms` limits nothing.
    """

    zone_bytes_per_s: int = 0
    mark_pct: int = 85
    calm_pct: int = 70
    blamed_pct: int = 5
    step_pct: int = 20
    step_interval_ms: int = 3_000
    hold_ms: int = 60_000
    relief_pct: int = 10
    stale_ms: int = 5_000
    excuse_after_ms: int = 10_000
    excuse_ms: int = 300_000

    def validate(self) -> None:
        """Raise InvalidInput for a number without meaning."""
        check_ranges(
            self,
            ("mark_pct", 1, 100),
            ("calm_pct", 0, 100),
            ("blamed_pct", 0, 100),
            ("step_pct", 1, 100),
            # A step has to be in force for a whole second, which is what a reading is over, before the next one.
            ("step_interval_ms", 2_000, 600_000),
            ("hold_ms", 0, 3_600_000),
            ("relief_pct", 1, 100),
            ("stale_ms", 2_000, 600_000),
            ("excuse_after_ms", 1_000, 3_600_000),
            ("excuse_ms", 0, 86_400_000),
        )
        if self.zone_bytes_per_s and not _LEAST_BYTES_PER_S <= self.zone_bytes_per_s <= _MOST_BYTES_PER_S:
            rule = f"must be 0, or from {_LEAST_BYTES_PER_S} to {_MOST_BYTES_PER_S} bytes per second"
            raise InvalidInput("zone_bytes_per_s", rule, self.zone_bytes_per_s)
        if self.calm_pct >= self.mark_pct:
            raise InvalidInput("calm_pct", f"must be below mark_pct, which is {self.mark_pct}", self.calm_pct)


class ZoneTraffic(Struct, frozen=True, kw_only=True):
    """What all work on the CPUs of a zone read from memory and wrote to it, rounded down, wherever that memory is.

    `zone` None: what the whole machine did, of `zones` zones, where it cannot be told apart.
    """

    zone: int | None
    bytes_per_s: int
    zones: int = 1


class MemoryTraffic(Struct, frozen=True, kw_only=True):
    """The traffic over the second before `at_ms`; a zone of which nothing answered is left out."""

    at_ms: int
    zones: tuple[ZoneTraffic, ...] = ()


class LimitedCpus(Struct, frozen=True, kw_only=True):
    """The CPUs that a limit takes from: those of a zone, in whole cores of `core_mcpu`, or of the node (`core_mcpu` None)."""

    core_mcpu: int | None = None
    ceiling_mcpu: int
    capacity_mcpu: int
    floor_mcpu: int
    batch_used_mcpu: int


class BandwidthState(Struct, frozen=True, kw_only=True):
    """The newest traffic of a zone (None: of the machine) and when it was read; the limit (None: there is none), whether it is on
    the CPUs of the zone, and when it last fell.

    `before_pct` is the traffic at its first step, `full_at_ms` when the zone was last at the mark beside batch work. `ended` says
    why the last limit ended: the traffic fell, nobody could read it any more, or the floor did not help.
    """

    zone: int | None
    bytes_per_s: int = 0
    most_bytes_per_s: int = 1
    read_at_ms: int | None = None
    limit_mcpu: int | None = None
    is_zone: bool = False
    stepped_at_ms: int = 0
    before_pct: int = 0
    full_at_ms: int | None = None
    floor_since_ms: int | None = None
    excused_until_ms: int = 0
    ended: Ended = "fell"

    @property
    def pct(self) -> int:
        """The traffic in percent of what the memory sustains, rounded down."""
        return self.bytes_per_s * 100 // self.most_bytes_per_s


def bandwidth_limited(
    policy: BandwidthPolicy, state: BandwidthState, cpus: LimitedCpus, now_ms: int, *, is_in_force: bool = True
) -> BandwidthState:
    """The state with the limit that holds now. The limit is never below the floor; a missing or old reading takes it away."""
    read_at_ms = state.read_at_ms
    if read_at_ms is None or now_ms - read_at_ms > policy.stale_ms:
        return _freed(state, "unknown")
    if state.pct < policy.calm_pct:
        return _freed(state, "fell")
    is_held = state.full_at_ms is not None and now_ms - state.full_at_ms < policy.hold_ms
    if state.limit_mcpu is None:
        is_blamed = cpus.batch_used_mcpu * 100 >= cpus.capacity_mcpu * policy.blamed_pct
        if not is_blamed or now_ms < state.excused_until_ms:
            return state
        if state.pct >= policy.mark_pct:
            from_mcpu = min(cpus.ceiling_mcpu, cpus.batch_used_mcpu)
            return _stepped(policy, replace(state, before_pct=state.pct), from_mcpu, cpus, now_ms)
        return replace(state, limit_mcpu=max(cpus.floor_mcpu, cpus.ceiling_mcpu), before_pct=0) if is_held else state
    if state.pct < policy.mark_pct:
        state = replace(state, floor_since_ms=None)
        return state if is_held else _freed(state, "fell")
    state = replace(state, full_at_ms=read_at_ms)
    if state.limit_mcpu is None or read_at_ms - state.stepped_at_ms < policy.step_interval_ms:
        return state
    if state.limit_mcpu > cpus.floor_mcpu:
        before = state if state.before_pct else replace(state, before_pct=state.pct)
        return _stepped(policy, before, state.limit_mcpu, cpus, now_ms)
    if not is_in_force or state.pct * 100 <= state.before_pct * (100 - policy.relief_pct):
        return replace(state, floor_since_ms=None)
    since_ms = read_at_ms if state.floor_since_ms is None else state.floor_since_ms
    if read_at_ms - since_ms < policy.excuse_after_ms:
        return replace(state, floor_since_ms=since_ms)
    return replace(_freed(state, "otherwise"), excused_until_ms=now_ms + policy.excuse_ms)


def _stepped(
    policy: BandwidthPolicy, state: BandwidthState, from_mcpu: int, cpus: LimitedCpus, now_ms: int
) -> BandwidthState:
    limit = from_mcpu - max(1, cpus.capacity_mcpu * policy.step_pct // 100)
    if cpus.core_mcpu is not None:
        limit = limit // cpus.core_mcpu * cpus.core_mcpu
    return replace(
        state,
        limit_mcpu=max(cpus.floor_mcpu, limit),
        stepped_at_ms=now_ms,
        full_at_ms=state.read_at_ms,
        floor_since_ms=None,
    )


def _freed(state: BandwidthState, why: Ended) -> BandwidthState:
    if state.limit_mcpu is None:
        return state
    return replace(state, limit_mcpu=None, floor_since_ms=None, before_pct=0, ended=why)
