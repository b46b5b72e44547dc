"""The stored form of reservations: one row each with the book's reservation, and the shell's events and effects for rows."""

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
"""Published in place of a phase when a reservation is deleted."""


class KeptReservation(Struct, frozen=True, kw_only=True):
    """A row as it was read."""

    reservation: Reservation
    version: int


class ReservationsLoaded(Struct, frozen=True, kw_only=True):
    """Event of the shell: all rows at the start, after the ledger's rows; later the rows that were requested.

    `unreadable` names the rows that cannot be decoded, with their versions; `missing` the rows that do not exist.
    """

    rows: tuple[KeptReservation, ...]
    unreadable: tuple[tuple[str, int], ...] = ()
    missing: tuple[str, ...] = ()


class LoadReservations(Struct, frozen=True, kw_only=True):
    """Local effect: read these rows; answered by ReservationsLoaded."""

    names: tuple[str, ...]


class AskJobs(Struct, frozen=True, kw_only=True):
    """Local effect: ask whether these jobs have ended; answered by JobsOver, some time later, if some have."""

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
    """The stored reservation; raises msgspec.DecodeError or ValidationError when the bytes are not one."""
    return _DECODER.decode(value)
