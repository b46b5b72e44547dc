"""The four topology policies, and what each admits of merged hints with scores (Koordinator's rules, which colo follows).

A merge finds what all hint lists agree on: the best choice of one hint from each list, without trying every combination. A hint
names a set of zones (None: any), whether it is preferred, and a score. A choice of one hint a list merges into the zones that all
of them name. It is preferred when all its hints are and all that name zones name the same. A merge only asks which merged sets are
reachable and how good the best choice for each is; that is answered set by set, so the work grows with (sets of zones) x (hints),
never with the product of the lists.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from colo_scheduler.numa.exclusive import ZoneExclusive, ZoneStatus, allows
from colo_scheduler.numa.mask import mask_of, zones_of

__all__ = [
    "Hint",
    "HintList",
    "Merged",
    "NO_AFFINITY",
    "PolicyVerdict",
    "ProviderHints",
    "TopologyPolicy",
    "agreed_masks",
    "decide_scored",
    "exclusive_of",
    "hint_lists",
    "merge_scored",
    "one_zone_hints",
    "policy_of",
    "reachable_masks",
    "verdict_of",
    "without_all_zones",
]


class Hint(NamedTuple):
    """One way to serve one resource: in these zones (None: in any). `score` is at least 0."""

    mask: int | None
    preferred: bool
    score: int = 0


ProviderHints = Mapping[str, Sequence[Hint] | None]
"""One provider's hints by resource: None has no opinion, an empty list cannot be served. An empty mapping has no opinion."""

ANY_ZONE: Final = Hint(None, True)
IMPOSSIBLE: Final = Hint(None, False)


class HintList(NamedTuple):
    """The hints for one resource; `is_unsatisfied` when the provider found no way at all."""

    resource: str
    hints: tuple[Hint, ...]
    is_unsatisfied: bool = False


class Merged(NamedTuple):
    """The best merged hint. `unsatisfied`: the zones are fewer than some resource asked for."""

    mask: int
    preferred: bool
    unsatisfied: bool = False
    score: int = 0


def hint_lists(all_zones: int, providers: Sequence[ProviderHints]) -> list[HintList]:
    """One list per resource of every provider, resources in order of name; zones that the node lacks are cut off."""
    lists: list[HintList] = []
    for provider in providers:
        if not provider:
            lists.append(HintList("", (ANY_ZONE,)))
        for resource in sorted(provider):
            hints = provider[resource]
            if hints is None:
                lists.append(HintList(resource, (ANY_ZONE,)))
            elif not hints:
                lists.append(HintList(resource, (IMPOSSIBLE,), is_unsatisfied=True))
            else:
                lists.append(HintList(resource, tuple(_cut(hint, all_zones) for hint in hints)))
    return lists


def merge_scored(
    all_zones: int, lists: Sequence[HintList], exclusive: ZoneExclusive, status: Mapping[int, ZoneStatus]
) -> Merged:
    """Koordinator's merge (topologymanager/policy.go): preferred first, fewer zones, higher score, smaller mask, satisfied.

    Zones that fail the exclusive check are not preferred. The score of a choice is the sum over its hints whose zones are the
    merged ones. `unsatisfied` when a list has no way at all, or the widest hint is wider than the merged zones. Without any
    reachable set the answer is all zones, not preferred.
    """
    passing = {mask: score for mask, score in agreed_masks(all_zones, lists).items() if allows(mask, exclusive, status)}
    if passing:
        mask = min(passing, key=lambda each: (each.bit_count(), -passing[each], each))
        return Merged(mask, True, score=passing[mask])
    hopeless = any(each.is_unsatisfied for each in lists)
    found = [Merged(all_zones, False)]
    for mask in reachable_masks(all_zones, lists):
        # All hints that name zones name these, and one does; hints that do not mind merge into all zones.
        is_named = mask == all_zones or any(_names(each, mask) for each in lists)
        is_whole = is_named and all(_names(each, mask) or _names(each, None) for each in lists)
        found.append(Merged(mask, False, hopeless or not is_whole, _score(mask, lists)))
    return min(found, key=lambda each: (each.mask.bit_count(), -each.score, each.mask, each.unsatisfied))


def _cut(hint: Hint, all_zones: int) -> Hint:
    if hint.mask is None or not hint.mask & ~all_zones:
        return hint
    return hint._replace(mask=hint.mask & all_zones)


def agreed_masks(all_zones: int, lists: Sequence[HintList]) -> dict[int, int]:
    """Merged zones of every preferred choice, with the best score: the zones every list prefers or does not mind."""
    tables: list[tuple[dict[int, int], bool]] = []
    for each in lists:
        best: dict[int, int] = {}
        minds = True
        for hint in each.hints:
            if not hint.preferred:
                continue
            if hint.mask is None:
                minds = False
            elif hint.mask:
                best[hint.mask] = max(hint.score, best.get(hint.mask, 0))
        tables.append((best, minds))
    agreed: dict[int, int] = {}
    if not any(minds for _, minds in tables) and all_zones:
        agreed[all_zones] = 0
    for mask in sorted(set().union(*(best for best, _ in tables))):
        if all(mask in best or not minds for best, minds in tables):
            agreed[mask] = sum(best.get(mask, 0) for best, _ in tables)
    return agreed


def reachable_masks(all_zones: int, lists: Sequence[HintList]) -> list[int]:
    """Every non-empty set of zones that some choice of one hint a list merges into, ascending."""
    reached = {all_zones}
    for each in lists:
        masks = {all_zones if hint.mask is None else hint.mask for hint in each.hints}
        reached = {mask & other for mask in reached for other in masks}
        reached.discard(0)
    return sorted(reached)


def _names(each: HintList, mask: int | None) -> bool:
    return any(hint.mask == mask for hint in each.hints)


def _score(mask: int, lists: Sequence[HintList]) -> int:
    return sum(max((hint.score for hint in each.hints if hint.mask == mask), default=0) for each in lists)


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
    """The verdict on a merged hint. A verdict that does not admit says `reasons`, or else what each of the `lists` prefers."""
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
