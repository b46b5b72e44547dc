"""The mid tier in the explanation of a node: its terms beside those of batch work, and the numbers that follow from them."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from colo_common.events.node import Explanation, Term, ZoneMid
from colo_overcommit.explained_values import values_by_zone
from colo_overcommit.mid import MidInputs, MidResource, mid_of_zones
from colo_overcommit.term_ages import TermAges

__all__ = ["MID_FORMULA", "recompute_mid", "terms_of_mid"]

MID_FORMULA: Final = (
    "mid = max(mid_held, mid_raw); "
    "mid_raw = min(floor(capacity * mid_static_pct / 100), most) where there is a static share, else min(max(min(reclaimable, "
    "capacity - mid_used), 0) + floor(max(capacity - mid_reserved - mid_prod_requested, 0) * mid_unallocated_pct / 100), most); "
    "reclaimable = max(mid_prod_measured - ceil(mid_prod_peak * (100 + mid_margin_pct) / 100), 0), 0 without a peak; "
    "most = floor(capacity * mid_most_pct / 100); of a late sample mid_raw = floor(min(mid_raw, mid_promised) * mid_age_pct / 100)"
)
_OFTEN: Final = {
    "most_pct": "policy, the largest share of a zone that the mid tier may get",
    "held": "placements of the mid tier",
    "promised": "what the tier was promised by the last sample that was not late",
    "age_pct": "how much of that a sample of this age still promises, as of the number of batch work",
}
_STATIC: Final = {"static_pct": "policy, the mid tier is a share of the machine"}
_RECLAIMABLE: Final = {
    "used": "sample: what all work but the mid tier's uses",
    "reserved": "the larger of system_used and reserved",
    "prod_requested": "placements of online work, and the use of online work without a known request",
    "prod_measured": "placements of LS work that was measured for two hours",
    "prod_peak": "estimator peak, of the use of placed LS work",
    "margin_pct": "policy, added to the peak",
    "unallocated_pct": "policy, the share of what nobody requests",
}


def terms_of_mid(zones: Iterable[MidInputs], ages: TermAges | None = None) -> Iterator[Term]:
    """The terms of each zone, named "cpu_mid_used"; without a peak, outside its mode, or with nothing held, a term is left out."""
    for zone in zones:
        yield from _terms(zone.zone, "cpu", "mcpu", zone.cpu, ages)
        yield from _terms(zone.zone, "memory", "bytes", zone.memory, ages)


def _terms(
    zone: int,
    prefix: Literal["cpu", "memory"],
    unit: Literal["mcpu", "bytes"],
    resource: MidResource,
    ages: TermAges | None,
) -> Iterator[Term]:
    named = _OFTEN | (_STATIC if resource.static_pct is not None else _RECLAIMABLE)
    for field, source in named.items():
        value = getattr(resource, field)
        if value is not None and (value or field != "held") and (field != "age_pct" or value != 100):
            age_ms, seq = (None, None) if ages is None else ages.of(prefix, f"mid_{field}")
            yield Term(
                name=f"{prefix}_mid_{field}",
                value=value,
                unit="pct" if field.endswith("_pct") else unit,
                source=source,
                zone=zone,
                age_ms=age_ms,
                sample_seq=seq,
            )


def recompute_mid(explanation: Explanation) -> tuple[ZoneMid, ...]:
    """Compute the mid tier from the terms alone; () without its terms."""
    return mid_of_zones(
        MidInputs(zone=zone, cpu=_resource("cpu", values), memory=_resource("memory", values))
        for zone, values in values_by_zone(explanation).items()
        if "cpu_mid_most_pct" in values
    )


def _resource(prefix: str, values: dict[str, int]) -> MidResource:
    names = (*_OFTEN, *_STATIC, *_RECLAIMABLE)
    given = {name: values[f"{prefix}_mid_{name}"] for name in names if f"{prefix}_mid_{name}" in values}
    return MidResource(capacity=values[f"{prefix}_capacity"], **given)
