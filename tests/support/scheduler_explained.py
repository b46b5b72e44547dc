"""What a scheduler says, a line each, as conversation files write it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from colo_common.events.effects import Effect, Publish
from colo_common.events.placement import (
    ApplyPlacements,
    PlacementRejected,
    PlacementsDecided,
    PlacementsReleased,
    PreemptionProposed,
)
from colo_common.events.reservation import ReservationChanged
from colo_common.events.service import DeadLettered
from colo_common.model.placement import Placement
from colo_common.model.reasons import SENTENCES
from colo_common.model.shortage import CONDITION, shortage_text
from colo_scheduler.commit.jobs_asked import AskPending
from colo_scheduler.placement.report import Report
from tests.support.builders import GIB


def sentence(report: Report) -> str:
    """The report for people: "0/12 nodes: 7 cpu-short (not enough ...), 5 ...; nearest: 1.2 CPU short in zone 1 of n3 (...)"."""
    counts = ", ".join(f"{c.nodes} {c.reason.value} ({c.detail or SENTENCES[c.reason]})" for c in report.counts)
    text = f"0/{report.nodes} nodes: {counts}"
    untried = report.nodes - sum(count.nodes for count in report.counts)
    if untried:
        text += f", {untried} not tried"
    near = report.nearest
    if near is not None and near.unit != CONDITION:
        text += f"; nearest: {shortage_text(**structs.asdict(near))}"
    return text + ("; no node could hold it even when empty" if report.is_unresolvable and near is not None else "")


def size(memory_bytes: int) -> str:
    return f"{memory_bytes // GIB} GiB" if memory_bytes % GIB == 0 else f"{memory_bytes} bytes"


def shares(zones: Sequence[Any]) -> str:
    return " ".join(f"zone{share.zone}={share.cpu_mcpu}m+{size(share.memory_bytes)}" for share in zones)


def reserved(fact: ReservationChanged) -> str:
    reason = f" ({fact.reason})" if fact.reason else ""
    where = f" on {fact.node}" if fact.node else ""
    held = f", held {shares(fact.zones)}" if fact.zones else ""
    owners = f", used by {fact.owners}" if fact.owners else ""
    return f"-> reservation {fact.reservation} {fact.phase}{reason}{where}{held}{owners}"


def placed(placement: Placement) -> str:
    words = [f"{placement.replica}#{placement.attempt} on {placement.node} {shares(placement.zones)}"]
    words += [f"cpus={placement.cpus}"] if placement.cpus else []
    words += [f"{share.kind}-{share.device}={share.core_pct}%" for share in placement.devices]
    return " ".join(words)


def explained(record: Any) -> str:
    head = f"{record.replica}#{record.attempt} at {record.at_ms}: "
    if record.placement is None:
        report = Report(record.nodes, record.counts, record.nearest)
        others = record.preemption
        names = ", ".join(f"{victim.replica}#{victim.attempt}" for victim in others.victims) if others else ""
        return (
            head
            + sentence(report)
            + (f"; again at {record.retry_at_ms}" if record.retry_at_ms else "; not again by itself")
            + (f"; would fit on {others.node} at revision {others.revision} if {names} left" if others else "")
        )
    lines = [head + f"{record.placement.node} of {record.nodes} nodes"]
    lines += [
        f"  {score.total} {score.node} " + " ".join(f"{name}={value}" for name, value in score.scores.items())
        for score in record.scores
    ]
    return "\n".join(lines)


def delivered(effects: Sequence[Effect]) -> str:
    """What left the service, a line each."""
    lines: list[str] = []
    for effect in effects:
        if isinstance(effect, AskPending):
            lines.append("-> ask for the waiting replicas again")
            continue
        assert isinstance(effect, Publish)
        fact = effect.fact
        match fact:
            case PlacementsDecided(placements=placements):
                lines += [f"-> decided {placed(p)}" for p in placements]
            case ApplyPlacements(node=node, generation=generation, placements=placements):
                names = " ".join(f"{p.replica}#{p.attempt}" for p in placements)
                again = " (again)" if ":recovered:" in effect.id else ""
                lines.append(f"-> {node}: run generation {generation}{again}: {names}")
            case PlacementsReleased(nodes=nodes):
                lines += [f"-> released {n.node}: " + " ".join(f"{r}#{a}" for r, a in n.attempts) for n in nodes]
            case ReservationChanged():
                lines.append(reserved(fact))
            case DeadLettered(reason=reason):
                lines.append(f"-> dead letter: {reason}")
            case PlacementRejected(broken_rule=rule) if rule:
                lines.append(f"-> refused {fact.replica}#{fact.attempt}: {rule}")
            case PreemptionProposed(proposal=proposal):
                victims = ", ".join(f"{victim.replica}#{victim.attempt}" for victim in proposal.victims)
                lines.append(f"-> would fit {fact.replica}#{fact.attempt}: on {proposal.node} if {victims} left")
            case PlacementRejected():
                report = Report(fact.nodes, fact.counts, fact.nearest)
                retry = f"again at {fact.retry_at_ms}" if fact.retry_at_ms else "not again by itself"
                lines.append(f"-> rejected {fact.replica}#{fact.attempt}: {sentence(report)}; {retry}")
            case _:
                raise AssertionError(f"unexpected {fact!r}")
    return "\n".join(lines)
