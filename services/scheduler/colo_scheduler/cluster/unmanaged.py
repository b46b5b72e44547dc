"""The room that prod work leaves to online work that colo did not place, from its measured use.

Unmanaged work holds nothing in the ledger, so promises would ignore it. The room is subtracted from the prod pool as a hold is, so
free capacity, explanations and waiting work follow it, and the capacity of the empty machine does not.
"""

from collections.abc import Sequence
from typing import Final

from colo_common.events.node import AllocatableChanged, NodeTopologyReported
from colo_common.model.placement import ZoneShare
from colo_common.model.quantity import ceil_div
from colo_scheduler.numa.zones import CPU_MAX_MCPU, MEMORY_MAX_BYTES

__all__ = ["PROD_ROOM_PCT", "claimed_of", "leaves_more", "room_of", "shared_cpus_of"]

PROD_ROOM_PCT: Final = 150
_CPU_MCPU: Final = 1_000


def room_of(
    reported: NodeTopologyReported | None, allocatable: AllocatableChanged | None, room_pct: int
) -> tuple[ZoneShare, ...]:
    """The amounts closed to prod work, by zone, in real CPU: ceil(use x room_pct / 100), use the larger of now and p95.

    The whole zone where the use is not known. Nothing before both facts are received: until then no work is placed on the node.
    """
    if reported is None or allocatable is None:
        return ()
    zones = reported.topology.zones
    if allocatable.unmanaged is None:
        return tuple(
            ZoneShare(zone=zone.zone, cpu_mcpu=zone.cpu_capacity_mcpu, memory_bytes=zone.memory_bytes) for zone in zones
        )
    known = {zone.zone for zone in zones}
    return tuple(
        ZoneShare(
            zone=use.zone,
            cpu_mcpu=min(ceil_div(max(use.cpu_mcpu, use.cpu_p95_mcpu) * room_pct, 100), CPU_MAX_MCPU),
            memory_bytes=min(ceil_div(max(use.memory_bytes, use.memory_p95_bytes) * room_pct, 100), MEMORY_MAX_BYTES),
        )
        for use in allocatable.unmanaged
        if use.zone in known
    )


def leaves_more(before: Sequence[ZoneShare], now: Sequence[ZoneShare]) -> bool:
    """Whether some zone has to leave less room than before."""
    needs = {share.zone: share for share in now}
    for share in before:
        need = needs.get(share.zone)
        if need is None or need.cpu_mcpu < share.cpu_mcpu or need.memory_bytes < share.memory_bytes:
            return True
    return False


def claimed_of(room: Sequence[ZoneShare], reported: NodeTopologyReported | None) -> tuple[ZoneShare, ...]:
    """The room in the CPU that the node claims to have: times `amplification_pct`, rounded up."""
    pct = 100 if reported is None else reported.rules.amplification_pct
    return tuple(
        ZoneShare(
            zone=share.zone,
            cpu_mcpu=min(ceil_div(share.cpu_mcpu * pct, 100), CPU_MAX_MCPU),
            memory_bytes=share.memory_bytes,
        )
        for share in room
    )


def shared_cpus_of(room: Sequence[ZoneShare]) -> dict[int, int]:
    """Zone -> how many whole CPUs have to stay in the shared pool for the room, rounding up."""
    return {share.zone: ceil_div(share.cpu_mcpu, _CPU_MCPU) for share in room if share.cpu_mcpu}
