"""What would be promised under another policy: the newest sample of each node computed again, and the last minutes replayed."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from colo_common.events.node import NodeUsageSampled
from colo_common.events.policy import NodePreview, PolicyPreview, PreviewPolicy, ZonePreview
from colo_common.model.colocation_policy import ColocationPolicy
from colo_common.model.estimator_rules import LAST
from colo_common.model.freshness import Freshness
from colo_common.model.quantity import ceil_div
from colo_overcommit.allocatable import Limit, ZoneInputs
from colo_overcommit.estimators.estimator import EstimatorChoice
from colo_overcommit.expected_use import ExpectedUse
from colo_overcommit.external import unexpired, with_external
from colo_overcommit.followed_policy import FollowedPolicy, policy_under
from colo_overcommit.known_node import KnownNode
from colo_overcommit.mid import mid_of_zones
from colo_overcommit.mid_of_node import mid_under
from colo_overcommit.node_terms import node_terms
from colo_overcommit.online_parts import parts_by_zone
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.recent_terms import WINDOW_MS, KeptTerms
from colo_overcommit.redeclared import Redeclared, redeclared_of

__all__ = ["preview_policy"]

_LISTED_MOST: Final = 1_000
#: A preview of so many nodes holds up the samples of the others for less than a second.
_COMPUTED_MOST: Final = 2_000
_NAMED_MOST: Final = 20


def preview_policy(
    nodes: Mapping[str, KnownNode], asked: PreviewPolicy, followed: FollowedPolicy, now_ms: int
) -> PolicyPreview:
    """The preview of the asked document. Nodes without a fresh sample keep what they hold under any policy and are not listed.

    Of more than 2,000 nodes every second, third ... by name is computed. With `limit` 0 and no document asked for, nothing is.

    The newest sample is computed as it would be. Of the samples before it the CPU is replayed: with the charge of online work that
    the newest sample has under the new policy, and with the margin of risk control where that is on. Another estimator begins
    without a past, as when the policy is applied; one that only looks farther is asked. The use of a host application that is not
    declared yet is not known: these are named.
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
    would = [_Would.of(nodes[name], document, followed) for name in computed]
    rows = [_previewed(name, nodes[name], each, now_ms) for name, each in zip(computed, would, strict=True)]
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
        beginning=sum(each.begins(nodes[name]) for name, each in zip(computed, would, strict=True)),
        unmeasured=_unmeasured(nodes, computed, would),
        listed=tuple(listed[: min(max(asked.limit, 0), _LISTED_MOST)]),
    )


def _is_changing(row: NodePreview) -> bool:
    now = (row.batch_cpu_mcpu, row.batch_memory_bytes, row.mid_cpu_mcpu, row.mid_memory_bytes)
    would = (row.would_cpu_mcpu, row.would_memory_bytes, row.would_mid_cpu_mcpu, row.would_mid_memory_bytes)
    return now != would or bool(row.zones)


class _Would(NamedTuple):
    """What a document would make of one node: its policy, the override that gives it, and other host applications if any."""

    policy: OvercommitPolicy
    override: str
    hosts: Redeclared | None

    @classmethod
    def of(cls, known: KnownNode, document: ColocationPolicy, followed: FollowedPolicy) -> "_Would":
        override = document.override_of(known.labels)
        return cls(
            policy_under(followed.base, document.values_of(known.labels)),
            "" if override is None else override.name or f"overrides[{document.overrides.index(override)}]",
            redeclared_of(known.labels, followed.document, document),
        )

    def begins(self, known: KnownNode) -> bool:
        """Whether another estimator would begin on the node."""
        now = known.expected.choice.kind if known.expected is not None else LAST
        return self.policy.choice.kind not in (now, LAST)


def _unmeasured(nodes: Mapping[str, KnownNode], names: Iterable[str], would: Iterable[_Would]) -> tuple[str, ...]:
    """The host applications that would be declared and that no sample knows yet."""
    found: set[str] = set()
    for name, each in zip(names, would, strict=True):
        sample = nodes[name].sample
        if each.hosts is not None and sample is not None:
            found.update(each.hosts.unmeasured(sample))
    return tuple(sorted(found)[:_NAMED_MOST])


def _previewed(name: str, known: KnownNode, would: _Would, now_ms: int) -> NodePreview:
    policy, sample = would.policy, known.sample
    if sample is not None and would.hosts is not None:
        sample = would.hosts.sample(sample)
    inputs = _newest(name, known, sample, policy, now_ms)
    mid = mid_of_zones(known.mid_inputs)
    would_mid = () if sample is None else mid_of_zones(mid_under(known, sample, inputs, policy))
    recent = known.recent.of_zones(tuple(zone.zone for zone in inputs))
    return NodePreview(
        node=name,
        override=would.override,
        batch_cpu_mcpu=sum(zone.cpu.allocatable for zone in known.inputs),
        would_cpu_mcpu=sum(zone.cpu.allocatable for zone in inputs),
        batch_memory_bytes=sum(zone.memory.allocatable for zone in known.inputs),
        would_memory_bytes=sum(zone.memory.allocatable for zone in inputs),
        least_mcpu=min((sum(max(zone.cpu.raw, 0) for zone in kept.inputs) for kept in recent), default=0),
        would_least_mcpu=min((_replayed(kept, inputs, would.hosts) for kept in recent), default=0),
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


def _newest(
    name: str, known: KnownNode, sample: NodeUsageSampled | None, policy: OvercommitPolicy, now_ms: int
) -> tuple[ZoneInputs, ...]:
    """The terms of the newest sample under the policy; what moved a margin stays as it is."""
    topology = known.topology
    if topology is None or sample is None:
        return ()
    inputs = node_terms(known, topology, sample, policy, now_ms)
    expected = _expected(name, known, sample, inputs, policy.choice)
    by = "" if policy.choice.name == LAST else policy.choice.text
    moved = tuple(
        _as_moved(zone, now, expected.get(zone.zone, (0, 0)), by)
        for zone, now in zip(inputs, known.inputs, strict=True)
    )
    return with_external(moved, unexpired(known.external, now_ms))


def _expected(
    name: str,
    known: KnownNode,
    sample: NodeUsageSampled,
    inputs: tuple[ZoneInputs, ...],
    choice: EstimatorChoice,
) -> Mapping[int, tuple[int, int]]:
    """Zone -> the CPU and memory that this estimator would expect; nothing is learned by the one that is there."""
    now = known.expected
    if choice.name == LAST:
        return {}
    if now is not None and choice == now.choice:
        return {zone.zone: (zone.cpu.online_expected, zone.memory.online_expected) for zone in known.inputs}
    if now is not None and choice.name == now.choice.name:
        return now.under(choice)
    other = ExpectedUse(choice, now.histories() if now is not None and choice.kind == now.choice.kind else (), name)
    parts = parts_by_zone(inputs, sample.workloads, known.held) if other.by_workload else {}
    learned = other.learn(inputs, sample.at_ms, parts, now_ms=sample.at_ms)
    return {zone.zone: (zone.cpu.online_expected, zone.memory.online_expected) for zone in learned}


def _as_moved(zone: ZoneInputs, now: ZoneInputs, expected: tuple[int, int], by: str) -> ZoneInputs:
    zone = replace(zone, expected_by=by)
    cpu = replace(zone.cpu, online_expected=min(expected[0], zone.cpu.capacity))
    memory = replace(zone.memory, online_expected=min(expected[1], zone.memory.capacity))
    if now.moved_by and zone.limit == Limit.POLICY:
        cpu = replace(cpu, reclaim_pct=now.cpu.reclaim_pct)
        memory = replace(memory, reclaim_pct=now.memory.reclaim_pct)
    return replace(zone, cpu=cpu, memory=memory)


def _replayed(kept: KeptTerms, inputs: tuple[ZoneInputs, ...], hosts: Redeclared | None) -> int:
    """The CPU that the node would have been promised by a kept sample."""
    zones = [zone.zone for zone in inputs]
    moved = hosts.moved_mcpu(kept.hosts, zones) if hosts is not None and kept.hosts else {}
    return sum(_would(then, now, *moved.get(now.zone, (0, 0))) for then, now in zip(kept.inputs, inputs, strict=True))


def _would(then: ZoneInputs, now: ZoneInputs, more_online: int, more_system: int) -> int:
    """What a zone would have been promised by a kept sample: its use, and all else as the terms of the newest one have it.

    `more_online` and `more_system`: so much more of it would be online work's and the system's use.
    """
    if then.limit not in (Limit.POLICY, Limit.OFF):
        return 0
    kept, cpu = then.cpu, now.cpu
    expected = kept.online_expected if then.expected_by == now.expected_by else cpu.online_expected
    online = max(max(kept.online_used + more_online, 0) + cpu.online_added, expected, cpu.online_reserve)
    system = kept.system_used + more_system
    left = cpu.capacity - max(system, cpu.reserved) - online - kept.lse_idle - cpu.third_party
    raw = left - cpu.margin
    raw = cpu.normalized(raw if cpu.most is None else min(raw, cpu.most))
    return max(raw if cpu.external is None else min(raw, cpu.external), 0)
