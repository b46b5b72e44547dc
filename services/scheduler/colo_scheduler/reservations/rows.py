"""How reservations are kept: one row each, its value the reservation as the book has it, and what the shell says of them."""

from typing import Final

import msgspec
from msgspec import Struct

from colo_scheduler.reservations.reservation import Reservation

__all__ = [
    "DELETED",
    "KIND",
    "AskJobs",
    "JobsOver",
    "KeptReservation",
    "LoadReservations",
    "ReservationsLoaded",
    "decode_row",
    "encode_row",
]

KIND: Final = "reservation"
DELETED: Final = "Deleted"
"""Said in place of a phase when a reservation is forgotten."""


class KeptReservation(Struct, frozen=True, kw_only=True):
    """A row as it was read."""

    reservation: Reservation
    version: int


class ReservationsLoaded(Struct, frozen=True, kw_only=True):
    """Event of the shell: all rows at the start, after those of the ledger; later the ones that were asked for.

    `unreadable` names those that cannot be read, with their versions; `missing` those that are not there.
    """

    rows: tuple[KeptReservation, ...]
    unreadable: tuple[tuple[str, int], ...] = ()
    missing: tuple[str, ...] = ()


class LoadReservations(Struct, frozen=True, kw_only=True):
    """Local effect: read these rows; answered by ReservationsLoaded."""

    names: tuple[str, ...]


class AskJobs(Struct, frozen=True, kw_only=True):
    """Local effect: ask whether these jobs are over; answered by JobsOver, some time later, if some are."""

    jobs: tuple[str, ...]


class JobsOver(Struct, frozen=True, kw_only=True):
    """Event of the shell: these jobs have ended."""

    jobs: tuple[str, ...]


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Reservation)


def encode_row(reservation: Reservation) -> bytes:
    """The stored bytes."""
    return _ENCODER.encode(reservation)


def decode_row(value: bytes) -> Reservation:
    """The reservation that was stored; msgspec.DecodeError or ValidationError when the bytes are not one."""
    return _DECODER.decode(value)
