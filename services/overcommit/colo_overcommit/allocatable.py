"""The formula: what batch work may be promised in each zone, from one sample.

Source: the batch formula with policy `usage` of koordinator-sh/koordinator (pkg/slo-controller/noderesource/plugins/batchresource),
per zone first; the value of a node is the sum of its zones, so that zones and node cannot disagree.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from colo_common.events.node import NodeUsageSampled, WorkloadUsage, ZoneAllocatable
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import ZoneShare
from colo_common.model.qos import PriorityBand
from colo_common.model.quantity import ceil_div
from colo_common.model.topology import NodeTopology
from colo_overcommit.exclusive import Exclusive
from colo_overcommit.policy import Policy
from colo_overcommit.reserved import Reserved

__all__ = ["Resource", "ZoneInputs", "allocatable_of_zone", "zone_inputs"]

_RECLAIMED = (PriorityBand.BATCH, PriorityBand.FREE)
_NOTHING = Reserved()
_NOBODY = Exclusive()


class Resource(Struct, frozen=True, kw_only=True):
    """The terms of one resource of one zone, all in one unit: mcpu or bytes.

    `lse_requested` and `lse_used` are of LSE work that is placed there. Its CPUs are in nobody else's set, so what it asked for
    counts and not what it uses (as in Koordinator's formula); of memory both are 0, and use counts.
    """

    capacity: int
    reclaim_pct: int
    reserved: int
    system_used: int
    online_used: int
    held: int
    lse_requested: int = 0
    lse_used: int = 0

    @property
    def lse_idle(self) -> int:
        """What LSE work asked for and does not use: nobody's. At least 0."""
        return max(self.lse_requested - self.lse_used, 0)

    @property
    def margin(self) -> int:
        """What stays free of every promise; rounds up, so that the promise rounds down."""
        return ceil_div(self.capacity * (100 - self.reclaim_pct), 100)

    @property
    def raw(self) -> int:
        """capacity - margin - max(system_used, reserved) - online_used - lse_idle; may be negative."""
        return self.capacity - self.margin - max(self.system_used, self.reserved) - self.online_used - self.lse_idle

    @property
    def allocatable(self) -> int:
        """`raw`, but never below what batch work holds and never below 0."""
        return max(self.raw, self.held, 0)

    @property
    def headroom(self) -> int:
        """`raw` less what is held: negative when batch work holds more than it should."""
        return self.raw - self.held


class ZoneInputs(Struct, frozen=True, kw_only=True):
    """The terms of one zone."""

    zone: int
    cpu: Resource
    memory: Resource


def allocatable_of_zone(inputs: ZoneInputs) -> ZoneAllocatable:
    """What may be promised in the zone, in mcpu and bytes."""
    return ZoneAllocatable(
        zone=inputs.zone,
        batch_cpu_mcpu=inputs.cpu.allocatable,
        batch_memory_bytes=inputs.memory.allocatable,
        headroom_cpu_mcpu=inputs.cpu.headroom,
        headroom_memory_bytes=inputs.memory.headroom,
    )


def zone_inputs(
    topology: NodeTopology,
    sample: NodeUsageSampled,
    held: Mapping[int, ZoneShare],
    policy: Policy,
    *,
    reserved: Mapping[int, Reserved] | None = None,
    exclusive: Mapping[int, Exclusive] | None = None,
) -> tuple[ZoneInputs, ...]:
    """The terms of every zone, in the order of the topology.

    `reserved` is what the node's operator keeps back, `exclusive` what LSE work asked for and uses; zones that they lack have none.
    Use of batch work is divided evenly over the zones it may use, rounding down, and system use and the policy's reservation over
    all zones, rounding up; both err towards a smaller promise. Of the two reservations the larger one counts. Raises InvalidInput
    when the sample's zones are not the topology's.
    """
    if [zone.zone for zone in sample.zones] != [zone.zone for zone in topology.zones]:
        raise InvalidInput(
            "zones", "the sample must have exactly the zones of the topology", [z.zone for z in sample.zones]
        )
    count = len(topology.zones)
    batch = _batch_use(topology, sample.workloads)
    system_mcpu = ceil_div(max(sample.system_cpu_used_mcpu, 0), count)
    system_bytes = ceil_div(max(sample.system_memory_used_bytes, 0), count)
    reserved_mcpu = ceil_div(policy.node_reserved_cpu_mcpu, count)
    reserved_bytes = ceil_div(policy.node_reserved_memory_bytes, count)
    inputs = []
    for zone, used in zip(topology.zones, sample.zones, strict=True):
        batch_mcpu, batch_bytes = batch[zone.zone]
        share = held.get(zone.zone)
        own = (reserved or {}).get(zone.zone, _NOTHING)
        lse = (exclusive or {}).get(zone.zone, _NOBODY)
        inputs.append(
            ZoneInputs(
                zone=zone.zone,
                cpu=Resource(
                    capacity=zone.cpu_capacity_mcpu,
                    reclaim_pct=policy.cpu_reclaim_pct,
                    reserved=max(reserved_mcpu, own.cpu_mcpu),
                    system_used=system_mcpu,
                    online_used=max(used.cpu_used_mcpu - batch_mcpu - system_mcpu, 0),
                    held=share.cpu_mcpu if share else 0,
                    lse_requested=lse.requested_mcpu,
                    lse_used=lse.used_mcpu,
                ),
                memory=Resource(
                    capacity=zone.memory_bytes,
                    reclaim_pct=policy.memory_reclaim_pct,
                    reserved=max(reserved_bytes, own.memory_bytes),
                    system_used=system_bytes,
                    online_used=max(used.memory_used_bytes - batch_bytes - system_bytes, 0),
                    held=share.memory_bytes if share else 0,
                ),
            )
        )
    return tuple(inputs)


def _batch_use(topology: NodeTopology, workloads: Iterable[WorkloadUsage]) -> dict[int, tuple[int, int]]:
    """Zone -> (mcpu, bytes) used by batch and free work; a workload that names no known zone counts in all of them."""
    known = [zone.zone for zone in topology.zones]
    use = dict.fromkeys(known, (0, 0))
    for workload in workloads:
        if workload.band not in _RECLAIMED:
            continue
        zones = [zone for zone in workload.zones if zone in use] or known
        mcpu = workload.cpu_used_mcpu // len(zones)
        memory = workload.memory_used_bytes // len(zones)
        for zone in zones:
            before_mcpu, before_bytes = use[zone]
            use[zone] = (before_mcpu + mcpu, before_bytes + memory)
    return use
