"""What holds of the limits by what memory carries, whatever it carries, batch work uses and the kernel takes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace

from colo_executor.bandwidth import (
    BandwidthPolicy,
    BandwidthState,
    LimitedCpus,
    MemoryTraffic,
    ZoneTraffic,
    bandwidth_limited,
)
from colo_executor.local import CeilingWritten, FastReading, RenewLease, SetCeiling
from colo_executor.reflex import Reflex
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.stall import OnlineStalls
from colo_executor.suppress import bounds_mcpu
from colo_executor.zone_ceilings import ZoneReading, zone_floor_mcpu

GB = 1_000_000_000
POLICY = BandwidthPolicy(zone_bytes_per_s=100 * GB, excuse_ms=20_000, hold_ms=10_000)
#: Zones of one, three and eight CPUs.
ZONES_MCPU = (1_000, 3_000, 8_000)
CAPACITY_MCPU = sum(ZONES_MCPU)
PCT = st.sampled_from([0, 50, 69, 70, 80, 84, 85, 90, 100, 130])

#: Seconds since the last reading, what memory carries, and what batch work uses of ten CPUs.
COURSES = st.lists(st.tuples(st.integers(1, 7), PCT, st.integers(0, 10_000)), min_size=5, max_size=80)

#: For each reading: ms since the last one, what the memory of each zone carries, use in each zone, and whether the kernel takes the
#: sets.
READINGS = st.lists(
    st.tuples(
        st.sampled_from([100, 1_000, 3_000]),
        st.tuples(*(PCT for _ in ZONES_MCPU)),
        st.tuples(*(st.integers(0, capacity) for capacity in ZONES_MCPU)),
        st.sampled_from([True, True, True, False]),
    ),
    min_size=10,
    max_size=60,
)


@given(COURSES, st.booleans(), st.booleans())
def test_a_limit_is_from_the_floor_to_the_capacity_and_rises_by_its_end_alone(
    course: list[tuple[int, int, int]], is_zone: bool, is_in_force: bool
) -> None:
    floor = 1_000 if is_zone else 200
    state, now_ms = BandwidthState(zone=0), 0
    for seconds, pct, used in course:
        now_ms += seconds * 1_000
        cpus = LimitedCpus(
            core_mcpu=1_000 if is_zone else None,
            ceiling_mcpu=10_000,
            capacity_mcpu=10_000,
            floor_mcpu=floor,
            batch_used_mcpu=used,
        )
        before = replace(state, bytes_per_s=pct * GB, most_bytes_per_s=100 * GB, read_at_ms=now_ms)
        state = bandwidth_limited(POLICY, before, cpus, now_ms, is_in_force=is_in_force)
        if state.limit_mcpu is None:
            if before.limit_mcpu is not None and pct >= POLICY.mark_pct:
                event("acquitted")
                assert before.limit_mcpu == floor
                assert state.excused_until_ms > now_ms
            continue
        event("limited")
        assert floor <= state.limit_mcpu <= 10_000
        assert not is_zone or state.limit_mcpu % 1_000 == 0
        assert pct >= POLICY.calm_pct
        assert before.limit_mcpu is None or state.limit_mcpu <= before.limit_mcpu
        if state.limit_mcpu != before.limit_mcpu and before.limit_mcpu is not None:
            assert pct >= POLICY.mark_pct
            assert now_ms - before.stepped_at_ms >= POLICY.step_interval_ms


class Bench:
    """A reflex and a kernel that keeps, or refuses, what it is told."""

    def __init__(self, *, by_waits: bool, threads: int = 1) -> None:
        self.now_ms = 0
        self.by_waits = by_waits
        self.threads = threads
        self.reflex = Reflex(ReflexPolicy(bandwidth=POLICY), capacity_mcpu=CAPACITY_MCPU, now_ms=0)
        self.set: list[SetCeiling] = []
        self.reflex.handle(RenewLease(lease_ms=600_000), 0)

    def read(self, after_ms: int, pct: tuple[int, ...], used: tuple[int, ...], *, takes: bool) -> None:
        self.now_ms += after_ms
        reading = FastReading(
            at_ms=self.now_ms,
            capacity_mcpu=CAPACITY_MCPU,
            online_used_mcpu=0,
            batch_used_mcpu=sum(used),
            low_priority="idle" if self.by_waits else "",
            stalls=OnlineStalls(at_ms=self.now_ms, total_us=(("web", 0),)) if self.by_waits else None,
            zones=tuple(
                ZoneReading(
                    zone=zone,
                    capacity_mcpu=capacity,
                    batch_used_mcpu=used[zone],
                    online_used_mcpu=0,
                    threads=self.threads,
                    may_leave=True,
                )
                for zone, capacity in enumerate(ZONES_MCPU)
            ),
            memory=MemoryTraffic(
                at_ms=self.now_ms,
                zones=tuple(ZoneTraffic(zone=zone, bytes_per_s=each * GB) for zone, each in enumerate(pct)),
            ),
        )
        for effect in self.reflex.handle(reading, self.now_ms):
            if isinstance(effect, SetCeiling):
                self.set.append(effect)
                refusal = "" if takes or effect.zones == self.reflex.zones else "EBUSY"
                zones = self.reflex.zones if refusal else effect.zones
                answer = CeilingWritten(ceiling_mcpu=effect.ceiling_mcpu, zones=zones, sets_refused=refusal)
                self.reflex.handle(answer, self.now_ms)
        self.reflex.check()


@given(READINGS, st.booleans(), st.sampled_from([1, 2]))
def test_no_ceiling_falls_below_its_floor_for_memory(
    readings: list[tuple[int, tuple[int, ...], tuple[int, ...], bool]], by_waits: bool, threads: int
) -> None:
    bench = Bench(by_waits=by_waits, threads=threads)
    floor, _ = bounds_mcpu(bench.reflex.policy.suppress, CAPACITY_MCPU)
    for after_ms, pct, used, takes in readings:
        bench.read(after_ms, pct, used, takes=takes)
    for effect in bench.set:
        assert effect.ceiling_mcpu >= floor
        for each in effect.zones:
            least = zone_floor_mcpu(ZONES_MCPU[each.zone], CAPACITY_MCPU, floor)
            assert least <= each.ceiling_mcpu < ZONES_MCPU[each.zone]


@given(st.booleans(), st.sampled_from([1, 2]), st.integers(85, 120))
def test_while_the_memory_of_a_zone_is_full_batch_work_gets_none_of_its_cpus_and_all_of_them_in_calm(
    by_waits: bool, full: int, pct: int
) -> None:
    bench = Bench(by_waits=by_waits)
    calm, carried = (10, 10, 10), tuple(pct if zone == full else 10 for zone in range(3))
    bench.read(100, calm, (500, 1_500, 4_000), takes=True)
    begun = len(bench.set)
    ceilings = [ZONES_MCPU[full]]
    while not ceilings[1:] or ceilings[-1] > 1_000:
        held = {each.zone: each.ceiling_mcpu for each in bench.reflex.zones}
        assert held.keys() <= {full}
        used = tuple(min(held.get(zone, its), its * 7 // 10) for zone, its in enumerate(ZONES_MCPU))
        bench.read(1_000, carried, used, takes=True)
        ceilings.append({each.zone: each.ceiling_mcpu for each in bench.reflex.zones}[full])
    assert len(bench.set) > begun
    assert all(after <= before for before, after in pairwise(ceilings))
    for _ in range(200):
        bench.read(1_000, calm, (100, 100, 100), takes=True)
    assert bench.reflex.zones == ()
