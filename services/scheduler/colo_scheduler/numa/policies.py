"""The four topology policies, and what each admits of merged hints with scores (Koordinator's rules, which colo follows)."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from colo_scheduler.numa.exclusive import ZoneExclusive, ZoneStatus
from colo_scheduler.numa.mask import mask_of, zones_of
from colo_scheduler.numa.merge import Hint, HintList, Merged, ProviderHints, hint_lists, merge_scored

__all__ = [
    "NO_AFFINITY",
    "PolicyVerdict",
    "TopologyPolicy",
    "decide_scored",
    "exclusive_of",
    "one_zone_hints",
    "policy_of",
    "verdict_of",
    "without_all_zones",
]


class TopologyPolicy(StrEnum):
    """How strictly a request keeps to few zones."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE = "single-numa-node"


class PolicyVerdict(NamedTuple):
    """What a policy says: the zones (`mask` None: any), and whether the request is admitted; if not, `reasons` says why."""

    mask: int | None
    preferred: bool
    is_admitted: bool
    unsatisfied: bool = False
    score: int = 0
    reasons: tuple[str, ...] = ()


_SETS_PUBLISHED: Final = 8
"""How many sets of zones a refusal lists for one resource."""
NO_AFFINITY: Final = PolicyVerdict(mask=None, preferred=False, is_admitted=True)


def policy_of(node: TopologyPolicy, request: TopologyPolicy) -> TopologyPolicy | None:
    """The policy in force: a request may set one where the node has none, else it must ask for none or the same; None:
    conflict."""
    if request is TopologyPolicy.NONE or request is node:
        return node
    return request if node is TopologyPolicy.NONE else None


def exclusive_of(request: TopologyPolicy, exclusive: ZoneExclusive) -> ZoneExclusive:
    """A request that sets a policy and leaves exclusiveness open asks for REQUIRED (Koordinator, numa-topology-spec)."""
    is_open = exclusive is ZoneExclusive.NONE and request is not TopologyPolicy.NONE
    return ZoneExclusive.REQUIRED if is_open else exclusive


def decide_scored(
    policy: TopologyPolicy,
    zones: Sequence[int],
    providers: Sequence[ProviderHints],
    exclusive: ZoneExclusive = ZoneExclusive.NONE,
    status: Mapping[int, ZoneStatus] | None = None,
) -> PolicyVerdict:
    """Koordinator's policies over scored hints. An unsatisfied best-effort answer gives up: all zones, not preferred."""
    if policy is TopologyPolicy.NONE:
        return NO_AFFINITY
    all_zones = mask_of(zones)
    lists = hint_lists(all_zones, providers)
    chosen = one_zone_hints(lists) if policy is TopologyPolicy.SINGLE else lists
    merged = merge_scored(all_zones, chosen, exclusive, status or {})
    reasons = tuple(f"Unsatisfied NUMA {each.resource}" for each in lists if each.is_unsatisfied)
    match policy:
        case TopologyPolicy.BEST_EFFORT:
            if merged.unsatisfied:
                merged = Merged(all_zones, False)
            return verdict_of(merged, True)
        case TopologyPolicy.RESTRICTED:
            # What some resource finds nowhere is refused before anything is merged.
            merged = Merged(all_zones, False) if reasons else merged
            return verdict_of(merged, merged.preferred, lists, reasons)
        case TopologyPolicy.SINGLE:
            verdict = verdict_of(merged, merged.preferred, lists, reasons)
            return without_all_zones(verdict, all_zones)


def one_zone_hints(lists: Sequence[HintList]) -> list[HintList]:
    """Only preferred hints that name one zone or do not mind."""
    return [
        each._replace(
            hints=tuple(
                hint for hint in each.hints if hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1)
            )
        )
        for each in lists
    ]


def verdict_of(
    merged: Merged, is_admitted: bool, lists: Sequence[HintList] = (), reasons: tuple[str, ...] = ()
) -> PolicyVerdict:
    """The verdict on a merged hint. One that is not admitted says `reasons`, or else what each of the `lists` prefers."""
    return PolicyVerdict(
        mask=merged.mask,
        preferred=merged.preferred,
        is_admitted=is_admitted,
        unsatisfied=merged.unsatisfied,
        score=merged.score,
        reasons=() if is_admitted else reasons or _unaligned(lists),
    )


def without_all_zones(verdict: PolicyVerdict, all_zones: int) -> PolicyVerdict:
    """Single-numa-node turns an answer of all zones into no affinity, which has no score."""
    if verdict.mask != all_zones:
        return verdict
    return verdict._replace(mask=None, unsatisfied=False, score=0)


def _unaligned(lists: Sequence[HintList]) -> tuple[str, ...]:
    """What each resource prefers among what is possible, in order of name."""
    delivered = []
    for each in lists:
        named = [hint for hint in each.hints if hint.mask is not None]
        if named:
            preferred = _published([hint for hint in named if hint.preferred])
            delivered.append(f"{each.resource} prefers {preferred or 'none'} among {_published(named)}")
    return (f"Unaligned NUMA hints: {'; '.join(sorted(delivered))}",)


def _published(hints: Sequence[Hint]) -> str:
    sets = [str(list(zones_of(hint.mask or 0))) for hint in hints[:_SETS_PUBLISHED]]
    more = len(hints) - _SETS_PUBLISHED
    return " ".join(sets) + (f" and {more} more" if more > 0 else "")
