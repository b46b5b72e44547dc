"""Which CPUs of a machine are exclusive and which are shared: the pools that LS and BE work run on.

The rules, class by class (koordinator-sh/koordinator:pkg/koordlet/statesinformer/impl/states_noderesourcetopology.go):

| class  | its CPUs                                        | who else may run there |
|--------|-------------------------------------------------|------------------------|
| LSE    | the ones it holds                               | nobody                 |
| LSR    | the ones it holds                               | BE                     |
| LS     | the LS pool: all that no workload holds         | LS and BE              |
| BE     | the BE pool: all but those of LSE               | everybody but LSE      |
| SYSTEM | the node's system CPUs, or the LS pool          | if exclusive, nobody   |

CPUs of a Guaranteed pod that a kubelet with the static policy pinned leave both pools; so do CPUs that the node reserves.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from colo_common.model.cpu_topology import CpuTopology
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import QosClass

__all__ = ["CpuHold", "Pools", "SharedPool", "check_holds", "compute_pools", "union", "without"]

_NONE = CpuSet()


class CpuHold(Struct, frozen=True, kw_only=True):
    """CPUs that a workload was given by number. `qos` None: it has no class of its own, and counts as LSR."""

    owner: str
    cpus: CpuSet
    qos: QosClass | None = None


class SharedPool(Struct, frozen=True, kw_only=True):
    """The shared CPUs of one zone. `socket` is that of the lowest of them."""

    socket: int
    zone: int
    cpus: CpuSet


class Pools(Struct, frozen=True, kw_only=True):
    """All CPUs of a machine by who may use them; both pools are ordered by socket, then zone.

    A zone that workloads hold completely has no entry in a pool; one that the node reserves completely has an empty one.
    """

    exclusive: tuple[CpuHold, ...]
    """What LSE workloads hold: CPUs in nobody else's set, in order of owner."""
    reserved: tuple[CpuHold, ...]
    """What the other workloads hold: CPUs shared with BE only, in order of owner."""
    ls: tuple[SharedPool, ...]
    be: tuple[SharedPool, ...]

    @property
    def ls_cpus(self) -> CpuSet:
        """Where LS work runs."""
        return union(pool.cpus for pool in self.ls)

    @property
    def be_cpus(self) -> CpuSet:
        """Where BE work may run, before suppression narrows it."""
        return union(pool.cpus for pool in self.be)


def compute_pools(
    topology: CpuTopology,
    holds: Sequence[CpuHold],
    *,
    kubelet: CpuSet = _NONE,
    reserved: CpuSet = _NONE,
    system: CpuSet = _NONE,
) -> Pools:
    """The pools of a machine. `kubelet`: CPUs that its static policy pinned; `reserved`: CPUs that the node withholds; `system`:
    exclusive CPUs of SYSTEM work.

    Never fails: holds that contradict each other or the machine only make the pools smaller; `check_holds` tells them. The LS pool
    is always part of the BE pool, no pool has a CPU of LSE work, and the order of `holds` does not matter.
    """
    ls = be = topology.all_mask & ~kubelet.mask
    for hold in holds:
        ls &= ~hold.cpus.mask
        if hold.qos is QosClass.LSE:
            be &= ~hold.cpus.mask
    withheld = reserved | system
    ordered = sorted(holds, key=lambda hold: (hold.owner, hold.cpus.mask, hold.qos or ""))
    return Pools(
        exclusive=tuple(hold for hold in ordered if hold.qos is QosClass.LSE),
        reserved=tuple(hold for hold in ordered if hold.qos is not QosClass.LSE),
        ls=without(_by_zone(topology, ls), withheld),
        be=without(_by_zone(topology, be), withheld),
    )


def check_holds(
    topology: CpuTopology, holds: Sequence[CpuHold], *, withheld: CpuSet = _NONE, field: str = "holds"
) -> None:
    """Raise InvalidInput, naming the owner, for the first hold that breaks a rule: it has no CPU; a CPU that the machine lacks;
    one that the node withholds (reserved, the kubelet's, exclusive system CPUs); one that another workload holds; a class that
    runs in a pool and holds no CPUs of its own (LS, BE).
    """
    owner_of: dict[int, str] = {}
    for hold in sorted(holds, key=lambda each: (each.owner, each.cpus.mask)):
        name = f"{field}[{hold.owner}].cpus"
        if not hold.cpus:
            raise InvalidInput(name, "must hold at least one CPU", "")
        if hold.qos in (QosClass.LS, QosClass.BE):
            raise InvalidInput(
                f"{field}[{hold.owner}].qos", "must be a class that holds CPUs of its own", hold.qos.value
            )
        absent = CpuSet(hold.cpus.mask & ~topology.all_mask)
        if absent:
            raise InvalidInput(name, "must be CPUs of this machine", absent.format())
        if hold.cpus & withheld:
            raise InvalidInput(name, "must not be CPUs that the node withholds", (hold.cpus & withheld).format())
        for cpu in hold.cpus:
            if cpu in owner_of:
                raise InvalidInput(name, f"must not be CPUs that {owner_of[cpu]} holds", cpu)
            owner_of[cpu] = hold.owner


def without(pools: Sequence[SharedPool], withheld: CpuSet) -> tuple[SharedPool, ...]:
    """The pools less these CPUs. A pool that loses all of them stays, empty."""
    return tuple(SharedPool(socket=pool.socket, zone=pool.zone, cpus=pool.cpus - withheld) for pool in pools)


def union(sets: Iterable[CpuSet]) -> CpuSet:
    """All CPUs of all sets."""
    mask = 0
    for cpus in sets:
        mask |= cpus.mask
    return CpuSet(mask)


def _by_zone(topology: CpuTopology, mask: int) -> tuple[SharedPool, ...]:
    pools = []
    for zone, zone_mask in zip(topology.zone_ids, topology.zone_masks, strict=True):
        cpus = mask & zone_mask
        if cpus:
            lowest = (cpus & -cpus).bit_length() - 1
            socket = topology.socket_ids[topology.socket_of_cpu[lowest]]
            pools.append(SharedPool(socket=socket, zone=zone, cpus=CpuSet(cpus)))
    return tuple(sorted(pools, key=lambda pool: (pool.socket, pool.zone)))
