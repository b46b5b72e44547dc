"""How much of each zone an owner may take: its reservation's remainder there, and, unless restricted, the zone's free amounts."""

from collections.abc import Collection, Sequence

from colo_common.model.placement import ZoneShare
from colo_common.model.resource_list import CPU, MEMORY

__all__ = ["room_for_owner"]


def room_for_owner(
    left: Sequence[ZoneShare], free: Sequence[ZoneShare], *, bounded: Collection[str] = ()
) -> tuple[ZoneShare, ...]:
    """The room by zone, in ascending zone. `free` is the node's free capacity beside the remainder `left`; below 0 (a node that may
    be promised less than it holds) it reduces the room. Of the resources in `bounded` only `left` counts.
    """
    zones = sorted({share.zone for share in free} | {share.zone for share in left})
    rooms: list[ZoneShare] = []
    for zone in zones:
        own = [share for share in left if share.zone == zone]
        sibling = [share for share in free if share.zone == zone]
        cpu_mcpu = _room(
            sum(share.cpu_mcpu for share in own), sum(share.cpu_mcpu for share in sibling), is_bounded=CPU in bounded
        )
        memory_bytes = _room(
            sum(share.memory_bytes for share in own),
            sum(share.memory_bytes for share in sibling),
            is_bounded=MEMORY in bounded,
        )
        rooms.append(ZoneShare(zone=zone, cpu_mcpu=cpu_mcpu, memory_bytes=memory_bytes))
    return tuple(rooms)


def _room(own: int, free: int, *, is_bounded: bool) -> int:
    return max(0, own + (min(free, 0) if is_bounded else free))
