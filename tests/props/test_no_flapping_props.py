"""Nothing goes from A to B and back to A by itself: a number of overcommit, a place of a replica, the ceiling of a node."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colo_common.events.effects import Publish, Wake
from colo_common.events.job import PlacementsRequested
from colo_common.events.node import AllocatableChanged
from colo_common.events.placement import PlacementsDecided
from colo_common.model.freshness import FreshnessPolicy
from colo_executor.local import CeilingWritten, FastReading, RenewLease, SetCeiling
from colo_executor.reflex import Reflex
from colo_executor.reflex_policy import ReflexPolicy
from colo_overcommit.core import OvercommitCore
from colo_overcommit.policy import OvercommitPolicy
from tests.support.builders import GIB, a_node, a_sample
from tests.support.profiles import examples
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable

_LONG_AGO_MS = 1 << 40
_PERIOD_MS = 1_000
use = st.integers(0, 16_000)


def published_mcpu(core: OvercommitCore, seq: int, used: tuple[int, int], now_ms: int) -> tuple[int, ...] | None:
    """The zones' numbers, when this sample is followed by new ones."""
    sample = a_sample(seq=seq, zones=((used[0], 8), (used[1], 8)), at_ms=now_ms)
    facts = [effect.fact for effect in core.handle(sample, now_ms) if isinstance(effect, Publish)]
    found = [
        tuple(zone.batch_cpu_mcpu for zone in fact.zones) for fact in facts if isinstance(fact, AllocatableChanged)
    ]
    return found[0] if found else None


@given(
    st.lists(st.tuples(use, use), min_size=4, max_size=40),
    st.integers(1, 20_000),
    st.sampled_from([0, 10]),
)
def test_a_number_that_fell_comes_back_only_after_a_quiet_time(
    uses: list[tuple[int, int]], hold_ms: int, load_pct: int
) -> None:
    """Whatever online work does, a node is promised more at the earliest `grow_hold_ms` after the last number that fell."""
    fresh = FreshnessPolicy(stale_after_ms=10_000, lost_after_ms=60_000, warm_samples=1)
    policy = OvercommitPolicy(
        freshness=fresh, grow_hold_ms=hold_ms, load_pct=load_pct, load_hold_ms=0, refresh_ms=_LONG_AGO_MS
    )
    core = OvercommitCore(policy)
    core.handle(a_node(), 0)
    last: tuple[int, ...] | None = None
    fell_ms = -_LONG_AGO_MS
    for seq, used in enumerate(uses, start=1):
        now_ms = seq * _PERIOD_MS
        new = published_mcpu(core, seq, used, now_ms)
        if new is None:
            continue
        if last is not None:
            if any(after < before for after, before in zip(new, last, strict=True)):
                # The other zones' numbers are those of the same sample, and may be higher.
                fell_ms = now_ms
            elif new != last:
                assert now_ms - fell_ms >= hold_ms
        last = new


@given(st.lists(st.tuples(use, use), max_size=10), st.tuples(use, use), st.integers(0, 30_000))
def test_a_number_settles_when_online_work_is_steady(
    before: list[tuple[int, int]], steady: tuple[int, int], hold_ms: int
) -> None:
    """While its use stays a number changes once at most, and a refresh says the same again."""
    fresh = FreshnessPolicy(stale_after_ms=10_000, lost_after_ms=60_000, warm_samples=1)
    core = OvercommitCore(OvercommitPolicy(freshness=fresh, grow_hold_ms=hold_ms))
    core.handle(a_node(), 0)
    for seq, used in enumerate(before, start=1):
        published_mcpu(core, seq, used, seq * _PERIOD_MS)
    was = core.nodes["n1"].published
    numbers = [] if was is None else [tuple(zone.batch_cpu_mcpu for zone in was.zones)]
    for seq in range(len(before) + 1, len(before) + 51):
        new = published_mcpu(core, seq, steady, seq * _PERIOD_MS)
        if new is not None and new not in numbers[-1:]:
            numbers.append(new)
    assert len(numbers) <= 2
    last = core.nodes["n1"].published
    assert last is not None
    assert tuple(zone.batch_cpu_mcpu for zone in last.zones) == numbers[-1]


moves = st.lists(
    st.tuples(
        st.sampled_from(("asked again", "asked", "allocatable", "node", "later")), st.integers(0, 3), st.integers(0, 8)
    ),
    min_size=4,
    max_size=20,
)


@examples(0.6)
@given(moves)
def test_a_replica_stays_where_it_was_placed_whatever_the_nodes_say(steps: list[tuple[str, int, int]]) -> None:
    """An attempt has one place, however often jobs asks for it and whatever number a node has by then."""
    bench = Bench()
    for number in range(3):
        bench.say(a_node(f"n{number}"), an_allocatable(f"n{number}", [(4_000, 8 * GIB)] * 2))
    places: dict[tuple[str, int], object] = {}
    asked = 0
    for number, (what, which, amount) in enumerate(steps, start=1):
        bench.now_ms += 100
        match what:
            case "asked again" | "asked":
                asked = asked + 1 if what == "asked" or not asked else asked
                replica = f"j{max(asked - which, 1) if what == 'asked again' else asked}/t/0"
                effects = bench.say(PlacementsRequested(placement_requests=(a_placement_request(replica),)))
            case "allocatable":
                zones = [(1_000 * amount, 8 * GIB)] * 2
                effects = bench.say(an_allocatable(f"n{which % 3}", zones, at_ms=bench.now_ms, seq=number))
            case "node":
                effects = bench.say(a_node(f"n{which % 3}", at_ms=bench.now_ms))
            case _:
                bench.now_ms += 1_000 * amount
                effects = bench.wake()
        for effect in effects:
            fact = effect.fact if isinstance(effect, Publish) else None
            for placement in fact.placements if isinstance(fact, PlacementsDecided) else ():
                place = (placement.node, placement.zones, placement.cpus)
                assert places.setdefault((placement.replica, placement.attempt), place) == place


@given(st.lists(st.integers(0, 9_000), max_size=15), st.integers(0, 9_000), st.sampled_from([100, 250]))
def test_the_ceiling_moves_one_way_only_while_online_work_is_steady(
    before: list[int], steady_mcpu: int, period_ms: int
) -> None:
    """Under a load that stays the ceiling, the knob that moves by itself, goes down or up to its place and stays there."""
    reflex = Reflex(ReflexPolicy(), capacity_mcpu=8_000, now_ms=0)
    written: list[int] = []
    now_ms = 0

    def hear(event: FastReading | RenewLease | Wake) -> None:
        for effect in reflex.handle(event, now_ms):
            if isinstance(effect, SetCeiling):
                written.append(effect.ceiling_mcpu)
                reflex.handle(CeilingWritten(ceiling_mcpu=effect.ceiling_mcpu), now_ms)

    def read(online_mcpu: int) -> None:
        nonlocal now_ms
        now_ms += period_ms
        hear(RenewLease(lease_ms=10_000))
        hear(FastReading(at_ms=now_ms, capacity_mcpu=8_000, online_used_mcpu=online_mcpu))
        due_ms = reflex.deadline_ms()
        if due_ms is not None and due_ms <= now_ms:
            hear(Wake())

    for online_mcpu in before:
        read(online_mcpu)
    # What is averaged forgets the load before within this time; the moves of then were caused by it.
    for _ in range(20):
        read(steady_mcpu)
    del written[:-1]
    for _ in range(200):
        read(steady_mcpu)
    assert written in (sorted(written), sorted(written, reverse=True))
