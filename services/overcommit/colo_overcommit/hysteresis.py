"""Decides when a new allocatable is published: a fall at once, a rise only after a time without falls."""

from collections.abc import Sequence

from msgspec import Struct

from colo_common.events.node import AllocatableChanged, NodeUsageSampled, ZoneAllocatable
from colo_common.model.topology import NodeTopology
from colo_overcommit.allocatable import ZoneInputs
from colo_overcommit.policy import OvercommitPolicy

__all__ = ["Moves", "has_load_moved", "moves_between", "should_publish"]


class Moves(Struct, frozen=True, kw_only=True):
    """The largest fall and rise of any zone and resource, in hundredths of a percent of that zone's capacity."""

    fell_centipct: int
    rose_centipct: int


def moves_between(
    before: Sequence[ZoneAllocatable], after: Sequence[ZoneAllocatable], inputs: Sequence[ZoneInputs]
) -> Moves:
    """Compare two allocatables zone by zone; `inputs` are the terms of `after`. A zone that is new counts from 0."""
    old = {zone.zone: zone for zone in before}
    fell = rose = 0
    for zone, home in zip(after, inputs, strict=True):
        was = old.get(zone.zone)
        mcpu, size = (was.batch_cpu_mcpu, was.batch_memory_bytes) if was else (0, 0)
        for moved, capacity in (
            (zone.batch_cpu_mcpu - mcpu, home.cpu.capacity),
            (zone.batch_memory_bytes - size, home.memory.capacity),
        ):
            if moved and capacity > 0:
                move = moved * 10_000 // capacity
                if move > rose:
                    rose = move
                elif -move > fell:
                    fell = -move
    return Moves(fell_centipct=fell, rose_centipct=rose)


def should_publish(
    last: AllocatableChanged | None, last_fall_at_ms: int | None, moves: Moves, policy: OvercommitPolicy, now_ms: int
) -> bool:
    """Whether to publish: the first number, a large enough fall, a large enough rise after a quiet time, or every `refresh_ms`."""
    if last is None or now_ms - last.at_ms >= policy.refresh_ms:
        return True
    if moves.fell_centipct >= policy.shrink_pct * 100 and moves.fell_centipct > 0:
        return True
    return _is_quiet(last_fall_at_ms, policy, now_ms) and moves.rose_centipct >= max(policy.grow_pct * 100, 1)


def has_load_moved(
    last: AllocatableChanged,
    last_fall_at_ms: int | None,
    sample: NodeUsageSampled,
    topology: NodeTopology,
    policy: OvercommitPolicy,
    now_ms: int,
) -> bool:
    """Whether to publish for the node's usage alone: it moved by `load_pct`, the last is `load_hold_ms` old, no recent fall."""
    if policy.load_pct == 0 or last.load is None or now_ms - last.at_ms < policy.load_hold_ms:
        return False
    pairs = (
        (last.load.cpu_used_mcpu, sample.cpu_used_mcpu, topology.cpu_capacity_mcpu),
        (last.load.memory_used_bytes, sample.memory_used_bytes, topology.memory_capacity_bytes),
    )
    moved = any(0 < policy.load_pct * capacity <= 100 * abs(now - before) for before, now, capacity in pairs)
    return moved and _is_quiet(last_fall_at_ms, policy, now_ms)


def _is_quiet(last_fall_at_ms: int | None, policy: OvercommitPolicy, now_ms: int) -> bool:
    return last_fall_at_ms is None or now_ms - last_fall_at_ms >= policy.grow_hold_ms
