"""What a node keeps for itself: the CPUs that no placed work gets, and each zone's part of a reserved amount.

There is one list of withheld CPUs. The collector publishes it, with an amount of CPU resolved to numbers; the scheduler, the
promise and the executor's pools read it here and count by no other rule.

Annotations of a node are read as Koordinator reads them: what cannot be read withholds nothing, because a typing mistake in one
annotation must not take a whole node out of service (koordinator-sh/koordinator:pkg/koordlet/statesinformer/impl/
states_noderesourcetopology.go).
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from colo_common.model.cpu_accumulator import take_sockets_first
from colo_common.model.cpu_topology import CpuRow, CpuTopology
from colo_common.model.cpu_turns import take_in_turn
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.quantity import ceil_div
from colo_common.model.topology import Cpu

__all__ = [
    "NodeReservation",
    "divide_by_zones",
    "index_of",
    "lasting_rules",
    "reserved_cpus",
    "resolved_rules",
    "withheld_cpus",
]

_MCPU_PER_CPU: Final = 1000


class NodeReservation(Struct, frozen=True, kw_only=True):
    """The annotation `node.koordinator.sh/reservation`: CPUs by number, or else an amount of CPU.

    `is_spread`: an amount is taken in turn from every zone, as Katalyst does, and not packed.
    """

    cpus: str = ""
    cpu_mcpu: int = 0
    is_spread: bool = False


def index_of(cpus: Iterable[Cpu]) -> CpuTopology:
    """The index of a machine's CPUs. Raises InvalidInput for impossible ones: a core in two zones, an id twice."""
    rows = [CpuRow(row.cpu, row.core, row.zone, row.socket, row.l3) for row in cpus]
    try:
        return CpuTopology.from_rows(rows)
    except InvalidInput as error:
        if not error.field.endswith(".l3"):
            raise
        # Caches only order choices: a machine that reports them inconsistently is still usable.
        return CpuTopology.from_rows(row._replace(l3=None) for row in rows)


def withheld_cpus(rules: NodeRules, cpus: CpuTopology, *, amounts_only: bool = False) -> CpuSet:
    """The CPUs that no work is given; with `amounts_only` those that also reduce the amounts that may be requested."""
    if rules == UNRULED:
        return CpuSet()
    kept = CpuSet.parse(rules.kubelet_reserved_cpus) | CpuSet.parse(rules.system_cpus)
    if amounts_only and rules.reserved_cpus_only:
        return kept
    return kept | reserved_cpus(cpus, _reservation(rules))


def resolved_rules(rules: NodeRules, cpus: CpuTopology) -> NodeRules:
    """The rules with an amount of reserved CPU as a list of CPUs; unchanged when it is larger than the machine."""
    return replace(rules, reserved_cpus=reserved_cpus(cpus, _reservation(rules)).format())


def lasting_rules(rules: NodeRules) -> NodeRules:
    """The rules after all pods with kubelet-pinned CPUs have ended."""
    kept = CpuSet.parse(rules.kubelet_reserved_cpus) - CpuSet.parse(rules.kubelet_pinned_cpus)
    return replace(rules, kubelet_reserved_cpus=kept.format(), kubelet_pinned_cpus="")


def _reservation(rules: NodeRules) -> NodeReservation:
    return NodeReservation(cpus=rules.reserved_cpus, cpu_mcpu=rules.reserved_mcpu, is_spread=rules.reserved_spread)


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
