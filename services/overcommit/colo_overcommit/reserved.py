"""The CPU and memory that the operator of a node keeps back, by zone, computed from the node's rules."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.topology import NodeTopology
from colo_common.model.withheld import divide_by_zones, index_of, lasting_rules, withheld_cpus

__all__ = ["ReservationForm", "Reserved", "reserved_amount", "reserved_by_zone"]

_MCPU = 1_000


class ReservationForm(StrEnum):
    """How what several sources keep back counts together. max: the largest of them, as Koordinator computes it since version 1.3.
    sum: all of them, as it did before.
    """

    MAX = "max"
    SUM = "sum"


def reserved_amount(form: str, *amounts: int) -> int:
    """What is kept back when each source keeps back one of these amounts, in their unit."""
    return sum(amounts) if form == ReservationForm.SUM else max(amounts, default=0)


class Reserved(Struct, frozen=True, kw_only=True):
    """The CPU and memory that are kept back in one zone."""

    cpu_mcpu: int = 0
    memory_bytes: int = 0


def reserved_by_zone(topology: NodeTopology, rules: NodeRules) -> Mapping[int, Reserved]:
    """Zone -> the CPU and memory kept back in it; {} without rules. Raises InvalidInput for rules that do not fit the topology.

    Withheld CPUs count 1000 mcpu each in their zone: those that the scheduler gives to nobody and that batch work does not run on.
    CPUs that a kubelet pinned to its pods are not among them: they are as those of LSR work, whose use counts as online and on
    whose idle CPU batch work runs.
    An amount of memory is shared by the zones, and each share rounds up. `reserved_cpus_only` makes no difference here
    (Koordinator's applyPolicy concerns the scheduler).
    """
    rules.validate(topology)
    if rules == UNRULED:
        return {}
    kept = withheld_cpus(lasting_rules(rules), index_of(topology.cpus))
    memory_bytes = divide_by_zones(rules.reserved_memory_bytes, len(topology.zones))
    return {
        zone.zone: Reserved(cpu_mcpu=len(CpuSet.parse(zone.cpus) & kept) * _MCPU, memory_bytes=memory_bytes)
        for zone in topology.zones
    }
