"""An eviction as the API tells it: what was measured, who was chosen, why the others were not, and what became of the victim."""

from msgspec import Struct

from colo_common.events.eviction import EvictionRequested, VictimRank
from colo_common.events.fact_text import ended_text, level_text
from colo_common.model.duration import span_text
from colo_common.model.quantity import bytes_text, cpu_text
from colo_common.model.reasons import SENTENCES, Reason
from colo_gateway.evictions import Eviction

__all__ = ["EvictionList", "EvictionAccount", "NotChosen", "account_of"]


class NotChosen(Struct, frozen=True, kw_only=True):
    """A candidate that stayed, and why it came behind the victim."""

    replica: str
    attempt: int
    why: str


class EvictionAccount(Struct, frozen=True, kw_only=True):
    """One eviction. `sentence` says it whole; `requested` is the evictor's own account, with every number.

    `state`: leaving, left or lost (it did not leave in time). `took_ms` counts from the decision to the end of the attempt on its
    node, `wall_ms` is the same by the clock on the wall; both None before the end. `again_node` is the replica's next place.
    """

    eviction: str
    at_ms: int
    node: str
    job: str
    replica: str
    attempt: int
    reason: str
    state: str
    sentence: str
    requested: EvictionRequested
    chosen: str = ""
    not_chosen: tuple[NotChosen, ...] = ()
    credited: str = ""
    took_ms: int | None = None
    wall_ms: int | None = None
    exit_code: int | None = None
    again_node: str = ""
    again_at_ms: int | None = None


class EvictionList(Struct, frozen=True, kw_only=True):
    """Evictions, newest first; `total` counts all that match. Evictions before `known_since_ms` may be missing."""

    evictions: tuple[EvictionAccount, ...]
    total: int
    now_ms: int
    known_since_ms: int | None
    clock_speed: float


def account_of(eviction: Eviction) -> EvictionAccount:
    """The eviction with its sentences."""
    fact = eviction.requested
    ended = eviction.ended
    victim = fact.ranking[0] if fact.ranking else None
    return EvictionAccount(
        eviction=fact.eviction,
        at_ms=fact.at_ms,
        node=fact.node,
        job=fact.job,
        replica=fact.replica,
        attempt=fact.attempt,
        reason=fact.reason.value,
        state=eviction.state,
        sentence=_sentence(eviction),
        requested=fact,
        chosen="" if victim is None else _chosen(fact, victim),
        not_chosen=tuple(
            NotChosen(replica=rank.replica, attempt=rank.attempt, why=_why_not(rank, victim))
            for rank in fact.ranking[1:]
            if victim is not None
        ),
        credited=_credited(fact),
        took_ms=eviction.took_ms,
        wall_ms=None if ended is None or not fact.sent_us else max(ended.sent_us - fact.sent_us, 0) // 1_000,
        exit_code=None if ended is None else ended.exit_code,
        again_node=eviction.again_node,
        again_at_ms=eviction.again_at_ms,
    )


def _sentence(eviction: Eviction) -> str:
    fact = eviction.requested
    who = f"{fact.asked_by} asked" if fact.asked_by not in ("", "evictor") else "the evictor decided"
    text = f"{who} that {fact.replica} (attempt {fact.attempt}) must leave {fact.node}: "
    text += level_text(fact) if fact.threshold_pct == 0 else f"{SENTENCES[fact.reason]}; {level_text(fact)}"
    if fact.hold_ms:
        text += f", needed for {span_text(fact.hold_ms)}"
    took_ms = eviction.took_ms
    if took_ms is None:
        return f"{text}; it is leaving"
    if eviction.state == "lost":
        return f"{text}; it did not leave within {span_text(took_ms)} and counts as lost"
    how = "" if eviction.ended is None else f", it {ended_text(eviction.ended.cause, eviction.ended.exit_code)}"
    again = f"; placed again on {eviction.again_node}" if eviction.again_node else ""
    return f"{text}; it left {span_text(took_ms)} after the decision{how}{again}"


def _used(rank: VictimRank) -> str:
    return f"{bytes_text(rank.used)} of memory" if rank.unit == "bytes" else f"{cpu_text(rank.used)} CPU"


def _chosen(fact: EvictionRequested, victim: VictimRank) -> str:
    band = f"band {victim.band.value}, " if victim.band else ""
    least = "the only candidate" if fact.candidates == 1 else f"the first of {fact.candidates or len(fact.ranking)}"
    lost = f"; at most {span_text(victim.placed_ms)} of work is lost" if victim.placed_ms is not None else ""
    return f"{least}: {band}priority {victim.priority}, uses {_used(victim)}{lost}"


def _why_not(rank: VictimRank, victim: VictimRank | None) -> str:
    if victim is None:
        return ""
    match rank.behind:
        case "band":
            return f"band {rank.band.value if rank.band else '?'} leaves after band {victim.band.value if victim.band else '?'}"
        case "priority":
            return f"priority {rank.priority} is above {victim.priority}"
        case "use":
            return f"uses less: {_used(rank)}, the victim {_used(victim)}"
        case "name":
            return "equal in all; the names decide"
        case _:
            return f"priority {rank.priority}, uses {_used(rank)}"


def _credited(fact: EvictionRequested) -> str:
    parts = []
    if fact.credited_mcpu:
        parts.append(f"{cpu_text(fact.credited_mcpu)} CPU")
    if fact.credited_bytes:
        parts.append(f"{bytes_text(fact.credited_bytes)} of memory")
    if fact.reason is Reason.CPU_SATISFACTION or not parts:
        return "nothing: no victim was on its way out"
    return f"{' and '.join(parts)} of victims on their way out"
