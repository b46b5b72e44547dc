"""What holds of whole cores whatever online work feels, batch work does and the kernel takes."""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from colo_common.events.enforcement import ZoneCeiling
from colo_common.model.slo import OnlineViolation
from colo_executor.local import CeilingMoved, CeilingWritten, FastReading, NoteViolation, RenewLease, SetCeiling
from colo_executor.reflex import Reflex
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.stall import OnlineStalls
from colo_executor.suppress import bounds_mcpu
from colo_executor.zone_ceilings import ZoneReading

#: Zones of two, five and eight CPUs, whose cores have two threads; the last core of the second one is not whole.
ZONES_MCPU = (2_000, 5_000, 8_000)
CAPACITY_MCPU = sum(ZONES_MCPU)
POLICY = ReflexPolicy()
GROUPS = (("web", 0), ("api", 1), ("db", 2), ("any", None))

#: For each reading: ms since the last one, share of it that each group waited, use in each zone, the zones that batch work may
#: leave, whether online work breaks its SLO, whether the kernel takes the sets, and whether the lease is renewed.
READINGS = st.lists(
    st.tuples(
        st.sampled_from([100, 300, 700]),
        st.tuples(*(st.sampled_from([0, 5, 30, 60]) for _ in GROUPS)),
        st.tuples(*(st.integers(0, capacity) for capacity in ZONES_MCPU)),
        st.sets(st.sampled_from([0, 1, 2])),
        st.sampled_from([False, False, True]),
        st.sampled_from([True, True, True, False]),
        st.sampled_from([True, True, True, False]),
    ),
    min_size=20,
    max_size=120,
)


class Bench:
    """A reflex on a machine whose cores are shared, and a kernel that keeps, or refuses, what it is told."""

    def __init__(self, *, has_zones: bool) -> None:
        self.now_ms = 0
        self.has_zones = has_zones
        self.reflex = Reflex(POLICY, capacity_mcpu=CAPACITY_MCPU, now_ms=0)
        self.totals_us = dict.fromkeys(dict(GROUPS), 0)
        self.zones: tuple[ZoneCeiling, ...] = ()
        self.has_whole_cores = False
        self.set: list[SetCeiling] = []
        self.moved: list[CeilingMoved] = []

    def read(
        self, after_ms: int, shares: dict[str, int], used: tuple[int, ...], may_leave: set[int], *, takes: bool = True
    ) -> None:
        self.now_ms += after_ms
        for name, share in shares.items():
            self.totals_us[name] += share * after_ms * 10
        zone_of = tuple((name, zone) for name, zone in GROUPS if zone is not None) if self.has_zones else ()
        stalls = OnlineStalls(at_ms=self.now_ms, total_us=tuple(sorted(self.totals_us.items())), zones=zone_of)
        zones = tuple(
            ZoneReading(
                zone=zone, capacity_mcpu=mcpu, batch_used_mcpu=used[zone], threads=2, may_leave=zone in may_leave
            )
            for zone, mcpu in enumerate(ZONES_MCPU)
        )
        reading = FastReading(
            at_ms=self.now_ms,
            capacity_mcpu=CAPACITY_MCPU,
            online_used_mcpu=0,
            batch_used_mcpu=sum(used),
            low_priority="idle",
            stalls=stalls,
            zones=zones if self.has_zones else (),
            shares_cores=True,
        )
        effects = self.reflex.handle(reading, self.now_ms)
        self.reflex.check()
        for effect in effects:
            if isinstance(effect, SetCeiling):
                self.set.append(effect)
                is_same = (effect.zones, effect.has_whole_cores) == (self.zones, self.has_whole_cores)
                if takes or is_same:
                    self.zones, self.has_whole_cores = effect.zones, effect.has_whole_cores
                answer = CeilingWritten(
                    ceiling_mcpu=effect.ceiling_mcpu,
                    zones=self.zones,
                    has_whole_cores=self.has_whole_cores,
                    sets_refused="" if takes or is_same else "EBUSY",
                )
                found = self.reflex.handle(answer, self.now_ms)
                self.moved += [each for each in found if isinstance(each, CeilingMoved)]
                self.reflex.check()


def violation(is_broken: bool) -> NoteViolation:
    above = 30 if is_broken else 0
    figure = OnlineViolation(workload="shop", window_ms=300_000, samples=100, above=above, breaks_slo=is_broken)
    return NoteViolation(violation=figure)


@given(readings=READINGS, has_zones=st.booleans())
def test_ceilings_are_in_whole_cores_and_batch_work_keeps_the_floor_of_the_node(readings, has_zones) -> None:
    bench = Bench(has_zones=has_zones)
    floor_mcpu, _ = bounds_mcpu(POLICY.suppress, CAPACITY_MCPU)
    for after_ms, shares, used, may_leave, is_broken, takes, is_renewed in readings:
        if is_renewed:
            bench.reflex.handle(RenewLease(lease_ms=2_000), bench.now_ms)
        bench.reflex.handle(violation(is_broken), bench.now_ms)
        count = len(bench.set)
        bench.read(after_ms, dict(zip(dict(GROUPS), shares, strict=True)), used, may_leave, takes=takes)
        for effect in bench.set[count:]:
            named = {each.zone: each.ceiling_mcpu for each in effect.zones}
            for zone, ceiling_mcpu in named.items():
                assert 0 <= ceiling_mcpu < ZONES_MCPU[zone]
                # Less than a core is the floor of a zone that some batch work cannot leave, or what other zones lack of the node's.
                assert ceiling_mcpu % 2_000 == 0 or (ceiling_mcpu % 1_000 == 0 and ceiling_mcpu <= floor_mcpu + 1_000)
                assert ceiling_mcpu or zone in may_leave
            left = sum(named.get(zone, mcpu) for zone, mcpu in enumerate(ZONES_MCPU))
            assert left >= max(1_000, floor_mcpu), "some zone has CPUs"
            assert floor_mcpu <= effect.ceiling_mcpu <= (left if named else CAPACITY_MCPU)
            event("left a zone" if 0 in named.values() else "narrowed" if named else "all")
            event("whole cores" if effect.has_whole_cores else "any threads")
    for before, after in zip(bench.moved, bench.moved[1:], strict=False):
        is_news = (before.ceiling_mcpu, before.zones) != (after.ceiling_mcpu, after.zones)
        assert is_news or before.has_whole_cores != after.has_whole_cores, "nothing is told twice"


@given(readings=READINGS)
def test_batch_work_has_all_threads_again_when_nothing_holds_it_down(readings) -> None:
    bench = Bench(has_zones=True)
    for after_ms, shares, used, may_leave, is_broken, takes, _ in readings:
        bench.reflex.handle(RenewLease(lease_ms=600_000), bench.now_ms)
        bench.reflex.handle(violation(is_broken), bench.now_ms)
        bench.read(after_ms, dict(zip(dict(GROUPS), shares, strict=True)), used, may_leave, takes=takes)
    bench.reflex.handle(violation(False), bench.now_ms)
    for _ in range(300):
        bench.reflex.handle(RenewLease(lease_ms=600_000), bench.now_ms)
        bench.read(1_000, {}, (0, 0, 0), {0, 1, 2})
    assert (bench.reflex.ceiling_mcpu, bench.zones, bench.has_whole_cores) == (CAPACITY_MCPU, (), False)
