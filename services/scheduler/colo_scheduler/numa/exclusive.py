"""Zones kept for replicas that stay in one zone: whether an affinity may use a zone that others use differently.

Only holders of a CPU set count (Koordinator, node_allocation.go): a zone is `single` while every holder there is confined to
it, `shared` as soon as one holder spans several zones.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from colo_scheduler.numa.mask import zones_of

__all__ = ["ZoneExclusive", "ZoneStatus", "allows", "status_of_zones"]


class ZoneExclusive(StrEnum):
    """How strictly one-zone and several-zone replicas keep apart; only REQUIRED (strict) refuses anything."""

    NONE = ""
    PREFERRED = "Preferred"
    REQUIRED = "Required"


class ZoneStatus(StrEnum):
    """Who holds CPUs of a zone."""

    IDLE = "idle"
    SINGLE = "single"
    SHARED = "shared"


def status_of_zones(zones: Sequence[int], holders: Iterable[int]) -> dict[int, ZoneStatus]:
    """The status of each zone; `holders` are the masks of zones in which each holder of a CPU set has its CPUs."""
    status = dict.fromkeys(zones, ZoneStatus.IDLE)
    for mask in holders:
        spans = mask.bit_count() > 1
        for zone in zones_of(mask):
            if zone not in status:
                continue
            if spans:
                status[zone] = ZoneStatus.SHARED
            elif status[zone] is ZoneStatus.IDLE:
                status[zone] = ZoneStatus.SINGLE
    return status


def allows(mask: int | None, exclusive: ZoneExclusive, status: Mapping[int, ZoneStatus]) -> bool:
    """Whether an affinity passes (Koordinator, policy.go checkExclusivePolicy). A zone without a status is idle.

    With REQUIRED one zone must not be shared, and none of several may be single. No affinity at all never passes.
    """
    if not mask:
        return False
    if exclusive is not ZoneExclusive.REQUIRED:
        return True
    refused = ZoneStatus.SHARED if mask.bit_count() == 1 else ZoneStatus.SINGLE
    return all(status.get(zone, ZoneStatus.IDLE) is not refused for zone in zones_of(mask))
