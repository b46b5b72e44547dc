"""The CPUs of the online work that colo runs, and the CPUs left to batch work: pure masks and rules.

| class | runs on | who else may run there |
|---|---|---|
| LSE | the CPUs it was given | nobody |
| LSR | the CPUs it was given | BE |
| LS | the LS pool of its zones: their CPUs but those of LSE and LSR; if CPUs were given, those of them | LS, BE |
| BE | the BE pool: all CPUs but those of LSE | LSR, LS, BE |

LSE is LSR with no BE on its CPUs; openFuyao calls it HLS. Work of the class LS below the band prod runs in the batch tier, on CPUs
of the BE pool that are no LSR work's.

The zones are those that the scheduler chose; the CPU policy none asks for the LS pool of the whole node. A zone whose CPUs are all
somebody's own has no LS pool, and its LS work runs in the LS pool of the node until the zone has one again.

CPUs that the operator withholds (reserved, or exclusive to SYSTEM work) are in neither pool and no work gets them
(koordinator-sh/koordinator:pkg/koordlet/statesinformer/impl/states_noderesourcetopology.go). CPUs that a kubelet pinned to its
Guaranteed pods are like those of LSR work: batch work may use what is idle of them, and nobody else.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from colo_common.model.constraints import CpuPolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass, check_pair
from colo_common.model.reasons import Reason
from colo_executor.desired import (
    ONLINE_IDENTITY,
    DesiredPolicy,
    MachineFacts,
    huge_page_knobs,
    huge_page_zones,
    identity_knobs,
    most_mcpu,
    most_memory_bytes,
    replica_quota_us,
)
from colo_executor.kept_cpus import KeptCpus
from colo_executor.knob_table import PERIOD_US, Knob
from colo_executor.knobs import weight_v1
from colo_executor.order import KnobWrite

__all__ = [
    "NEEDED",
    "CpuHold",
    "CpuPools",
    "CpusRefused",
    "given_cpus",
    "hold_of",
    "is_online",
    "not_admitted",
    "online_group",
    "online_knobs",
    "online_sets",
    "online_top_knobs",
    "pools_of",
    "protected_bytes",
]

NEEDED: Final = (Knob.CPU_WEIGHT, Knob.CPUSET_CPUS, Knob.CPUSET_MEMS, Knob.MEMORY_LIMIT)
"""The files without which a machine cannot enforce the promises to online work."""


_BY_NUMBER: Final = (CpuPolicy.EXCLUSIVE, CpuPolicy.IMMOVABLE)


class CpusRefused(Exception):
    """The placement cannot have its CPUs on this node; nothing was changed."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class CpuHold(Struct, frozen=True, kw_only=True):
    """The hold of one online replica. `cpus` are its own for LSE and LSR; for LS they are CPUs of the pool, or empty for all.

    `zones` are the zones of LS work, empty for all of the node.
    """

    owner: str
    qos: QosClass
    cpus: CpuSet
    cpu_mcpu: int
    memory_bytes: int = 0
    zones: CpuSet = CpuSet()


class CpuPools(Struct, frozen=True, kw_only=True):
    """The shared CPUs. The LS pool is always part of the BE pool."""

    ls: CpuSet
    be: CpuSet


def is_online(placement: Placement) -> bool:
    """Whether the placement runs in the online tier: never suppressed, never idle-class."""
    return placement.band is PriorityBand.PROD


def not_admitted(placement: Placement, colocation_mode: str = "vm") -> str:
    """Empty when an executor may run work of this class and band on a node of this mode, else a sentence with the rule."""
    if placement.qos is QosClass.SYSTEM:
        return "qos: SYSTEM work is the node's own and is not placed"
    try:
        check_pair(placement.qos, placement.band, "band")
    except InvalidInput as error:
        return str(error)
    if colocation_mode == "container" and placement.qos is QosClass.BE and placement.cpu_policy in _BY_NUMBER:
        return (
            f"cpu_policy: {placement.cpu_policy.value} is for batch work on nodes whose rules_colocation_mode is vm; "
            "online work of the same kernel could starve its CPUs"
        )
    return ""


def online_group(qos: QosClass, token: str) -> str:
    """The name of an attempt's group in the online tier: "class.token", from which the collector reads both."""
    return f"{qos.value.lower()}.{token}"


def pools_of(cpus: CpuSet, holds: Iterable[CpuHold], kept: KeptCpus) -> CpuPools:
    """The shared CPUs that the holds leave of the machine's `cpus`. The order of holds does not matter."""
    ls, be = cpus - kept.taken, cpus - kept.withheld
    for hold in holds:
        if hold.qos.has_own_cpus:
            ls -= hold.cpus
        if hold.qos is QosClass.LSE:
            be -= hold.cpus
    return CpuPools(ls=ls, be=be)


def hold_of(placement: Placement, owner: str) -> CpuHold:
    """What the placement asks to hold. Raises InvalidInput for a list of CPUs that is none."""
    cpus = CpuSet.parse(placement.cpus, "cpus")
    is_anywhere = placement.cpu_policy is CpuPolicy.NONE
    zones = CpuSet() if is_anywhere else CpuSet.from_iterable(share.zone for share in placement.zones)
    return CpuHold(
        owner=owner,
        qos=placement.qos,
        cpus=cpus,
        cpu_mcpu=placement.cpu_mcpu,
        memory_bytes=placement.memory_bytes,
        zones=zones,
    )


def given_cpus(
    placement: Placement, owner: str, machine: MachineFacts, holds: Sequence[CpuHold], kept: KeptCpus
) -> CpuHold:
    """The hold of the placement. Raises CpusRefused when its CPUs are taken, or would leave other work without a CPU."""
    try:
        hold = hold_of(placement, owner)
    except InvalidInput as error:
        raise CpusRefused(Reason.CPUS_SHORT, str(error)) from error
    if placement.qos.has_own_cpus:
        _check_own(hold, machine, holds, kept)
    after = (*holds, hold)
    pools = pools_of(machine.cpus, after, kept)
    if not pools.be:
        raise CpusRefused(Reason.CPUS_SHORT, f"cpus: {hold.cpus} would leave no CPU to the rest of the node")
    for other in after:
        if not other.qos.has_own_cpus and not _shared(other, machine, pools):
            raise CpusRefused(Reason.CPUS_SHORT, f"cpus: no shared CPU is left for {other.owner}")
    return hold


def _check_own(hold: CpuHold, machine: MachineFacts, holds: Iterable[CpuHold], kept: KeptCpus) -> None:
    if not hold.cpus:
        raise CpusRefused(Reason.CPUS_SHORT, f"cpus: {hold.qos.value} work needs CPUs of its own, and was given none")
    absent = hold.cpus - machine.cpus
    if absent:
        raise CpusRefused(Reason.CPUS_SHORT, f"cpus: {absent} are not online on this node")
    if hold.cpus & kept.withheld:
        raise CpusRefused(Reason.CPUS_SHORT, f"cpus: {hold.cpus & kept.withheld} are withheld by the node's rules")
    if hold.cpus & kept.pinned:
        raise CpusRefused(Reason.CPUS_SHORT, f"cpus: {hold.cpus & kept.pinned} are pinned by the kubelet to its pods")
    for other in holds:
        if other.qos.has_own_cpus and other.cpus & hold.cpus:
            raise CpusRefused(Reason.CPUS_SHORT, f"cpus: {other.cpus & hold.cpus} are held by {other.owner}")


def _shared(hold: CpuHold, machine: MachineFacts, pools: CpuPools) -> CpuSet:
    if hold.cpus:
        return hold.cpus & pools.ls
    near = CpuSet()
    for zone in hold.zones:
        near = near | machine.zones.get(zone, pools.ls)
    return near & pools.ls or pools.ls


def _mems(zones: CpuSet, machine: MachineFacts) -> CpuSet:
    return zones & machine.mems or machine.mems


def online_sets(hold: CpuHold, machine: MachineFacts, pools: CpuPools) -> tuple[CpuSet, CpuSet]:
    """CPUs and memory zones of the hold: its own CPUs and the zones they are in, or the LS pool of its zones and their memory.

    Where these zones have no memory, all memory. The memory stays the zones' also while the CPUs are of others.
    """
    if not hold.qos.has_own_cpus:
        is_known = all(zone in machine.zones for zone in hold.zones)
        return _shared(hold, machine, pools), _mems(hold.zones, machine) if is_known else machine.mems
    near = CpuSet.from_iterable(zone for zone, cpus in sorted(machine.zones.items()) if cpus & hold.cpus)
    return hold.cpus, _mems(near, machine)


def protected_bytes(policy: DesiredPolicy, hold: CpuHold) -> tuple[int, int]:
    """The memory of the hold that is protected absolutely (memory.min), and before other work's (memory.low).

    Request x percentage // 100, rounded down; where anything is protected, low is at least min
    (koordinator-sh/koordinator:pkg/koordlet/qosmanager/plugins/cgreconcile/cgroup_reconcile.go).
    """
    least = hold.memory_bytes * policy.memory_min_pct // 100 if hold.qos.has_own_cpus else 0
    low = hold.memory_bytes * policy.memory_low_pct // 100
    return least, max(low, least) if low else 0


def online_top_knobs(policy: DesiredPolicy, machine: MachineFacts, holds: Iterable[CpuHold]) -> tuple[KnobWrite, ...]:
    """Knobs of the online tier's top group: all CPUs and zones, identity, and the sums of its groups' weight and protection.

    A group's memory is protected no further than the memory of the group above it.
    """
    holds = tuple(holds)
    protected = [protected_bytes(policy, hold) for hold in holds]
    writes = (
        KnobWrite(path="", knob=Knob.CPUSET_CPUS, value=machine.cpus.format()),
        KnobWrite(path="", knob=Knob.CPUSET_MEMS, value=machine.mems.format()),
        KnobWrite(path="", knob=Knob.CPU_WEIGHT, value=weight_v1(sum(hold.cpu_mcpu for hold in holds))),
        *identity_knobs(policy, machine, "", ONLINE_IDENTITY),
        KnobWrite(path="", knob=Knob.MEMORY_MIN, value=sum(least for least, _ in protected)),
        KnobWrite(path="", knob=Knob.MEMORY_LOW, value=sum(low for _, low in protected)),
    )
    return tuple(write for write in writes if write.knob in machine.has)


def online_knobs(
    policy: DesiredPolicy, machine: MachineFacts, placement: Placement, hold: CpuHold, pools: CpuPools, path: str
) -> tuple[KnobWrite, ...]:
    """Knobs of one online replica: sets, weight and protected memory by request, limits of memory and CPU, processes, huge pages.

    Never idle. A replica with CPUs of its own has no quota, which would stop it on CPUs that no other work may use. One that rules
    left no CPU, while no executor ran, keeps those that it has.
    """
    cpus, mems = online_sets(hold, machine, pools)
    mems = mems | huge_page_zones(placement) & machine.mems
    most = None if hold.qos.has_own_cpus else most_mcpu(policy, placement)
    least, low = protected_bytes(policy, hold)
    quota = (
        KnobWrite(path=path, knob=Knob.CPU_PERIOD, value=PERIOD_US),
        KnobWrite(path=path, knob=Knob.CPU_QUOTA, value=replica_quota_us(most, None)),
    )
    writes = (
        *([KnobWrite(path=path, knob=Knob.CPUSET_CPUS, value=cpus.format())] if cpus else ()),
        KnobWrite(path=path, knob=Knob.CPUSET_MEMS, value=mems.format()),
        KnobWrite(path=path, knob=Knob.CPU_WEIGHT, value=weight_v1(placement.cpu_mcpu)),
        *identity_knobs(policy, machine, path, ONLINE_IDENTITY),
        KnobWrite(path=path, knob=Knob.MEMORY_LIMIT, value=most_memory_bytes(placement)),
        KnobWrite(path=path, knob=Knob.MEMORY_MIN, value=least),
        KnobWrite(path=path, knob=Knob.MEMORY_LOW, value=low),
        KnobWrite(path=path, knob=Knob.OOM_GROUP, value=1),
        KnobWrite(path=path, knob=Knob.PIDS_LIMIT, value=policy.pids_most),
        *huge_page_knobs(policy, machine, placement, path),
        *(() if most is None else quota),
    )
    return tuple(write for write in writes if write.knob in machine.has)
