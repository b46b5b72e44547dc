"""The desired value of every knob of the batch tier and of a replica."""

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from colo_common.model.constraints import CpuPolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand
from colo_executor.knob_table import KNOB_FILES, PERIOD_US, UNLIMITED, WEIGHT_LEAST, Knob
from colo_executor.knobs import quota_us, weight_v1
from colo_executor.order import KnobWrite

__all__ = [
    "BATCH",
    "BATCH_IDENTITY",
    "MID_FACTOR",
    "ONLINE_IDENTITY",
    "DesiredPolicy",
    "MachineFacts",
    "check_desired",
    "exclusive_batch_cpus",
    "given_batch_cpus",
    "has_identities",
    "huge_page_knobs",
    "huge_page_zones",
    "identity_knobs",
    "most_mcpu",
    "most_memory_bytes",
    "replica_knobs",
    "replica_quota_us",
    "replica_weight",
    "replica_sets",
    "tier_knobs",
]

BATCH: Final = "batch"
"""The group of the batch tier, below the executor's own: it carries the ceiling, and replicas are its children."""

MID_FACTOR: Final = 16
"""Work of the mid tier runs in the batch tier, below all online work, with so many times the weight that its request would have."""

BATCH_IDENTITY: Final = -1
ONLINE_IDENTITY: Final = 2
"""The group identities of batch work and of LSE, LSR and LS work that Koordinator writes by default."""

_NO_CPUS: Final = CpuSet()


class DesiredPolicy(Struct, frozen=True, kw_only=True):
    """`idle`: batch work runs only on CPU time that nothing else uses: by cpu.idle, or on a kernel without it by the identities of
    cpu.bvt_warp_ns; one without either uses the least weight.

    `cap_at_request`: a replica may not use more CPU than its request, even when CPU is idle. `pids_most` limits the processes of a
    replica. `swap_most_bytes` is the swap that a batch replica may use beside its limit of memory, UNLIMITED for any amount.
    `memory_low_pct` of its request of memory is protected for each online replica (memory.low), and of those with CPUs of their own
    `memory_min_pct` absolutely (memory.min). `huge_pages_only_asked`: a page size that a replica did not request has the limit 0,
    because its pages are promised to others; False leaves these sizes unlimited.
    """

    idle: bool = True
    cap_at_request: bool = False
    pids_most: int = 4_096
    swap_most_bytes: int = 0
    memory_low_pct: int = 100
    memory_min_pct: int = 0
    huge_pages_only_asked: bool = True


def check_desired(policy: DesiredPolicy, field: str) -> None:
    """Raise InvalidInput for the first value that the kernel would refuse for every replica."""
    most = KNOB_FILES[Knob.PIDS_LIMIT].most
    if not 1 <= policy.pids_most <= most:
        raise InvalidInput(f"{field}_pids_most", f"must be from 1 to {most}", policy.pids_most)
    for name, share in (("memory_low_pct", policy.memory_low_pct), ("memory_min_pct", policy.memory_min_pct)):
        if not 0 <= share <= 100:
            raise InvalidInput(f"{field}_{name}", "must be from 0 to 100", share)
    most = KNOB_FILES[Knob.SWAP_LIMIT].most
    if not UNLIMITED <= policy.swap_most_bytes <= most:
        rule = f"must be from 0 to {most}, or {UNLIMITED} for any amount"
        raise InvalidInput(f"{field}_swap_most_bytes", rule, policy.swap_most_bytes)


class MachineFacts(Struct, frozen=True, kw_only=True):
    """The machine as knobs need it: all CPUs and memory zones that the executor may use, the CPUs of each zone, existing files.

    `huge_page_sizes` are the page sizes in bytes that the kernel can limit.
    """

    cpus: CpuSet
    mems: CpuSet
    zones: Mapping[int, CpuSet]
    has: frozenset[Knob]
    huge_page_sizes: tuple[int, ...] = ()


def tier_knobs(policy: DesiredPolicy, machine: MachineFacts, ceiling_mcpu: int | None) -> tuple[KnobWrite, ...]:
    """Knobs of the executor's own group ("") and the tier, parent before child, each file after those it depends on.

    The weight is on the executor's own group, which competes with the rest of the machine. The kernel refuses a weight while idle
    is set, so the weight comes first. None of batch work's memory is protected from reclaim, because a group protects no more than
    the one above it. Both groups get all CPUs and zones, because v1 admits no process to a group without them.
    """
    writes: list[KnobWrite] = []
    for path in ("", BATCH):
        writes.append(KnobWrite(path=path, knob=Knob.CPUSET_CPUS, value=machine.cpus.format()))
        writes.append(KnobWrite(path=path, knob=Knob.CPUSET_MEMS, value=machine.mems.format()))
    writes.append(KnobWrite(path="", knob=Knob.CPU_WEIGHT, value=WEIGHT_LEAST))
    if policy.idle:
        writes.append(KnobWrite(path="", knob=Knob.CPU_IDLE, value=1))
    for path in ("", BATCH):
        writes += identity_knobs(policy, machine, path, BATCH_IDENTITY)
    writes += [KnobWrite(path="", knob=knob, value=0) for knob in (Knob.MEMORY_MIN, Knob.MEMORY_LOW)]
    writes.append(KnobWrite(path=BATCH, knob=Knob.CPU_PERIOD, value=PERIOD_US))
    if ceiling_mcpu is not None:
        writes.append(KnobWrite(path=BATCH, knob=Knob.CPU_QUOTA, value=quota_us(ceiling_mcpu)))
    return tuple(write for write in writes if write.knob in machine.has)


def has_identities(policy: DesiredPolicy, has: Collection[Knob]) -> bool:
    """Whether batch work gives way by group identities (cpu.bvt_warp_ns): it is to, and the kernel has them and no cpu.idle.

    One of the two is enough, and cpu.idle is the one whose effect is known.
    """
    return policy.idle and Knob.CPU_IDLE not in has and Knob.CPU_BVT in has


def identity_knobs(policy: DesiredPolicy, machine: MachineFacts, path: str, identity: int) -> tuple[KnobWrite, ...]:
    """The group's identity, where groups have one. Online work is given the one that goes before all others, as Koordinator does,
    and groups of the tiers and those in them are given the same.
    """
    if not has_identities(policy, machine.has):
        return ()
    return (KnobWrite(path=path, knob=Knob.CPU_BVT, value=identity),)


def replica_knobs(
    policy: DesiredPolicy,
    machine: MachineFacts,
    placement: Placement,
    path: str,
    ceiling_mcpu: int | None,
    others: CpuSet = _NO_CPUS,
) -> tuple[KnobWrite, ...]:
    """Knobs of one replica's group: sets, weight within the tier (`replica_weight`), limits of memory and CPU, processes.

    `others` are CPUs that other batch replicas have alone. Without a limit of CPU a replica has no quota of its own and may use
    idle CPU up to the tier's ceiling.
    """
    cpus, mems = replica_sets(machine, placement, others)
    writes = [
        KnobWrite(path=path, knob=Knob.CPUSET_CPUS, value=cpus.format()),
        KnobWrite(path=path, knob=Knob.CPUSET_MEMS, value=mems.format()),
        KnobWrite(path=path, knob=Knob.CPU_WEIGHT, value=replica_weight(placement)),
        *identity_knobs(policy, machine, path, BATCH_IDENTITY),
        *_memory_knobs(policy, placement, path),
        KnobWrite(path=path, knob=Knob.OOM_GROUP, value=1),
        KnobWrite(path=path, knob=Knob.PIDS_LIMIT, value=policy.pids_most),
        *huge_page_knobs(policy, machine, placement, path),
    ]
    quota = replica_quota_us(most_mcpu(policy, placement), ceiling_mcpu)
    if quota != UNLIMITED:
        writes.append(KnobWrite(path=path, knob=Knob.CPU_PERIOD, value=PERIOD_US))
        writes.append(KnobWrite(path=path, knob=Knob.CPU_QUOTA, value=quota))
    return tuple(write for write in writes if write.knob in machine.has)


def _memory_knobs(policy: DesiredPolicy, placement: Placement, path: str) -> tuple[KnobWrite, ...]:
    """The limits of memory and swap, in the order in which v1 takes them in a new group.

    Without a limit of swap a replica at its limit of memory fills the disk beneath online work before it is ended. v1 limits
    memory and swap together.
    """
    limit, swap = most_memory_bytes(placement), policy.swap_most_bytes
    together = UNLIMITED if UNLIMITED in (limit, swap) else min(limit + swap, KNOB_FILES[Knob.MEMORY_SWAP_LIMIT].most)
    return (
        KnobWrite(path=path, knob=Knob.MEMORY_LIMIT, value=limit),
        KnobWrite(path=path, knob=Knob.MEMORY_SWAP_LIMIT, value=together),
        KnobWrite(path=path, knob=Knob.SWAP_LIMIT, value=swap),
    )


def replica_weight(placement: Placement) -> int:
    """The weight of a replica within the batch tier, by its request, in v1's scale; MID_FACTOR times that for the band mid.

    What the ceiling or the lease takes from the tier is so taken from batch work first.
    """
    factor = MID_FACTOR if placement.band is PriorityBand.MID else 1
    return weight_v1(placement.cpu_mcpu * factor)


def huge_page_knobs(
    policy: DesiredPolicy, machine: MachineFacts, placement: Placement, path: str
) -> tuple[KnobWrite, ...]:
    """Limits of huge pages of one replica: for every size the sum over its zones, 0 for a size that it did not request.

    Touched and mapped pages are limited, because a mapping reserves its pages even when no process touches them.
    """
    writes = []
    for page_bytes in machine.huge_page_sizes:
        asked = sum(pages.total_bytes for pages in placement.huge_pages if pages.page_bytes == page_bytes)
        if not asked and not policy.huge_pages_only_asked:
            continue
        for knob in (Knob.HUGE_PAGES_LIMIT, Knob.HUGE_PAGES_RESERVED_LIMIT):
            writes.append(KnobWrite(path=path, knob=knob, value=asked, page_bytes=page_bytes))
    return tuple(write for write in writes if write.knob in machine.has)


def huge_page_zones(placement: Placement) -> CpuSet:
    """The zones of the placement's huge pages. Its memory zones must contain them even where its CPUs are in other zones."""
    return CpuSet.from_iterable(pages.zone for pages in placement.huge_pages)


def replica_sets(machine: MachineFacts, placement: Placement, others: CpuSet = _NO_CPUS) -> tuple[CpuSet, CpuSet]:
    """CPUs and memory zones of a batch replica, never empty: the CPUs it was given, else those of its zones.

    All where a zone is absent or has no free CPU. `others` are CPUs that other batch replicas have alone, which it leaves to them
    where that leaves it one.
    """
    cpus = machine.cpus - others or machine.cpus
    zones = [share.zone for share in placement.zones if share.zone in machine.zones]
    if zones and len(zones) == len(placement.zones):
        near = given_batch_cpus(placement)
        if not near & machine.cpus:
            near = CpuSet()
            for zone in zones:
                near = near | machine.zones[zone]
        if near & cpus and CpuSet.from_iterable(zones) <= machine.mems:
            return near & cpus, CpuSet.from_iterable(zones) | huge_page_zones(placement) & machine.mems
    return cpus, machine.mems


def given_batch_cpus(placement: Placement) -> CpuSet:
    """The CPUs by number of a batch replica; empty for one that runs in the pool, and for a list that is none."""
    if not placement.cpus:
        return CpuSet()
    try:
        return CpuSet.parse(placement.cpus, "cpus")
    except InvalidInput:
        return CpuSet()


def exclusive_batch_cpus(placement: Placement) -> CpuSet:
    """The CPUs that a batch replica has alone among batch work."""
    return given_batch_cpus(placement) if placement.cpu_policy is CpuPolicy.EXCLUSIVE else CpuSet()


def most_memory_bytes(placement: Placement) -> int:
    """The memory that the node enforces: the limit, or the request where there is none."""
    limits = placement.run.limits
    return placement.memory_bytes if limits is None or not limits.memory_bytes else limits.memory_bytes


def most_mcpu(policy: DesiredPolicy, placement: Placement) -> int | None:
    """The CPU that a replica may use at most: its limit, or by `cap_at_request` its request; None for what is idle.

    A batch replica that has its CPUs alone may use them whole: a quota would only stop it on CPUs that nobody else gets.
    """
    if exclusive_batch_cpus(placement):
        return None
    limits = placement.run.limits
    limit = limits.cpu_mcpu if limits is not None and limits.cpu_mcpu else None
    if not policy.cap_at_request or placement.band is PriorityBand.PROD:
        return limit
    return placement.cpu_mcpu


def replica_quota_us(most_mcpu: int | None, ceiling_mcpu: int | None) -> int:
    """A replica's own quota: UNLIMITED, or its limit, at most the ceiling (v1 refuses a child quota above its parent's)."""
    if most_mcpu is None:
        return UNLIMITED
    return quota_us(most_mcpu if ceiling_mcpu is None else min(most_mcpu, ceiling_mcpu))
