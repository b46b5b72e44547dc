"""Reservations beside others, in plans, and on machines that changed under them."""

from __future__ import annotations

from typing import Any

from colo_common.events.effects import Publish
from colo_common.events.job import PlacementsRequested
from colo_common.events.placement import PlacementRejected
from colo_common.events.requests import JobPlanned, PlanJob
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_common.model.reservation import OwnerTerm
from colo_common.model.workload import JobSpec, ResourceRequest, TaskSpec
from colo_scheduler.core import SchedulerCore
from colo_scheduler.shell import StageTimes
from tests.support.builders import GIB, a_node, a_topology
from tests.support.reserve_story import ReservingBench, a_claim
from tests.support.scheduler_story import EITHER, an_allocatable
from tests.unit.scheduler.test_reserve import a_bench, claim, ended, reserve, tell_nodes


def test_a_reservation_takes_no_place_of_another_one_even_where_that_is_for_everybody() -> None:
    bench = a_bench(nodes=2)
    reserve(bench, "open", mcpu=4000, owners=(OwnerTerm(),), allocate_once=False)
    reserve(bench, "other", mcpu=4000)
    assert [bench.find(name).phase for name in ("open", "other")] == ["Available", "Available"]
    assert bench.find("open").owners == ()
    assert sum(share.cpu_mcpu for share in bench.find("open").left.zones) == 4000
    bench.core.check()


def test_a_plan_knows_that_the_first_owner_lets_go_of_what_it_does_not_need_of_a_place_of_one_use() -> None:
    bench = a_bench()
    reserve(bench, "r1", mcpu=6000)
    task = TaskSpec(name="main", replicas=5, request=ResourceRequest(cpu_mcpu=2000, memory_bytes=GIB), run=EITHER)
    plan = bench.ask(PlanJob(spec=JobSpec(name="web", tasks=(task,))))
    assert isinstance(plan, JobPlanned)
    reported = {f"web/{place.replica}": (place.node, place.zones, place.reservation) for place in plan.places}
    done = claim(bench, *(f"web/main/{number}" for number in range(5)), mcpu=2000)
    assert reported == {place.replica: (place.node, place.zones, place.reservation) for place in done}
    assert [place.reservation for place in plan.places] == ["r1", "", "", ""]
    (delivered,) = plan.tasks
    assert (plan.placed, delivered.counts[0].reason) == (4, Reason.BATCH_CPU_SHORT)
    assert delivered.nearest is not None
    assert delivered.nearest.have == 0


def test_where_the_ledger_disagrees_with_a_machine_owners_wait_and_the_disagreement_stays_known() -> None:
    bench = ReservingBench()

    def say_machine(cpus: int) -> None:
        machine = a_topology(zones_per_socket=1, cpus=cpus, memory_gib=8)
        bench.say(a_node("n1", machine, is_online=True, at_ms=bench.now_ms))
        bench.say(an_allocatable("n1", [(cpus * 1000, 8 * GIB)], at_ms=bench.now_ms))

    online: dict[str, Any] = {"qos": QosClass.LSE, "band": PriorityBand.PROD}
    say_machine(8)
    reserve(bench, "r1", mcpu=6000, gib=2, allocate_once=False, **online)
    # CPUs that are reserved went offline.
    bench.now_ms += 1
    say_machine(4)
    assert list(bench.core.cluster.disagreeing) == ["n1"]
    effects = bench.say(PlacementsRequested(placement_requests=(a_claim(mcpu=2000, reservation="r1", **online),)))
    (delivered,) = [each.fact for each in effects if isinstance(each, Publish)]
    assert isinstance(delivered, PlacementRejected)
    assert [count.reason for count in delivered.counts] == [Reason.LEDGER_DISAGREES]
    # Whoever shares CPUs gets a part of it, and what is left of it disagrees as before.
    shared = {"qos": QosClass.LS, "band": PriorityBand.PROD}
    claim(bench, "web/main/1", mcpu=500, **shared)
    assert list(bench.core.cluster.disagreeing) == ["n1"]
    bench.core.check()
    bench.now_ms += 1
    say_machine(8)
    assert bench.core.cluster.disagreeing == {}
    assert bench.core.commits.held["web/main/0", 1].placement.reservation == "r1"


def test_what_an_owner_gives_back_of_a_machine_that_lost_it_disagrees_there_again() -> None:
    bench = ReservingBench()
    online: dict[str, Any] = {"qos": QosClass.LSR, "band": PriorityBand.PROD}
    for cpus in (8, 4):
        if cpus == 4:
            reserve(bench, "r1", mcpu=6000, gib=2, allocate_once=False, **online)
            (owner,) = claim(bench, "web/main/0", mcpu=6000, memory_bytes=2 * GIB, **online)
            assert owner.cpus == "0-4,6"
        bench.now_ms += 1
        machine = a_topology(zones_per_socket=1, cpus=cpus, memory_gib=8)
        bench.say(a_node("n1", machine, is_online=True, at_ms=bench.now_ms))
        bench.say(an_allocatable("n1", [(cpus * 1000, 8 * GIB)], at_ms=bench.now_ms))
    bench.say(ended(owner))
    (delivered,) = bench.core.cluster.disagreeing["n1"]
    assert delivered.startswith("reservation:r1/hold/0")
    bench.core.check()


def test_owners_with_cpus_of_their_own_are_served_in_one_turn() -> None:
    bench = a_bench()
    bench.now_ms += 1
    bench.say(a_node("n1", a_topology(zones_per_socket=1, cpus=8, memory_gib=8), is_online=True, at_ms=bench.now_ms))
    online: dict[str, Any] = {"qos": QosClass.LSR, "band": PriorityBand.PROD}
    reserve(bench, "r1", mcpu=4000, gib=4, allocate_once=False, **online)
    owners = claim(bench, "web/main/0", "web/main/1", mcpu=2000, **online)
    assert [(owner.reservation, owner.cpus) for owner in owners] == [("r1", "0,2"), ("r1", "4,6")]
    assert bench.core.cluster.disagreeing == {}


def test_an_owner_may_be_the_first_to_get_a_place_after_a_start_and_its_times_are_its_own() -> None:
    bench = a_bench()
    reserve(bench, "r1", mcpu=1000, gib=1)
    reported: list[tuple[str, int, int]] = []
    times = iter(range(10, 1000, 10))

    def span(name: str, *, start_us: int, end_us: int, **about: object) -> str:
        reported.append((name, start_us, end_us))
        return f"00-{'1' * 32}-{'2' * 16}-01"

    stages = StageTimes(lambda: next(times), lambda _at_ms: 0, span)
    bench.core = SchedulerCore(stages=stages)
    bench.load()
    tell_nodes(bench)
    (owner,) = claim(bench, "web/main/0", mcpu=1000, traceparent=f"00-{'1' * 32}-{'2' * 16}-01")
    assert owner.reservation == "r1"
    stages.committed(("web/main/0", 1), "n1", 40, 50)
    assert reported == [("decide", 10, 30), ("filter", 10, 20), ("score", 20, 30), ("commit", 40, 50)]


def test_a_place_of_which_nothing_is_left_draws_only_those_who_name_it() -> None:
    bench = a_bench(nodes=3, mcpu=4000)
    reserve(bench, "r1", mcpu=1000, gib=1, allocate_once=False)
    (first,) = claim(bench, "web/main/0", mcpu=1000)
    assert first.reservation == "r1"
    others = claim(bench, *(f"web/main/{number}" for number in range(1, 7)), mcpu=1000)
    assert {place.reservation for place in others} == {""}
    assert sorted(place.node for place in [first, *others]) == ["n1"] * 3 + ["n2"] * 2 + ["n3"] * 2
    (named,) = claim(bench, "web/main/7", mcpu=1000, reservation="r1")
    assert (named.node, named.reservation) == (first.node, "r1")
