"""What the kernel shows of an attempt that the journal lacks: its group's name, its values and its first process.

The journal can be lost: a damaged line, a state directory that moved. What runs is then still ours, and online work must not be
ended because a file is gone.
"""

import os
from collections.abc import Iterable
from typing import Final

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement, ZoneShare, parse_replica_token
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import RunSpec
from colo_executor.cgroup import CgroupError, CgroupTree
from colo_executor.knob_table import Knob
from colo_executor.knobs import mcpu_of_weight
from colo_executor.process.machine import start_ticks

__all__ = ["class_of", "first_process", "placement_in"]

_ONLINE: Final = {qos.value.lower(): qos for qos in (QosClass.LSE, QosClass.LSR, QosClass.LS)}


def class_of(name: str) -> tuple[QosClass, str] | None:
    """Class and token of a group of the online tier ("ls.job.main.0@1"), None for a name that colo gives to none."""
    prefix, _, token = name.partition(".")
    qos = _ONLINE.get(prefix)
    return None if qos is None or parse_replica_token(token) is None else (qos, token)


def placement_in(tree: CgroupTree, group: str, token: str, qos: QosClass) -> Placement | None:
    """The placement as far as the kernel shows it: request by weight and memory limit, own CPUs and zones by the sets.

    Work of the mid tier shows no difference to batch work, and a request of MID_FACTOR times its own.
    None when the token names no attempt. What cannot be read counts as 1, and a limit of memory that there is not as well.
    """
    named = parse_replica_token(token)
    if named is None:
        return None
    replica, attempt = named
    cpu_mcpu = mcpu_of_weight(tree.version, _number(tree, Knob.CPU_WEIGHT, group))
    memory_bytes = _number(tree, Knob.MEMORY_LIMIT, group)
    zones = _set(tree, Knob.CPUSET_MEMS, group)
    return Placement(
        replica=replica,
        job=replica.partition("/")[0],
        attempt=attempt,
        node="",
        # How the request is divided over them the kernel does not show.
        zones=tuple(
            ZoneShare(zone=zone, cpu_mcpu=0 if at else cpu_mcpu, memory_bytes=0 if at else memory_bytes)
            for at, zone in enumerate(zones)
        ),
        cpu_mcpu=cpu_mcpu,
        memory_bytes=memory_bytes,
        qos=qos,
        band=PriorityBand.BATCH if qos is QosClass.BE else PriorityBand.PROD,
        run=RunSpec(),
        cpus=_set(tree, Knob.CPUSET_CPUS, group).format() if qos.has_own_cpus else "",
    )


def first_process(proc_root: str, pids: Iterable[int]) -> tuple[int, int] | None:
    """Pid and start (clock ticks) of the oldest process, which is the one that the executor started; None when none lives."""
    started = ((start_ticks(proc_root, pid), pid) for pid in pids)
    found = min(((ticks, pid) for ticks, pid in started if ticks is not None), default=None)
    return None if found is None else (found[1], found[0])


def _number(tree: CgroupTree, knob: Knob, group: str) -> int:
    try:
        return max(1, int(tree.value(knob, group)))
    except (CgroupError, OSError, ValueError):
        return 1


def _set(tree: CgroupTree, knob: Knob, group: str) -> CpuSet:
    try:
        return CpuSet.parse(tree.value(knob, group), os.path.basename(group))
    except (CgroupError, OSError, InvalidInput):
        return CpuSet()
