"""The replies to requests about nodes."""

from collections.abc import Mapping

from colo_common.events.requests import NodeExplained, NodeList, NodeSummary, Refusal
from colo_common.model.qos import PriorityBand
from colo_overcommit.explain import explain
from colo_overcommit.known_node import KnownNode

__all__ = ["explain_node", "list_nodes"]


def list_nodes(nodes: Mapping[str, KnownNode], now_ms: int) -> NodeList:
    """Every node that has reported its topology, in ascending name."""
    return NodeList(nodes=tuple(summary for name in sorted(nodes) if (summary := _summary(name, nodes[name], now_ms))))


def explain_node(node: str, known: KnownNode | None, now_ms: int) -> NodeExplained | Refusal:
    """The published number and the terms of the newest sample; a Refusal (404) when there is none yet."""
    if known is None:
        return Refusal(code=404, field="node", rule="is not known", got=node)
    if known.published is None:
        return Refusal(
            code=404, field="node", rule=f"has no allocatable yet; its facts are {known.freshness.value}", got=node
        )
    age_ms = max(now_ms - known.published.sampled_at_ms, 0)
    return NodeExplained(published=known.published, newest=explain(known.inputs), age_ms=age_ms)


def _summary(name: str, known: KnownNode, now_ms: int) -> NodeSummary | None:
    if known.topology is None:
        return None
    sample = known.sample
    batch_mcpu = 0
    if sample is not None:
        batch_mcpu = sum(w.cpu_used_mcpu for w in sample.workloads if w.band in (PriorityBand.BATCH, PriorityBand.FREE))
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
    )
