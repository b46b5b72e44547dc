"""What a node says wakes the work that waits only where that may have room now."""

from colo_common.events.job import PlacementsRequested
from colo_scheduler.ledger.port import LedgerLoaded
from tests.support.builders import GIB, a_node, a_topology
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable


def test_who_waits_is_woken_by_a_larger_promise_and_not_by_the_same_or_a_smaller_one() -> None:
    bench = Bench(None)
    bench.say(a_node("n1", a_topology()))
    # There is enough in all, but CPU and memory are in different zones.
    bench.say(an_allocatable("n1", [(4_000, 0), (0, 8 * GIB)]))
    bench.say(LedgerLoaded())
    bench.say(PlacementsRequested(placement_requests=(a_placement_request("j/t/000"),)))
    tried = bench.core.counts["classes_rejected"]
    assert tried > 0
    for at_ms, zones in ((1, [(4_000, 0), (0, 8 * GIB)]), (2, [(3_000, 0), (0, 8 * GIB)])):
        bench.say(an_allocatable("n1", zones, at_ms=at_ms))
        bench.core.check()
        assert bench.core.counts["classes_rejected"] == tried
    bench.say(an_allocatable("n1", [(3_000, 0), (10, 8 * GIB)], at_ms=3))
    assert bench.core.counts["classes_rejected"] == tried + 1
    bench.say(an_allocatable("n1", [(3_000, 2 * GIB), (10, 8 * GIB)], at_ms=4))
    assert list(bench.core.commits.held) == [("j/t/000", 1)]
