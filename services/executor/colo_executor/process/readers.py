"""Makes the reader of the reflex for the machine of a control group tree."""

import os
from collections.abc import Callable

from colo_executor.cgroup import CgroupTree
from colo_executor.desired import BATCH
from colo_executor.process.bandwidth_reader import BandwidthReader
from colo_executor.process.batch_sets import BatchSets
from colo_executor.process.fast import ClosedCpus, FastReader
from colo_executor.process.group_zones import GroupZones
from colo_executor.process.kill_tier import SUFFIX
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.sibling_cgroups import SiblingCgroups
from colo_executor.process.stall_reader import stall_reader
from colo_executor.process.tier import ONLINE_SUFFIX
from colo_executor.process.watchdog_group import WATCHDOG_SUFFIX
from colo_executor.process.zone_reader import ZoneReader
from colo_executor.zone_ceilings import SharedCores

__all__ = ["reader_of"]


def reader_of(
    tree: CgroupTree,
    policy: ProcessPolicy,
    closed: Callable[[], ClosedCpus],
    *,
    has_batch: bool,
    sets: BatchSets | None,
    reads_memory: bool = False,
) -> FastReader:
    """The reader beside the batch work of `tree`, or where none may run (`has_batch` False) of the machine alone.

    Zones and shared cores are read where the kernel can keep batch work off CPUs (`sets` None: it cannot): elsewhere nothing could
    be taken in one alone. What memory carries is read where a rule asks for it (`reads_memory`): each counter may interrupt another
    CPU.
    """
    is_v1 = tree.version == 1
    zones = _zone_reader(tree, policy) if has_batch and sets is not None else None
    own = (tree.name, f"{tree.name}{SUFFIX}", f"{tree.name}{WATCHDOG_SUFFIX}")
    return FastReader(
        total_path=tree.usage_path("/"),
        batch_path=tree.usage_path(BATCH) if has_batch else "",
        unit_ns=1 if is_v1 else 1_000,
        window_ms=policy.window_ms,
        proc_root=policy.proc_root,
        sys_root=policy.sys_root,
        siblings=None if is_v1 else SiblingCgroups(tree.root, tree.name),
        batch_group=tree.cpu_path if has_batch else "",
        closed=closed,
        stalls=stall_reader(tree, own, policy.proc_root, None if zones is None else _group_zones(tree, zones)),
        zones=zones,
        cores=SharedCores if sets is None else sets.shared_cores,
        memory=BandwidthReader(policy.sys_root, policy.proc_root) if reads_memory else None,
    )


def _zone_reader(tree: CgroupTree, policy: ProcessPolicy) -> ZoneReader:
    usage_path = tree.usage_path(BATCH)
    if tree.version == 1:
        total_path = tree.usage_path("/")
        return ZoneReader(policy.sys_root, percpu_path=f"{usage_path}_percpu", total_percpu_path=f"{total_path}_percpu")
    stat_path = os.path.join(policy.proc_root, "stat")
    return ZoneReader(policy.sys_root, batch_dir=usage_path.rpartition("/")[0], stat_path=stat_path)


def _group_zones(tree: CgroupTree, zones: ZoneReader) -> GroupZones:
    return GroupZones(tree, f"{tree.name}{ONLINE_SUFFIX}", lambda: zones.zones)
