"""The formula for every node at once, in arrays: to the unit the integers that `allocatable.py` gives one node after the other.

Nothing is kept between two calls: each begins with the nodes' newest samples, what is held there, and the policy.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, compress
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colo_common.events.node import NodeUsageSampled, WorkloadUsage, ZoneAllocatable
from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import PriorityBand
from colo_common.model.topology import NodeTopology
from colo_overcommit.exclusive import exclusive_by_zone
from colo_overcommit.held_by_batch import HeldByBatch
from colo_overcommit.known_node import KnownNode
from colo_overcommit.policy import OvercommitPolicy

__all__ = ["FleetAllocatable", "allocatable_of_fleet"]

IntArray = NDArray[np.int64]

_NUMBER: Final = attrgetter("zone")
_CPU_USED: Final = attrgetter("cpu_used_mcpu")
_MEMORY_USED: Final = attrgetter("memory_used_bytes")
_WORKLOADS: Final = attrgetter("workloads")
_ZONES: Final = attrgetter("zones")
# No zone uses more (ZoneBytes), and 2^12 times as much is far inside 64 bits.
_USED_MOST: Final = 1 << 50


class FleetAllocatable(NamedTuple):
    """The zones of all nodes, those of one node side by side: `zone` and the four numbers have shape (zones,), in mcpu and bytes.

    Node number i, `nodes[i]`, has rows `start[i]` to `start[i + 1]`.
    """

    nodes: tuple[str, ...]
    start: IntArray
    zone: IntArray
    batch_cpu_mcpu: IntArray
    batch_memory_bytes: IntArray
    headroom_cpu_mcpu: IntArray
    headroom_memory_bytes: IntArray

    def of_node(self, index: int) -> tuple[ZoneAllocatable, ...]:
        """The numbers of one node, as they are published."""
        rows = slice(int(self.start[index]), int(self.start[index + 1]))
        columns = [column[rows].tolist() for column in self[2:]]
        return tuple(
            ZoneAllocatable(
                zone=zone,
                batch_cpu_mcpu=cpu,
                batch_memory_bytes=memory,
                headroom_cpu_mcpu=cpu_room,
                headroom_memory_bytes=memory_room,
            )
            for zone, cpu, memory, cpu_room, memory_room in zip(*columns, strict=True)
        )


class _Fleet(NamedTuple):
    """Nodes of which a sample was heard, and the layout of their zones: `node` of each zone, `sizes` zones of each node."""

    known: list[KnownNode]
    held: list[HeldByBatch]
    topologies: list[NodeTopology]
    samples: list[NodeUsageSampled]
    sizes: IntArray
    start: IntArray
    node: IntArray
    zone: IntArray


def allocatable_of_fleet(nodes: Mapping[str, KnownNode], policy: OvercommitPolicy) -> FleetAllocatable:
    """What each node's newest sample allows under the policy, whether it is fresh or not; nodes without a sample are left out.

    Raises InvalidInput when the zones of a sample are not those of the node's topology any more.
    """
    names = [name for name, known in nodes.items() if known.sample is not None and known.topology is not None]
    fleet = _layout([nodes[name] for name in names])
    batch_mcpu, batch_bytes = _batch_use(fleet)
    held_mcpu, held_bytes = _held(fleet)
    own_mcpu, own_bytes = _reserved(fleet)
    pct = np.array([known.is_colocated for known in fleet.known], dtype=np.int64)[fleet.node]
    used = list(chain.from_iterable(map(_ZONES, fleet.samples)))
    cpu = _formula(
        fleet,
        [zone.cpu_capacity_mcpu for topology in fleet.topologies for zone in topology.zones],
        pct * policy.cpu_reclaim_pct,
        (policy.node_reserved_cpu_mcpu, own_mcpu),
        [sample.system_cpu_used_mcpu for sample in fleet.samples],
        _column(map(_CPU_USED, used), len(used)) - batch_mcpu,
    )
    memory = _formula(
        fleet,
        [zone.memory_bytes for topology in fleet.topologies for zone in topology.zones],
        pct * policy.memory_reclaim_pct,
        (policy.node_reserved_memory_bytes, own_bytes),
        [sample.system_memory_used_bytes for sample in fleet.samples],
        _column(map(_MEMORY_USED, used), len(used)) - batch_bytes,
    )
    cpu -= _lse_idle(fleet)
    return FleetAllocatable(
        nodes=tuple(names),
        start=fleet.start,
        zone=fleet.zone,
        batch_cpu_mcpu=np.maximum(np.maximum(cpu, held_mcpu), 0),
        batch_memory_bytes=np.maximum(np.maximum(memory, held_bytes), 0),
        headroom_cpu_mcpu=cpu - held_mcpu,
        headroom_memory_bytes=memory - held_bytes,
    )


def _layout(known: list[KnownNode]) -> _Fleet:
    topologies = [node.topology for node in known if node.topology is not None]
    samples = [node.sample for node in known if node.sample is not None]
    count = _column(map(len, map(_ZONES, topologies)), len(known))
    zone = _flat(map(_NUMBER, chain.from_iterable(map(_ZONES, topologies))))
    sampled = _flat(map(_NUMBER, chain.from_iterable(map(_ZONES, samples))))
    sampled_count = _column(map(len, map(_ZONES, samples)), len(known))
    if not np.array_equal(count, sampled_count) or not np.array_equal(zone, sampled):
        raise InvalidInput("zones", "a sample must have exactly the zones of its node's topology", "other zones")
    start = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(count)])
    node = np.repeat(np.arange(len(known)), count)
    return _Fleet(known, [each.held for each in known], topologies, samples, count, start, node, zone)


def _formula(
    fleet: _Fleet,
    capacity: Sequence[int],
    reclaim_pct: IntArray,
    reserved: tuple[int, IntArray],
    system: Sequence[int],
    not_batch: IntArray,
) -> IntArray:
    """`Resource.raw` of every zone, before what LSE work leaves idle. `system` is of nodes, `not_batch` use less batch work's."""
    have = np.array(capacity, dtype=np.int64)
    margin = _ceil(have * (100 - reclaim_pct), 100)
    of_node, own = reserved
    kept = np.maximum(_ceil(np.full(len(fleet.sizes), of_node, dtype=np.int64), fleet.sizes)[fleet.node], own)
    system_used = _ceil(np.array(system, dtype=np.int64).clip(0), fleet.sizes)[fleet.node]
    online = (not_batch - system_used).clip(0)
    raw: IntArray = have - margin - np.maximum(system_used, kept) - online
    return raw


def _batch_use(fleet: _Fleet) -> tuple[IntArray, IntArray]:
    """What batch and free work uses of each zone, mcpu and bytes, at most `_USED_MOST`: no zone's use is more."""
    workloads = list(chain.from_iterable(map(_WORKLOADS, fleet.samples)))
    counts = _column(map(len, map(_WORKLOADS, fleet.samples)), len(fleet.samples))
    batch, free = PriorityBand.BATCH, PriorityBand.FREE
    is_batch = bytes([workload.band is batch or workload.band is free for workload in workloads])
    reclaimed = list(compress(workloads, is_batch))
    node = np.repeat(np.arange(len(counts)), counts)[np.frombuffer(is_batch, dtype=np.bool_)]
    row, owner = _rows_of(fleet, reclaimed, node)
    parts = np.bincount(owner, minlength=len(reclaimed))[owner]
    found = []
    for attribute in (_CPU_USED, _MEMORY_USED):
        share = _column(map(attribute, reclaimed), len(reclaimed))[owner] // parts
        found.append(_sums(row, share, len(fleet.node)))
    return found[0], found[1]


def _rows_of(fleet: _Fleet, workloads: Sequence[WorkloadUsage], node: IntArray) -> tuple[IntArray, IntArray]:
    """Each known zone that each workload names, or all zones of its node where it names none: rows, and whose they are."""
    named = list(map(_ZONES, workloads))
    counts = _column(map(len, named), len(named))
    owner = np.repeat(np.arange(len(named)), counts)
    row = _find(fleet, node[owner], _flat(chain.from_iterable(named)))
    owner, row = owner[row >= 0], row[row >= 0]
    homeless = np.flatnonzero(np.bincount(owner, minlength=len(named)) == 0)
    if homeless.size:
        everywhere = fleet.sizes[node[homeless]]
        first = np.repeat(fleet.start[node[homeless]], everywhere)
        behind = np.arange(int(everywhere.sum())) - np.repeat(np.cumsum(everywhere) - everywhere, everywhere)
        row = np.concatenate([row, first + behind])
        owner = np.concatenate([owner, np.repeat(homeless, everywhere)])
    return row, owner


def _find(fleet: _Fleet, node: IntArray, zone: IntArray) -> IntArray:
    """The row of a zone of a node, -1 where the node has no such zone."""
    first, most = fleet.start[node], fleet.sizes[node]
    # Where zones are numbered from 0, as nearly everywhere, the number is the place.
    place = first + np.minimum(zone, most - 1)
    row = np.where(fleet.zone[place] == zone, place, -1)
    for at in np.flatnonzero(row < 0).tolist():
        rows = fleet.zone[first[at] : first[at] + most[at]]
        hits = np.flatnonzero(rows == zone[at])
        if hits.size:
            row[at] = first[at] + hits[0]
    return row


def _sums(row: IntArray, share: IntArray, size: int) -> IntArray:
    """The shares of each row added up. Halves of 32 bits, so that no sample is so large that its sum wraps around."""
    low = np.zeros(size, dtype=np.int64)
    high = np.zeros(size, dtype=np.int64)
    np.add.at(low, row, share & 0xFFFF_FFFF)
    np.add.at(high, row, share >> 32)
    high += low >> 32
    return np.minimum((np.minimum(high, _USED_MOST >> 32) << 32) + (low & 0xFFFF_FFFF), _USED_MOST)


def _held(fleet: _Fleet) -> tuple[IntArray, IntArray]:
    """What batch work holds of each zone, mcpu and bytes."""
    shares = [
        held.get(zone.zone)
        for topology, held in zip(fleet.topologies, [held.by_zone() for held in fleet.held], strict=True)
        for zone in topology.zones
    ]
    return (
        np.array([share.cpu_mcpu if share else 0 for share in shares], dtype=np.int64),
        np.array([share.memory_bytes if share else 0 for share in shares], dtype=np.int64),
    )


def _reserved(fleet: _Fleet) -> tuple[IntArray, IntArray]:
    """What the operators of the nodes keep back, mcpu and bytes: most have no rules."""
    mcpu, memory = np.zeros(len(fleet.node), dtype=np.int64), np.zeros(len(fleet.node), dtype=np.int64)
    for index in [index for index, known in enumerate(fleet.known) if known.reserved]:
        reserved = fleet.known[index].reserved
        for row in range(int(fleet.start[index]), int(fleet.start[index + 1])):
            own = reserved.get(int(fleet.zone[row]))
            if own is not None:
                mcpu[row], memory[row] = own.cpu_mcpu, own.memory_bytes
    return mcpu, memory


def _lse_idle(fleet: _Fleet) -> IntArray:
    """What LSE work asked for and does not use: few nodes have any."""
    idle = np.zeros(len(fleet.node), dtype=np.int64)
    for index in [index for index, held in enumerate(fleet.held) if held.has_exclusive]:
        exclusive = exclusive_by_zone(fleet.held[index], fleet.topologies[index], fleet.samples[index].workloads)
        for row in range(int(fleet.start[index]), int(fleet.start[index + 1])):
            lse = exclusive.get(int(fleet.zone[row]))
            if lse is not None:
                idle[row] = max(lse.requested_mcpu - lse.used_mcpu, 0)
    return idle


def _ceil(amount: IntArray, parts: IntArray | int) -> IntArray:
    """`ceil_div`, element by element."""
    return -(-amount // parts)


def _column(values: Iterable[int], count: int) -> IntArray:
    return np.fromiter(values, dtype=np.int64, count=count)


def _flat(values: Iterable[int]) -> IntArray:
    return np.fromiter(values, dtype=np.int64)
