"""What a node keeps for itself: reserved CPUs, and each zone's part of a reserved amount.

Annotations of a node are read as Koordinator reads them: what cannot be read withholds nothing, because a typing mistake in one
annotation must not take a whole node out of service (koordinator-sh/koordinator:pkg/koordlet/statesinformer/impl/
states_noderesourcetopology.go).
"""

from typing import Final

from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.quantity import ceil_div
from colo_scheduler.cpus.accumulator import take_sockets_first
from colo_scheduler.cpus.balance import take_in_turn
from colo_scheduler.cpus.topology import CpuTopology

__all__ = ["NodeReservation", "divide_by_zones", "reserved_cpus"]

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


def divide_by_zones(amount_milli: int, zone_count: int) -> int:
    """One zone's part of an amount, rounded up so that the parts cover it; 0 without a zone."""
    return 0 if zone_count <= 0 else ceil_div(amount_milli, zone_count)


def _read(cpus: str) -> CpuSet:
    try:
        return CpuSet.parse(cpus)
    except InvalidInput:
        return CpuSet()
