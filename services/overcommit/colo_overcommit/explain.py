"""The explanation of a published allocatable: its terms, and the computation of the numbers from the terms."""

from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Final, Literal

from colo_common.events.node import Explanation, NodeUsageSampled, Term, ZoneAllocatable
from colo_common.model.stall import worst_online_stall
from colo_overcommit.allocatable import Resource, ZoneInputs, allocatable_of_zone
from colo_overcommit.explain_mid import MID_FORMULA, terms_of_mid
from colo_overcommit.explained_values import values_by_zone
from colo_overcommit.mid import MidInputs
from colo_overcommit.term_ages import Age, TermAges

__all__ = ["FORMULA", "explain", "recompute"]

FORMULA: Final = (
    "per zone and resource: allocatable = max(0, held, raw); headroom = raw - held; "
    "raw = capacity - ceil(capacity * (100 - reclaim_pct) / 100) - max(system_used, reserved) - online_used "
    "- max(0, lse_requested - lse_used), the last two 0 where there are none; "
    "node = sum of zones"
)
#: What a resource may have beside these, with the value that says nothing, and the source.
_MORE: Final = {
    "online_expected": (
        0,
        "estimator {by}, from the use of online work before the sample; 0 while it has seen too little",
    ),
    "online_added": (0, "placements of online work and their use in the sample, by the calculate policy"),
    "online_reserve": (0, "policy, an even share of what is kept for online work when it uses less"),
    "third_party": (0, "policy, an even share of what another system was promised here"),
    "most": (None, "policy, the largest share of a zone that batch work may get"),
    "normalization_pct": (
        100,
        "the node's rule cpu_normalization_pct: CPUs of the reference machine for each of its own",
    ),
    "external": (
        None,
        "external capacity of {external}, for a time: the zone's part of the smallest bound of the node",
    ),
    "promised": (None, "what was promised by the last sample that was not late: a late one promises no more"),
    "age_pct": (100, "{late}"),
}
_EXPECTED: Final = "online_expected"
_SOURCES: Final = {
    "capacity": "topology",
    "reserved": "policy, an even share of the node's, or the node's own rules where these keep more",
    "system_used": "sample, an even share of the node's",
    "online_used": "sample: zone used - batch used - system used",
    "held": "placements of batch work that hold the zone",
}
_OF_LSE: Final = {
    "lse_requested": "placements of LSE work that hold the zone",
    "lse_used": "sample: what that work uses",
}
_RECLAIM: Final = "reclaim_pct"
STALL_TERM: Final = "stall_pct"
_FIELDS: Final = {has_lse: (*_SOURCES, *(_OF_LSE if has_lse else ())) for has_lse in (False, True)}
# The values of these fields of a resource, and the name and the source of each, by resource, and by whether LSE work is there.
_VALUES: Final = {has_lse: attrgetter(*fields) for has_lse, fields in _FIELDS.items()}
_NAMED: Final = {
    (prefix, has_lse): tuple((f"{prefix}_{field}", (_SOURCES | _OF_LSE)[field]) for field in fields)
    for prefix in ("cpu", "memory")
    for has_lse, fields in _FIELDS.items()
}
_MORE_VALUES: Final = attrgetter(*_MORE)
_NO_MORE: Final = tuple(nothing for nothing, _ in _MORE.values())
_PCT_NAMES: Final = {prefix: f"{prefix}_{_RECLAIM}" for prefix in ("cpu", "memory")}
_RESERVED_AT: Final = list(_SOURCES).index("reserved")
_NO_AGE: Final = Age(None, None)


def explain(
    zones: Sequence[ZoneInputs],
    sample: NodeUsageSampled | None = None,
    mid: Sequence[MidInputs] = (),
    ages: TermAges | None = None,
) -> Explanation:
    """The explanation of a node: six terms ("cpu_capacity") for each resource of each zone, more with LSE work or an estimator.

    With the mid tier its terms follow ("cpu_mid_used").

    Where the sample knows it, `stall_pct` of the node says what online work feels; the formula does not use it. Without `ages` no
    term says how old it is.
    """
    terms: list[Term] = []
    more: set[str] = set()
    for zone in zones:
        more.update(_add_terms(terms, zone, "cpu", "mcpu", zone.cpu, ages))
        more.update(_add_terms(terms, zone, "memory", "bytes", zone.memory, ages))
    worst = None if sample is None else worst_online_stall(sample.workloads)
    if worst is not None:
        source = (
            f"sample: {worst[0]}, the online work that stalls most" if worst[0] else "sample: no online work stalls"
        )
        age_ms, seq = ages.of_sample() if ages is not None else _NO_AGE
        terms.append(Term(name=STALL_TERM, value=worst[1], unit="pct", source=source, age_ms=age_ms, sample_seq=seq))
    terms.extend(terms_of_mid(mid, ages))
    formula = _formula(more) if more else FORMULA
    return Explanation(formula=f"{formula}; {MID_FORMULA}" if mid else formula, terms=tuple(terms))


def recompute(explanation: Explanation) -> tuple[ZoneAllocatable, ...]:
    """Compute the zones' numbers from the terms alone. Raises KeyError when a term is missing."""
    return tuple(
        allocatable_of_zone(ZoneInputs(zone=zone, cpu=_resource("cpu", values), memory=_resource("memory", values)))
        for zone, values in values_by_zone(explanation).items()
    )


def _add_terms(
    terms: list[Term],
    zone: ZoneInputs,
    prefix: Literal["cpu", "memory"],
    unit: Literal["mcpu", "bytes"],
    resource: Resource,
    ages: TermAges | None,
) -> Collection[str]:
    """Add the terms of a resource, the reclaim percentage second; return the names of those that only some nodes have."""
    number, has_lse = zone.zone, resource.lse_requested > 0
    row = _ages_of(ages, prefix, resource, has_lse)
    age_ms, seq = _NO_AGE if ages is None else ages.of_reclaim(prefix, zone)
    pct = Term(
        name=_PCT_NAMES[prefix],
        value=resource.reclaim_pct,
        unit="pct",
        source=zone.moved_by or str(zone.limit),
        zone=number,
        age_ms=age_ms,
        sample_seq=seq,
    )
    at = len(terms) + 1
    terms += [
        Term(name=name, value=value, unit=unit, source=source, zone=number, age_ms=age_ms, sample_seq=seq)
        for (name, source), value, (age_ms, seq) in zip(
            _NAMED[prefix, has_lse], _VALUES[has_lse](resource), row, strict=True
        )
    ]
    terms.insert(at, pct)
    more = _more_of(zone, resource)
    for name in more:
        source = _MORE[name][1].format(by=zone.expected_by, external=zone.external_by, late=zone.late_by)
        of = "pct" if name.endswith("_pct") else unit
        age_ms, seq = _NO_AGE
        if ages is not None:
            age_ms, seq = ages.of_expected(prefix, number) if name == _EXPECTED else ages.of(prefix, name)
        terms.append(
            Term(
                name=f"{prefix}_{name}",
                value=getattr(resource, name),
                unit=of,
                source=source,
                zone=number,
                age_ms=age_ms,
                sample_seq=seq,
            )
        )
    return more


def _ages_of(
    ages: TermAges | None, prefix: Literal["cpu", "memory"], resource: Resource, has_lse: bool
) -> Sequence[Age]:
    """The ages of the terms that every node has, in the order of the fields."""
    if ages is None:
        return (_NO_AGE,) * len(_FIELDS[has_lse])
    row = [*ages.of_fields(prefix, _FIELDS[has_lse])]
    row[_RESERVED_AT] = ages.of_reserved(prefix, resource)
    return row


def _more_of(zone: ZoneInputs, resource: Resource) -> Collection[str]:
    """The terms of the resource that only some nodes have."""
    values = _MORE_VALUES(resource)
    if values == _NO_MORE and not zone.expected_by:
        return ()
    return [
        name
        for name, value, nothing in zip(_MORE, values, _NO_MORE, strict=True)
        if value != nothing or (name == _EXPECTED and zone.expected_by)
    ]


def _formula(more: Collection[str]) -> str:
    """The formula with the terms that this node has beside the usual ones."""
    online = "online_used + online_added" if "online_added" in more else "online_used"
    others = [name for name in (_EXPECTED, "online_reserve") if name in more]
    if others:
        online = f"max({', '.join([online, *others])})"
    elif "online_added" in more:
        online = f"({online})"
    text = FORMULA.replace("- online_used ", f"- {online} ")
    if "third_party" in more:
        text = text.replace("the last two 0", "- third_party, the last ones 0")
    if "most" in more:
        text = text.replace("; node =", ", not above most; node =")
    if "normalization_pct" in more:
        scaled = "; then raw = min(floor(raw * normalization_pct / 100), max(capacity - reserved, raw))"
        text = text.replace("; node =", f"{scaled}; node =")
    if "external" in more:
        text = text.replace("; node =", "; then raw = min(raw, external); node =")
    if "promised" in more or "age_pct" in more:
        late = "then raw = min(raw, promised), and where it is above 0 floor(raw * age_pct / 100)"
        text = text.replace("; node =", f"; {late}; node =")
    return text


def _resource(prefix: str, values: dict[str, int]) -> Resource:
    more = {name: values[f"{prefix}_{name}"] for name in (*_OF_LSE, *_MORE) if f"{prefix}_{name}" in values}
    return Resource(**{name: values[f"{prefix}_{name}"] for name in (*_SOURCES, _RECLAIM)}, **more)
