"""Four ways of giving CPUs to a workload, chosen by the workload itself.

| policy    | its CPUs                            | others on them | for                                                     |
|-----------|-------------------------------------|----------------|---------------------------------------------------------|
| exclusive | a fixed set                         | nobody         | work that fills its caches and its CPUs                 |
| immovable | a fixed set                         | shared work    | work that must not move, and may share                  |
| numa      | the shared CPUs of its zones        | shared work    | work that needs locality only                           |
| none      | all CPUs that nobody has alone      | shared work    | work that does not care; soaks up what is idle          |

Batch work beside online work on one kernel ("container") may not have exclusive CPUs: at the online peak those very CPUs may give
it nothing, while others are free. Inside a virtual machine of its own ("vm") it may and by default does, because there the host
moves its virtual CPUs off squeezed ones. A fixed set is chosen apart: both threads of a core only when nothing else is left.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import QosClass
from colo_scheduler.cpus.pools import union
from colo_scheduler.cpus.siblings import choose_apart
from colo_scheduler.cpus.topology import CpuTopology

__all__ = [
    "CPU_POLICY_ANNOTATION",
    "Colocation",
    "CpuPolicy",
    "PolicyHold",
    "choose_fixed",
    "cpu_sets",
    "parse_policy",
    "resolve_policy",
]

CPU_POLICY_ANNOTATION: Final = "topology.crane.io/cpu-policy"


class CpuPolicy(StrEnum):
    """How a workload gets its CPUs; the table above."""

    EXCLUSIVE = "exclusive"
    IMMOVABLE = "immovable"
    NUMA = "numa"
    NONE = "none"

    @property
    def is_fixed(self) -> bool:
        """Whether the workload has CPUs by number."""
        return self in (CpuPolicy.EXCLUSIVE, CpuPolicy.IMMOVABLE)


class Colocation(StrEnum):
    """Where batch work runs: beside online work on one kernel, or in a virtual machine of its own."""

    CONTAINER = "container"
    VM = "vm"


class PolicyHold(Struct, frozen=True, kw_only=True):
    """A workload on a machine. `cpus` only for fixed policies, `zones` (ids) only for numa.

    `keeps_off_reserved` takes reserved CPUs out of the set of a `none` workload; the other policies never have them.
    """

    owner: str
    policy: CpuPolicy
    zones: tuple[int, ...] = ()
    cpus: CpuSet = CpuSet()
    keeps_off_reserved: bool = False


def parse_policy(text: object, field: str) -> CpuPolicy:
    """The policy of that name. Raises InvalidInput for another one."""
    for policy in CpuPolicy:
        if text == policy.value:
            return policy
    raise InvalidInput(field, "must be one of exclusive immovable numa none", text)


def resolve_policy(asked: CpuPolicy | None, qos: QosClass, colocation: Colocation, field: str) -> CpuPolicy:
    """The policy that a workload gets: the one it asks for, or that of its class.

    LSE and LSR: exclusive (LSR's CPUs may still be lent to BE). LS and SYSTEM: none. BE: numa beside online work, exclusive in a
    virtual machine. Raises InvalidInput when BE asks for exclusive CPUs beside online work, and when LSE or LSR ask for less.
    """
    if qos is QosClass.BE:
        if colocation is Colocation.VM:
            return asked or CpuPolicy.EXCLUSIVE
        if asked is CpuPolicy.EXCLUSIVE:
            raise InvalidInput(field, "must not be exclusive for BE work beside online work; use numa", asked.value)
        return asked or CpuPolicy.NUMA
    if qos.has_own_cpus:
        if asked not in (None, CpuPolicy.EXCLUSIVE):
            raise InvalidInput(field, f"must be exclusive for class {qos.value}", asked)
        return CpuPolicy.EXCLUSIVE
    return asked or CpuPolicy.NONE


def choose_fixed(
    topology: CpuTopology,
    holds: Sequence[PolicyHold],
    wanted: Mapping[int, int],
    policy: CpuPolicy,
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
    if policy is CpuPolicy.EXCLUSIVE and _starves(topology, holds, chosen, reserved or CpuSet()):
        return None
    return chosen


def cpu_sets(
    topology: CpuTopology, holds: Sequence[PolicyHold], *, reserved: CpuSet | None = None
) -> dict[str, CpuSet]:
    """The CPU set of every workload, by owner: what a fixed one holds, what the exclusive ones leave to the others.

    So an exclusive workload that comes narrows the sets of `numa` and `none` work, and one that leaves widens them again.
    """
    return {
        hold.owner: hold.cpus if hold.policy.is_fixed else _shared_set(topology, holds, hold, reserved or CpuSet())
        for hold in holds
    }


def _starves(topology: CpuTopology, holds: Sequence[PolicyHold], taken: CpuSet, reserved: CpuSet) -> bool:
    """Whether some workload that shares has CPUs now and none once these are taken away."""
    sets = [_shared_set(topology, holds, hold, reserved) for hold in holds if not hold.policy.is_fixed]
    return any(cpus and not cpus - taken for cpus in sets)


def _shared_set(topology: CpuTopology, holds: Sequence[PolicyHold], hold: PolicyHold, reserved: CpuSet) -> CpuSet:
    exclusive = union(each.cpus for each in holds if each.policy is CpuPolicy.EXCLUSIVE)
    shared = CpuSet(topology.all_mask) - exclusive
    if hold.policy is CpuPolicy.NUMA:
        return (shared - reserved) & union(topology.cpus_of_zone(zone) for zone in hold.zones)
    return shared - reserved if hold.keeps_off_reserved else shared
