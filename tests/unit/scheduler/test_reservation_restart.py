"""What is left of the book of reservations after a crash: everything."""

from __future__ import annotations

import msgspec

from colo_common.model.constraints import Taint
from colo_common.model.reservation import AllocatePolicy, LabelRule, ObjectTerm, OwnerTerm
from colo_scheduler.reservations.book import ReservationBook
from colo_scheduler.reservations.lifecycle import ReservationPhase
from colo_scheduler.reservations.reservation import Reservation
from tests.support.reservation_story import a_book, a_claimant, a_hold, a_place, a_placement, a_spec, an_owner


def test_a_restart_rebuilds_the_book_from_rows_and_the_ledger() -> None:
    book = a_book(ttl_ms=5_000)
    book.create(a_spec("r2"), 0)
    book.use(a_claimant(), an_owner(), 1)
    again = ReservationBook()
    again.load(book.rows(), [a_place(), an_owner(), a_placement("other/task/0", "n1", {0: (1_000, 1)})], 2)
    assert again.rows() == book.rows()
    assert again.remainder("r1") == book.remainder("r1")
    assert again.deadline_ms() == book.deadline_ms()
    again.check()


def test_a_row_survives_its_way_through_a_store() -> None:
    book = a_book(
        policy=AllocatePolicy.RESTRICTED,
        labels={"k": "v"},
        owners=(OwnerTerm(object=ObjectTerm(name="web/task/0"), labels=(LabelRule(key="a", values=("1",)),)),),
        taints=(Taint(key="kept"),),
    )
    (row,) = book.rows()
    assert msgspec.json.decode(msgspec.json.encode(row), type=Reservation) == row


def test_a_restart_follows_the_ledger_where_it_was_ahead_of_the_rows() -> None:
    rows = a_book(bound=False, allocate_once=True).rows()
    again = ReservationBook()
    changes = again.load(rows, [an_owner(), a_place(), a_place("gone", node="n3")], 7)
    found = again.find("r1")
    assert found is not None
    assert found.phase is ReservationPhase.SUCCEEDED
    assert a_hold("gone", "n3") in changes
    assert again.load(again.rows(), [an_owner(of="gone"), an_owner(9, node="n7")], 8) == ()
    again.check()


def test_a_restart_finds_the_owners_that_a_reservation_was_placed_over() -> None:
    book = ReservationBook()
    book.create(a_spec(policy=AllocatePolicy.RESTRICTED, pre_allocates=True), 0)
    running = a_placement("web/task/0", "n1", {0: (3_000, 4)})
    book.bind(a_place(), 0, over=(running,))
    again = ReservationBook()
    again.load(book.rows(), [running, a_place()], 2)
    assert again.remainder("r1") == book.remainder("r1")
    assert again.owners("r1") == (running,)
    again.check()
