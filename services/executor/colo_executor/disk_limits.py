"""How much of the node's disk a replica may take: the smaller of what its job says and what the operator says of its tenant."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from colo_common.model.invalid import InvalidInput
from colo_common.model.job_rules import LIMITS
from colo_common.model.placement import Placement
from colo_common.model.quantity import format_bytes, parse_bytes

__all__ = ["DiskLimit", "check_disk_limits", "disk_limit"]

_EVERY_OTHER: Final = "*"
_FIELD: Final = "process_disk_limits"


class DiskLimit(NamedTuple):
    """The most that outputs and working directory may take together, and the field that says so."""

    most_bytes: int
    field: str

    def overused(self, taken: str) -> str:
        """The sentence of an end by this limit; `taken` is what was found."""
        return (
            f"its outputs and working directory take {taken}, at most {format_bytes(self.most_bytes)} by {self.field}"
        )


def check_disk_limits(limits: Mapping[str, str]) -> None:
    """Raise InvalidInput for an amount that cannot be one."""
    for tenant, amount in limits.items():
        if not LIMITS.DISK_MIN_BYTES <= parse_bytes(amount, f"{_FIELD}.{tenant}") <= LIMITS.DISK_MAX_BYTES:
            raise InvalidInput(_FIELD, "must be from 1Mi to 1Pi", f"{tenant}={amount}")


def disk_limit(placement: Placement, limits: Mapping[str, str]) -> DiskLimit | None:
    """The limit of a replica, None without one. `limits` are the operator's by tenant, "*" of every other; they were checked.

    What is known by its control group alone, because a journal was lost, has none: its job and tenant may have permitted more.
    """
    if not placement.run.command:
        return None
    found = []
    asked = placement.run.limits
    if asked is not None and asked.disk_bytes:
        found.append(DiskLimit(asked.disk_bytes, "limits.disk of the job"))
    tenant = placement.tenant or "default"
    key = tenant if tenant in limits else _EVERY_OTHER
    if key in limits:
        found.append(DiskLimit(parse_bytes(limits[key], _FIELD), f"{_FIELD} of the node ({key})"))
    return min(found, default=None)
