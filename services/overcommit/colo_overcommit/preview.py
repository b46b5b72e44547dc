"""What would be promised under another policy: the newest sample of each node computed again, and the last minutes replayed."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from colo_common.events.policy import NodePreview, PolicyPreview, PreviewPolicy, ZonePreview
from colo_common.model.colocation_policy import ColocationPolicy
from colo_common.model.freshness import Freshness
from colo_common.model.quantity import ceil_div
from colo_overcommit.allocatable import Limit, ZoneInputs
from colo_overcommit.external import unexpired, with_external
from colo_overcommit.followed_policy import FollowedPolicy, policy_under
from colo_overcommit.known_node import KnownNode
from colo_overcommit.mid import mid_of_zones
from colo_overcommit.mid_of_node import mid_under
from colo_overcommit.node_terms import node_terms
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.recent_terms import WINDOW_MS

__all__ = ["preview_policy"]

_LISTED_MOST: Final = 1_000
#: A preview of so many nodes holds up the samples of the others for less than a second.
_COMPUTED_MOST: Final = 2_000


def preview_policy(
    nodes: Mapping[str, KnownNode], asked: PreviewPolicy, followed: FollowedPolicy, now_ms: int
) -> PolicyPreview:
    """The preview of the asked document. Nodes without a fresh sample keep what they hold under any policy and are not listed.

    Of more than 2,000 nodes every second, third ... by name is computed. With `limit` 0 and no document asked for, nothing is.

    The newest sample is computed as it would be. Of the samples before it the CPU is replayed: with the charge of online work that
    the newest sample has under the new policy, and with the margin of risk control where that is on.
    """
    document = followed.document if asked.policy is None else asked.policy
    fresh = [
        name
        for name in sorted(nodes)
        if nodes[name].topology is not None
        and nodes[name].sample is not None
        and nodes[name].freshness is Freshness.FRESH
    ]
    is_asked = asked.policy is not None or asked.limit > 0
    computed = fresh[:: max(ceil_div(len(fresh), _COMPUTED_MOST), 1)] if is_asked else []
    rows = [_previewed(name, nodes[name], document, followed, now_ms) for name in computed]
    listed = [row for row in rows if _is_changing(row) or row.over_mcpu or row.over_memory_bytes]
    listed.sort(key=lambda row: (row.would_cpu_mcpu - row.batch_cpu_mcpu, row.node))
    return PolicyPreview(
        revision=followed.revision,
        nodes=len(rows),
        of_nodes=len(fresh),
        changing=sum(_is_changing(row) for row in rows),
        over=sum(row.over_mcpu > 0 or row.over_memory_bytes > 0 for row in rows),
        samples=sum(len(nodes[row.node].recent) for row in rows),
        window_ms=WINDOW_MS,
        batch_cpu_mcpu=sum(row.batch_cpu_mcpu for row in rows),
        would_cpu_mcpu=sum(row.would_cpu_mcpu for row in rows),
        batch_memory_bytes=sum(row.batch_memory_bytes for row in rows),
        would_memory_bytes=sum(row.would_memory_bytes for row in rows),
        mid_cpu_mcpu=sum(row.mid_cpu_mcpu for row in rows),
        would_mid_cpu_mcpu=sum(row.would_mid_cpu_mcpu for row in rows),
        mid_memory_bytes=sum(row.mid_memory_bytes for row in rows),
        would_mid_memory_bytes=sum(row.would_mid_memory_bytes for row in rows),
        listed=tuple(listed[: min(max(asked.limit, 0), _LISTED_MOST)]),
    )


def _is_changing(row: NodePreview) -> bool:
    now = (row.batch_cpu_mcpu, row.batch_memory_bytes, row.mid_cpu_mcpu, row.mid_memory_bytes)
    would = (row.would_cpu_mcpu, row.would_memory_bytes, row.would_mid_cpu_mcpu, row.would_mid_memory_bytes)
    return now != would or bool(row.zones)


def _previewed(
    name: str, known: KnownNode, document: ColocationPolicy, followed: FollowedPolicy, now_ms: int
) -> NodePreview:
    policy = policy_under(followed.base, document.values_of(known.labels))
    inputs = _newest(known, policy, now_ms)
    override = document.override_of(known.labels)
    mid = mid_of_zones(known.mid_inputs)
    would_mid = () if known.sample is None else mid_of_zones(mid_under(known, known.sample, inputs, policy))
    recent = known.recent.of_zones(tuple(zone.zone for zone in inputs))
    return NodePreview(
        node=name,
        override="" if override is None else override.name or f"overrides[{document.overrides.index(override)}]",
        batch_cpu_mcpu=sum(zone.cpu.allocatable for zone in known.inputs),
        would_cpu_mcpu=sum(zone.cpu.allocatable for zone in inputs),
        batch_memory_bytes=sum(zone.memory.allocatable for zone in known.inputs),
        would_memory_bytes=sum(zone.memory.allocatable for zone in inputs),
        least_mcpu=min((sum(max(zone.cpu.raw, 0) for zone in zones) for zones in recent), default=0),
        would_least_mcpu=min((sum(map(_would, zones, inputs)) for zones in recent), default=0),
        over_mcpu=sum(min(max(-zone.cpu.headroom, 0), zone.cpu.held) for zone in inputs),
        over_memory_bytes=sum(min(max(-zone.memory.headroom, 0), zone.memory.held) for zone in inputs),
        mid_cpu_mcpu=sum(zone.cpu_mcpu for zone in mid),
        would_mid_cpu_mcpu=sum(zone.cpu_mcpu for zone in would_mid),
        mid_memory_bytes=sum(zone.memory_bytes for zone in mid),
        would_mid_memory_bytes=sum(zone.memory_bytes for zone in would_mid),
        zones=tuple(each for now, zone in zip(known.inputs, inputs, strict=True) if (each := _zone(now, zone))),
    )


def _zone(now: ZoneInputs, would: ZoneInputs) -> ZonePreview | None:
    """The zone, None where its promise stays."""
    row = ZonePreview(
        zone=now.zone,
        batch_cpu_mcpu=now.cpu.allocatable,
        would_cpu_mcpu=would.cpu.allocatable,
        batch_memory_bytes=now.memory.allocatable,
        would_memory_bytes=would.memory.allocatable,
    )
    moves = (row.batch_cpu_mcpu, row.batch_memory_bytes) != (row.would_cpu_mcpu, row.would_memory_bytes)
    return row if moves else None


def _newest(known: KnownNode, policy: OvercommitPolicy, now_ms: int) -> tuple[ZoneInputs, ...]:
    """The terms of the newest sample under the policy; what an estimator expects and what moved a margin stay as they are."""
    topology, sample = known.topology, known.sample
    if topology is None or sample is None:
        return ()
    inputs = node_terms(known, topology, sample, policy, now_ms)
    moved = tuple(_as_moved(zone, now) for zone, now in zip(inputs, known.inputs, strict=True))
    return with_external(moved, unexpired(known.external, now_ms))


def _as_moved(zone: ZoneInputs, now: ZoneInputs) -> ZoneInputs:
    cpu = replace(zone.cpu, online_expected=now.cpu.online_expected)
    memory = replace(zone.memory, online_expected=now.memory.online_expected)
    if now.moved_by and zone.limit == Limit.POLICY:
        cpu = replace(cpu, reclaim_pct=now.cpu.reclaim_pct)
        memory = replace(memory, reclaim_pct=now.memory.reclaim_pct)
    return replace(zone, cpu=cpu, memory=memory)


def _would(then: ZoneInputs, now: ZoneInputs) -> int:
    """What a zone would have been promised by a kept sample: its use, and all else as the terms of the newest one have it."""
    if then.limit not in (Limit.POLICY, Limit.OFF):
        return 0
    kept, cpu = then.cpu, now.cpu
    online = max(kept.online_used + cpu.online_added, kept.online_expected, cpu.online_reserve)
    left = cpu.capacity - max(kept.system_used, cpu.reserved) - online - kept.lse_idle - cpu.third_party
    raw = left - cpu.margin
    raw = cpu.normalized(raw if cpu.most is None else min(raw, cpu.most))
    return max(raw if cpu.external is None else min(raw, cpu.external), 0)
