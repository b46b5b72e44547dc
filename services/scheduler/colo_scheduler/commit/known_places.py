"""What the jobs service knows of the places that are held, for a ledger without rows beside a stream without facts.

It knows node, zones and request of each attempt. The shares of one zone follow from that; those of several are taken to be equal,
which is right for the node as a whole. Which CPUs, devices and huge pages a replica has of its own only its node knows: such a
place says so, and until it is free nothing that needs CPUs, devices or huge pages of its own is placed beside it.
"""

from colo_common.events.requests import KnownPlace, PendingReplicas, PendingReply, Refusal
from colo_common.model.placement import UNKNOWN_CPUS, Placement, ZoneShare
from colo_common.ports import Bus, Unavailable
from colo_common.runtime.ask import ask
from colo_scheduler.requests.request_class import class_of

__all__ = ["known_places", "placement_of_known"]


async def known_places(bus: Bus, page: int) -> list[Placement]:
    """Every place that the jobs service knows to be held, `page` in one request; none from an older service.

    Raises Unavailable while it does not answer: what it would ask for can wait until it does.
    """
    found, partitions = await _of_partition(bus, page, 0)
    for partition in range(1, partitions):
        more, _ = await _of_partition(bus, page, partition)
        found |= more
    return list(found.values())


async def _of_partition(bus: Bus, page: int, partition: int) -> tuple[dict[str, Placement], int]:
    """The places of one partition of the jobs, by replica, and into how many partitions the jobs are divided."""
    found: dict[str, Placement] = {}
    after = ""
    while True:
        question = PendingReplicas(limit=page, has_mid_tier=True, placed_after=after, partition=partition)
        try:
            answer = await ask(bus, question)
        except Unavailable as error:
            raise Unavailable(f"ask the jobs service what runs, as the ledger has no rows: {error}") from error
        if not isinstance(answer, PendingReply):
            rule = str(answer) if isinstance(answer, Refusal) else f"answered with {type(answer).__name__}"
            raise Unavailable(f"ask the jobs service what runs, as the ledger has no rows: {rule}")
        if not answer.placed:
            return found, answer.partitions
        found |= {each.request.replica: placement_of_known(each) for each in answer.placed}
        after = answer.placed[-1].request.replica


def placement_of_known(place: KnownPlace) -> Placement:
    """The placement of the attempt, as far as it is known. When it was decided is not."""
    request = place.request
    asked, constraints = request.request, request.constraints
    has_own = class_of(request).own_cpus or request.qos.has_own_cpus or constraints.devices or constraints.huge_pages
    # A start that was heard before its decision tells no zone.
    zones = place.zones or (0,)
    return Placement(
        replica=request.replica,
        job=request.job,
        attempt=request.attempt,
        node=place.node,
        zones=tuple(
            ZoneShare(zone=zone, cpu_mcpu=cpu_mcpu, memory_bytes=memory_bytes)
            for zone, cpu_mcpu, memory_bytes in zip(
                zones, _parts(asked.cpu_mcpu, len(zones)), _parts(asked.memory_bytes, len(zones)), strict=True
            )
        ),
        cpu_mcpu=asked.cpu_mcpu,
        memory_bytes=asked.memory_bytes,
        qos=request.qos,
        band=request.band,
        run=request.run,
        priority=request.priority,
        traceparent=request.traceparent,
        cpus=UNKNOWN_CPUS if has_own else "",
        queue=request.queue,
        tenant=request.tenant,
        cpu_policy=constraints.cpu_policy,
    )


def _parts(total: int, count: int) -> list[int]:
    """Equal parts of the total, the first ones larger by the rest."""
    part, rest = divmod(total, count)
    return [part + (number < rest) for number in range(count)]
