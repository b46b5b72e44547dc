"""Reservations over owners that already run: their places become part of it, and fall to it when they leave."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from colo_common.events.job import PlacementsRequested
from colo_common.model.constraints import Constraints, CpuBind, NumaPolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.node_rules import NodeRules
from colo_common.model.placement import UNKNOWN_CPUS, Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reservation import AllocatePolicy, LabelRule, OwnerTerm
from colo_common.model.reservation_file import reservation_from_mapping
from colo_scheduler.ledger.port import Hold, LedgerRows, NodeCommit
from colo_scheduler.reservations.lifecycle import ReservationPhase
from tests.support.builders import GIB, a_node, a_placement, a_topology
from tests.support.reserve_story import ReservingBench, a_claim
from tests.support.scheduler_story import an_allocatable, now
from tests.unit.scheduler.test_reserve import a_bench, claim, decided, ended, reserve, tell_nodes

OVER: dict[str, Any] = {"allocate_once": False, "policy": AllocatePolicy.RESTRICTED, "pre_allocates": True}
ONLINE: dict[str, Any] = {"qos": QosClass.LSR, "band": PriorityBand.PROD}


def ledger_of(bench: ReservingBench, node: str = "n1") -> dict[str, Hold]:
    (row,) = now(bench.ledger.rows([node]))
    return {each.placement.replica: each for each in row.holds}


def phase(bench: ReservingBench, name: str = "r1") -> str:
    found = bench.core.reserve.book.find(name)
    return "" if found is None else found.phase.value


def an_online_bench(cpus: int = 8, rules: NodeRules | None = None) -> ReservingBench:
    bench = ReservingBench()
    tell_online(bench, cpus, rules)
    return bench


def tell_online(bench: ReservingBench, cpus: int = 8, rules: NodeRules | None = None) -> None:
    machine = a_topology(sockets=1, zones_per_socket=1, cpus=cpus, memory_gib=64)
    bench.say(a_node("n1", machine, is_online=True, rules=rules or NodeRules()))
    bench.say(an_allocatable("n1", [(cpus * 1000, 64 * GIB)], at_ms=bench.now_ms))


def test_a_reservation_is_placed_over_its_running_owner_where_no_free_place_is_left() -> None:
    bench = a_bench()
    (owner,) = claim(bench, "web/main/0", mcpu=5000, memory_bytes=4 * GIB)
    reserve(bench, mcpu=6000, gib=8, **OVER)
    found = bench.find("r1")
    assert found.phase == "Available"
    assert [each.replica for each in found.owners] == [owner.replica]
    assert sum(share.cpu_mcpu for share in found.left.zones) == 1000
    assert sum(share.memory_bytes for share in found.left.zones) == 4 * GIB
    held = ledger_of(bench)
    assert held["reservation:r1/hold/0"].inside == (("web/main/0", 1),)
    assert held["reservation:r1/hold/0"].placement.cpu_mcpu == 6000
    # Of 8 CPUs 6 are promised, not 11; a stranger gets the rest and nothing of the place.
    assert len(claim(bench, "batch/main/0", mcpu=2000)) == 1
    assert claim(bench, "batch/main/1", mcpu=500) == []
    bench.core.check()


def test_the_place_is_whole_again_when_the_owner_leaves_and_the_next_owner_gets_it() -> None:
    bench = a_bench()
    (owner,) = claim(bench, "web/main/0", mcpu=5000)
    reserve(bench, mcpu=6000, gib=8, **OVER)
    bench.say(ended(owner))
    left = bench.find("r1").left
    assert sum(share.cpu_mcpu for share in left.zones) == 6000
    assert claim(bench, "batch/main/0", mcpu=3000) == []
    (again,) = claim(bench, "web/main/1", mcpu=6000)
    assert again.reservation == "r1"
    bench.core.check()


def test_a_free_place_comes_before_one_over_owners() -> None:
    bench = a_bench(nodes=2)
    claim(bench, "web/main/0", mcpu=5000)
    reserve(bench, mcpu=6000, gib=8, **OVER)
    assert bench.find("r1").owners == ()


def test_without_leave_nothing_is_placed_over_an_owner_and_strangers_are_never_taken_over() -> None:
    bench = a_bench()
    claim(bench, "web/main/0", mcpu=5000)
    reserve(bench, mcpu=6000, gib=8, allocate_once=False, policy=AllocatePolicy.RESTRICTED)
    assert phase(bench) == "Pending"
    bench = a_bench()
    claim(bench, "batch/main/0", mcpu=5000)
    reserve(bench, mcpu=6000, gib=8, **OVER)
    assert phase(bench) == "Pending"
    # Of what runs the labels are not known any more: only names tell running owners.
    by_label = (OwnerTerm(labels=(LabelRule(key="tier", operator="NotIn", values=("x",)),)),)
    reserve(bench, "r2", mcpu=6000, gib=8, owners=by_label, **OVER)
    assert phase(bench, "r2") == "Pending"


def test_one_owner_or_several_as_the_reservation_says() -> None:
    for several, expected in ((False, "Pending"), (True, "Available")):
        bench = a_bench()
        claim(bench, "web/main/0", mcpu=3000, memory_bytes=GIB)
        claim(bench, "web/main/1", mcpu=4000, memory_bytes=GIB)
        reserve(bench, mcpu=8000, gib=8, pre_allocates_several=several, **OVER)
        assert phase(bench) == expected
        bench.core.check()


def test_an_owner_larger_than_the_reservation_is_not_taken_over() -> None:
    bench = a_bench()
    claim(bench, "web/main/0", mcpu=7000)
    reserve(bench, mcpu=6000, gib=8, **OVER)
    assert phase(bench) == "Pending"


def test_it_waits_for_its_owner_and_finds_it_later() -> None:
    bench = a_bench()
    (stranger,) = claim(bench, "batch/main/0", mcpu=5000)
    reserve(bench, mcpu=6000, gib=8, **OVER)
    claim(bench, "web/main/0", mcpu=3000)
    assert phase(bench) == "Pending"
    bench.say(ended(stranger))
    bench.now_ms += 120_000
    tell_nodes(bench)
    bench.wake()
    assert phase(bench) == "Available"


def test_cpus_by_number_are_those_of_the_owner_and_free_ones() -> None:
    bench = an_online_bench()
    (owner,) = claim(bench, "web/main/0", mcpu=4000, **ONLINE)
    reserve(bench, mcpu=6000, gib=8, **OVER, **ONLINE)
    found = bench.find("r1")
    assert CpuSet.parse(owner.cpus) < CpuSet.parse(found.place.cpus)
    assert CpuSet.parse(found.left.cpus) == CpuSet.parse(found.place.cpus) - CpuSet.parse(owner.cpus)
    bench.core.check()
    bench.say(ended(owner))
    assert bench.find("r1").left.cpus == found.place.cpus


def test_no_reservation_is_placed_over_an_owner_whose_cpus_are_not_known() -> None:
    bench = an_online_bench()
    owner = structs.replace(a_placement("web/main/0", mcpu=4000), band=PriorityBand.PROD, qos=QosClass.LSR)
    hold = Hold(placement=structs.replace(owner, cpus=UNKNOWN_CPUS), generation=1)
    now(bench.ledger.commit([NodeCommit(node="n1", expect=0, holds=(hold,))]))
    bench.restart()
    tell_online(bench)
    reserve(bench, mcpu=6000, gib=8, **OVER, **ONLINE)
    bench.wake()
    assert list(bench.core.cluster.disagreeing) == ["n1"]
    assert ledger_of(bench).keys() == {"web/main/0"}
    bench.core.check()


def test_a_restart_after_row_or_ledger_was_written_knows_who_is_inside() -> None:
    for keeps_row in (True, False):
        bench = an_online_bench()
        (owner,) = claim(bench, "web/main/0", mcpu=4000, **ONLINE)
        before_row = dict(bench.rows)
        reserve(bench, mcpu=6000, gib=8, **OVER, **ONLINE)
        left = bench.find("r1").left
        if not keeps_row:
            # The process died between ledger and row: the row still says that it waits.
            bench.rows.clear()
            bench.rows.update(before_row)
            waiting = ReservingBench()
            reserve(waiting, mcpu=6000, gib=8, **OVER, **ONLINE)
            bench.rows["r1"] = waiting.rows["r1"]
            held = ledger_of(bench)["reservation:r1/hold/0"]
            attempt = waiting.core.reserve.book.find("r1")
            assert attempt is not None
            assert attempt.attempt == held.placement.attempt
        bench.restart()
        tell_online(bench)
        bench.wake()
        assert bench.find("r1").left == left
        assert [each.replica for each in bench.find("r1").owners] == [owner.replica]
        bench.core.check()


def test_another_scheduler_sees_the_same_place_and_the_same_owner() -> None:
    bench = an_online_bench()
    claim(bench, "web/main/0", mcpu=4000, **ONLINE)
    reserve(bench, mcpu=6000, gib=8, **OVER, **ONLINE)
    other = ReservingBench(rows=bench.rows, ledger=bench.ledger)
    tell_online(other)
    other.wake()
    assert other.find("r1").left == bench.find("r1").left
    other.core.check()


def test_expiry_gives_back_what_no_owner_has_and_the_owner_stays() -> None:
    bench = a_bench()
    (owner,) = claim(bench, "web/main/0", mcpu=5000)
    reserve(bench, mcpu=6000, gib=8, ttl_ms=5_000, **OVER)
    bench.now_ms += 6_000
    bench.wake()
    assert phase(bench) == ReservationPhase.FAILED.value
    assert list(ledger_of(bench)) == [owner.replica]
    tell_nodes(bench)
    assert len(claim(bench, "batch/main/0", mcpu=3000)) == 1
    bench.core.check()


def test_a_lost_commit_gives_everything_back_and_is_tried_again() -> None:
    bench = a_bench()
    (owner,) = claim(bench, "web/main/0", mcpu=5000)
    (row,) = now(bench.ledger.rows(["n1"]))
    rival = Hold(placement=a_placement("rival/main/0", mcpu=100), generation=row.revision + 1)
    now(bench.ledger.commit([NodeCommit(node="n1", expect=row.revision, holds=(rival,))]))
    reserve(bench, mcpu=6000, gib=8, **OVER)
    bench.now_ms += 5_000
    bench.wake()
    assert phase(bench) == "Available"
    assert [each.replica for each in bench.find("r1").owners] == [owner.replica]
    bench.core.check()


def test_an_owner_that_leaves_while_the_commit_is_under_way_leaves_its_place_to_the_reservation() -> None:
    bench = a_bench()
    (owner,) = claim(bench, "web/main/0", mcpu=5000)
    kept: list[Any] = []
    commit = bench.ledger.commit

    async def later(reserves: Any, *fences: Any, **more: Any) -> Any:
        answer = await commit(reserves, *fences, **more)
        kept.append(answer)
        await bench.ledger.release([(owner.replica, owner.attempt)])
        return answer

    bench.ledger.commit = later  # type: ignore[method-assign]
    reserve(bench, mcpu=6000, gib=8, **OVER)
    bench.tell(LedgerRows(rows=now(bench.ledger.rows(["n1"]))))
    bench.wake()
    assert kept
    assert sum(share.cpu_mcpu for share in bench.find("r1").left.zones) == 6000
    bench.core.check()


def test_a_file_can_say_it() -> None:
    spec = reservation_from_mapping(
        {
            "name": "night",
            "cpu": "4",
            "memory": "8Gi",
            "owners": [{"job": "web"}],
            "allocate_once": False,
            "policy": "restricted",
            "pre_allocates": True,
            "pre_allocates_several": True,
        }
    )
    assert (spec.pre_allocates, spec.pre_allocates_several) == (True, True)


# ---- owners that need more than is left


def reserved_and_more(policy: AllocatePolicy, **more: Any) -> tuple[ReservingBench, list[Placement], CpuSet]:
    """CPUs 4-7 of 12 are reserved, the others free; an owner needs six."""
    bench = an_online_bench(12)
    whole = Constraints(cpu_bind=CpuBind.FULL_PCPUS)
    (first,) = claim(bench, "batch/main/9", mcpu=4000, constraints=whole, **ONLINE)
    reserve(bench, mcpu=4000, gib=8, allocate_once=False, policy=policy, constraints=whole, **ONLINE)
    bench.say(ended(first))
    kept = CpuSet.parse(bench.find("r1").place.cpus)
    assert kept == CpuSet.parse("4-7")
    placed = claim(bench, "web/main/0", mcpu=6000, memory_bytes=2 * GIB, **ONLINE, **more)
    bench.core.check()
    return bench, placed, kept


def test_an_owner_that_needs_more_takes_the_reserved_cpus_first_and_then_free_ones() -> None:
    for policy in (AllocatePolicy.DEFAULT, AllocatePolicy.ALIGNED):
        bench, (owner,), kept = reserved_and_more(policy)
        assert owner.reservation == "r1"
        assert kept < CpuSet.parse(owner.cpus)
        assert len(CpuSet.parse(owner.cpus)) == 6
        assert bench.find("r1").left.cpus == ""
        # What is left of memory is held still; when the owner ends, the place is whole and nothing else is held.
        bench.say(ended(owner))
        assert CpuSet.parse(bench.find("r1").left.cpus) == kept
        others = claim(bench, "batch/main/0", mcpu=8000, **ONLINE)
        assert [len(CpuSet.parse(each.cpus)) for each in others] == [8]
        assert not CpuSet.parse(others[0].cpus) & kept
        bench.core.check()


def test_a_restricted_owner_gets_no_more_than_is_reserved() -> None:
    bench, placed, kept = reserved_and_more(AllocatePolicy.RESTRICTED)
    assert [each.reservation for each in placed] == [""]
    assert not CpuSet.parse(placed[0].cpus) & kept
    assert CpuSet.parse(bench.find("r1").left.cpus) == kept


def two_zones() -> tuple[ReservingBench, CpuSet, CpuSet]:
    """Two zones of 8 CPUs: of one 4 are reserved and 4 a stranger's, the other is free; what is reserved, and what is free."""
    bench = ReservingBench()
    machine = a_topology(sockets=1, zones_per_socket=2, cpus=8, memory_gib=64)
    bench.say(a_node("n1", machine, is_online=True))
    bench.say(an_allocatable("n1", [(8000, 64 * GIB)] * 2))
    strangers = claim(bench, "batch/main/0", "batch/main/1", mcpu=4000, **ONLINE)
    reserve(bench, mcpu=4000, gib=8, allocate_once=False, **ONLINE)
    kept = CpuSet.parse(bench.find("r1").place.cpus)
    zone = CpuSet.parse("0-7") if kept < CpuSet.parse("0-7") else CpuSet.parse("8-15")
    for stranger in strangers:
        if not CpuSet.parse(stranger.cpus) < zone:
            bench.say(ended(stranger))
    return bench, kept, CpuSet.parse("0-15") - zone


def test_the_reserved_cpus_come_first_although_another_zone_would_hold_all() -> None:
    bench, kept, free = two_zones()
    (owner,) = claim(bench, "web/main/0", mcpu=6000, memory_bytes=2 * GIB, **ONLINE)
    taken = CpuSet.parse(owner.cpus)
    assert kept < taken
    assert len(taken & free) == 2
    assert sum(share.cpu_mcpu for share in owner.zones) == 6000
    assert bench.find("r1").left.cpus == ""
    bench.core.check()


def test_an_owner_that_wants_one_zone_gets_one_zone_all_the_same() -> None:
    bench, kept, free = two_zones()
    one = Constraints(numa_policy=NumaPolicy.SINGLE_NUMA_NODE)
    placement_request = structs.replace(
        a_claim("web/main/0", mcpu=6000, memory_bytes=2 * GIB, **ONLINE), constraints=one
    )
    (owner,) = decided(bench.say(PlacementsRequested(placement_requests=(placement_request,))))
    assert CpuSet.parse(owner.cpus) < free
    assert bench.find("r1").left.cpus == kept.format()
    bench.core.check()


def test_whole_cores_that_are_required_stay_whole_over_both_parts() -> None:
    _, (owner,), kept = reserved_and_more(
        AllocatePolicy.DEFAULT, constraints=Constraints(cpu_bind=CpuBind.FULL_PCPUS, cpu_bind_required=True)
    )
    taken = CpuSet.parse(owner.cpus)
    assert kept < taken
    assert all((cpu ^ 1) in taken for cpu in taken)


@pytest.mark.parametrize("numa_policy", list(NumaPolicy))
def test_whole_cores_that_are_required_are_not_made_of_an_owner_on_half_cores(numa_policy: NumaPolicy) -> None:
    # The owner runs on one CPU of each of two cores; beside it two whole cores are free.
    bench = an_online_bench(rules=NodeRules(numa_policy=numa_policy))
    spread = Constraints(cpu_bind=CpuBind.SPREAD_BY_PCPUS, cpu_bind_required=True)
    (owner,) = claim(bench, "web/main/0", mcpu=2000, constraints=spread, **ONLINE)
    assert len({cpu // 2 for cpu in CpuSet.parse(owner.cpus)}) == 2
    whole = Constraints(cpu_bind=CpuBind.FULL_PCPUS, cpu_bind_required=True)
    reserve(bench, mcpu=6000, gib=8, constraints=whole, **OVER, **ONLINE)
    assert phase(bench) == "Pending"
    bench.core.check()
