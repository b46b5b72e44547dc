"""What a node keeps for itself: reserved CPUs, CPUs of SYSTEM work, and each zone's part of what the kubelet reserves.

Annotations of a node are read as Koordinator reads them: what cannot be read withholds nothing, because a typing mistake in one
annotation must not take a whole node out of service (koordinator-sh/koordinator:pkg/koordlet/statesinformer/impl/
states_noderesourcetopology.go).
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.quantity import ceil_div
from colo_scheduler.cpus.assignment import take_sockets_first
from colo_scheduler.cpus.balance import take_in_turn
from colo_scheduler.cpus.topology import CpuTopology

__all__ = ["NodeReservation", "divide_by_zones", "reserved_cpus", "system_cpus", "zones_less_reserved"]

_MCPU_PER_CPU: Final = 1000


class NodeReservation(Struct, frozen=True, kw_only=True):
    """The annotation `node.koordinator.sh/reservation`: CPUs by number, or else an amount of CPU.

    `is_spread`: an amount is taken in turn from every zone, as Katalyst does, and not packed.
    """

    cpus: str = ""
    cpu_mcpu: int = 0
    is_spread: bool = False


def reserved_cpus(topology: CpuTopology, reservation: NodeReservation) -> CpuSet:
    """The CPUs that a node reserves. A list wins over an amount; an amount becomes ceil(mcpu / 1000) CPUs, packed or spread.

    A list that cannot be read, and an amount larger than the machine, reserve nothing.
    """
    if reservation.cpus:
        return _read(reservation.cpus)
    count = ceil_div(max(0, reservation.cpu_mcpu), _MCPU_PER_CPU)
    take = take_in_turn if reservation.is_spread else take_sockets_first
    return take(topology, CpuSet(topology.all_mask), count) or CpuSet()


def system_cpus(cpus: str, is_exclusive: bool | None) -> CpuSet:
    """The CPUs that SYSTEM work keeps from everybody else: its list (annotation `node.koordinator.sh/system-qos-resource`), unless
    it says that it shares them; saying nothing (None) means exclusive. A list that cannot be read keeps nothing.
    """
    return CpuSet() if is_exclusive is False else _read(cpus)


def divide_by_zones(amount_milli: int, zone_count: int) -> int:
    """One zone's part of an amount, rounded up so that the parts cover it; 0 without a zone."""
    return 0 if zone_count <= 0 else ceil_div(amount_milli, zone_count)


def zones_less_reserved(
    allocatable_milli: Mapping[str, Mapping[str, int]], reserved_milli: Mapping[str, int], zone_count: int
) -> dict[str, dict[str, int]]:
    """Each zone's allocatable less its part of what the kubelet reserves, at least 0: zone -> resource -> thousandths of a unit.

    A resource that a zone does not report is not added to it; without a zone count nothing changes. The parts are rounded up: a
    promise rounds down.
    """
    return {
        zone: {
            name: max(0, amount - divide_by_zones(reserved_milli.get(name, 0), zone_count))
            for name, amount in resources.items()
        }
        for zone, resources in allocatable_milli.items()
    }


def _read(cpus: str) -> CpuSet:
    try:
        return CpuSet.parse(cpus)
    except InvalidInput:
        return CpuSet()
