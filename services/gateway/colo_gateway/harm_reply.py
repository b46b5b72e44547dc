"""What online work felt, as the API answers it."""

from msgspec import Struct

from colo_common.model.duration import span_text
from colo_common.model.online_harm import HARM_SENTENCE, STALL_BOUND_PCT
from colo_common.model.quantity import cpu_text
from colo_gateway.harm import WINDOW_MS, Harm, NodeHarm, NodeLatency, Spell, ZoneFall

__all__ = [
    "HarmOfNode",
    "HarmReply",
    "HarmSpell",
    "HarmSummary",
    "LatencyOfNode",
    "LatencySummary",
    "harm_reply",
    "harm_summary",
    "latency_summary",
]

_SPELLS_SHOWN = 10


class HarmOfNode(Struct, frozen=True, kw_only=True):
    """One node in the window: `harm_ratio` is harmed time over measured time, None when nothing was measured."""

    node: str
    lived_ms: int
    harmed_ms: int
    harm_ratio: float | None
    longest_ms: int


class HarmSpell(Struct, frozen=True, kw_only=True):
    """An uninterrupted time of harm on a node, and what batch work did then; `shrunk_in_ms` None: it was not shrunk.

    `zones` are the NUMA zones in which it was; the ceiling of the node may then be no lower than before.
    """

    node: str
    from_ms: int
    to_ms: int
    length_ms: int
    worst_stall_pct: int
    shrunk_in_ms: int | None
    ceiling_before_mcpu: int
    ceiling_mcpu: int
    sentence: str
    zones: tuple[ZoneFall, ...] = ()


class LatencyOfNode(Struct, frozen=True, kw_only=True):
    """The online workload of a node that broke the SLO of its latency most often: in `above` of the `samples` values of the window.

    `violation_pct` is the share of them, rounded down, by which the reflex and the evictor decide. `breaks_slo`: the newest does.
    """

    node: str
    workload: str
    violation_pct: int
    above: int
    samples: int
    window_ms: int
    breaks_slo: bool


class LatencySummary(Struct, frozen=True, kw_only=True):
    """What online services say of their own latency: how many nodes have one that does, and the worst of them, the worst first."""

    sentence: str
    measured_nodes: int = 0
    worst: tuple[LatencyOfNode, ...] = ()


class HarmSummary(Struct, frozen=True, kw_only=True):
    """The fleet in the window. `unmeasured_ms` is the node time in samples that do not have the measurement: it counts as neither
    harmed nor unharmed, and `unmeasured_sentence` says why. Before `known_since_ms` nothing is known: samples are kept by nobody.
    """

    sentence: str
    definition: str
    stall_bound_pct: int
    window_ms: int
    lived_ms: int
    harmed_ms: int
    unmeasured_ms: int
    harm_ratio: float | None
    unmeasured_sentence: str = ""
    known_since_ms: int | None = None


class HarmReply(Struct, frozen=True, kw_only=True):
    """What online work felt: the fleet, its worst nodes, and the longest spells. Times are those of the cluster's clock.

    `total` counts the nodes that match, of which `nodes` are those within the limit.
    """

    fleet: HarmSummary
    nodes: tuple[HarmOfNode, ...]
    spells: tuple[HarmSpell, ...]
    now_ms: int
    clock_speed: float
    total: int = 0
    latency: LatencySummary = LatencySummary(sentence="")


def harm_reply(harm: Harm, *, node: str, limit: int, now_ms: int, speed: float) -> HarmReply:
    """The answer about all nodes, or about one; at most `limit` nodes, the most harmed first."""
    nodes = harm.of_nodes(now_ms, node)
    return HarmReply(
        fleet=_summary(harm, nodes, harm.spells(now_ms, node)),
        nodes=tuple(
            HarmOfNode(
                node=each.node,
                lived_ms=each.lived_ms,
                harmed_ms=each.harmed_ms,
                harm_ratio=_ratio([each]),
                longest_ms=each.longest_ms,
            )
            for each in nodes[:limit]
        ),
        spells=tuple(map(_spell, harm.spells(now_ms, node)[:_SPELLS_SHOWN])),
        now_ms=now_ms,
        clock_speed=speed,
        total=len(nodes),
        latency=latency_summary(harm, now_ms, node=node, limit=limit),
    )


def latency_summary(harm: Harm, now_ms: int, *, node: str = "", limit: int = _SPELLS_SHOWN) -> LatencySummary:
    """How often online services broke the SLO of their latency, on all nodes or on one; at most `limit` nodes."""
    found = harm.latencies(now_ms, node)
    return LatencySummary(
        sentence=_latency_sentence(found),
        measured_nodes=len(found),
        worst=tuple(
            LatencyOfNode(
                node=each.node,
                workload=each.worst.workload,
                violation_pct=each.worst.violation_pct,
                above=each.worst.above,
                samples=each.worst.samples,
                window_ms=each.worst.window_ms,
                breaks_slo=each.worst.breaks_slo,
            )
            for each in found[:limit]
        ),
    )


def _latency_sentence(found: list[NodeLatency]) -> str:
    if not found:
        return "not known: no online workload says its own latency"
    where = f"{len(found)} node{'' if len(found) == 1 else 's'}"
    worst = found[0].worst
    if not worst.above:
        return f"every value kept its SLO in the last {span_text(worst.window_ms)}, on {where} that measure it"
    return (
        f"worst {worst.workload} on {found[0].node}: {worst.violation_pct}% of {worst.samples} values broke its SLO in the last"
        f" {span_text(worst.window_ms)}, of {where} that measure it"
    )


def harm_summary(harm: Harm, now_ms: int) -> HarmSummary:
    """The fleet alone."""
    return _summary(harm, harm.of_nodes(now_ms), harm.spells(now_ms))


def _summary(harm: Harm, nodes: list[NodeHarm], spells: list[Spell]) -> HarmSummary:
    return HarmSummary(
        sentence=_sentence(nodes, spells),
        definition=HARM_SENTENCE,
        stall_bound_pct=STALL_BOUND_PCT,
        window_ms=WINDOW_MS,
        lived_ms=sum(each.lived_ms for each in nodes),
        harmed_ms=sum(each.harmed_ms for each in nodes),
        unmeasured_ms=sum(each.unmeasured_ms for each in nodes),
        harm_ratio=_ratio(nodes),
        unmeasured_sentence=_unmeasured(nodes),
        known_since_ms=harm.known_since_ms,
    )


def _unmeasured(nodes: list[NodeHarm]) -> str:
    """What is not measured, on how many nodes, and that nothing stands in for it; "" when all is measured."""
    lacking = [each for each in nodes if each.unmeasured_ms]
    if not lacking:
        return ""
    span = span_text(sum(each.unmeasured_ms for each in lacking))
    return (
        f"{span} of node time on {len(lacking)} of {len(nodes)} nodes is not measured: no control group of online work has a CPU "
        "stall there (cgroup v1, or a kernel without PSI); throttled time and figures of the whole node are shown and never "
        "counted as harm"
    )


def _ratio(nodes: list[NodeHarm]) -> float | None:
    """Harmed time over measured time, rounded up to millionths so that no harm is shown as none."""
    measured_ms = sum(each.lived_ms - each.unmeasured_ms for each in nodes)
    harmed_ms = sum(each.harmed_ms for each in nodes)
    return -(-harmed_ms * 1_000_000 // measured_ms) / 1_000_000 if measured_ms > 0 else None


def _sentence(nodes: list[NodeHarm], spells: list[Spell]) -> str:
    ratio = _ratio(nodes)
    if ratio is None:
        return "not known: no sample of the last ten minutes says how long online work waited for a CPU"
    harmed = [each for each in nodes if each.harmed_ms]
    count = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}"
    if not harmed:
        return f"none in the last {span_text(WINDOW_MS)} on {count}"
    worst = _ratio(harmed[:1]) or 0.0
    text = f"{ratio * 100:.3f}% of machine time in the last {span_text(WINDOW_MS)}, on {len(harmed)} of {count}"
    text += f"; worst {harmed[0].node} ({worst * 100:.2f}%)"
    return text + (f", for at most {span_text(spells[0].length_ms)} at a time" if spells else "")


def _spell(spell: Spell) -> HarmSpell:
    shrunk_ms = None if spell.shrunk_at_ms is None else spell.shrunk_at_ms - spell.from_ms
    if shrunk_ms is None:
        batch = "batch work was not shrunk"
    else:
        way = _way(spell)
        when = f"{shrunk_ms} ms after its begin" if shrunk_ms >= 0 else f"{-shrunk_ms} ms before its sample began"
        batch = f"batch work was shrunk {way} {when}"
    return HarmSpell(
        node=spell.node,
        from_ms=spell.from_ms,
        to_ms=spell.to_ms,
        length_ms=spell.length_ms,
        worst_stall_pct=spell.worst_pct,
        shrunk_in_ms=shrunk_ms,
        ceiling_before_mcpu=spell.ceiling_before_mcpu,
        ceiling_mcpu=spell.ceiling_mcpu,
        zones=spell.zones,
        sentence=f"{spell.node}: online work waited for up to {spell.worst_pct}% of the time, "
        f"for {span_text(spell.length_ms)}; {batch}",
    )


def _way(spell: Spell) -> str:
    """ "from 8 to 5 CPU, in zone 0 from 4 to 1 CPU"; "in zone 0 from 4 to 1 CPU" where the ceiling of the node did not fall."""
    falls: list[Spell | ZoneFall] = [spell] if spell.ceiling_mcpu < spell.ceiling_before_mcpu else []
    parts = []
    for each in (*falls, *spell.zones):
        where = f"in zone {each.zone} " if isinstance(each, ZoneFall) else ""
        parts.append(f"{where}from {cpu_text(each.ceiling_before_mcpu)} to {cpu_text(each.ceiling_mcpu)} CPU")
    return ", ".join(parts)
