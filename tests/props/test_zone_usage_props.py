"""What holds of the ceilings of zones by use, whatever online work uses where, batch work demands and the kernel takes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import event, given
from hypothesis import strategies as st

from colo_executor.local import CeilingMoved, CeilingWritten, FastReading, RenewLease, SetCeiling
from colo_executor.reflex import Reflex
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.suppress import bounds_mcpu
from colo_executor.zone_ceilings import ZoneReading

#: Zones of one, four and sixteen CPUs.
ZONES_MCPU = (1_000, 4_000, 16_000)
CAPACITY_MCPU = sum(ZONES_MCPU)
POLICY = ReflexPolicy(rule="usage")
FLOOR_MCPU, CAP_MCPU = bounds_mcpu(POLICY.suppress, CAPACITY_MCPU)
PARTS = st.tuples(*(st.integers(0, 100) for _ in ZONES_MCPU))

#: For each second: what online work uses of each zone and what batch work would, in percent, and whether the kernel takes the sets.
SECONDS = st.lists(st.tuples(PARTS, PARTS, st.sampled_from([True, True, True, False])), min_size=20, max_size=60)


class Machine:
    """A reflex and a machine that gives online work what it demands, and batch work of the rest what its ceilings allow."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.reflex = Reflex(POLICY, capacity_mcpu=CAPACITY_MCPU, now_ms=0)
        self.reflex.handle(RenewLease(lease_ms=600_000), 0)
        self.set = SetCeiling(ceiling_mcpu=CAPACITY_MCPU)
        self.used = [0] * len(ZONES_MCPU)
        self.moved: list[CeilingMoved] = []

    def turn(self, online_pct: tuple[int, ...], demand_pct: tuple[int, ...], *, takes: bool = True) -> None:
        """A tenth of a second: batch work runs at the ceilings, and the reflex reads what was used."""
        self.now_ms += 100
        self.reflex.handle(RenewLease(lease_ms=600_000), self.now_ms)
        online = [pct * capacity // 100 for pct, capacity in zip(online_pct, ZONES_MCPU, strict=True)]
        narrow = {each.zone: each.ceiling_mcpu for each in self.set.zones}
        demands = [pct * capacity // 100 for pct, capacity in zip(demand_pct, ZONES_MCPU, strict=True)]
        used = [
            min(demand, capacity - busy, narrow.get(zone, capacity))
            for zone, (demand, capacity, busy) in enumerate(zip(demands, ZONES_MCPU, online, strict=True))
        ]
        over = sum(used)
        if over > self.set.ceiling_mcpu:
            used = [each * self.set.ceiling_mcpu // over for each in used]
        self.used = used
        reading = FastReading(
            at_ms=self.now_ms,
            capacity_mcpu=CAPACITY_MCPU,
            online_used_mcpu=sum(online),
            batch_used_mcpu=sum(used),
            zones=tuple(
                ZoneReading(
                    zone=zone, capacity_mcpu=capacity, batch_used_mcpu=used[zone], online_used_mcpu=online[zone]
                )
                for zone, capacity in enumerate(ZONES_MCPU)
            ),
        )
        for effect in self.reflex.handle(reading, self.now_ms):
            if isinstance(effect, SetCeiling):
                has = effect.zones if takes else self.set.zones
                self.set = SetCeiling(ceiling_mcpu=effect.ceiling_mcpu, zones=has)
                written = CeilingWritten(
                    ceiling_mcpu=effect.ceiling_mcpu, zones=has, sets_refused="" if has == effect.zones else "EBUSY"
                )
                self.moved += [one for one in self.reflex.handle(written, self.now_ms) if isinstance(one, CeilingMoved)]
        self.reflex.check()


@given(seconds=SECONDS)
def test_every_ceiling_is_in_its_bounds_and_told_with_what_was_counted(seconds) -> None:
    machine = Machine()
    for online_pct, demand_pct, takes in seconds:
        for _ in range(10):
            machine.turn(online_pct, demand_pct, takes=takes)
            assert FLOOR_MCPU <= machine.set.ceiling_mcpu <= CAP_MCPU
            for each in machine.set.zones:
                assert 1_000 <= each.ceiling_mcpu < each.capacity_mcpu == ZONES_MCPU[each.zone]
                assert each.ceiling_mcpu % 1_000 == 0
    for moved in machine.moved:
        if moved.zone is not None and moved.reason == "online-load":
            assert moved.zone in {each.zone for each in moved.zones} <= {each.zone for each in moved.zone_terms}
    event("narrowed" if any(moved.zone is not None for moved in machine.moved) else "never narrowed")


@given(online_pct=PARTS, demand_pct=PARTS)
def test_after_a_second_no_zone_is_fuller_than_the_threshold_and_the_margin_by_batch_work(
    online_pct, demand_pct
) -> None:
    """What batch work uses of a zone that is fuller than that is its floor there, or it is less than it takes to narrow a zone."""
    machine = Machine()
    for _ in range(10):
        machine.turn(online_pct, demand_pct)
    for zone, (pct, capacity) in enumerate(zip(online_pct, ZONES_MCPU, strict=True)):
        batch = machine.used[zone]
        total = pct * capacity // 100 + batch
        most = (POLICY.suppress.threshold_pct + 5) * capacity // 100
        least = max(5 * capacity // 100, FLOOR_MCPU)
        assert total <= most or batch <= least, (zone, total, batch, machine.set)


@given(online_pct=st.tuples(*(st.integers(0, 40) for _ in ZONES_MCPU)), demand_pct=PARTS)
def test_zones_with_room_for_all_work_keep_all_their_cpus(online_pct, demand_pct) -> None:
    machine = Machine()
    demand_pct = tuple(min(demand, 80 - busy) for demand, busy in zip(demand_pct, online_pct, strict=True))
    for _ in range(30):
        machine.turn(online_pct, demand_pct)
        assert machine.set.zones == ()


@given(high=PARTS, low=PARTS, demand_pct=PARTS, half_ms=st.sampled_from([200, 1_000, 3_000, 7_000]))
def test_all_ceilings_of_a_node_together_turn_to_growing_seldom(high, low, demand_pct, half_ms: int) -> None:
    machine = Machine()
    turns: list[int] = []
    while machine.now_ms < 180_000:
        is_high = machine.now_ms // half_ms % 2 == 0
        machine.turn(high if is_high else low, demand_pct)
    fell: set[int | None] = set()
    for moved in machine.moved:
        key = moved.zone
        if moved.reason == "online-load":
            fell.add(key)
        elif key in fell:
            fell.discard(key)
            turns.append(moved.at_ms)
    for first, later in pairwise(turns[:: POLICY.suppress.reversals_most]):
        assert later - first >= 60_000
    event(f"{len(turns)} turns")
