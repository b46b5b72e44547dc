"""Requests about reservations, answered from the book."""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from colo_common.events.effects import Effect, Reply
from colo_common.events.job import PlacementRequest
from colo_common.events.requests import (
    CreateReservation,
    DecisionRecord,
    DeleteReservation,
    GetReservation,
    ListReservations,
    Refusal,
    ReservationDetail,
    ReservationHolds,
    ReservationList,
    ReservationUse,
)
from colo_common.model.invalid import InvalidInput
from colo_common.model.paging import PAGE_MOST, page_of
from colo_common.model.placement import Placement
from colo_common.model.plain_values import name_among
from colo_common.model.reservation import ReservationSpec
from colo_scheduler.reservations.book import NO_SUCH_RESERVATION, BookFull, ReservationExists
from colo_scheduler.reservations.expiry import last_ms
from colo_scheduler.reservations.lifecycle import ReservationPhase
from colo_scheduler.reservations.reservation import Reservation, attempt_of
from colo_scheduler.reservations.snapshot import ReservationSnapshot

__all__ = ["QUESTIONS", "ReservationAnswers", "is_reservation_request"]

QUESTIONS: Final = (CreateReservation, DeleteReservation, GetReservation, ListReservations)


def is_reservation_request(body: Struct) -> bool:
    """Whether the request is about reservations."""
    return isinstance(body, QUESTIONS)


class ReservationAnswers:
    """Answers requests about reservations. `create` and `delete` change a reservation and return the Record of the change.

    `explain` returns the newest decisions on a replica, by job ("" for any), replica and the replica's own request, if it waits.
    """

    def __init__(
        self,
        places: ReservationSnapshot,
        create: Callable[[ReservationSpec, int], list[Effect]],
        delete: Callable[[str, int], list[Effect]],
        explain: Callable[[str, str, PlacementRequest | None], tuple[DecisionRecord, ...]],
    ) -> None:
        self._places = places
        self._book = places.book
        self._create = create
        self._delete = delete
        self._explain = explain

    def answer(self, request: str, body: Struct, now_ms: int) -> list[Effect]:
        """The reply, behind the Record of the request's change."""
        try:
            effects, reply = self._answer(body, now_ms)
        except InvalidInput as error:
            effects, reply = [], Refusal(code=_code(error), field=error.field, rule=error.rule, got=error.value)
        return [*effects, Reply(request=request, body=reply)]

    def _answer(self, body: Struct, now_ms: int) -> tuple[list[Effect], Struct]:
        match body:
            case CreateReservation(spec=spec):
                effects = self._create(spec, now_ms)
                return effects, self._detail(self._demand(spec.name), now_ms)
            case GetReservation(name=name):
                found = self._book.find(name)
                return [], _unknown(name) if found is None else self._detail(found, now_ms)
            case DeleteReservation(name=name):
                found = self._book.find(name)
                if found is None:
                    return [], _unknown(name)
                before = self._detail(found, now_ms)
                return self._delete(name, now_ms), before
            case ListReservations():
                return [], self._listed(body, now_ms)
            case _:
                return [], Refusal(code=404, field="request", rule="is not about reservations", got=type(body).__name__)

    def _listed(self, request: ListReservations, now_ms: int) -> ReservationList:
        offset, limit = request.offset, request.limit
        if offset < 0 or not 1 <= limit <= PAGE_MOST:
            rule = f"offset is at least 0 and limit from 1 to {PAGE_MOST}"
            raise InvalidInput("limit", rule, f"offset {offset}, limit {limit}")
        wanted = {name_among(phase, ReservationPhase, "phases") for phase in request.phases}
        found = [row for row in self._book.rows() if not wanted or row.phase in wanted]
        page, following = page_of(
            found,
            lambda row: row.spec.name,
            lambda row: self._detail(row, now_ms),
            # An offset is a cursor without a name.
            request.cursor or (f"{offset}:-" if offset else ""),
            limit,
        )
        return ReservationList(reservations=page, total=len(found), next=following)

    def _demand(self, name: str) -> Reservation:
        found = self._book.find(name)
        if found is None:
            raise InvalidInput("reservation", NO_SUCH_RESERVATION, name)
        return found

    def _detail(self, found: Reservation, now_ms: int) -> ReservationDetail:
        name, why = found.spec.name, self._why(found)
        left = self._places.placement(name)
        return ReservationDetail(
            spec=found.spec,
            phase=found.phase.value,
            created_at_ms=found.created_ms,
            reason=found.reason,
            ended_at_ms=found.ended_ms if found.phase.is_ended else None,
            expires_at_ms=last_ms(found.created_ms, found.spec.ttl_ms, found.spec.expires_ms),
            node=found.place.node if found.place else "",
            place=_holds(found.place),
            left=_holds(left),
            owners=tuple(
                ReservationUse(
                    replica=owner.replica,
                    attempt=owner.attempt,
                    cpu_mcpu=owner.cpu_mcpu,
                    memory_bytes=owner.memory_bytes,
                )
                for owner in self._book.owners(name)
            ),
            nodes=why.nodes if why else 0,
            counts=why.counts if why else (),
            nearest=why.nearest if why else None,
            retry_at_ms=why.retry_at_ms if why else 0,
            now_ms=now_ms,
            never=why is not None and why.never,
        )

    def _why(self, found: Reservation) -> DecisionRecord | None:
        """The newest decision that found no place for the reservation."""
        if found.phase is not ReservationPhase.PENDING:
            return None
        replica, attempt = attempt_of(found)
        decisions = self._explain("", replica, None)
        return next((each for each in decisions if each.attempt == attempt and each.placement is None), None)


def _code(error: InvalidInput) -> int:
    """The HTTP code: 409 for a name in use, 429 for a full book, 400 for any other rule."""
    match error:
        case ReservationExists():
            return 409
        case BookFull():
            return 429
        case _:
            return 400


def _unknown(name: str) -> Refusal:
    return Refusal(code=404, field="reservation", rule=NO_SUCH_RESERVATION, got=name[:63])


def _holds(place: Placement | None) -> ReservationHolds:
    if place is None:
        return ReservationHolds()
    return ReservationHolds(
        cpu_mcpu=place.cpu_mcpu,
        memory_bytes=place.memory_bytes,
        zones=place.zones,
        cpus=place.cpus,
        devices=place.devices,
        huge_pages=place.huge_pages,
    )
