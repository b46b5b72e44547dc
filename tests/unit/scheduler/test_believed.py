"""What the scheduler believes of facts about a node: in which order, how old, and how much."""

from msgspec.structs import replace

from colo_common.events.job import PlacementsRequested
from colo_common.events.node import FreshnessChanged
from colo_common.events.replayed import Replayed
from colo_common.model.freshness import Freshness
from colo_scheduler.policy import SchedulerPolicy
from tests.support.builders import a_node
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
ROOM = [(4000, 8 << 30)] * 2
NONE = [(0, 0)] * 2


def a_bench() -> Bench:
    bench = Bench(SchedulerPolicy(ledger_refresh_ms=0))
    bench.now_ms = NOW_MS
    bench.say(a_node("n1"))
    return bench


def freshness(state: Freshness, seq: int) -> FreshnessChanged:
    return FreshnessChanged(
        node="n1", freshness=state, previous=Freshness.FRESH, sample_seq=1, age_ms=0, boot_id="o1", seq=seq
    )


def places(bench: Bench, number: int) -> bool:
    request = a_placement_request(f"j/t/{number}")
    bench.say(PlacementsRequested(placement_requests=(request,)))
    return (request.replica, 1) in bench.core.commits.held


def test_the_clock_of_overcommit_may_be_wrong_by_an_hour_at_any_start() -> None:
    bench = a_bench()
    # The machine of overcommit was an hour ahead, and was set right before overcommit started again.
    bench.say(replace(an_allocatable("n1", NONE, at_ms=NOW_MS + HOUR_MS), boot_id="o1", seq=900))
    assert not places(bench, 0)
    bench.say(replace(an_allocatable("n1", ROOM, at_ms=NOW_MS), boot_id="o2", seq=1))
    assert ("j/t/0", 1) in bench.core.commits.held, "the newer number counts"
    # And an hour behind.
    bench.say(replace(an_allocatable("n1", ROOM, at_ms=NOW_MS - HOUR_MS), boot_id="o3", seq=1))
    assert places(bench, 1), "an age is counted from the arrival"
    bench.say(replace(an_allocatable("n1", NONE, at_ms=NOW_MS + HOUR_MS), boot_id="o3", seq=0))
    assert places(bench, 2), "of one start the sequence decides"
    bench.now_ms += bench.core.policy.facts_max_age_ms + 1
    assert not places(bench, 3)


def test_a_report_that_is_replayed_at_the_start_is_as_old_as_it_says() -> None:
    bench = a_bench()
    bench.say(an_allocatable("n1", ROOM, at_ms=NOW_MS - 4 * HOUR_MS))
    assert not places(bench, 0)


def test_a_node_is_fresh_with_the_number_that_says_so_and_not_before() -> None:
    bench = a_bench()
    bench.say(replace(an_allocatable("n1", ROOM, at_ms=NOW_MS), boot_id="o1", seq=1))
    bench.say(freshness(Freshness.STALE, 2))
    assert not places(bench, 0)
    bench.say(freshness(Freshness.FRESH, 3))
    assert ("j/t/0", 1) not in bench.core.commits.held, "its number is still the one from before"
    bench.say(replace(an_allocatable("n1", ROOM, at_ms=NOW_MS), boot_id="o1", seq=4))
    assert ("j/t/0", 1) in bench.core.commits.held
    bench.say(freshness(Freshness.STALE, 2))
    assert places(bench, 1), "the other stream was slower"


def test_a_lost_node_stays_lost_whichever_subject_a_start_hears_first() -> None:
    number = replace(an_allocatable("n1", ROOM, at_ms=NOW_MS), boot_id="o1", seq=900)
    # Another instance of overcommit had the node when it fell silent; no number came after that.
    lost = replace(freshness(Freshness.LOST, 5), boot_id="o2")
    for facts in ((lost, number), (number, lost)):
        bench = a_bench()
        for fact in facts:
            bench.say(Replayed(fact=fact, age_ms=80_000 if fact is number else 20_000))
        assert not places(bench, 0)
        bench.say(replace(number, boot_id="o2", seq=6))
        assert ("j/t/0", 1) in bench.core.commits.held, "it is back"


def test_a_step_of_the_clock_of_the_bus_before_a_start_costs_at_most_the_time_to_the_next_number() -> None:
    kept = replace(an_allocatable("n1", ROOM, at_ms=NOW_MS), boot_id="o1", seq=900, fence=7)
    bench = a_bench()
    # Its clock was set an hour ahead after it had stored the number: the number looks an hour old.
    bench.say(Replayed(fact=kept, age_ms=HOUR_MS + 20_000))
    assert not places(bench, 0)
    # Overcommit publishes a number that nothing changed when it is a minute old.
    bench.now_ms += 40_000
    bench.say(replace(kept, at_ms=bench.now_ms, seq=960))
    assert ("j/t/0", 1) in bench.core.commits.held
    # Set an hour back, it looks as if it had been stored after the start: it is believed for as long as any number.
    bench = a_bench()
    bench.say(kept)
    assert places(bench, 0)
    bench.now_ms += bench.core.policy.facts_max_age_ms + 1
    assert not places(bench, 1)


def test_no_more_is_believed_of_a_promise_than_the_machine_has() -> None:
    bench = a_bench()
    bench.say(an_allocatable("n1", [(288_000, 8 << 40)] * 2, at_ms=NOW_MS))
    there = bench.core.cluster.node("n1").topology
    assert there is not None
    for number in range(40):
        places(bench, number)
    held_mcpu = sum(held.placement.cpu_mcpu for held in bench.core.commits.held.values())
    assert held_mcpu == there.cpu_capacity_mcpu == 32_000
