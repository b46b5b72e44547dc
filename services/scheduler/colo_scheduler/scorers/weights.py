"""How much each scorer counts: policy data, checked where it enters."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = ["NEVER_RISING", "WEIGHT_MAX", "Scorer", "ScorerWeights"]

WEIGHT_MAX: Final = 1_000


class Scorer(StrEnum):
    """The name of each scorer, as it stands in policies and explanations."""

    FEWEST_ZONES = "fewest-zones"
    MOST_FREE = "most-free"
    LEAST_ALLOCATED = "least-allocated"
    MOST_ALLOCATED = "most-allocated"
    BALANCED_ALLOCATION = "balanced-allocation"
    BINPACK = "binpack"
    SPREAD = "spread"
    RECENT_EVICTION = "recent-eviction"
    SOFT_TAINTS = "soft-taints"
    LOAD_AWARE = "load-aware"
    DYNAMIC_LOAD = "dynamic-load"
    DEVICES_LEAST_ALLOCATED = "devices-least-allocated"
    DEVICES_MOST_ALLOCATED = "devices-most-allocated"


NEVER_RISING: Final = frozenset(
    {
        Scorer.FEWEST_ZONES,
        Scorer.MOST_FREE,
        Scorer.LEAST_ALLOCATED,
        Scorer.SPREAD,
        Scorer.RECENT_EVICTION,
        Scorer.SOFT_TAINTS,
        Scorer.LOAD_AWARE,
        Scorer.DYNAMIC_LOAD,
        Scorer.DEVICES_LEAST_ALLOCATED,
    }
)
"""Scorers whose score of a node never rises because something is placed there, while the moment of the decision stays the same.

The others prefer nodes that fill up: after a placement such a node may be better than it was.
"""


class ScorerWeights(Struct, frozen=True, kw_only=True):
    """0 to 1000 for each scorer, at least one above 0. The defaults put one zone before two in every case.

    Then a replica with a spread constraint goes where fewer replicas of its job are rather than where more is free; a node with a
    PreferNoSchedule taint that the replica does not tolerate, or that has just evicted work of the class, comes behind its equals,
    however much is free.

        `resource_cpu`, `resource_memory`: the weight of each within least and most allocated and binpack.
    """

    fewest_zones: int = 10
    most_free: int = 1
    least_allocated: int = 0
    most_allocated: int = 0
    balanced_allocation: int = 0
    binpack: int = 0
    spread: int = 4
    recent_eviction: int = 2
    soft_taints: int = 3
    load_aware: int = 0
    dynamic_load: int = 0
    devices_least_allocated: int = 0
    devices_most_allocated: int = 0
    resource_cpu: int = 1
    resource_memory: int = 1

    @property
    def resources(self) -> tuple[int, int]:
        """How much CPU and memory count."""
        return self.resource_cpu, self.resource_memory

    @property
    def active(self) -> tuple[tuple[Scorer, int], ...]:
        """The scorers with a weight above 0, in the order of `Scorer`."""
        pairs = ((scorer, getattr(self, _field(scorer))) for scorer in Scorer)
        return tuple((scorer, weight) for scorer, weight in pairs if weight > 0)

    @property
    def may_rise(self) -> bool:
        """Whether the weighted sum of a node may rise because something is placed there."""
        return any(scorer not in NEVER_RISING for scorer, _ in self.active)

    def validate(self, field: str = "weights") -> None:
        """Raise InvalidInput for the first weight that breaks a rule."""
        for scorer in Scorer:
            _check(getattr(self, _field(scorer)), f"{field}.{scorer}")
        for name in ("resource_cpu", "resource_memory"):
            _check(getattr(self, name), f"{field}.{name}")
        if not any(self.resources):
            raise InvalidInput(f"{field}.resource_cpu", "must be above 0, unless resource_memory is", self.resource_cpu)
        if not self.active:
            raise InvalidInput(field, "at least one weight must be above 0", 0)


def _check(weight: object, field: str) -> None:
    if isinstance(weight, bool) or not isinstance(weight, int) or not 0 <= weight <= WEIGHT_MAX:
        raise InvalidInput(field, f"must be a whole number, 0 to {WEIGHT_MAX}", weight)


def _field(scorer: Scorer) -> str:
    return scorer.value.replace("-", "_")
