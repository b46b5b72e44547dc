"""How old what each term of an explanation says is: a sample, a policy document, a placement and a topology age apart."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from colo_common.events.node import Explanation
from colo_common.model.quantity import ceil_div
from colo_overcommit.allocatable import Limit, Resource, ZoneInputs
from colo_overcommit.followed_policy import FollowedPolicy
from colo_overcommit.known_node import KnownNode

__all__ = ["SAMPLE", "Age", "TermAges", "TermMoments", "aged", "ages_of"]

SAMPLE: Final = "sample"
_TOPOLOGY: Final = "topology"
_HOLDS: Final = "holds"
_EXTERNAL: Final = "external"
_NO_EXPECTED: Final[Mapping[int, tuple[int, int]]] = MappingProxyType({})
_UNITS: Final = {"cpu": "cpu_mcpu", "memory": "memory_bytes"}


class Age(NamedTuple):
    """The age of what a term says, None where that is not known, and the sequence of the sample that it was read from, if any."""

    age_ms: int | None
    sample_seq: int | None


class TermMoments(Struct, frozen=True, kw_only=True):
    """When what the terms of a node say was said; None: never, or not known.

    Of a sample, of holds and of what is expected that is when this instance heard it. The bus keeps topologies, documents and what
    is said of external capacity: these count from when they were said. The holds are confirmed when the scheduler lists them.
    `given` are the fields of the policy that the document gives, the others are settings, which count since the start.
    `reserved` is what the policy keeps back on the node, in mcpu and bytes, over so many `zones`: where a zone keeps back more, the
    node's own rules say so. `expected`: zone -> since when CPU and memory are expected to be what they are.
    """

    sample_ms: int | None = None
    sample_seq: int | None = None
    topology_ms: int | None = None
    holds_ms: int | None = None
    settings_ms: int | None = None
    document_ms: int | None = None
    given: frozenset[str] = frozenset()
    external_ms: int | None = None
    forbidden_ms: int | None = None
    reserved: tuple[int, int] = (0, 0)
    zones: int = 1
    expected: Mapping[int, tuple[int, int]] = _NO_EXPECTED


#: What says the value of each field of a resource: a moment, or with "{}" a field of the policy, of CPU or memory.
_SOURCE_OF: Final = {
    "capacity": _TOPOLOGY,
    "reserved": "node_reserved_{unit}",
    "system_used": SAMPLE,
    "online_used": SAMPLE,
    "held": _HOLDS,
    "lse_requested": _HOLDS,
    "lse_used": SAMPLE,
    "online_added": SAMPLE,
    "normalization_pct": _TOPOLOGY,
    "external": _EXTERNAL,
    "age_pct": SAMPLE,
    "promised": SAMPLE,
    "online_reserve": "online_reserve_{unit}",
    "third_party": "third_party_{unit}",
    "most": "batch_{of}_most_pct",
    "mid_most_pct": "mid_{of}_most_pct",
    "mid_static_pct": "mid_static_{of}_pct",
    "mid_margin_pct": "mid_margin_pct",
    "mid_unallocated_pct": "mid_unallocated_pct",
    "mid_held": _HOLDS,
    "mid_promised": SAMPLE,
    "mid_age_pct": SAMPLE,
    "mid_used": SAMPLE,
    "mid_reserved": SAMPLE,
    "mid_prod_requested": _HOLDS,
    "mid_prod_measured": SAMPLE,
    "mid_prod_peak": SAMPLE,
}


#: The same by resource, with the names of the fields made once.
_SOURCES: Final = {
    prefix: {field: source.format(of=prefix, unit=unit) for field, source in _SOURCE_OF.items()}
    for prefix, unit in _UNITS.items()
}
_RECLAIMS: Final = {prefix: f"{prefix}_reclaim_pct" for prefix in _UNITS}
_RESERVATIONS: Final = {prefix: f"node_reserved_{unit}" for prefix, unit in _UNITS.items()}


class TermAges:
    """The ages of the terms of one explanation at `now_ms`; what was said later than now is of age 0."""

    __slots__ = ("_known", "_moments", "_now_ms", "_rows")

    def __init__(self, moments: TermMoments, now_ms: int) -> None:
        self._moments = moments
        self._now_ms = now_ms
        self._rows: dict[tuple[str, int], list[Age]] = {}
        self._known: dict[str, Age] = {
            SAMPLE: Age(self._since(moments.sample_ms), moments.sample_seq),
            _TOPOLOGY: Age(self._since(moments.topology_ms), None),
            _HOLDS: Age(self._since(moments.holds_ms), None),
            _EXTERNAL: Age(self._since(moments.external_ms), None),
        }

    def of_sample(self) -> Age:
        """The age of what the sample says by itself."""
        return self._known[SAMPLE]

    def of_fields(self, prefix: Literal["cpu", "memory"], fields: Sequence[str]) -> Sequence[Age]:
        """The ages of several fields, as `of` gives them; of what is reserved as if the policy alone said it."""
        key = (prefix, len(fields))
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = [self.of(prefix, field) for field in fields]
        return found

    def of(self, prefix: Literal["cpu", "memory"], field: str) -> Age:
        """The age of a field that is said by one thing in every zone."""
        return self._of_policy(_SOURCES[prefix][field])

    def of_reclaim(self, prefix: Literal["cpu", "memory"], zone: ZoneInputs) -> Age:
        """The age of a zone's reclaim percentage, by what limits it; a margin that moves follows the sample."""
        if zone.limit in (Limit.RULES, Limit.OBSERVES):
            return self._known[_TOPOLOGY]
        if zone.limit == Limit.OFF:
            return self._of_policy("is_enabled")
        if zone.limit != Limit.POLICY:
            return Age(self._since(self._moments.forbidden_ms), None)
        return self._known[SAMPLE] if zone.moved_by else self._of_policy(_RECLAIMS[prefix])

    def of_reserved(self, prefix: Literal["cpu", "memory"], resource: Resource) -> Age:
        """The age of what is kept back in a zone: the policy's, or the node's own rules where these keep more."""
        policy = ceil_div(self._moments.reserved[prefix == "memory"], self._moments.zones)
        return self._known[_TOPOLOGY] if resource.reserved > policy else self._of_policy(_RESERVATIONS[prefix])

    def of_expected(self, prefix: Literal["cpu", "memory"], zone: int) -> Age:
        """How long an estimator has expected what it expects; that of the sample while that is not known."""
        since = self._moments.expected.get(zone)
        if since is None:
            return self._known[SAMPLE]
        return Age(self._since(since[prefix == "memory"]), self._moments.sample_seq)

    def _of_policy(self, name: str) -> Age:
        """The age of a field of the policy: that of the document which gives it, or of the settings."""
        found = self._known.get(name)
        if found is None:
            at_ms = self._moments.document_ms if name in self._moments.given else self._moments.settings_ms
            found = self._known[name] = Age(self._since(at_ms), None)
        return found

    def _since(self, at_ms: int | None) -> int | None:
        return None if at_ms is None else max(self._now_ms - at_ms, 0)


def aged(explanation: Explanation, by_ms: int) -> Explanation:
    """The explanation as it is so much later: its numbers are the same, and each term that has an age is older."""
    if by_ms <= 0:
        return explanation
    terms = tuple(
        term if term.age_ms is None else replace(term, age_ms=term.age_ms + by_ms) for term in explanation.terms
    )
    return Explanation(formula=explanation.formula, terms=terms)


def ages_of(known: KnownNode, followed: FollowedPolicy, begun_ms: int | None, now_ms: int) -> TermAges:
    """The ages now. `begun_ms` is when this instance began, since when its settings count."""
    policy = known.policy or followed.base
    expected: Mapping[int, tuple[int, int]] = known.expected.since_ms if known.expected is not None else {}
    return TermAges(
        TermMoments(
            sample_ms=known.sampled_at_ms,
            sample_seq=known.sample.sample_seq if known.sample is not None else None,
            topology_ms=known.topology_ms,
            holds_ms=known.holds_ms,
            settings_ms=begun_ms,
            document_ms=min(followed.at_ms or now_ms, now_ms) if followed.revision else None,
            given=known.given,
            external_ms=known.external_at_ms or None,
            forbidden_ms=known.forbidden_ms,
            reserved=(policy.node_reserved_cpu_mcpu, policy.node_reserved_memory_bytes),
            zones=max(len(known.inputs), 1),
            expected=expected,
        ),
        now_ms,
    )
