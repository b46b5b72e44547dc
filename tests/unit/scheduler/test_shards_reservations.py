"""Reservations where several schedulers share the work: what another one did to a row, and when it is heard."""

from msgspec import structs

from colo_common.events.effects import Wake
from colo_common.events.job import PlacementsRequested
from colo_common.events.requests import CreateReservation
from colo_common.model.reasons import Reason
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.port import CommitLedger, HoldRefused, LedgerAnswered, LedgerLoaded, NodeAnswer
from colo_scheduler.reservations.lifecycle import ReservationPhase
from colo_scheduler.reservations.reservation import Reservation
from colo_scheduler.reservations.rows import KeptReservation, ReservationsLoaded
from tests.support.builders import GIB, a_node, a_topology
from tests.support.reserve_story import ReservingBench, a_claim, a_reservation
from tests.support.scheduler_story import an_allocatable


def read(core: SchedulerCore, *rows: KeptReservation, missing: tuple[str, ...] = ()) -> None:
    """These rows were read just now."""
    core.handle(ReservationsLoaded(rows=rows, missing=missing), 0)


def test_a_row_that_was_removed_and_written_anew_is_taken_although_its_versions_begin_again() -> None:
    core = SchedulerCore()
    core.handle(LedgerLoaded(), 0)
    old = Reservation(spec=a_reservation("r1"), created_ms=0, attempt=5, phase=ReservationPhase.FAILED, ended_ms=1)
    read(core, KeptReservation(reservation=old, version=4))
    new = Reservation(spec=a_reservation("r1", mcpu=1_000), created_ms=9, attempt=9)
    read(core, KeptReservation(reservation=new, version=1))
    assert core.reserve.book.find("r1") == new
    # What is known is not replaced by what it was before.
    read(core, KeptReservation(reservation=structs.replace(new, phase=ReservationPhase.FAILED, ended_ms=10), version=1))
    assert core.reserve.book.find("r1") == new


def test_nothing_is_hurried_when_the_last_reservation_went_while_an_owner_was_refused() -> None:
    """The core would want to be woken every millisecond for ever."""
    bench = ReservingBench()
    bench.say(a_node("n1", a_topology(zones_per_socket=1)))
    bench.say(an_allocatable("n1", [(4_000, 32 * GIB)]))
    core = bench.core
    bench.ask(CreateReservation(spec=a_reservation("r1", mcpu=2_000, gib=2)))
    core.handle(PlacementsRequested(placement_requests=(a_claim(mcpu=1_000),)), bench.now_ms)
    (call,) = [effect for effect in core.handle(Wake(), bench.now_ms) if isinstance(effect, CommitLedger)]
    ((reserve,),) = [call.reserves]
    assert reserve.holds[0].placement.reservation == "r1"
    bench.rows.clear()
    read(core, missing=("r1",))
    refused = HoldRefused(replica="web/main/0", attempt=1, reason=Reason.LEDGER_CONFLICT)
    answer = NodeAnswer(node="n1", revision=reserve.expect, changes=1, refused=(refused,))
    bench.tell(LedgerAnswered(answers=(answer,)))
    bench.wake()
    assert core.reserve.is_empty
    assert not core.reserve.has_pending_output
