"""The replies to requests about nodes."""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct, structs

from colo_common.events.fleet import NODE_SORTS, FleetTotals, GetFleet, GetNode, NodeDetail, OverdrawnNode, ZoneDetail
from colo_common.events.policy import PreviewPolicy
from colo_common.events.requests import ExplainAllocatable, ListNodes, NodeExplained, NodeList, NodeSummary, Refusal
from colo_common.model.freshness import Freshness
from colo_common.model.invalid import InvalidInput
from colo_common.model.nearest import hint
from colo_common.model.node_selector import check_requirements, meets
from colo_common.model.paging import limit_of, page_by_name
from colo_common.model.qos import PriorityBand
from colo_common.model.topology import NodeTopology
from colo_overcommit.allocatable import Limit
from colo_overcommit.explain import explain
from colo_overcommit.external import unexpired
from colo_overcommit.followed_policy import FollowedPolicy
from colo_overcommit.known_node import KnownNode
from colo_overcommit.preview import preview_policy
from colo_overcommit.term_ages import aged, ages_of

__all__ = ["answer", "explain_node", "fleet_totals", "get_node", "list_nodes", "unknown_node"]

_NAMED_MOST: Final = 20
_RATIO: Final = 1_000_000
_LATE: Final = (Freshness.STALE, Freshness.LOST)
_REASONS: Final = {
    Freshness.UNKNOWN: "no sample of it has come yet",
    Freshness.WARMING: "its first samples only warm up",
    Freshness.STALE: "its newest sample is late: batch work may only shrink there",
    Freshness.LOST: "no sample has come for so long that its replicas were queued again",
}


def answer(
    asked: Struct, nodes: Mapping[str, KnownNode], followed: FollowedPolicy, now_ms: int, begun_ms: int | None = None
) -> Struct:
    """The reply to a question about nodes; a Refusal (404) of any other one. `begun_ms`: when this instance began."""
    match asked:
        case ListNodes():
            return list_nodes(nodes, asked, now_ms)
        case GetFleet():
            return fleet_totals(nodes)
        case GetNode(node=node):
            return get_node(node, nodes, now_ms)
        case ExplainAllocatable(node=node):
            return explain_node(node, nodes, followed, now_ms, begun_ms)
        case PreviewPolicy():
            return preview_policy(nodes, asked, followed, now_ms)
        case _:
            return Refusal(code=404, field="request", rule="is not answered here", got=type(asked).__name__)


def list_nodes(nodes: Mapping[str, KnownNode], asked: ListNodes, now_ms: int) -> NodeList | Refusal:
    """A page of the nodes that have reported their topology and match, in the requested order.

    An unknown sort key, a requirement that makes no sense and a value that is no cursor are refused (400).
    """
    try:
        check_requirements(asked.selector, "selector")
        keys = [_sort_key(name) for name in asked.sort]
    except InvalidInput as error:
        return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
    found = [
        summary
        for name in sorted(nodes)
        if all(meets(requirement, nodes[name].labels.get(requirement.key)) for requirement in asked.selector)
        and (summary := _summary(name, nodes[name], now_ms))
    ]
    # Sorting is stable: the last key first, so that the first one decides before the others.
    for key, is_reversed in reversed(keys):
        found.sort(key=key, reverse=is_reversed)
    try:
        page, following = page_by_name(found, lambda one: one.node, asked.cursor, limit_of(asked.limit))
    except InvalidInput as error:
        return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
    return NodeList(nodes=page, total=len(found), next=following)


def fleet_totals(nodes: Mapping[str, KnownNode]) -> FleetTotals:
    """The sums over all nodes that have reported their topology."""
    counts = dict.fromkeys((each.value for each in Freshness), 0)
    sums = [0] * 8
    overdrawn: list[OverdrawnNode] = []
    late: list[str] = []
    mid_nodes = mid_mcpu = mid_bytes = mid_held_mcpu = mid_held_bytes = 0
    for name in sorted(nodes):
        known = nodes[name]
        summary = _summary(name, known, 0)
        if summary is None:
            continue
        counts[known.freshness.value] += 1
        mid_nodes += summary.mid_cpu_mcpu is not None
        mid_mcpu += summary.mid_cpu_mcpu or 0
        mid_bytes += summary.mid_memory_bytes or 0
        mid_held_mcpu += summary.mid_held_cpu_mcpu
        mid_held_bytes += summary.mid_held_memory_bytes
        if known.freshness in _LATE:
            late.append(name)
        for number, value in enumerate(
            (
                summary.cpu_capacity_mcpu,
                summary.cpu_used_mcpu,
                summary.memory_capacity_bytes,
                summary.memory_used_bytes,
                summary.batch_cpu_mcpu,
                summary.batch_memory_bytes,
                summary.held_cpu_mcpu,
                summary.held_memory_bytes,
            )
        ):
            sums[number] += value
        cpu, memory = max(-summary.headroom_cpu_mcpu, 0), max(-summary.headroom_memory_bytes, 0)
        # Where an operator forbids batch work the promise ends by his will, and what is held is not over it.
        if (cpu or memory) and not known.forbidden:
            overdrawn.append(OverdrawnNode(node=name, cpu_mcpu=cpu, memory_bytes=memory))
    overdrawn.sort(key=lambda one: (-one.cpu_mcpu, -one.memory_bytes, one.node))
    return FleetTotals(
        nodes=counts,
        cpu_capacity_mcpu=sums[0],
        cpu_used_mcpu=sums[1],
        memory_capacity_bytes=sums[2],
        memory_used_bytes=sums[3],
        batch_cpu_mcpu=sums[4],
        batch_memory_bytes=sums[5],
        held_cpu_mcpu=sums[6],
        held_memory_bytes=sums[7],
        overdrawn_nodes=len(overdrawn),
        overdrawn_cpu_mcpu=sum(one.cpu_mcpu for one in overdrawn),
        overdrawn_memory_bytes=sum(one.memory_bytes for one in overdrawn),
        overdrawn=tuple(overdrawn[:_NAMED_MOST]),
        late=tuple(late[:_NAMED_MOST]),
        mid_nodes=mid_nodes,
        mid_cpu_mcpu=mid_mcpu,
        mid_memory_bytes=mid_bytes,
        mid_held_cpu_mcpu=mid_held_mcpu,
        mid_held_memory_bytes=mid_held_bytes,
    )


def get_node(node: str, nodes: Mapping[str, KnownNode], now_ms: int) -> NodeDetail | Refusal:
    """One node with its zones and the workloads of its newest sample; a Refusal (404) for an unknown one."""
    known = nodes.get(node)
    summary = None if known is None else _summary(node, known, now_ms)
    if known is None or known.topology is None or summary is None:
        return unknown_node(node, nodes)
    workloads = [
        structs.replace(one, detail=known.details[one.workload][0]) if one.workload in known.details else one
        for one in (known.sample.workloads if known.sample else ())
    ]
    return NodeDetail(
        summary=summary,
        zones=_zones(known, known.topology),
        taints=known.taints,
        capabilities=known.capabilities,
        workloads=tuple(sorted(workloads, key=lambda one: (-one.cpu_used_mcpu, one.workload))),
        published_at_ms=known.published.at_ms if known.published else None,
        now_ms=now_ms,
        classes=known.sample.classes if known.sample else (),
        detail_ages_ms={name: max(now_ms - at_ms, 0) for name, (_, at_ms) in known.details.items()},
        external=unexpired(known.external, now_ms),
    )


def explain_node(
    node: str, nodes: Mapping[str, KnownNode], followed: FollowedPolicy, now_ms: int, begun_ms: int | None
) -> NodeExplained | Refusal:
    """The published number and the terms of the newest sample, as old as they are now; a Refusal (404) when there is none yet."""
    known = nodes.get(node)
    if known is None:
        return unknown_node(node, nodes)
    if known.published is None:
        return Refusal(
            code=404, field="node", rule=f"has no allocatable yet; its facts are {known.freshness.value}", got=node
        )
    published = known.published
    newest = explain(known.inputs, known.sample, known.mid_inputs, ages_of(known, followed, begun_ms, now_ms))
    return NodeExplained(
        published=structs.replace(published, explanation=aged(published.explanation, now_ms - published.at_ms)),
        newest=newest,
        age_ms=max(now_ms - published.sampled_at_ms, 0),
    )


def unknown_node(node: str, nodes: Mapping[str, KnownNode]) -> Refusal:
    """The refusal (404) of a node that is not known, with the nearest name that is."""
    near = hint(node, sorted(nodes), "known nodes")
    return Refusal(code=404, field="node", rule="is not known" + (f"; {near}" if near else ""), got=node[:80])


def _zones(known: KnownNode, topology: NodeTopology) -> tuple[ZoneDetail, ...]:
    used = {each.zone: each for each in (known.sample.zones if known.sample else ())}
    promised = {each.zone: each for each in (known.published.zones if known.published else ())}
    held = known.held.by_zone()
    found = []
    for zone in topology.zones:
        use, promise, hold = used.get(zone.zone), promised.get(zone.zone), held.get(zone.zone)
        now = next((each for each in known.inputs if each.zone == zone.zone), None)
        held_mcpu, held_bytes = (hold.cpu_mcpu, hold.memory_bytes) if hold else (0, 0)
        found.append(
            ZoneDetail(
                zone=zone.zone,
                cpus=zone.cpus,
                cpu_capacity_mcpu=zone.cpu_capacity_mcpu,
                memory_capacity_bytes=zone.memory_bytes,
                cpu_used_mcpu=use.cpu_used_mcpu if use else 0,
                memory_used_bytes=use.memory_used_bytes if use else 0,
                batch_cpu_mcpu=promise.batch_cpu_mcpu if promise else 0,
                batch_memory_bytes=promise.batch_memory_bytes if promise else 0,
                headroom_cpu_mcpu=now.cpu.raw - held_mcpu if now else 0,
                headroom_memory_bytes=now.memory.raw - held_bytes if now else 0,
                held_cpu_mcpu=held_mcpu,
                held_memory_bytes=held_bytes,
                steal_mcpu=use.steal_mcpu if use else None,
                stall_pct=use.stall_pct if use else None,
            )
        )
    return tuple(found)


def _headroom(known: KnownNode) -> tuple[int, int]:
    """What the newest sample leaves beyond what is held now, in mcpu and bytes. A node that is late has none to give."""
    cpu = sum(zone.cpu.raw for zone in known.inputs) - known.held.cpu_mcpu
    memory = sum(zone.memory.raw for zone in known.inputs) - known.held.memory_bytes
    return (cpu, memory) if known.freshness not in _LATE else (min(cpu, 0), min(memory, 0))


def _reason(known: KnownNode, headroom_mcpu: int, headroom_bytes: int) -> str:
    if known.freshness is not Freshness.FRESH:
        return _REASONS[known.freshness]
    if known.forbidden or known.closed:
        return known.forbidden or known.closed
    if any(zone.limit != Limit.POLICY for zone in known.inputs):
        return next(str(zone.limit) for zone in known.inputs if zone.limit != Limit.POLICY)
    for what, headroom in (("CPU", headroom_mcpu), ("memory", headroom_bytes)):
        if headroom < 0:
            return f"batch work holds more {what} than could be promised now"
        if headroom == 0:
            return f"batch work holds all {what} that can be promised"
    return ""


def _summary(name: str, known: KnownNode, now_ms: int) -> NodeSummary | None:
    if known.topology is None:
        return None
    sample = known.sample
    batch_mcpu = 0
    if sample is not None:
        batch_mcpu = sum(w.cpu_used_mcpu for w in sample.workloads if w.band in (PriorityBand.BATCH, PriorityBand.FREE))
    headroom_mcpu, headroom_bytes = _headroom(known)
    mid = known.published.mid if known.published else ()
    return NodeSummary(
        node=name,
        freshness=known.freshness,
        sample_age_ms=None if known.sampled_at_ms is None else max(now_ms - known.sampled_at_ms, 0),
        cpu_capacity_mcpu=known.topology.cpu_capacity_mcpu,
        cpu_used_mcpu=sample.cpu_used_mcpu if sample else 0,
        memory_capacity_bytes=known.topology.memory_capacity_bytes,
        memory_used_bytes=sample.memory_used_bytes if sample else 0,
        batch_cpu_mcpu=known.published.batch_cpu_mcpu if known.published else 0,
        batch_memory_bytes=known.published.batch_memory_bytes if known.published else 0,
        held_cpu_mcpu=known.held.cpu_mcpu,
        held_memory_bytes=known.held.memory_bytes,
        batch_cpu_used_mcpu=batch_mcpu,
        simulated=known.simulated,
        headroom_cpu_mcpu=headroom_mcpu,
        headroom_memory_bytes=headroom_bytes,
        reason=_reason(known, headroom_mcpu, headroom_bytes),
        labels=dict(known.labels),
        mid_cpu_mcpu=sum(zone.cpu_mcpu for zone in mid) if mid else None,
        mid_memory_bytes=sum(zone.memory_bytes for zone in mid) if mid else None,
        mid_held_cpu_mcpu=known.held.mid_cpu_mcpu,
        mid_held_memory_bytes=known.held.mid_memory_bytes,
    )


_SORT_VALUES: Final[Mapping[str, Callable[[NodeSummary], int]]] = {
    # Shares in millionths, so that a small machine that is full comes before a large one that is not.
    "cpu": lambda one: one.cpu_used_mcpu * _RATIO // max(one.cpu_capacity_mcpu, 1),
    "memory": lambda one: one.memory_used_bytes * _RATIO // max(one.memory_capacity_bytes, 1),
    "batch": lambda one: one.batch_cpu_used_mcpu,
    "promised": lambda one: one.batch_cpu_mcpu,
    "held": lambda one: one.held_cpu_mcpu,
    "free": lambda one: one.batch_cpu_mcpu - one.held_cpu_mcpu,
    "headroom": lambda one: one.headroom_cpu_mcpu,
    "age": lambda one: -1 if one.sample_age_ms is None else one.sample_age_ms,
}


def _sort_key(text: str) -> tuple[Callable[[NodeSummary], int | str], bool]:
    """The value to sort by and whether the list is reversed. Raises InvalidInput for a key that is not known."""
    name, is_turned = text.removeprefix("-"), text.startswith("-")
    if name == "name":
        return (lambda one: one.node), is_turned
    if name not in _SORT_VALUES:
        raise InvalidInput("sort", f"is not an order of nodes; {hint(name, NODE_SORTS, 'orders')}", text)
    return _SORT_VALUES[name], not is_turned
