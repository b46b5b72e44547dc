"""The explanation of a published allocatable: its terms, and the computation of the numbers from the terms."""

from collections.abc import Sequence
from typing import Final, Literal

from colo_common.events.node import Explanation, NodeUsageSampled, Term, ZoneAllocatable
from colo_common.model.stall import worst_online_stall
from colo_overcommit.allocatable import Resource, ZoneInputs, allocatable_of_zone

__all__ = ["FORMULA", "explain", "recompute"]

FORMULA: Final = (
    "per zone and resource: allocatable = max(0, held, raw); headroom = raw - held; "
    "raw = capacity - ceil(capacity * (100 - reclaim_pct) / 100) - max(system_used, reserved) - online_used "
    "- max(0, lse_requested - lse_used), the last two 0 where there are none; "
    "node = sum of zones"
)
#: With an estimator; memory and CPU have one or none.
_FORMULA_EXPECTED: Final = FORMULA.replace("- online_used ", "- max(online_used, online_expected) ")
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
# The terms beside the reclaim percentage, by resource and by whether LSE work is there: field, name, source.
_NAMED: Final = {
    (prefix, has_lse): tuple(
        (field, f"{prefix}_{field}", source) for field, source in (_SOURCES | (_OF_LSE if has_lse else {})).items()
    )
    for prefix in ("cpu", "memory")
    for has_lse in (False, True)
}
_PCT_NAMES: Final = {prefix: f"{prefix}_{_RECLAIM}" for prefix in ("cpu", "memory")}


def explain(zones: Sequence[ZoneInputs], sample: NodeUsageSampled | None = None) -> Explanation:
    """The explanation of a node: six terms ("cpu_capacity") for each resource of each zone, more with LSE work or an estimator.

    Where the sample knows it, `stall_pct` of the node says what online work feels; the formula does not use it.
    """
    terms: list[Term] = []
    for zone in zones:
        terms.extend(_terms(zone, "cpu", "mcpu", zone.cpu))
        terms.extend(_terms(zone, "memory", "bytes", zone.memory))
    worst = None if sample is None else worst_online_stall(sample.workloads)
    if worst is not None:
        source = (
            f"sample: {worst[0]}, the online work that stalls most" if worst[0] else "sample: no online work stalls"
        )
        terms.append(Term(name=STALL_TERM, value=worst[1], unit="pct", source=source))
    is_expected = any(zone.expected_by for zone in zones)
    return Explanation(formula=_FORMULA_EXPECTED if is_expected else FORMULA, terms=tuple(terms))


def recompute(explanation: Explanation) -> tuple[ZoneAllocatable, ...]:
    """Compute the zones' numbers from the terms alone. Raises KeyError when a term is missing."""
    by_zone: dict[int, dict[str, int]] = {}
    for term in explanation.terms:
        if term.zone is not None:
            by_zone.setdefault(term.zone, {})[term.name] = term.value
    return tuple(
        allocatable_of_zone(ZoneInputs(zone=zone, cpu=_resource("cpu", values), memory=_resource("memory", values)))
        for zone, values in by_zone.items()
    )


def _terms(zone: ZoneInputs, prefix: str, unit: Literal["mcpu", "bytes"], resource: Resource) -> list[Term]:
    number = zone.zone
    terms = [
        Term(
            name=name,
            value=getattr(resource, field),
            unit=unit,
            source=source,
            zone=number,
        )
        for field, name, source in _NAMED[prefix, resource.lse_requested > 0]
    ]
    pct = Term(
        name=_PCT_NAMES[prefix],
        value=resource.reclaim_pct,
        unit="pct",
        source=zone.moved_by or str(zone.limit),
        zone=number,
    )
    terms.insert(1, pct)
    if zone.expected_by:
        source = f"estimator {zone.expected_by}, from the use of online work before the sample; 0 while it has seen too little"
        name = f"{prefix}_{_EXPECTED}"
        terms.append(Term(name=name, value=resource.online_expected, unit=unit, source=source, zone=number))
    return terms


def _resource(prefix: str, values: dict[str, int]) -> Resource:
    more = {name: values[f"{prefix}_{name}"] for name in (*_OF_LSE, _EXPECTED) if f"{prefix}_{name}" in values}
    return Resource(**{name: values[f"{prefix}_{name}"] for name in (*_SOURCES, _RECLAIM)}, **more)
