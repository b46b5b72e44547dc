"""A check of the scheduler's state: one call finds whatever is broken in a small cluster, and in a large one enough calls do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from colo_common.events.job import PlacementsRequested, ReplicasWithdrawn
from colo_common.events.node import LoadPeak, LoadSummary, LoadWindow
from colo_common.model.invalid import InvariantBroken
from colo_common.model.qos import QosClass
from colo_common.model.reasons import Reason
from colo_scheduler.audit import CHECKED_AT_ONCE
from colo_scheduler.cluster.holding import Holding
from colo_scheduler.cluster.pool import PoolName
from colo_scheduler.core import SchedulerCore
from colo_scheduler.load.dynamic_rules import DynamicRules
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.requests.request_class import class_of
from colo_scheduler.reservations.lifecycle import ReservationPhase
from tests.support.builders import GIB, a_node, a_topology
from tests.support.reserve_story import ReservingBench
from tests.support.scheduler_story import a_placement_request, an_allocatable
from tests.unit.scheduler.test_node_choice import only
from tests.unit.scheduler.test_reserve import reserve

SMALL, LARGE = 4, 750
CALLS_MOST = 100
MCPU = 8_000
MACHINE = a_topology(sockets=1, zones_per_socket=1)
LOAD = LoadSummary(
    interval_ms=1_000,
    cpu_used_mcpu=1_000,
    memory_used_bytes=GIB,
    prod_cpu_used_mcpu=0,
    prod_memory_used_bytes=0,
    system_cpu_used_mcpu=0,
    system_memory_used_bytes=0,
    windows=(LoadWindow(window_ms=300_000, cpu_avg_mcpu=1, memory_avg_bytes=2, cpu_p95_mcpu=3, memory_p95_bytes=4),),
    peaks=(LoadPeak(window_ms=3_600_000, cpu_mcpu=1_000, memory_bytes=GIB),),
)

Undo = Callable[[], None]


def a_core(nodes: int) -> SchedulerCore:
    """Each node holds a replica, one also a reservation; as many wait: half of them in one class, the others in two."""
    policy = SchedulerPolicy(
        weights=only(dynamic_load=1, load_aware=1), dynamic=DynamicRules(limits_pct={"cpu_usage_avg_5m": 90})
    )
    bench = ReservingBench(policy=policy)
    core = bench.core
    for number in range(nodes):
        core.handle(a_node(f"n{number:04}", MACHINE), 0)
        core.handle(structs.replace(an_allocatable(f"n{number:04}", [(MCPU, 16 * GIB)]), load=LOAD), 0)
    core.cluster.signals.count_jobs(core.cluster.nodes)
    for start in range(0, nodes, 500):
        numbers = range(start, min(start + 500, nodes))
        bench.say(
            PlacementsRequested(
                placement_requests=tuple(a_placement_request(f"held{n % 9}/t/{n}", mcpu=5_000) for n in numbers)
            )
        )
        bench.say(
            PlacementsRequested(
                placement_requests=tuple(
                    a_placement_request(f"waits/t/{n}", mcpu=9_000 + n % 4 // 2 * n % 2) for n in numbers
                )
            )
        )
    reserve(bench, mcpu=2_000, gib=1)
    assert [row.phase for row in core.reserve.book.rows()] == [ReservationPhase.AVAILABLE]
    assert len(core.commits.held) == nodes + 1
    assert len(core.queue) == nodes
    assert all(node.holds for node in core.cluster.nodes)
    return core


@pytest.fixture(scope="module", params=[SMALL, LARGE])
def cluster(request: pytest.FixtureRequest) -> SchedulerCore:
    return a_core(request.param)


def check_all(core: SchedulerCore) -> None:
    """One call for a small cluster, enough of them for a large one."""
    for _ in range(1 if len(core.cluster.nodes) == SMALL else CALLS_MOST):
        core.check()


# ---- each breaks one thing, in the last row or part where there are several, and says how to mend it


def plus_one(array: Any, at: Any) -> Undo:
    before = array[at]
    array[at] = before + 1

    def undo() -> None:
        array[at] = before

    return undo


def changed(owner: Any, name: str, value: Any) -> Undo:
    before = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, before)


def put(keyed: dict[Any, Any], key: Any, value: Any) -> Undo:
    had, before = key in keyed, keyed.get(key)
    keyed[key] = value

    def undo() -> None:
        if had:
            keyed[key] = before
        else:
            del keyed[key]

    return undo


def last(core: SchedulerCore) -> int:
    return len(core.cluster.nodes) - 1


def guest_of(core: SchedulerCore) -> tuple[str, int]:
    return next(attempt for attempt in core.cluster.nodes[last(core)].holds if not attempt[0].startswith("reservation"))


def free_of_a_row(core: SchedulerCore) -> Undo:
    return plus_one(core.cluster.pools[PoolName.BATCH].rows[last(core)].cpu, 0)


def promise_of_a_row(core: SchedulerCore) -> Undo:
    row = core.cluster.pools[PoolName.PROD].rows[last(core)]
    return changed(row, "allocatable_memory", (1, *row.allocatable_memory[1:]))


def free_in_an_array(core: SchedulerCore) -> Undo:
    pool = core.cluster.pools[PoolName.BATCH]
    pool.sync()
    return plus_one(pool.free_memory, (last(core), 0))


def sum_in_an_array(core: SchedulerCore) -> Undo:
    pool = core.cluster.pools[PoolName.PROD]
    pool.sync()
    return plus_one(pool.tie, last(core))


def row_of_a_node(core: SchedulerCore) -> Undo:
    return put(core.cluster.rows, core.cluster.nodes[last(core)].name, 0)


def holdings_of_a_node(core: SchedulerCore) -> Undo:
    inventory = core.cluster._inventory_index.of(last(core))
    assert inventory is not None
    return put(inventory.holdings, ("ghost/t/0", 1), Holding(qos=QosClass.LSE))


def hold_in_a_second_node(core: SchedulerCore) -> Undo:
    node = core.cluster.nodes[0]
    return put(node.holds, guest_of(core), core.cluster.nodes[last(core)].holds[guest_of(core)])


def hold_of_another_name(core: SchedulerCore) -> Undo:
    held, attempt = core.commits.held, guest_of(core)
    held["ghost/t/0", 1] = held.pop(attempt)

    def undo() -> None:
        held[attempt] = held.pop(("ghost/t/0", 1))

    return undo


def hold_that_waits(core: SchedulerCore) -> Undo:
    placement_request = a_placement_request(guest_of(core)[0])
    core.queue.put_back([placement_request])

    def undo() -> None:
        core.queue.remove((placement_request.replica, placement_request.attempt))

    return undo


def level_of_a_row(core: SchedulerCore) -> Undo:
    return plus_one(core.cluster.pools[PoolName.BATCH].preemptible._levels[-1].cpu, last(core))


def holds_of_a_level(core: SchedulerCore) -> Undo:
    level = core.cluster.pools[PoolName.BATCH].preemptible._levels[-1]
    return changed(level, "holds", level.holds + 1)


def apart_of_a_level_and_a_row(core: SchedulerCore) -> Undo:
    level = core.cluster.pools[PoolName.BATCH].preemptible._levels[-1]
    undo_row, undo_sum = plus_one(level.apart_on, last(core)), changed(level, "apart", level.apart + 1)

    def undo() -> None:
        undo_row()
        undo_sum()

    return undo


def count_of_a_job(core: SchedulerCore) -> Undo:
    counts = core.cluster.signals.jobs._counts
    return plus_one(counts[guest_of(core)[0].partition("/")[0]], last(core))


def count_of_a_job_that_is_not_there(core: SchedulerCore) -> Undo:
    return put(core.cluster.signals.jobs._counts, "ghost", {last(core): 1})


def load_of_a_row(core: SchedulerCore) -> Undo:
    table = core.cluster.signals.loads._rows(len(core.cluster.nodes))
    return plus_one(table._all.filter_used, (last(core), 0))


def metric_of_a_row(core: SchedulerCore) -> Undo:
    return plus_one(core.cluster.signals.dynamic._value["cpu_usage_avg_5m"], last(core))


def arrivals_of_a_row(core: SchedulerCore) -> Undo:
    return plus_one(core.cluster.signals.dynamic._arrivals._counts[0], last(core))


def class_of_a_placement_request(core: SchedulerCore) -> Undo:
    classes = list(core.queue._classes.values())
    newest = list(core.queue._class_of)[-1]
    other = next(each for each in classes if each is not core.queue._class_of[newest])
    return put(core.queue._class_of, newest, other)


def place_of_a_request_in_the_smallest_class(core: SchedulerCore) -> Undo:
    return without_its_place(min(core.queue._classes.values(), key=lambda each: each.live))


def place_of_a_request_in_the_largest_class(core: SchedulerCore) -> Undo:
    return without_its_place(max(core.queue._classes.values(), key=lambda each: each.live))


def without_its_place(waiting: Any) -> Undo:
    before = waiting.heap[:]
    # The last one is a leaf, and without it this is a heap again.
    waiting.heap.pop()
    return changed_back(waiting.heap, before)


def changed_back(these: list[Any], before: list[Any]) -> Undo:
    def undo() -> None:
        these[:] = before

    return undo


def count_of_a_class(core: SchedulerCore) -> Undo:
    waiting = list(core.queue._classes.values())[-1]
    return changed(waiting, "live", waiting.live + 1)


def timer_of_a_reservation(core: SchedulerCore) -> Undo:
    return put(core.reserve.book._timers._at, "r1", 1)


def use_of_no_reservation(core: SchedulerCore) -> Undo:
    return put(core.reserve.book._used_by, ("ghost/t/0", 1), "r1")


def place_of_a_reservation(core: SchedulerCore) -> Undo:
    (attempt,) = [attempt for attempt in core.commits.held if attempt[0].startswith("reservation")]
    held = core.commits.held[attempt]
    return changed(held, "placement", structs.replace(held.placement, priority=77))


BREAKERS = [
    (free_of_a_row, "free differs from allocatable less held"),
    (promise_of_a_row, "a promise differs from the facts"),
    (free_in_an_array, "an array differs from its rows"),
    (sum_in_an_array, "an array differs from its rows"),
    (row_of_a_node, "a node is not in its row"),
    (holdings_of_a_node, "an inventory holds something else than its node"),
    (hold_in_a_second_node, "a hold is not in its node"),
    (hold_of_another_name, "a node holds what is not held there"),
    (hold_that_waits, "an attempt both waits and holds a place"),
    (level_of_a_row, "a level differs from what is held"),
    (holds_of_a_level, "a level counts others than its rows do"),
    (apart_of_a_level_and_a_row, "a level differs from what is held"),
    (count_of_a_job, "replicas are counted otherwise than they are held"),
    (count_of_a_job_that_is_not_there, "replicas are counted that are not held"),
    (load_of_a_row, "a load differs from its report"),
    (metric_of_a_row, "averages, maxima or arrivals differ"),
    (arrivals_of_a_row, "averages, maxima or arrivals differ"),
    (class_of_a_placement_request, "a want is in no class"),
    (place_of_a_request_in_the_smallest_class, "a want has no place"),
    (place_of_a_request_in_the_largest_class, "a want has no place"),
    (count_of_a_class, "a class counts others than wait in it"),
    (timer_of_a_reservation, "a reservation has no timer"),
    (use_of_no_reservation, "owners and their reservations disagree"),
    (place_of_a_reservation, "a reservation does not hold what its owners leave"),
]


@pytest.mark.parametrize(("breaks", "rule"), BREAKERS, ids=[breaks.__name__ for breaks, _ in BREAKERS])
def test_what_is_broken_is_found(cluster: SchedulerCore, breaks: Callable[[SchedulerCore], Undo], rule: str) -> None:
    undo = breaks(cluster)
    try:
        with pytest.raises(InvariantBroken, match=rule):
            check_all(cluster)
    finally:
        undo()


def test_nothing_else_is_broken(cluster: SchedulerCore) -> None:
    check_all(cluster)


def calls_until_found(core: SchedulerCore) -> int:
    """The number of calls until what is broken is found."""
    for call in range(1, CALLS_MOST):
        try:
            core.check()
        except InvariantBroken:
            return call
    raise AssertionError("nothing was found")


def test_a_large_cluster_takes_many_calls_and_as_many_in_every_round() -> None:
    nodes = LARGE
    core = a_core(nodes)
    row_of_a_node(core)
    # A call that finds something ends its round.
    _first, *rounds = [calls_until_found(core) for _ in range(5)]
    assert len(set(rounds)) == 1
    assert 4 * nodes // CHECKED_AT_ONCE < rounds[0] < 20 * nodes // CHECKED_AT_ONCE


def test_a_large_cluster_may_change_between_two_calls() -> None:
    core = a_core(LARGE)
    waiting = class_of(a_placement_request("waits/t/0", mcpu=9_000))
    for number in range(CALLS_MOST):
        core.check()
        (placement_request,) = core.queue.waiting(waiting, 1)
        core.queue.remove((placement_request.replica, placement_request.attempt))
        core.queue.add(a_placement_request(f"new/t/{number}", mcpu=9_000 + number % 5))
        attempt = next(iter(core.commits.held))
        core.handle(ReplicasWithdrawn(attempts=(attempt,), reason=Reason.CANCELLED), 0)
        core.commits.forget(attempt)
