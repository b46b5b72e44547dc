"""Four ways of giving CPUs to a workload, chosen by the workload itself.

| policy    | its CPUs                            | others on them | for                                                     |
|-----------|-------------------------------------|----------------|---------------------------------------------------------|
| exclusive | a fixed set                         | nobody         | work that fills its caches and its CPUs                 |
| immovable | a fixed set                         | shared work    | work that must not move, and may share                  |
| numa      | the shared CPUs of its zones        | shared work    | work that needs locality only                           |
| none      | all CPUs that nobody has alone      | shared work    | work that does not care; soaks up what is idle          |

A fixed set is chosen apart: both threads of a core only when nothing else is left.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_scheduler.cpus.pools import union
from colo_scheduler.cpus.siblings import choose_apart
from colo_scheduler.cpus.topology import CpuTopology

__all__ = ["FixedCpuPolicy", "PolicyHold", "choose_fixed"]


class FixedCpuPolicy(StrEnum):
    """How a workload gets its CPUs; the table above."""

    EXCLUSIVE = "exclusive"
    IMMOVABLE = "immovable"
    NUMA = "numa"
    NONE = "none"

    @property
    def is_fixed(self) -> bool:
        """Whether the workload has CPUs by number."""
        return self in (FixedCpuPolicy.EXCLUSIVE, FixedCpuPolicy.IMMOVABLE)


class PolicyHold(Struct, frozen=True, kw_only=True):
    """A workload on a machine. `cpus` only for fixed policies, `zones` (ids) only for numa.

    `keeps_off_reserved` takes reserved CPUs out of the set of a `none` workload; the other policies never have them.
    """

    owner: str
    policy: FixedCpuPolicy
    zones: tuple[int, ...] = ()
    cpus: CpuSet = CpuSet()
    keeps_off_reserved: bool = False


def choose_fixed(
    topology: CpuTopology,
    holds: Sequence[PolicyHold],
    wanted: Mapping[int, int],
    policy: FixedCpuPolicy,
    *,
    reserved: CpuSet | None = None,
) -> CpuSet | None:
    """CPUs for a new workload of a fixed policy: `wanted` names how many of each zone (by id). None when a zone has too few.

    None of them is reserved or in another workload's fixed set, exclusive or not; threads beside such CPUs are taken late.
    Exclusive CPUs are not taken either when a workload that shares would be left without any. Raises InvalidInput for a policy
    that is not fixed, for a zone that the machine lacks and for a negative number.
    """
    if not policy.is_fixed:
        raise InvalidInput("policy", "must be exclusive or immovable to have CPUs by number", policy.value)
    fixed = union(hold.cpus for hold in holds if hold.policy.is_fixed)
    busy = fixed | (reserved or CpuSet())
    chosen = CpuSet()
    for zone in sorted(wanted):
        if zone not in topology.zone_ids:
            raise InvalidInput(f"wanted[{zone}]", "must be a zone of this machine", zone)
        part = choose_apart(topology, topology.cpus_of_zone(zone), wanted[zone], busy)
        if part is None:
            return None
        chosen |= part
    if policy is FixedCpuPolicy.EXCLUSIVE and _starves(topology, holds, chosen, reserved or CpuSet()):
        return None
    return chosen


def _starves(topology: CpuTopology, holds: Sequence[PolicyHold], taken: CpuSet, reserved: CpuSet) -> bool:
    """Whether some workload that shares has CPUs now and none once these are taken away."""
    sets = [_shared_set(topology, holds, hold, reserved) for hold in holds if not hold.policy.is_fixed]
    return any(cpus and not cpus - taken for cpus in sets)


def _shared_set(topology: CpuTopology, holds: Sequence[PolicyHold], hold: PolicyHold, reserved: CpuSet) -> CpuSet:
    exclusive = union(each.cpus for each in holds if each.policy is FixedCpuPolicy.EXCLUSIVE)
    shared = CpuSet(topology.all_mask) - exclusive
    if hold.policy is FixedCpuPolicy.NUMA:
        return (shared - reserved) & union(topology.cpus_of_zone(zone) for zone in hold.zones)
    return shared - reserved if hold.keeps_off_reserved else shared
