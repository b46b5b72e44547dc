"""The policy of load-aware placement: thresholds, scaling factors, weights, and the age at which a report expires."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from colo_common.model.invalid import InvalidInput

__all__ = ["AGGREGATE_KINDS", "CPU", "MEMORY", "AggregateThresholds", "LoadPolicy", "UsageBasis"]

CPU: Final = "cpu"
MEMORY: Final = "memory"
AGGREGATE_KINDS: Final = ("avg", "p50", "p90", "p95", "p99")
_FACTOR_MAX_PCT: Final = 1_000


class UsageBasis(Struct, frozen=True, kw_only=True):
    """An aggregate over a window instead of the newest usage. `window_ms` 0: the longest window that has a value of that kind."""

    kind: str
    window_ms: int = 0


class AggregateThresholds(Struct, frozen=True, kw_only=True):
    """Thresholds of an aggregate. Without thresholds or without a kind they are not used."""

    usage_pct: Mapping[str, int] = {}
    kind: str = ""
    window_ms: int = 0

    @property
    def is_active(self) -> bool:
        """Whether there is something to compare."""
        return bool(self.usage_pct) and bool(self.kind)


class LoadPolicy(Struct, frozen=True, kw_only=True):
    """Resources are named "cpu" (milli-CPU), "memory" (bytes) or by their own name (counts). Defaults as Koordinator ships them.

    usage_pct, prod_usage_pct, aggregated: a node whose estimated usage is above them takes nothing; 0 switches a resource off.
    factors_pct: how much of its request a workload is expected to use before it reported.
    weights, dominant_weight: of the resources, and of the scarcest of them, in the score.
    expiration_ms: a report of that age is not used (None: reports never expire; 0: only a report without a time does).
    filter_expired: look at expiry at all when filtering; place_when_expired: then pass such a node instead of refusing it.
    score_prod_usage: score prod work by what prod work uses; score_basis: score other work by an aggregate.
    """

    usage_pct: Mapping[str, int] = field(default_factory=lambda: {CPU: 65, MEMORY: 95})
    prod_usage_pct: Mapping[str, int] = {}
    aggregated: AggregateThresholds | None = None
    factors_pct: Mapping[str, int] = field(default_factory=lambda: {CPU: 85, MEMORY: 70})
    weights: Mapping[str, int] = field(default_factory=lambda: {CPU: 1, MEMORY: 1})
    dominant_weight: int = 0
    expiration_ms: int | None = 180_000
    filter_expired: bool = True
    place_when_expired: bool = False
    score_prod_usage: bool = False
    score_basis: UsageBasis | None = None
    prod_usage_includes_system: bool = False

    @property
    def resources(self) -> tuple[str, ...]:
        """Every resource that is named anywhere, in order of name: the columns of the array forms."""
        aggregated = self.aggregated.usage_pct if self.aggregated else {}
        names = {*self.usage_pct, *self.prod_usage_pct, *aggregated, *self.factors_pct, *self.weights}
        return tuple(sorted(names))

    @property
    def scored(self) -> tuple[str, ...]:
        """The resources that the score looks at: those with a weight or a factor, in order of name."""
        return tuple(sorted({*self.weights, *self.factors_pct}))

    def thresholds_of(self, *, is_prod: bool) -> tuple[Mapping[str, int], UsageBasis | None]:
        """The thresholds for a workload's node, and the aggregate that they limit, None for the newest usage.

        Prod thresholds hold for prod work when one of them is on, else aggregated ones when there are any, else the plain ones.
        """
        if self.is_judged_by_prod(is_prod=is_prod):
            return self.prod_usage_pct, None
        aggregated = self.aggregated
        if aggregated is not None and aggregated.is_active:
            return aggregated.usage_pct, UsageBasis(kind=aggregated.kind, window_ms=aggregated.window_ms)
        return self.usage_pct, None

    def is_judged_by_prod(self, *, is_prod: bool) -> bool:
        """Whether the use of prod work is judged on a workload's node: the workload is prod, and a prod threshold is above 0."""
        return is_prod and any(self.prod_usage_pct.values())

    def is_expired(self, updated_at_ms: int | None, now_ms: int) -> bool:
        """Whether a report of that time has expired. A report without a time has, while expiry is used."""
        if self.expiration_ms is None:
            return False
        if updated_at_ms is None:
            return True
        return self.expiration_ms > 0 and now_ms - updated_at_ms >= self.expiration_ms

    def validate(self) -> None:
        """Raise InvalidInput for the first value that breaks a rule."""
        _check_pcts(self.usage_pct, "usage_pct")
        _check_pcts(self.prod_usage_pct, "prod_usage_pct")
        if self.aggregated is not None:
            _check_pcts(self.aggregated.usage_pct, "aggregated.usage_pct")
            if self.aggregated.usage_pct:
                _check_basis(self.aggregated.kind, self.aggregated.window_ms, "aggregated")
        if self.score_basis is not None:
            _check_basis(self.score_basis.kind, self.score_basis.window_ms, "score_basis")
        for name, factor in sorted(self.factors_pct.items()):
            if not 1 <= factor <= _FACTOR_MAX_PCT:
                raise InvalidInput(f"factors_pct.{name}", f"must be 1 to {_FACTOR_MAX_PCT}", factor)
        for name, weight in sorted(self.weights.items()):
            if not 1 <= weight <= 100:
                raise InvalidInput(f"weights.{name}", "must be 1 to 100", weight)
            if name not in self.factors_pct:
                raise InvalidInput(f"weights.{name}", "needs an entry in factors_pct", weight)
        if not 0 <= self.dominant_weight <= 100:
            raise InvalidInput("dominant_weight", "must be 0 to 100", self.dominant_weight)
        if self.expiration_ms is not None and self.expiration_ms < 0:
            raise InvalidInput("expiration_ms", "must not be negative", self.expiration_ms)


def _check_pcts(thresholds: Mapping[str, int], name: str) -> None:
    """Raise InvalidInput for the first threshold that is no share of a whole."""
    for resource, value in sorted(thresholds.items()):
        if not 0 <= value <= 100:
            raise InvalidInput(f"{name}.{resource}", "must be 0 to 100", value)


def _check_basis(kind: str, window_ms: int, name: str) -> None:
    if kind not in AGGREGATE_KINDS:
        raise InvalidInput(f"{name}.kind", f"must be one of {' '.join(AGGREGATE_KINDS)}", kind)
    if window_ms < 0:
        raise InvalidInput(f"{name}.window_ms", "must not be negative", window_ms)
