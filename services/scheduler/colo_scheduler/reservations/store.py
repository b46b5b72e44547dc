"""Reads the rows of reservations from the store, and asks the jobs service whether their owners are over."""

from collections.abc import Sequence

import msgspec
import structlog

from colo_common.events.requests import GetJob, JobDetail
from colo_common.model.invalid import InvalidInput
from colo_common.ports import Bus, PortError, Row, Store
from colo_common.runtime.ask import ask
from colo_scheduler.reservations.rows import KIND, KeptReservation, ReservationsLoaded, decode_row

__all__ = ["jobs_over", "load_reservations"]


async def load_reservations(store: Store, names: Sequence[str] | None = None) -> ReservationsLoaded:
    """Every row, or the named rows. An unreadable row is reported and left as it is. Raises the errors of the store."""
    log = structlog.get_logger("scheduler")
    if names is None:
        found: dict[str, Row | None] = {row.id: row for row in await store.load(KIND)}
    else:
        found = {name: await store.get(KIND, name) for name in names}
    rows: list[KeptReservation] = []
    unreadable: list[tuple[str, int]] = []
    for name, row in found.items():
        if row is None:
            continue
        try:
            reservation = decode_row(row.value)
            if reservation.spec.name != name:
                raise InvalidInput("name", "must be the name of the row", reservation.spec.name)
        except (msgspec.DecodeError, InvalidInput) as error:
            log.error("reservation-unreadable", reservation=name, error=str(error))
            unreadable.append((name, row.version))
            continue
        rows.append(KeptReservation(reservation=reservation, version=row.version))
    missing = tuple(name for name, row in found.items() if row is None)
    return ReservationsLoaded(rows=tuple(rows), unreadable=tuple(unreadable), missing=missing)


async def jobs_over(bus: Bus, jobs: Sequence[str]) -> tuple[str, ...]:
    """The jobs of these that have ended. An unknown job may still be submitted; without an answer the result is empty."""
    over: list[str] = []
    for job in jobs:
        try:
            answer = await ask(bus, GetJob(job=job))
        except PortError:
            return tuple(over)
        if isinstance(answer, JobDetail) and answer.summary.ended_at_ms is not None:
            over.append(job)
    return tuple(over)
