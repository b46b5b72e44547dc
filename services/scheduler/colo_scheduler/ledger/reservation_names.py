"""The names under which capacity reservations stand in the ledger, beside the replicas of jobs.

A reservation holds its place as an attempt of a replica whose name begins with "reservation:". A job's name has no ":", so
no replica of a job has such a name.
"""

from typing import Final

__all__ = ["RESERVATION_PREFIX", "job_of_reservation", "name_of", "replica_of_reservation"]

RESERVATION_PREFIX: Final = "reservation:"
"""Begins the job name and the replica name of every reservation."""
_SUFFIX: Final = "/hold/0"


def job_of_reservation(name: str) -> str:
    """The job name under which the reservation of this name asks for a place."""
    return f"{RESERVATION_PREFIX}{name}"


def replica_of_reservation(name: str) -> str:
    """The replica name under which the reservation of this name holds a place."""
    return f"{RESERVATION_PREFIX}{name}{_SUFFIX}"


def name_of(replica: str) -> str:
    """The name of the reservation that holds a place under this replica name; "" for a replica of a job."""
    if replica.startswith(RESERVATION_PREFIX) and replica.endswith(_SUFFIX):
        return replica[len(RESERVATION_PREFIX) : -len(_SUFFIX)]
    return ""
