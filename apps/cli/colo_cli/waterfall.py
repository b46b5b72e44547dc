"""A node's allocatable as a waterfall: from its capacity down to what batch work is promised, a bar for each step.

The steps are those of the formula, computed from the published terms zone by zone: they sum to the published number exactly.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from colo_common.events.node import AllocatableChanged

__all__ = ["Step", "bar_of", "steps_of"]

_FULL: Final = "█"
_TAKEN: Final = "▒"
_FIELDS: Final = {"cpu": "cpu_mcpu", "memory": "memory_bytes"}
#: The terms that each step is computed from, beside what is left before it.
_TERMS: Final = {
    "capacity": ("capacity",),
    "- margin": ("reclaim_pct",),
    "- system or reserved": ("system_used", "reserved"),
    "- online use": ("online_used",),
    "- online, beyond its use": ("online_added", "online_expected", "online_reserve"),
    "- idle CPU of LSE work": ("lse_requested", "lse_used"),
    "- third parties": ("third_party",),
    "- above the bound": ("most",),
    "+ in CPUs of the reference machine": ("normalization_pct",),
    "- above what a system outside gives": ("external",),
    "- the sample is late": ("age_pct",),
    "+ held, or not below 0": ("held",),
}


class Step(NamedTuple):
    """One step: what it changes, and what is left after it. The first one begins at 0, the last one changes nothing.

    `age_ms` is that of the oldest term which the step is computed from, None where none says how old it is.
    """

    name: str
    change: int
    left: int
    age_ms: int | None = None


def steps_of(published: "AllocatableChanged", prefix: str) -> list[Step]:
    """The steps of one resource ("cpu" or "memory") over all zones, in its unit; those that change nothing are left out."""
    by_zone: dict[int, dict[str, int]] = {}
    ages: dict[str, int] = {}
    for term in published.explanation.terms:
        if term.zone is not None and term.name.startswith(f"{prefix}_"):
            name = term.name.removeprefix(f"{prefix}_")
            by_zone.setdefault(term.zone, {})[name] = term.value
            if term.age_ms is not None:
                ages[name] = max(ages.get(name, 0), term.age_ms)
    sums: dict[str, int] = {}
    for zone in published.zones:
        changes = _changes(by_zone.get(zone.zone, {}), getattr(zone, f"batch_{_FIELDS[prefix]}"))
        for name, change in changes.items():
            sums[name] = sums.get(name, 0) + change
    steps, left = [], 0
    for name, change in sums.items():
        left += change
        if change:
            age_ms = max((ages[term] for term in _TERMS.get(name, ()) if term in ages), default=None)
            steps.append(Step(name, change, left, age_ms))
    return [*steps, Step("= allocatable", 0, left)] if steps else []


def _changes(terms: Mapping[str, int], promised: int) -> dict[str, int]:
    """What each step changes in one zone. The last ones are what the formula does at its end: a bound, and what is held."""
    capacity, pct = terms.get("capacity", 0), terms.get("reclaim_pct", 100)
    kept = max(terms.get("system_used", 0), terms.get("reserved", 0))
    used = terms.get("online_used", 0)
    counted = used + terms.get("online_added", 0)
    most = max(counted, terms.get("online_expected", 0), terms.get("online_reserve", 0))
    changes = {
        "capacity": capacity,
        "- margin": -capacity * (100 - pct) // 100,
        "- system or reserved": -kept,
        "- online use": -used,
        "- online, beyond its use": used - most,
        "- idle CPU of LSE work": -max(terms.get("lse_requested", 0) - terms.get("lse_used", 0), 0),
        "- third parties": -terms.get("third_party", 0),
    }
    raw = sum(changes.values())
    bounded = min(raw, terms.get("most", raw))
    normalized = bounded
    if (ratio_pct := terms.get("normalization_pct", 100)) != 100:
        normalized = min(bounded * ratio_pct // 100, max(capacity - terms.get("reserved", 0), bounded))
    outside = min(normalized, terms.get("external", normalized))
    last = min(outside, terms.get("promised", outside))
    last = last * terms.get("age_pct", 100) // 100 if last > 0 else last
    return {
        **changes,
        "- above the bound": bounded - raw,
        "+ in CPUs of the reference machine": normalized - bounded,
        "- above what a system outside gives": outside - normalized,
        "- the sample is late": last - outside,
        "+ held, or not below 0": promised - last,
    }


def bar_of(step: Step, whole: int, width: int) -> str:
    """What is left after the step, and behind it what the step took away, in `width` cells of the `whole`."""
    if whole <= 0:
        return ""
    left = max(step.left, 0) * width // whole
    before = max(step.left - min(step.change, 0), 0) * width // whole
    return _FULL * min(left, width) + _TAKEN * max(min(before, width) - left, 0)
