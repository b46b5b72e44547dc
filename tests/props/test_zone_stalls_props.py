"""What holds of the ceilings of zones whatever online work feels, batch work does and the kernel takes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import event, given
from hypothesis import strategies as st

from colo_common.events.enforcement import ZoneCeiling
from colo_executor.local import CeilingMoved, CeilingWritten, FastReading, RenewLease, SetCeiling
from colo_executor.reflex import Reflex
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.stall import OnlineStalls
from colo_executor.suppress import bounds_mcpu
from colo_executor.zone_ceilings import ZoneReading

#: Zones of one, three and eight CPUs.
ZONES_MCPU = (1_000, 3_000, 8_000)
CAPACITY_MCPU = sum(ZONES_MCPU)
POLICY = ReflexPolicy()
GROUPS = (("web", 0), ("api", 1), ("db", 2), ("log", 2), ("any", None))

#: For each reading: ms since the last one, share of it that each group waited, use in each zone, whether the kernel takes the sets,
#: and whether the lease is renewed.
READINGS = st.lists(
    st.tuples(
        st.sampled_from([100, 200, 700]),
        st.tuples(*(st.sampled_from([0, 5, 20, 60]) for _ in GROUPS)),
        st.tuples(*(st.integers(0, capacity) for capacity in ZONES_MCPU)),
        st.sampled_from([True, True, True, False]),
        st.sampled_from([True, True, True, False]),
    ),
    min_size=30,
    max_size=150,
)


class Bench:
    """A reflex and a kernel that keeps, or refuses, what it is told."""

    def __init__(self, zones: tuple[ZoneCeiling, ...] = ()) -> None:
        self.now_ms = 0
        self.reflex = Reflex(POLICY, capacity_mcpu=CAPACITY_MCPU, now_ms=0, ceiling_mcpu=None, zones=zones)
        self.totals_us = dict.fromkeys(dict(GROUPS), 0)
        self.written: tuple[ZoneCeiling, ...] = zones
        self.set: list[SetCeiling] = []
        self.moved: list[CeilingMoved] = []

    def read(self, after_ms: int, shares: dict[str, int], used: tuple[int, ...], *, takes: bool = True) -> None:
        self.now_ms += after_ms
        for name, share in shares.items():
            self.totals_us[name] += share * after_ms * 10
        stalls = OnlineStalls(
            at_ms=self.now_ms,
            total_us=tuple(sorted(self.totals_us.items())),
            zones=tuple((name, zone) for name, zone in GROUPS if zone is not None),
        )
        reading = FastReading(
            at_ms=self.now_ms,
            capacity_mcpu=CAPACITY_MCPU,
            online_used_mcpu=0,
            batch_used_mcpu=sum(used),
            low_priority="idle",
            stalls=stalls,
            zones=tuple(
                ZoneReading(zone=zone, capacity_mcpu=capacity, batch_used_mcpu=used[zone])
                for zone, capacity in enumerate(ZONES_MCPU)
            ),
        )
        effects = self.reflex.handle(reading, self.now_ms)
        self.reflex.check()
        for effect in effects:
            if isinstance(effect, SetCeiling):
                self.set.append(effect)
                refusal = "" if takes or effect.zones == self.written else "EBUSY"
                self.written = self.written if refusal else effect.zones
                answer = CeilingWritten(ceiling_mcpu=effect.ceiling_mcpu, zones=self.written, sets_refused=refusal)
                found = self.reflex.handle(answer, self.now_ms)
                self.moved += [each for each in found if isinstance(each, CeilingMoved)]
                self.reflex.check()


@given(readings=READINGS)
def test_every_ceiling_is_within_its_bounds_and_the_node_has_at_most_the_sum(readings) -> None:
    bench = Bench()
    floor_mcpu, _ = bounds_mcpu(POLICY.suppress, CAPACITY_MCPU)
    for after_ms, shares, used, takes, is_renewed in readings:
        if is_renewed:
            bench.reflex.handle(RenewLease(lease_ms=2_000), bench.now_ms)
        before = {each.zone: each.ceiling_mcpu for each in bench.written}
        count = len(bench.set)
        bench.read(after_ms, dict(zip(dict(GROUPS), shares, strict=True)), used, takes=takes)
        for effect in bench.set[count:]:
            named = {each.zone: each for each in effect.zones}
            for each in named.values():
                assert each.capacity_mcpu == ZONES_MCPU[each.zone]
                assert 1_000 <= each.ceiling_mcpu < each.capacity_mcpu
                assert each.ceiling_mcpu % 1_000 == 0
            left = sum(named[zone].ceiling_mcpu if zone in named else all_ for zone, all_ in enumerate(ZONES_MCPU))
            assert floor_mcpu <= effect.ceiling_mcpu <= (left if named else CAPACITY_MCPU)
            event("narrowed" if named else "all")
            if not is_renewed and bench.now_ms >= 2_000 and bench.reflex.phase(bench.now_ms) != "held":
                has = {zone: before.get(zone, all_) for zone, all_ in enumerate(ZONES_MCPU)}
                assert all(each.ceiling_mcpu <= has[zone] for zone, each in named.items()), "no zone grows"
    # Every move that the kernel took is told with its zone, and with nothing that it did not take.
    for moved in bench.moved:
        assert moved.zone is None or moved.zone in {each.zone for each in moved.zones}


@given(readings=READINGS)
def test_what_waits_in_one_zone_alone_takes_nothing_of_another_one(readings) -> None:
    """Only the group of the largest zone waits: the others keep all, and the quota falls by no more than the zone."""
    bench = Bench()
    for after_ms, shares, used, _, _ in readings:
        bench.reflex.handle(RenewLease(lease_ms=600_000), bench.now_ms)
        was_at_floor = any(each.ceiling_mcpu == 1_000 for each in bench.written)
        bench.read(after_ms, {"db": shares[2]}, used)
        assert {each.zone for each in bench.written} <= {2}
        taken = sum(each.capacity_mcpu - each.ceiling_mcpu for each in bench.written)
        if was_at_floor:
            # Then the node's rule judges it as well.
            return
        assert bench.reflex.ceiling_mcpu == CAPACITY_MCPU - taken


@given(shares=st.tuples(*(st.sampled_from([20, 60]) for _ in GROUPS)), more_mcpu=st.integers(1_000, 4_000))
def test_all_ceilings_of_a_node_together_turn_to_growing_seldom(shares: tuple[int, ...], more_mcpu: int) -> None:
    """Every group waits as soon as batch work has more than so much where it runs, and not a little longer."""
    bench = Bench()
    turns: list[int] = []
    was_shrunk: set[int | None] = set()
    for _ in range(1_800):
        bench.reflex.handle(RenewLease(lease_ms=600_000), bench.now_ms)
        has = {each.zone: each.ceiling_mcpu for each in bench.written}
        all_mcpu = bench.reflex.ceiling_mcpu or 0
        used = tuple(min(has.get(zone, each), all_mcpu) for zone, each in enumerate(ZONES_MCPU))
        waits = {
            name: share
            * ((all_mcpu > 9_000) if zone is None else (used[zone] > min(more_mcpu, ZONES_MCPU[zone] - 1_000)))
            for (name, zone), share in zip(GROUPS, shares, strict=True)
        }
        count = len(bench.moved)
        bench.read(100, waits, used)
        for moved in bench.moved[count:]:
            if moved.reason == "online-stall":
                was_shrunk.add(moved.zone)
            elif moved.reason == "online-stall-fell" and moved.zone in was_shrunk:
                was_shrunk.discard(moved.zone)
                turns.append(bench.now_ms)
    for first, later in pairwise(turns[:: POLICY.stall.reversals_most]):
        assert later - first >= 60_000
    event(f"{len(turns)} turns")


@given(ceiling=st.integers(0, 9), readings=READINGS)
def test_what_an_earlier_executor_left_is_given_back_in_calm_and_not_at_once(ceiling: int, readings) -> None:
    left = (ZoneCeiling(zone=2, ceiling_mcpu=ceiling * 1_000, capacity_mcpu=8_000),)
    bench = Bench(left)
    seen = []
    for after_ms, _, used, _, _ in [*readings, *[(700, (), (0, 0, 0), True, True)] * 40]:
        bench.reflex.handle(RenewLease(lease_ms=600_000), bench.now_ms)
        bench.read(after_ms, {}, used)
        seen.append(({each.zone: each.ceiling_mcpu for each in bench.written}.get(2, 8_000), bench.now_ms))
    for (before, _), (after, at_ms) in pairwise(seen):
        assert before <= after <= before + 1_000
        assert after == before or at_ms >= POLICY.stall.calm_ms or before >= 8_000
    assert bench.written == ()
