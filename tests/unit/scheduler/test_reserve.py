"""Reservations through the core: they are placed as replicas are, and owners get their places first."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from colo_common.events.effects import Conflict, Effect, Publish, Reply, RequestReceived
from colo_common.events.enforcement import PlacementRefused, ReplicaEnded
from colo_common.events.job import PlacementsRequested, ReplicasWithdrawn
from colo_common.events.placement import ApplyPlacements, PlacementRejected, PlacementsDecided, PlacementsReleased
from colo_common.events.requests import (
    CreateReservation,
    DeleteReservation,
    ListHolds,
    ListReservations,
    Refusal,
)
from colo_common.model.constraints import Constraints, DeviceRequest, HugePages
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.reservation import AllocatePolicy, ObjectTerm, OwnerTerm
from colo_common.model.shortage import shortage_text
from colo_scheduler.commit.jobs_asked import StartedKnown
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import Hold, NodeCommit
from colo_scheduler.policy import SchedulerPolicy
from tests.support.builders import GIB, a_node, a_topology
from tests.support.reserve_story import ReservingBench, a_claim, a_reservation
from tests.support.scheduler_story import an_allocatable, gpus, now, topology_of


def a_bench(*, nodes: int = 1, mcpu: int = 8000, gib: int = 16, **more: Any) -> ReservingBench:
    bench = ReservingBench(**more)
    tell_nodes(bench, nodes=nodes, mcpu=mcpu, gib=gib)
    return bench


def tell_nodes(bench: ReservingBench, *, nodes: int = 1, mcpu: int = 8000, gib: int = 16) -> None:
    for number in range(1, nodes + 1):
        bench.say(a_node(f"n{number}", topology_of(1)))
        bench.say(an_allocatable(f"n{number}", [(mcpu, gib * GIB)], at_ms=bench.now_ms))


def reserve(bench: ReservingBench, name: str = "r1", **more: Any) -> Any:
    return bench.ask(CreateReservation(spec=a_reservation(name, **more)))


def decided(effects: list[Effect]) -> list[Placement]:
    return [
        placement
        for each in effects
        if isinstance(each, Publish) and isinstance(each.fact, PlacementsDecided)
        for placement in each.fact.placements
    ]


def claim(bench: ReservingBench, *replicas: str, **more: Any) -> list[Placement]:
    return decided(
        bench.say(PlacementsRequested(placement_requests=tuple(a_claim(replica, **more) for replica in replicas)))
    )


def ended(placement: Placement) -> ReplicaEnded:
    return ReplicaEnded(
        node=placement.node,
        replica=placement.replica,
        job=placement.job,
        attempt=placement.attempt,
        cause=EndCause.EXITED,
        exit_code=0,
    )


def test_what_stands_for_a_reservation_is_never_announced_nor_sent_to_a_node() -> None:
    bench = a_bench()
    effects = bench.say(RequestReceived(request="1", body=CreateReservation(spec=a_reservation())))
    effects += bench.say(RequestReceived(request="2", body=CreateReservation(spec=a_reservation("r2", mcpu=900_000))))
    effects += bench.restart()
    effects += bench.say(RequestReceived(request="3", body=DeleteReservation(name="r1")))
    facts = [type(each.fact) for each in effects if isinstance(each, Publish)]
    assert not {PlacementsDecided, ApplyPlacements, PlacementsReleased, PlacementRejected} & set(facts)
    assert not bench.core.commits.held


def test_what_is_reserved_is_listed_as_held_less_what_owners_took() -> None:
    bench = a_bench()
    reserve(bench, allocate_once=False)
    claim(bench, "web/main/0", mcpu=1500, memory_bytes=2 * GIB)
    holds = {hold.replica: hold.zones[0].cpu_mcpu for hold in bench.ask(ListHolds()).holds}
    assert holds == {"reservation:r1/hold/0": 2500, "web/main/0": 1500}


def test_an_owner_takes_its_place_by_the_name_in_the_jobs_file_too() -> None:
    bench = a_bench(mcpu=4000)
    reserve(bench, owners=(OwnerTerm(object=ObjectTerm(name="web/main/3")),))
    placement_request = structs.replace(a_claim("web-1a2b/main/3", mcpu=4000), job_name="web")
    (placement,) = decided(bench.say(PlacementsRequested(placement_requests=(placement_request,))))
    assert placement.reservation == "r1"


def test_of_many_owners_at_once_one_gets_a_place_of_one_use() -> None:
    bench = a_bench(mcpu=4000)
    reserve(bench)
    placed = claim(bench, *(f"web/main/{n}" for n in range(5)), mcpu=3000)
    assert [placement.reservation for placement in placed] == ["r1"]
    assert bench.find("r1").phase == "Succeeded"
    # What it did not need is free again.
    assert len(claim(bench, "batch/main/0", mcpu=1000)) == 1


def test_many_owners_share_a_place_of_many_uses_and_never_take_more_than_there_is() -> None:
    bench = a_bench(mcpu=6000)
    reserve(bench, allocate_once=False, policy=AllocatePolicy.RESTRICTED)
    placed = claim(bench, *(f"web/main/{n}" for n in range(8)), mcpu=1500)
    assert [placement.reservation for placement in placed] == ["r1", "r1", ""]
    detail = bench.find("r1")
    assert detail.left.cpu_mcpu == 1000
    assert [use.replica for use in detail.owners] == ["web/main/0", "web/main/1"]


def test_a_commit_that_another_scheduler_wins_gives_the_place_back_to_the_reservation() -> None:
    bench = a_bench()
    reserve(bench, allocate_once=False)
    (row,) = now(bench.ledger.rows(["n1"]))
    rival = a_reservation_of_a_rival("other/main/0", row.revision)
    now(bench.ledger.commit([rival]))
    (placement,) = claim(bench, "web/main/0", mcpu=1000)
    assert placement.reservation == "r1"
    assert bench.core.counts["commits_refused_ledger-conflict"] == 1
    assert bench.find("r1").left.cpu_mcpu == 3000


def a_reservation_of_a_rival(replica: str, revision: int, *, mcpu: int = 500, reservation: str = "") -> NodeCommit:
    from tests.support.builders import a_placement

    placement = structs.replace(a_placement(replica, node="n1", mcpu=mcpu, gib=1), reservation=reservation)
    held = Hold(placement=placement, generation=revision + 1)
    return NodeCommit(node="n1", expect=revision, holds=(held,))


def test_a_use_by_another_scheduler_is_seen_before_anybody_uses_the_place_again() -> None:
    bench = a_bench(mcpu=4000, gib=16)
    reserve(bench)
    (row,) = now(bench.ledger.rows(["n1"]))
    now(bench.ledger.commit([a_reservation_of_a_rival("web/main/9", row.revision, mcpu=4000, reservation="r1")]))
    assert claim(bench, "web/main/0", mcpu=4000) == []
    detail = bench.find("r1")
    assert (detail.phase, [use.replica for use in detail.owners]) == ("Succeeded", ["web/main/9"])


def test_two_schedulers_with_one_ledger_and_one_store_come_to_the_same() -> None:
    rows: dict[str, tuple[int, bytes]] = {}
    one = a_bench(rows=rows)
    other = a_bench(rows=rows, ledger=one.ledger)

    def both(bench: ReservingBench, event: Any) -> list[Effect]:
        effects = bench.say(event)
        for fact in [each.fact for each in effects if isinstance(each, Publish)]:
            if type(fact).__name__ in ("ReservationChanged", "PlacementsReleased"):
                for listener in (one, other):
                    listener.say(fact)
        return effects

    both(one, RequestReceived(request="1", body=CreateReservation(spec=a_reservation(allocate_once=False))))
    assert other.find("r1").phase == "Available"
    placed = decided(both(other, PlacementsRequested(placement_requests=(a_claim("web/main/0", mcpu=3000),))))
    assert [placement.reservation for placement in placed] == ["r1"]
    # The first hears of it where it matters: when it wants the same place.
    assert (
        decided(
            both(one, PlacementsRequested(placement_requests=(a_claim("web/main/1", mcpu=3000, reservation="r1"),)))
        )
        != []
    )
    for bench in (one, other):
        assert bench.find("r1").left.cpu_mcpu == 0
    both(other, RequestReceived(request="2", body=DeleteReservation(name="r1")))
    for bench in (one, other):
        assert isinstance(bench.ask(DeleteReservation(name="r1")), Refusal)
        assert [attempt for attempt in bench.core.commits.held if attempt[0].startswith("reservation:")] == []
    assert not rows


def test_a_restart_anywhere_between_creation_and_place_loses_nothing() -> None:
    """The rows and the ledger are cut off after each write."""
    for cut in range(8):
        bench = a_bench()
        effects = bench.core.handle(
            RequestReceived(request="1", body=CreateReservation(spec=a_reservation())), bench.now_ms
        )
        for _ in range(cut):
            bench._settle(effects)
            due = bench.core.deadline_ms()
            if due is None:
                break
            bench.now_ms = max(bench.now_ms, due)
            from colo_common.events.effects import Wake

            effects = bench.core.handle(Wake(), bench.now_ms)
        bench.restart()
        tell_nodes(bench)
        if cut == 0:
            assert "r1" not in bench.rows
            continue
        assert bench.find("r1").phase == "Available"
        assert len(claim(bench, "web/main/0", mcpu=8000)) == 1


def test_a_restart_with_an_emptied_ledger_seeks_the_place_anew() -> None:
    bench = a_bench()
    reserve(bench)
    fresh = a_bench(rows=bench.rows)
    assert fresh.find("r1").phase == "Available"
    assert len(fresh.core.commits.held) == 1


def test_a_hold_without_a_row_is_let_go_at_the_next_start() -> None:
    bench = a_bench()
    reserve(bench)
    bench.rows.clear()
    bench.restart()
    tell_nodes(bench)
    assert not bench.core.commits.held
    assert len(claim(bench, "batch/main/0", mcpu=8000)) == 1


def test_expiry_comes_while_it_waits_and_while_it_holds_and_after_a_restart() -> None:
    bench = a_bench(mcpu=4000)
    reserve(bench, "held", ttl_ms=1_000)
    reserve(bench, "waits", ttl_ms=2_000)
    bench.now_ms = 1_500
    bench.wake()
    assert (bench.find("held").phase, bench.find("held").reason) == ("Failed", "expired")
    assert bench.find("waits").phase == "Available"
    bench.now_ms = 5_000
    bench.restart()
    tell_nodes(bench, mcpu=4000)
    assert bench.find("waits").reason == "expired"
    assert not bench.core.commits.held


def test_an_owner_that_commits_as_the_reservation_ends_keeps_its_place() -> None:
    bench = a_bench(mcpu=4000)
    reserve(bench, ttl_ms=1_000)
    bench.tell(PlacementsRequested(placement_requests=(a_claim("web/main/0", mcpu=4000),)))
    bench.now_ms = 1_001
    (placement,) = decided(bench.wake())
    # It expired before the owner was decided: nobody else was there, so the owner gets the node as anybody would.
    assert placement.reservation == ""
    assert bench.find("r1").reason == "expired"


def test_nothing_that_is_heard_from_outside_touches_what_stands_for_a_reservation() -> None:
    bench = a_bench()
    reserve(bench)
    (attempt,) = bench.core.commits.held
    replica, number = attempt
    placement = bench.core.commits.held[attempt].placement
    for event in (
        ReplicasWithdrawn(attempts=(attempt,), reason=Reason.CANCELLED),
        ended(placement),
        StartedKnown(started=((replica, number),), over=((replica, number),), waiting=((replica, number),)),
        PlacementRefused(node="n1", replica=replica, job="reservation:r1", attempt=number, reason=Reason.START_FAILED),
    ):
        bench.say(event)
    assert bench.find("r1").phase == "Available"
    assert attempt in bench.core.commits.held


def test_the_same_again_is_answered_alike_and_another_under_the_name_is_refused() -> None:
    bench = a_bench()
    first = reserve(bench)
    again = reserve(bench)
    other = reserve(bench, mcpu=1000)
    assert (first.spec, again.phase) == (again.spec, "Available")
    assert isinstance(other, Refusal)
    assert (other.code, other.field) == (409, "name")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"mcpu": 0}, "cpu"),
        ({"gib": -1}, "memory"),
        ({"name": "../x"}, "name"),
        ({"ttl_ms": -1}, "ttl"),
        ({"restricted": ("cpu",)}, "restricted"),
        ({"constraints": Constraints(reservation="r0")}, "place.reservation"),
        ({"qos": QosClass.LSE, "band": PriorityBand.PROD, "mcpu": 1500}, "cpu"),
        (
            {
                "policy": AllocatePolicy.RESTRICTED,
                "allocate_once": False,
                "pre_allocates": True,
                "constraints": Constraints(devices=(DeviceRequest(kind="gpu", count=1),)),
            },
            "place.devices",
        ),
        (
            {"policy": AllocatePolicy.RESTRICTED, "pre_allocates": True},
            "pre_allocates",
        ),
        ({"labels": {"a": "b" * 100_000}}, "reservation"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_field_and_nothing_is_kept(changes: dict[str, Any], field: str) -> None:
    bench = a_bench()
    refused = reserve(bench, **changes)
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.field) == (400, field)
    assert bench.rows == {}
    assert bench.core.reserve.is_empty


def test_pages_are_by_name_and_by_phase() -> None:
    bench = a_bench(mcpu=4000)
    for name in ("a", "b", "c"):
        reserve(bench, name, mcpu=3000)
    page = bench.ask(ListReservations(limit=2, offset=1))
    assert ([each.spec.name for each in page.reservations], page.total) == (["b", "c"], 3)
    for given in ("Available", "available"):
        page = bench.ask(ListReservations(phases=(given,)))
        assert [each.spec.name for each in page.reservations] == ["a"]
    assert bench.ask(ListReservations(limit=0)).code == 400
    refused = bench.ask(ListReservations(phases=("Gone",)))
    assert (refused.field, refused.rule) == ("phases", "must be among Pending Available Succeeded Failed")


def test_a_row_that_somebody_else_changed_is_read_and_the_ledger_decides() -> None:
    bench = a_bench()
    reserve(bench)
    version, value = bench.rows["r1"]
    bench.rows["r1"] = (version + 5, value)
    (placement,) = claim(bench, "web/main/0", mcpu=4000)
    assert placement.reservation == "r1"
    assert bench.find("r1").phase == "Succeeded"
    assert bench.rows["r1"][0] == version + 6
    assert bench.core.counts["reservation_conflicts"] == 1


def test_without_a_store_nothing_is_reserved() -> None:
    core = SchedulerCore(SchedulerPolicy(), reserves=False)
    (reply,) = core.handle(RequestReceived(request="1", body=CreateReservation(spec=a_reservation())), 0)
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, Refusal)
    assert (reply.body.code, reply.body.field) == (503, "reservations")


def test_a_conflict_about_no_reservation_of_ours_changes_nothing() -> None:
    bench = a_bench()
    assert bench.say(Conflict(kind="reservation", id="unknown", expected=1, found=2)) == []
    assert bench.core.reserve.is_empty


def an_online_node(name: str, **more: Any) -> Any:
    from colo_common.events.node import Capability

    return structs.replace(a_node(name, a_topology(**more)), capabilities=(Capability(name="online", present=True),))


def test_an_owner_gets_the_cpus_that_were_reserved() -> None:
    bench = ReservingBench()
    bench.say(an_online_node("n1", sockets=1, zones_per_socket=1, cpus=8, memory_gib=64))
    bench.say(an_allocatable("n1", [(8000, 16 * GIB)]))
    fields = {"qos": QosClass.LSR, "band": PriorityBand.PROD}
    reserve(bench, mcpu=4000, allocate_once=False, policy=AllocatePolicy.RESTRICTED, **fields)
    place = bench.find("r1").place
    assert place.cpus != ""
    (first,) = claim(bench, "web/main/0", mcpu=2000, qos=QosClass.LSR, band=PriorityBand.PROD)
    assert first.reservation == "r1"
    left = bench.find("r1").left
    from colo_common.model.cpuset import CpuSet

    assert CpuSet.parse(first.cpus) <= CpuSet.parse(place.cpus)
    assert CpuSet.parse(first.cpus) | CpuSet.parse(left.cpus) == CpuSet.parse(place.cpus)
    bench.say(ended(first))
    assert bench.find("r1").left.cpus == place.cpus


def test_devices_are_reserved_and_given_to_the_owner() -> None:
    from colo_common.model.topology import Device

    bench = ReservingBench()
    topology = structs.replace(
        topology_of(1), devices=tuple(Device(kind="gpu", device=number, zone=0) for number in range(2))
    )
    bench.say(a_node("n1", topology))
    bench.say(an_allocatable("n1", [(8000, 16 * GIB)]))
    gpu = Constraints(devices=(DeviceRequest(kind="gpu", count=2),))
    reserve(bench, constraints=gpu)
    assert [share.device for share in bench.find("r1").place.devices] == [0, 1]
    one = Constraints(devices=(DeviceRequest(kind="gpu", count=1),))
    others = structs.replace(a_claim("batch/main/0"), constraints=one)
    assert decided(bench.say(PlacementsRequested(placement_requests=(others,)))) == []
    owner = structs.replace(a_claim("web/main/0"), constraints=one)
    placed = decided(bench.say(PlacementsRequested(placement_requests=(owner,))))
    # One for the owner; the other is free again, the reservation was for one use.
    assert {placement.replica: placement.reservation for placement in placed} == {
        "web/main/0": "r1",
        "batch/main/0": "",
    }


def test_a_reservation_that_no_node_could_hold_says_so_and_one_that_waits_for_room_does_not() -> None:
    bench = a_bench(mcpu=2_000)
    reserve(bench, "waits", mcpu=3_000)
    reserve(bench, "never", mcpu=1_000_000)
    bench.wake()
    listed = {each.spec.name: each for each in bench.ask(ListReservations()).reservations}
    assert {name: (each.phase, each.never) for name, each in listed.items()} == {
        "waits": ("Pending", False),
        "never": ("Pending", True),
    }
    capacity = topology_of(1).cpu_capacity_mcpu
    assert (listed["never"].nearest.have, listed["never"].nearest.need) == (capacity, 1_000_000)
    assert (listed["waits"].nearest.have, listed["waits"].nearest.need) == (2_000, 3_000)


@pytest.mark.parametrize(
    ("qos", "mcpu", "place", "text"),
    [
        (QosClass.LS, 1_000, {"devices": (DeviceRequest(kind="gpu", count=2),)}, "1 gpu short in n1 (1 of 2)"),
        (
            QosClass.LS,
            1_000,
            {"huge_pages": (HugePages(page_bytes=2 << 20, total_bytes=4 << 20),)},
            "4Mi of huge pages short in n1 (0 of 4Mi)",
        ),
        (QosClass.LS, 3_000, {}, "1 CPU short in n1 (2 of 3)"),
    ],
)
def test_what_a_reservation_lacks_for_its_owner_is_told_with_its_amount(
    qos: QosClass, mcpu: int, place: dict[str, Any], text: str
) -> None:
    bench = ReservingBench()
    machine = structs.replace(topology_of(1), devices=gpus(2, 1))
    bench.say(a_node("n1", machine, is_online=True))
    bench.say(an_allocatable("n1", [(8_000, 16 * GIB)], at_ms=bench.now_ms))
    held = Constraints(devices=(DeviceRequest(kind="gpu", count=1),))
    reserve(
        bench,
        mcpu=2_000,
        constraints=held,
        qos=QosClass.LS,
        band=PriorityBand.PROD,
        policy=AllocatePolicy.RESTRICTED,
        allocate_once=False,
    )
    bench.wake()
    placement_request = a_claim(
        reservation="r1", mcpu=mcpu, qos=qos, band=PriorityBand.PROD, constraints=Constraints(**place)
    )
    reported = bench.say(PlacementsRequested(placement_requests=(placement_request,)))
    (fact,) = [each.fact for each in reported if isinstance(each, Publish) and isinstance(each.fact, PlacementRejected)]
    assert fact.nearest is not None
    assert shortage_text(**structs.asdict(fact.nearest)) == text
