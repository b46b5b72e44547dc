"""A reservation from its creation to its end, as the book keeps it."""

from __future__ import annotations

import pytest

from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import DeviceShare, ZoneHugePages, ZoneShare
from colo_common.model.reservation import DEFAULT_TTL_MS, AllocatePolicy, ObjectTerm, OwnerTerm
from colo_common.model.transitions import Fired
from colo_scheduler.ledger.port import name_of
from colo_scheduler.reservations.book import KEEP_ENDED_MS, ReservationBook
from colo_scheduler.reservations.lifecycle import RESERVATION, ReservationPhase
from colo_scheduler.reservations.reservation import PhaseChanged, attempt_of
from tests.support.reservation_story import GIB, a_book, a_claimant, a_hold, a_place, a_spec, an_owner


def cpus_of(book: ReservationBook, name: str = "r1") -> int | None:
    left = book.remainder(name)
    return None if left is None else left.cpu_mcpu


def test_a_new_reservation_waits_and_its_want_looks_like_that_of_any_replica() -> None:
    book = a_book(bound=False)
    assert book.placement_requests() == ("r1",)
    placement_request = book.placement_request("r1")
    assert name_of(placement_request.replica) == "r1"
    assert (placement_request.replica, placement_request.attempt) == attempt_of(book.rows()[0]) == a_hold().attempt
    assert placement_request.request.cpu_mcpu == 4_000
    assert book.remainder("r1") is None


def test_a_job_cannot_be_named_so_that_its_replicas_look_like_a_reservation() -> None:
    assert name_of("reservation-r1/hold/0") == ""
    assert name_of("web/task/0") == ""


def test_a_bound_reservation_holds_its_place_and_is_offered_to_its_owners_only() -> None:
    book = a_book()
    assert cpus_of(book) == 4_000
    assert [match.name for match in book.matching(a_claimant(), 0)] == ["r1"]
    assert book.matching(a_claimant(job="other"), 0) == ()


def test_the_owner_and_what_is_left_together_hold_what_was_reserved() -> None:
    book = a_book()
    assert book.use(a_claimant(), an_owner(), 1) == (a_hold(),)
    left = book.remainder("r1")
    assert left is not None
    assert left.zones == (ZoneShare(zone=0, cpu_mcpu=3_000, memory_bytes=6 * GIB),)
    book.check()


def test_an_owner_that_outgrows_the_reservation_leaves_nothing_of_it_and_never_less() -> None:
    book = a_book()
    book.use(a_claimant(), an_owner(zones={0: (6_000, 2)}), 1)
    left = book.remainder("r1")
    assert left is not None
    assert (left.cpu_mcpu, left.memory_bytes) == (0, 6 * GIB)


def test_owners_are_told_in_order_of_their_names() -> None:
    book = a_book()
    for index in (2, 0, 1):
        book.use(a_claimant(index), an_owner(index), 1)
    assert [owner.replica for owner in book.owners("r1")] == ["web/task/0", "web/task/1", "web/task/2"]


def test_an_owner_in_another_zone_uses_the_reservation_up_all_the_same() -> None:
    book = ReservationBook()
    book.create(a_spec(), 0)
    book.bind(a_place(zones={0: (2_000, 4), 1: (2_000, 4)}), 0)
    book.use(a_claimant(), an_owner(zones={2: (3_000, 1)}), 1)
    left = book.remainder("r1")
    assert left is not None
    assert {share.zone: share.cpu_mcpu for share in left.zones} == {0: 1_000, 1: 0}


def test_the_share_of_an_owner_falls_back_when_it_leaves() -> None:
    book = a_book()
    before = book.remainder("r1")
    book.use(a_claimant(), an_owner(), 1)
    assert book.leave(("web/task/0", 1)) == (a_hold(),)
    assert book.remainder("r1") == before
    assert book.leave(("web/task/0", 1)) == ()


def test_a_reservation_for_one_use_ends_with_its_first_owner() -> None:
    book = a_book(allocate_once=True)
    changes = book.use(a_claimant(), an_owner(), 5)
    assert changes == (
        PhaseChanged(name="r1", phase=ReservationPhase.SUCCEEDED, reason="used", node="n1"),
        a_hold(),
    )
    assert book.remainder("r1") is None
    assert book.matching(a_claimant(1), 5) == ()
    with pytest.raises(InvalidInput, match="reservation: must hold a place"):
        book.use(a_claimant(1), an_owner(1), 6)
    assert book.leave(("web/task/0", 1)) == ()
    book.check()


def test_one_use_is_the_default() -> None:
    book = ReservationBook()
    book.create(a_spec(allocate_once=True), 0)
    found = book.find("r1")
    assert found is not None
    assert found.spec.allocate_once


def test_a_reservation_ends_one_millisecond_after_its_last() -> None:
    book = a_book(ttl_ms=5_000)
    assert book.deadline_ms() == 5_001
    assert book.wake(5_000) == ()
    assert len(book.matching(a_claimant(), 5_000)) == 1
    assert book.matching(a_claimant(), 5_001) == ()
    assert book.wake(5_001) == (
        PhaseChanged(name="r1", phase=ReservationPhase.FAILED, reason="expired", node="n1"),
        a_hold(),
    )
    assert book.remainder("r1") is None


def test_a_reservation_that_finds_no_place_expires_too() -> None:
    book = a_book(bound=False, ttl_ms=5_000)
    assert book.wake(5_001) == (PhaseChanged(name="r1", phase=ReservationPhase.FAILED, reason="expired"),)
    assert book.placement_requests() == ()


def test_the_earlier_of_ttl_and_moment_counts_and_ttl_0_is_for_ever() -> None:
    assert a_book(ttl_ms=5_000, expires_ms=3_000).deadline_ms() == 3_001
    assert a_book(ttl_ms=5_000, expires_ms=9_000).deadline_ms() == 5_001
    assert a_book(ttl_ms=None, expires_ms=9_000).deadline_ms() == 9_001
    assert a_book(ttl_ms=0).deadline_ms() is None
    assert a_book().deadline_ms() == DEFAULT_TTL_MS + 1


def test_nobody_gets_a_reservation_that_is_over_although_nobody_woke_the_book() -> None:
    book = a_book(ttl_ms=5_000)
    with pytest.raises(InvalidInput, match="r1 is expired"):
        book.use(a_claimant(), an_owner(), 5_001)
    assert book.wake(5_001)[0] == PhaseChanged(name="r1", phase=ReservationPhase.FAILED, reason="expired", node="n1")


def test_a_place_that_comes_too_late_is_given_back() -> None:
    book = a_book(bound=False, ttl_ms=5_000)
    assert book.bind(a_place(), 5_001) == (a_hold(),)
    assert book.remainder("r1") is None
    book.wake(5_001)
    assert book.bind(a_place(), 5_002) == (a_hold(),)
    assert book.bind(a_place("never-made"), 5_002) == (a_hold("never-made", "n1"),)


def test_a_name_that_is_used_again_stands_under_a_later_attempt_at_once() -> None:
    book = a_book()
    assert book.delete("r1") == (a_hold(),)
    book.create(a_spec(), 0)
    assert book.placement_request("r1").attempt == 2
    assert book.bind(a_place(), 0) == (a_hold(),)
    assert book.placement_requests() == ("r1",)
    (_, hold) = book.bind(a_place(attempt=2), 0)
    assert hold == a_hold(attempt=2)
    assert book.held(a_hold(attempt=2)) == book.remainder("r1")
    assert book.held(a_hold()) is None
    assert book.held(a_hold(node="n2", attempt=2)) is None
    book.create(a_spec("r2"), 9_000)
    assert book.placement_request("r2").attempt == 9_000
    again = ReservationBook()
    again.load(book.rows(), (), 9_000)
    again.create(a_spec("r3"), 1)
    assert again.placement_request("r3").attempt == 9_001


def test_an_ended_reservation_is_forgotten_after_a_day() -> None:
    book = a_book(ttl_ms=5_000)
    book.wake(6_000)
    assert book.deadline_ms() == 6_000 + KEEP_ENDED_MS
    assert book.wake(6_000 + KEEP_ENDED_MS) == ()
    assert book.find("r1") is None
    assert book.deadline_ms() is None
    book.check()


def test_owners_keep_what_they_hold_when_their_reservation_expires() -> None:
    book = a_book(ttl_ms=5_000)
    book.use(a_claimant(), an_owner(), 1)
    book.wake(5_001)
    assert book.leave(("web/task/0", 1)) == ()
    book.check()


def test_a_lost_node_ends_its_reservations_and_no_other() -> None:
    book = a_book()
    book.create(a_spec("r2"), 0)
    book.bind(a_place("r2", node="n2", attempt=2), 0)
    book.create(a_spec("r3"), 0)
    changes = book.node_deleted("n1", 9)
    assert changes[0] == PhaseChanged(name="r1", phase=ReservationPhase.FAILED, reason="node-gone", node="n1")
    assert [book.find(name).phase for name in ("r1", "r2", "r3")] == [
        ReservationPhase.FAILED,
        ReservationPhase.AVAILABLE,
        ReservationPhase.PENDING,
    ]  # type: ignore[union-attr]


def test_a_job_that_is_over_takes_back_what_was_held_for_it_alone() -> None:
    book = a_book()
    book.create(a_spec("r2", owners=(OwnerTerm(object=ObjectTerm(name="web/task/3")),)), 0)
    book.create(a_spec("r3", owners=(*a_spec().owners, OwnerTerm())), 0)
    book.create(a_spec("r4", owners=()), 0)
    changes = book.workload_deleted("web", 9)
    ended = {change.name: change.reason for change in changes if isinstance(change, PhaseChanged)}
    assert ended == {"r1": "owner-gone", "r2": "owner-gone"}
    assert a_hold() in changes


def test_deleting_gives_the_place_back_and_leaves_owners_alone() -> None:
    book = a_book()
    book.use(a_claimant(), an_owner(), 1)
    assert book.delete("r1") == (a_hold(),)
    assert book.leave(("web/task/0", 1)) == ()
    with pytest.raises(InvalidInput, match="reservation: there is no reservation of this name"):
        book.delete("r1")
    book.check()


def test_everything_may_be_said_twice() -> None:
    book = a_book()
    assert book.create(a_spec(), 9) == ()
    assert book.bind(a_place(), 9) == ()
    book.use(a_claimant(), an_owner(), 1)
    assert book.use(a_claimant(), an_owner(), 2) == ()
    assert cpus_of(book) == 3_000


def test_a_name_in_use_is_refused_and_one_of_an_ended_reservation_is_free() -> None:
    book = a_book(ttl_ms=1_000)
    with pytest.raises(InvalidInput, match="name: must not be the name of another reservation"):
        book.create(a_spec(cpu_mcpu=1_000), 0)
    book.wake(1_001)
    assert book.create(a_spec(cpu_mcpu=1_000), 2_000) == (PhaseChanged(name="r1", phase=ReservationPhase.PENDING),)
    assert book.placement_requests() == ("r1",)
    book.check()


def test_the_book_is_limited_and_forgets_ended_ones_first() -> None:
    book = ReservationBook(most=2)
    book.create(a_spec("r1", ttl_ms=1_000), 0)
    book.create(a_spec("r2"), 0)
    with pytest.raises(InvalidInput, match="at most 2 reservations"):
        book.create(a_spec("r3"), 0)
    book.wake(1_001)
    book.create(a_spec("r3", ttl_ms=1_000), 1_002)
    assert book.find("r1") is None
    assert book.placement_requests() == ("r2", "r3")
    book.wake(2_003)
    book.create(a_spec("r4", ttl_ms=None, expires_ms=2_500), 2_004)
    assert book.find("r3") is None
    book.workload_deleted("web", 2_005)
    book.create(a_spec("r5"), 2_006)
    assert [row.spec.name for row in book.rows()] == ["r4", "r5"]


def test_a_restricted_reservation_refuses_what_is_larger_than_itself() -> None:
    book = a_book(policy=AllocatePolicy.RESTRICTED)
    book.use(a_claimant(), an_owner(0, {0: (3_000, 1)}), 1)
    with pytest.raises(InvalidInput, match="Insufficient cpu, requested: 2000, used: 3000, capacity: 4000"):
        book.use(a_claimant(1), an_owner(1, {0: (2_000, 1)}), 2)
    assert cpus_of(book) == 1_000


def test_a_restriction_to_memory_leaves_cpu_beyond_the_boundary() -> None:
    book = a_book(policy=AllocatePolicy.RESTRICTED, restricted=("memory",))
    book.use(a_claimant(), an_owner(0, {0: (6_000, 8)}), 1)
    with pytest.raises(InvalidInput, match="Insufficient memory"):
        book.use(a_claimant(1), an_owner(1, {0: (1_000, 1)}), 2)


def test_cpus_and_devices_fall_to_owners_and_back() -> None:
    book = ReservationBook()
    book.create(a_spec(policy=AllocatePolicy.RESTRICTED), 0)
    whole = DeviceShare(kind="gpu", device=0, zone=0, core_pct=100, memory_bytes=16 * GIB)
    pages = ZoneHugePages(zone=0, page_bytes=2 << 20, total_bytes=8 << 20)
    book.bind(a_place(cpus="0-3", devices=(whole,), huge_pages=(pages,)), 0)
    half = DeviceShare(kind="gpu", device=0, zone=0, core_pct=50, memory_bytes=8 * GIB)
    book.use(a_claimant(), an_owner(cpus="0-1", devices=(half,), huge_pages=(pages,)), 1)
    left = book.remainder("r1")
    assert left is not None
    assert (left.cpus, left.devices, left.huge_pages) == ("2-3", (half,), ())
    with pytest.raises(InvalidInput, match=r"placement\.cpus: must be among 2-3"):
        book.use(a_claimant(1), an_owner(1, cpus="1-2"), 2)
    with pytest.raises(InvalidInput, match=r"placement\.devices: must be among what the reservation has left"):
        book.use(a_claimant(1), an_owner(1, cpus="2", devices=(whole,)), 2)
    book.leave(("web/task/0", 1))
    back = book.remainder("r1")
    assert back is not None
    assert (back.cpus, back.devices, back.huge_pages) == ("0-3", (whole,), (pages,))


def test_a_use_must_be_the_owners_own_and_on_the_node_of_the_reservation() -> None:
    book = a_book()
    with pytest.raises(InvalidInput, match="reservation: must be held for this owner"):
        book.use(a_claimant(job="other"), an_owner(), 1)
    with pytest.raises(InvalidInput, match="placement.node: must be the reservation's node n1"):
        book.use(a_claimant(), an_owner(node="n2"), 1)
    with pytest.raises(InvalidInput, match="reservation: there is no reservation of this name"):
        book.use(a_claimant(), an_owner(of="r9"), 1)
    book.use(a_claimant(), an_owner(), 1)
    with pytest.raises(InvalidInput, match="placement: must not change the place of an attempt"):
        book.use(a_claimant(), an_owner(zones={0: (2_000, 2)}), 1)
    assert cpus_of(book) == 3_000


def test_a_place_must_be_of_the_size_asked_for_and_is_not_moved() -> None:
    book = a_book(bound=False)
    with pytest.raises(InvalidInput, match="placement: must be of the size that the reservation asks for"):
        book.bind(a_place(zones={0: (1_000, 8)}), 0)
    book.bind(a_place(), 0)
    with pytest.raises(InvalidInput, match="placement: the reservation holds another place already"):
        book.bind(a_place(node="n2"), 0)


def test_the_default_policy_stands_alone_on_a_node() -> None:
    book = a_book()
    book.create(a_spec("r2", policy=AllocatePolicy.RESTRICTED), 0)
    assert book.conflicts_on("n1", a_spec("r2", policy=AllocatePolicy.RESTRICTED))
    assert not book.conflicts_on("n2", a_spec("r2", policy=AllocatePolicy.RESTRICTED))
    with pytest.raises(InvalidInput, match="policy: cannot stand beside"):
        book.bind(a_place("r2", attempt=2), 0)


def test_a_reservation_can_be_placed_over_an_owner_that_runs_and_gets_its_place_later() -> None:
    book = ReservationBook()
    book.create(a_spec(policy=AllocatePolicy.RESTRICTED, pre_allocates=True), 0)
    running = an_owner(0, {0: (3_000, 4)}, cpus="0-2")
    book.bind(a_place(cpus="0-3"), 0, over=(running,))
    left = book.remainder("r1")
    assert left is not None
    assert (left.cpu_mcpu, left.cpus) == (1_000, "3")
    book.leave(("web/task/0", 1))
    left = book.remainder("r1")
    assert left is not None
    assert (left.cpu_mcpu, left.cpus) == (4_000, "0-3")
    book.check()


@pytest.mark.parametrize(
    ("over", "rule"),
    [
        ([an_owner(0, {0: (5_000, 4)})], "Insufficient cpu"),
        ([an_owner(0, node="n2")], "must run on n1"),
        ([an_owner(0, cpus="7")], "the reservation must hold all CPUs of the owner"),
        ([an_owner(0), an_owner(1)], "must be one owner without pre_allocates_several"),
    ],
)
def test_a_reservation_is_not_placed_over_owners_that_do_not_fit_inside(over: list[object], rule: str) -> None:
    book = ReservationBook()
    book.create(a_spec(policy=AllocatePolicy.RESTRICTED, pre_allocates=True), 0)
    with pytest.raises(InvalidInput, match=rule):
        book.bind(a_place(cpus="0-3"), 0, over=over)  # type: ignore[arg-type]
    assert book.placement_requests() == ("r1",)


def test_timers_of_forgotten_reservations_do_not_pile_up() -> None:
    book = ReservationBook()
    for _ in range(500):
        book.create(a_spec(), 0)
        book.delete("r1")
    assert len(book._timers) < 100
    assert book.deadline_ms() is None


def test_the_table_of_phases_is_closed() -> None:
    assert RESERVATION.terminal == {"Succeeded", "Failed"}
    assert {phase.value for phase in ReservationPhase} == set(RESERVATION.state_names)
    waited = RESERVATION.fire("Pending", "expired", {})
    assert isinstance(waited, Fired)
    assert waited.state == "Failed"
