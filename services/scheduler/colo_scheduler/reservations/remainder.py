"""The part of a reservation's place that its owners leave: it is still held in the reservation's own name.

Owners and remainder together hold max(reserved, allocated), of CPU and memory in sum and of every single CPU and device, so that no
capacity is promised twice and no reserved capacity is given away.
"""

from collections.abc import Sequence

from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import DeviceShare, Placement, ZoneHugePages, ZoneShare
from colo_scheduler.reservations.held_cpus import cpus_left

__all__ = ["Remainder", "are_shares_within", "remainder_of"]


class Remainder(Struct, frozen=True, kw_only=True):
    """The remainder on the node. Zones, devices and huge pages without a remainder do not appear."""

    node: str
    zones: tuple[ZoneShare, ...] = ()
    cpus: str = ""
    devices: tuple[DeviceShare, ...] = ()
    huge_pages: tuple[ZoneHugePages, ...] = ()

    @property
    def cpu_mcpu(self) -> int:
        """CPU of all zones."""
        return sum(share.cpu_mcpu for share in self.zones)

    @property
    def memory_bytes(self) -> int:
        """Memory of all zones."""
        return sum(share.memory_bytes for share in self.zones)


def remainder_of(place: Placement, owners: Sequence[Placement]) -> Remainder:
    """The part of `place` that `owners` leave; they are on the same node.

    An owner in another zone than the reservation uses the reservation up all the same: its amounts are cut here from the zones of
    the highest ids.
    """
    cpu = _left_by_zone(
        {share.zone: share.cpu_mcpu for share in place.zones},
        [{share.zone: share.cpu_mcpu for share in owner.zones} for owner in owners],
    )
    memory = _left_by_zone(
        {share.zone: share.memory_bytes for share in place.zones},
        [{share.zone: share.memory_bytes for share in owner.zones} for owner in owners],
    )
    return Remainder(
        node=place.node,
        zones=tuple(
            ZoneShare(zone=share.zone, cpu_mcpu=cpu[share.zone], memory_bytes=memory[share.zone])
            for share in place.zones
            if cpu[share.zone] or memory[share.zone]
        ),
        cpus=cpus_left(CpuSet.parse(place.cpus), [CpuSet.parse(owner.cpus) for owner in owners]).format(),
        devices=_devices_left(place.devices, [share for owner in owners for share in owner.devices]),
        huge_pages=_huge_pages_left(place.huge_pages, [share for owner in owners for share in owner.huge_pages]),
    )


def are_shares_within(taken: Sequence[DeviceShare], left: Sequence[DeviceShare]) -> bool:
    """Whether no share is larger than the remainder of its device; each device appears once on either side."""
    room = {(share.kind, share.device): share for share in left}
    return all(
        (found := room.get((share.kind, share.device))) is not None
        and share.core_pct <= found.core_pct
        and share.memory_bytes <= found.memory_bytes
        for share in taken
    )


def _left_by_zone(reserved: dict[int, int], owners: Sequence[dict[int, int]]) -> dict[int, int]:
    taken = {zone: sum(owner.get(zone, 0) for owner in owners) for zone in reserved}
    left = {zone: max(0, amount - taken[zone]) for zone, amount in reserved.items()}
    allocated = sum(sum(owner.values()) for owner in owners)
    surplus = sum(left.values()) - max(0, sum(reserved.values()) - allocated)
    for zone in sorted(left, reverse=True):
        cut = min(surplus, left[zone])
        left[zone] -= cut
        surplus -= cut
    return left


def _devices_left(reserved: Sequence[DeviceShare], taken: Sequence[DeviceShare]) -> tuple[DeviceShare, ...]:
    left: list[DeviceShare] = []
    for share in reserved:
        same = [other for other in taken if (other.kind, other.device) == (share.kind, share.device)]
        core_pct = max(0, share.core_pct - sum(other.core_pct for other in same))
        memory_bytes = max(0, share.memory_bytes - sum(other.memory_bytes for other in same))
        if core_pct or memory_bytes:
            left.append(
                DeviceShare(
                    kind=share.kind,
                    device=share.device,
                    zone=share.zone,
                    core_pct=core_pct,
                    memory_bytes=memory_bytes,
                    exclusive=share.exclusive,
                )
            )
    return tuple(left)


def _huge_pages_left(reserved: Sequence[ZoneHugePages], taken: Sequence[ZoneHugePages]) -> tuple[ZoneHugePages, ...]:
    left: list[ZoneHugePages] = []
    for share in reserved:
        used = sum(
            other.total_bytes for other in taken if (other.zone, other.page_bytes) == (share.zone, share.page_bytes)
        )
        if share.total_bytes > used:
            left.append(
                ZoneHugePages(zone=share.zone, page_bytes=share.page_bytes, total_bytes=share.total_bytes - used)
            )
    return tuple(left)
