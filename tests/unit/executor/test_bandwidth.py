"""The limit by what memory carries: when it begins, how it falls, what ends it, and whom it takes from."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from colo_common.model.invalid import InvalidInput
from colo_common.model.reasons import Reason
from colo_executor.bandwidth import (
    BandwidthPolicy,
    BandwidthState,
    LimitedCpus,
    MemoryTraffic,
    ZoneTraffic,
    bandwidth_limited,
)
from colo_executor.bandwidth_zones import BandwidthDecision, decide_bandwidth
from colo_executor.local import FastReading
from colo_executor.zone_ceilings import ZoneReading

GB = 1_000_000_000
POLICY = BandwidthPolicy(zone_bytes_per_s=100 * GB)
NODE = LimitedCpus(ceiling_mcpu=10_000, capacity_mcpu=10_000, floor_mcpu=200, batch_used_mcpu=6_000)
ZONE = replace(NODE, core_mcpu=1_000, floor_mcpu=1_000, batch_used_mcpu=5_500)
AT = 1_000_000


def read(state: BandwidthState, pct: int, at_ms: int) -> BandwidthState:
    return replace(state, bytes_per_s=pct * GB, most_bytes_per_s=100 * GB, read_at_ms=at_ms)


def first(pct: int, cpus: LimitedCpus = NODE, *, policy: BandwidthPolicy = POLICY, age_ms: int = 0) -> BandwidthState:
    return bandwidth_limited(policy, read(BandwidthState(zone=0), pct, AT - age_ms), cpus, AT)


class Course:
    """A limit over readings, one each second unless another time is given."""

    def __init__(self, cpus: LimitedCpus = NODE, policy: BandwidthPolicy = POLICY) -> None:
        self.cpus, self.policy = cpus, policy
        self.now_ms = AT
        self.state = BandwidthState(zone=0)

    def see(self, pct: int, *, times: int = 1, is_in_force: bool = True) -> int | None:
        for _ in range(times):
            self.now_ms += 1_000
            self.state = bandwidth_limited(
                self.policy, read(self.state, pct, self.now_ms), self.cpus, self.now_ms, is_in_force=is_in_force
            )
        return self.state.limit_mcpu


@pytest.mark.parametrize(
    ("state", "limit_mcpu"),
    [
        (first(84), None),
        # A fifth of the CPUs less than batch work uses.
        (first(85), 4_000),
        (first(100), 4_000),
        (first(100, ZONE), 3_000),
        (first(100, replace(ZONE, core_mcpu=2_000)), 2_000),
        (first(100, replace(NODE, ceiling_mcpu=3_000)), 1_000),
        (first(100, replace(NODE, batch_used_mcpu=1_000)), 200),
        (first(100, replace(ZONE, batch_used_mcpu=1_000)), 1_000),
        (first(100, replace(NODE, batch_used_mcpu=499)), None),
        (first(100, replace(NODE, batch_used_mcpu=500)), 200),
        (first(100, age_ms=5_000), 4_000),
        (first(100, age_ms=5_001), None),
    ],
    ids=[
        "below",
        "mark",
        "full",
        "zone",
        "cores",
        "ceiling",
        "floor",
        "zone floor",
        "not blamed",
        "blamed",
        "fresh",
        "stale",
    ],
)
def test_a_limit_begins_with_a_step_below_what_batch_work_uses(state: BandwidthState, limit_mcpu: int | None) -> None:
    assert state.limit_mcpu == limit_mcpu


def test_it_falls_with_each_reading_at_the_mark_that_a_step_had_time_for_and_no_further_than_the_floor() -> None:
    course = Course()
    limits = [course.see(95) for _ in range(12)]
    assert limits == [4_000] * 3 + [2_000] * 3 + [200] * 6


def test_between_the_marks_it_stays_for_a_while_and_below_the_calm_one_it_ends() -> None:
    course = Course()
    assert course.see(90) == 4_000
    assert course.see(84, times=59) == 4_000
    assert course.see(84) is None
    assert course.state.ended == "fell"
    assert course.see(84, times=100) is None
    assert course.see(85) == 4_000
    assert course.see(70, times=5) == 4_000
    assert course.see(69) is None


def test_batch_work_that_grew_again_stays_where_memory_is_busy_until_the_hold_is_over() -> None:
    course = Course()
    course.see(90)
    assert course.see(60) is None
    course.cpus = replace(NODE, ceiling_mcpu=5_000)
    assert course.see(75) == 5_000
    # It is full again: from there.
    assert course.see(90) == 3_000
    assert course.see(60) is None
    course.cpus = replace(NODE, ceiling_mcpu=4_000)
    course.see(60, times=60)
    assert course.see(75) is None


@pytest.mark.parametrize("pct", [95, 91])
def test_a_floor_that_relieves_nobody_acquits_batch_work_for_a_while(pct: int) -> None:
    course = Course(policy=replace(POLICY, excuse_ms=60_000))
    course.see(100)
    while course.see(100) != 200:
        pass
    assert course.see(pct, times=12) == 200
    assert course.see(pct) is None
    assert course.state.ended == "otherwise"
    assert course.see(100, times=59) is None
    assert course.see(100) == 4_000


def test_a_floor_that_relieved_by_a_tenth_is_kept() -> None:
    course = Course()
    course.see(100)
    while course.see(100) != 200:
        pass
    assert course.see(90, times=200) == 200


def test_what_the_kernel_has_not_taken_proves_nothing() -> None:
    course = Course()
    course.see(100)
    while course.see(100) != 200:
        pass
    assert course.see(100, times=100, is_in_force=False) == 200
    assert course.see(100, times=11) is None


def test_an_old_reading_ends_it_and_so_says_that_nobody_knows() -> None:
    course = Course()
    course.see(100)
    state = bandwidth_limited(POLICY, course.state, NODE, course.now_ms + 5_001)
    assert (state.limit_mcpu, state.ended) == (None, "unknown")


# ------------------------------------------------------------ zones


def reading(*pct: int, zones: bool = True, at_ms: int = AT, used: int | None = 1_000) -> FastReading:
    return FastReading(
        at_ms=at_ms,
        capacity_mcpu=16_000,
        online_used_mcpu=2_000,
        batch_used_mcpu=9_000,
        zones=tuple(
            ZoneReading(zone=zone, capacity_mcpu=8_000, batch_used_mcpu=4_500, online_used_mcpu=used)
            for zone in ((0, 1) if zones else ())
        ),
        memory=MemoryTraffic(
            at_ms=at_ms, zones=tuple(ZoneTraffic(zone=zone, bytes_per_s=each * GB) for zone, each in enumerate(pct))
        ),
    )


def decided(
    of: FastReading,
    last: BandwidthDecision | None = None,
    *,
    takes_zones: bool = True,
    knows_use: bool = True,
    policy: BandwidthPolicy = POLICY,
) -> BandwidthDecision:
    return decide_bandwidth(
        policy,
        BandwidthDecision() if last is None else last,
        of,
        ceiling_mcpu=None,
        floor_mcpu=200,
        zones=(),
        takes_zones=takes_zones,
        knows_use=knows_use,
        is_in_force=True,
        now_ms=of.at_ms,
    )


def test_a_full_zone_takes_from_batch_work_there_and_nowhere_else() -> None:
    found = decided(reading(20, 95))
    assert (found.node_mcpu, dict(found.zones_mcpu)) == (None, {1: 2_000})
    assert found.terms is not None
    assert (found.terms.zone, found.terms.bytes_per_s, found.terms.mark_pct) == (1, 95 * GB, 85)


@pytest.mark.parametrize(
    ("found", "node_mcpu"),
    [
        (decided(reading(20, 95, zones=False)), 5_800),
        (decided(reading(20, 95), takes_zones=False), 5_800),
        (decided(reading(20, 95, used=None)), 5_800),
        (decided(reading(20, 20, zones=False)), None),
    ],
    ids=["no zones", "refused", "use unknown", "not full"],
)
def test_where_a_zone_has_no_ceiling_the_node_gives_way(found: BandwidthDecision, node_mcpu: int | None) -> None:
    assert (found.node_mcpu, dict(found.zones_mcpu)) == (node_mcpu, {})


def test_a_zone_whose_use_is_not_known_has_a_ceiling_where_waits_decide() -> None:
    assert dict(decided(reading(20, 95, used=None), knows_use=False).zones_mcpu) == {1: 2_000}


def test_a_zone_of_shared_cores_keeps_a_whole_one_where_waits_decide() -> None:
    zones = tuple(
        replace(each, threads=2, may_leave=True, batch_used_mcpu=2_000 - each.zone * 500) for each in reading().zones
    )
    found = decided(replace(reading(95, 95), zones=zones), knows_use=False)
    assert dict(found.zones_mcpu) == {0: 2_000, 1: 2_000}
    assert dict(decided(replace(reading(95, 95), zones=zones)).zones_mcpu) == {0: 1_000, 1: 1_000}


def test_a_zone_whose_sets_the_kernel_refuses_hands_its_limit_to_the_node_and_takes_it_back() -> None:
    first = decided(reading(20, 95))
    refused = decided(reading(20, 95, at_ms=AT + 1_000), first, takes_zones=False)
    assert (refused.node_mcpu, dict(refused.zones_mcpu), refused.ended) == (5_800, {}, None)
    again = decided(reading(20, 95, at_ms=AT + 2_000), refused)
    assert (again.node_mcpu, dict(again.zones_mcpu), again.ended) == (None, {1: 2_000}, None)


def test_what_cannot_be_told_apart_is_held_against_all_zones() -> None:
    whole = MemoryTraffic(at_ms=AT, zones=(ZoneTraffic(zone=None, bytes_per_s=169 * GB, zones=2),))
    assert decided(replace(reading(), memory=whole)).node_mcpu is None
    full = replace(whole, zones=(ZoneTraffic(zone=None, bytes_per_s=170 * GB, zones=2),))
    found = decided(replace(reading(), memory=full))
    assert (found.node_mcpu, dict(found.zones_mcpu)) == (5_800, {})


def test_the_end_of_a_limit_is_told_once_and_why() -> None:
    first = decided(reading(20, 95))
    over = decided(reading(20, 50, at_ms=AT + 1_000), first)
    assert (over.ended, dict(over.zones_mcpu)) == (Reason.MEMORY_BANDWIDTH_FELL, {})
    assert over.terms is not None
    assert over.terms.bytes_per_s == 50 * GB
    assert decided(reading(20, 50, at_ms=AT + 2_000), over).ended is None


def test_without_the_operators_figure_there_is_no_rule() -> None:
    assert decided(reading(100, 100), policy=BandwidthPolicy()) == BandwidthDecision()


# ------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (BandwidthPolicy(zone_bytes_per_s=-1), "zone_bytes_per_s: must be 0, or from 100000000 to"),
        # Megabytes, by mistake.
        (BandwidthPolicy(zone_bytes_per_s=80_000), "zone_bytes_per_s: must be 0, or from 100000000 to"),
        (BandwidthPolicy(mark_pct=0), "mark_pct: must be from 1 to 100"),
        (BandwidthPolicy(calm_pct=85), "calm_pct: must be below mark_pct, which is 85"),
        (BandwidthPolicy(blamed_pct=101), "blamed_pct: must be from 0 to 100"),
        (BandwidthPolicy(step_pct=0), "step_pct: must be from 1 to 100"),
        (BandwidthPolicy(step_interval_ms=1_999), "step_interval_ms: must be from 2000 to 600000"),
        (BandwidthPolicy(relief_pct=0), "relief_pct: must be from 1 to 100"),
        (BandwidthPolicy(stale_ms=1), "stale_ms: must be from 2000 to 600000"),
    ],
)
def test_a_number_without_meaning_is_refused_by_name(policy: BandwidthPolicy, says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        policy.validate()
    assert says in str(refused.value)


def test_the_defaults_have_a_meaning_and_switch_the_rule_off() -> None:
    BandwidthPolicy().validate()
    POLICY.validate()
    assert BandwidthPolicy().zone_bytes_per_s == 0
