"""The layout of a machine's devices: what it has when all are healthy, and its GPU groups.

Some GPUs may only be given out in certain groups, because only inside a group they are linked fast. Groups of one size have scores;
the classes of equal score are looked at in ascending score, and of a class the group is chosen that leaves the most valuable groups
of 8, 4 and 2 whole (koordinator-sh/koordinator:deviceshare/allocator_gpu.go:177).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from msgspec import Struct, structs

from colo_common.model.constraints import (
    PartitionPolicy,
    PartitionWish,
)
from colo_common.model.node_rules import NodeRules
from colo_common.model.topology import Device, DevicePartition, NodeTopology
from colo_scheduler.devices.inventory import FreeDevice

__all__ = [
    "DeviceLayout",
    "GpuPartitions",
    "NO_DEVICES",
    "NO_PARTITIONS",
    "choose_partition",
    "layout_of",
    "most_unused",
    "partitions_of",
    "partitions_of_model",
]

_WORTH: Final = {8: 10_000, 4: 100, 2: 1}
_LINKED_MODELS: Final = ("H100", "H800", "H20")
_LINKED_GPUS: Final = 8
_MODEL: Final = "model"
"""The label of a device that names its model."""


class GpuPartitions(Struct, frozen=True, kw_only=True):
    """The groups of a node by size. `is_honored`: GPUs are given out in groups or not at all. None: the node has no groups."""

    by_size: dict[int, tuple[DevicePartition, ...]] | None = None
    is_honored: bool = False


NO_PARTITIONS: Final = GpuPartitions()


def partitions_of_model(model: str) -> dict[int, tuple[DevicePartition, ...]] | None:
    """The groups of a known model with eight linked GPUs: singles, pairs, fours, all; None for any other model."""
    if model not in _LINKED_MODELS:
        return None
    return {
        size: tuple(DevicePartition(devices=tuple(range(first, first + size))) for first in range(0, 8, size))
        for size in (1, 2, 4, 8)
    }


def partitions_of(
    devices: Sequence[Device], table: Sequence[DevicePartition], *, is_honored: bool = False
) -> GpuPartitions:
    """The groups of a node: those of its operator's table, else those of a known model whose eight GPUs are labelled with it."""
    by_size: dict[int, tuple[DevicePartition, ...]] | None = None
    if table:
        by_size = {}
        for part in table:
            by_size[len(part.devices)] = (*by_size.get(len(part.devices), ()), part)
    else:
        gpus = [device for device in devices if device.kind == "gpu"]
        models = {dict(device.labels).get(_MODEL, "") for device in gpus}
        if [device.device for device in gpus] == list(range(_LINKED_GPUS)) and len(models) == 1:
            by_size = partitions_of_model(models.pop())
    return GpuPartitions(by_size=by_size, is_honored=is_honored and by_size is not None)


def choose_partition(
    free_devices: Sequence[FreeDevice],
    count: int,
    table: Mapping[int, Sequence[DevicePartition]],
    wish: PartitionWish | None,
    suits: Callable[[DevicePartition], bool] = lambda part: True,
) -> DevicePartition | None:
    """The group of `count` GPUs to give, None when there is none: of GPUs that are here, healthy and unused, and that suits."""
    unused = {free_device.number for free_device in free_devices if not free_device.is_used}
    for _, candidates in groupby(sorted(table.get(count, ()), key=_score_of), key=_score_of):
        feasible = [
            part
            for part in candidates
            if unused.issuperset(part.devices) and _has_bandwidth(part, wish) and suits(part)
        ]
        if feasible:
            present = {free_device.number for free_device in free_devices if free_device.is_used}
            return max(feasible, key=lambda part: _worth_left(present.union(part.devices), count, table))
        if wish is not None and wish.policy is PartitionPolicy.BEST:
            return None
    return None


def most_unused(
    free_devices: Sequence[FreeDevice],
    count: int,
    table: Mapping[int, Sequence[DevicePartition]],
    wish: PartitionWish | None,
) -> int:
    """How many GPUs are unused in the group of `count`, fast enough, that has most of them."""
    unused = {free_device.number for free_device in free_devices if not free_device.is_used}
    parts = [part for part in table.get(count, ()) if _has_bandwidth(part, wish)]
    return max((len(unused.intersection(part.devices)) for part in parts), default=0)


def _score_of(part: DevicePartition) -> int:
    return part.score


def _has_bandwidth(part: DevicePartition, wish: PartitionWish | None) -> bool:
    """Whether the group's ring is as fast as is wished; one that is not known is as fast as nothing."""
    if wish is None or not wish.bandwidth_bytes_per_s:
        return True
    return (part.bandwidth_bytes_per_s or 0) >= wish.bandwidth_bytes_per_s


def _worth_left(used: set[int], count: int, table: Mapping[int, Sequence[DevicePartition]]) -> int:
    """The worth of the groups that stay whole: of each size from `count` up, those of the first class of scores."""
    worth = 0
    for size, weight in _WORTH.items():
        parts = table.get(size, ()) if size >= count else ()
        first = min((part.score for part in parts), default=0)
        worth += sum(weight * part.score for part in parts if part.score == first and used.isdisjoint(part.devices))
    return worth


class DeviceLayout(NamedTuple):
    """The devices of a machine, as healthy as they can be, and its GPU groups. `zones` are those that have CPUs."""

    devices: tuple[Device, ...] = ()
    table: tuple[DevicePartition, ...] = ()
    is_honored: bool = False
    zones: tuple[int, ...] = ()

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of devices there are."""
        return frozenset(device.kind for device in self.devices)

    @property
    def partitions(self) -> GpuPartitions:
        """The groups of its GPUs."""
        return partitions_of(self.devices, self.table, is_honored=self.is_honored)


NO_DEVICES: Final = DeviceLayout()


def layout_of(topology: NodeTopology, rules: NodeRules) -> DeviceLayout:
    """The layout of a machine."""
    if not topology.devices:
        return NO_DEVICES
    return DeviceLayout(
        tuple(structs.replace(device, is_healthy=True) for device in topology.devices),
        topology.gpu_partitions,
        rules.gpu_partition_policy == "honor",
        tuple(zone.zone for zone in topology.zones if zone.cpus),
    )
