"""The load of one node: what a policy makes of it, the newest report with aggregates over windows, and the expected use.

estimated = base + sum of the estimates of the placed work that the report does not show yet + estimate of the newcomer. All
integers. After Koordinator's LoadAware (plugins/loadaware/pod_assign_cache.go, estimator/default_estimator.go).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct, field

from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import PriorityBand
from colo_common.model.resource_list import CPU, MEMORY, ResourceList

__all__ = [
    "Aggregate",
    "AggregateThresholds",
    "LoadPolicy",
    "NodeLoad",
    "Sums",
    "UsageBasis",
    "WorkloadRequest",
    "add",
    "aggregate_usage",
    "estimate_of",
    "prod_used",
    "resource_of",
    "used",
]

_AGGREGATE_KINDS: Final = ("avg", "p50", "p90", "p95", "p99")
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
    if kind not in _AGGREGATE_KINDS:
        raise InvalidInput(f"{name}.kind", f"must be one of {' '.join(_AGGREGATE_KINDS)}", kind)
    if window_ms < 0:
        raise InvalidInput(f"{name}.window_ms", "must not be negative", window_ms)


_TIERS = {PriorityBand.MID: "mid", PriorityBand.BATCH: "batch", PriorityBand.FREE: "batch"}


class Aggregate(Struct, frozen=True, kw_only=True):
    """Usage of a node over a window, by kind of aggregate ("avg", "p95"); a kind without amounts has no value."""

    window_ms: int
    usage: Mapping[str, ResourceList]


class NodeLoad(Struct, frozen=True, kw_only=True):
    """One report of a node. `usage` None: the report carries no numbers; `updated_at_ms` None: the report has no time."""

    updated_at_ms: int | None
    usage: ResourceList | None
    report_interval_ms: int = 60_000
    system_usage: ResourceList = {}
    aggregates: tuple[Aggregate, ...] = ()


class WorkloadRequest(Struct, frozen=True, kw_only=True):
    """A workload that is placed or to be placed. `requests` and `limits` are under the names of its tier (`resource_of`)."""

    band: PriorityBand
    requests: ResourceList = {}
    limits: ResourceList = {}


def resource_of(resource: str, band: PriorityBand) -> str:
    """The name under which work of that band asks for a resource: mid and batch capacity are resources of their own.

    Free work lives on batch capacity. Resources other than CPU and memory have one name for all.
    """
    tier = _TIERS.get(band)
    return f"kubernetes.io/{tier}-{resource}" if tier and resource in (CPU, MEMORY) else resource


def aggregate_usage(load: NodeLoad, basis: UsageBasis) -> ResourceList | None:
    """The usage that a basis names; None when an explicit window has none of that kind.

    Window 0 takes the longest window that has one, and the newest usage when there is none at all. Of two aggregates over the
    same window the later counts.
    """
    found: Aggregate | None = None
    for aggregate in load.aggregates:
        if not aggregate.usage.get(basis.kind):
            continue
        if basis.window_ms == 0:
            if found is None or aggregate.window_ms >= found.window_ms:
                found = aggregate
        elif aggregate.window_ms == basis.window_ms:
            found = aggregate
    if found is not None:
        return found.usage[basis.kind]
    return load.usage if basis.window_ms == 0 else None


def add(total: dict[str, int], amounts: ResourceList) -> None:
    """Add amounts to a sum, resource by resource."""
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + amount


DEFAULT_CPU_MCPU: Final = 250
DEFAULT_MEMORY_BYTES: Final = 200 << 20
_DEFAULTS: Final = {CPU: DEFAULT_CPU_MCPU, MEMORY: DEFAULT_MEMORY_BYTES}


def estimate_of(workload: WorkloadRequest, policy: LoadPolicy) -> dict[str, int]:
    """The expected use of the workload of each resource that has a factor.

    q = max(limit, request); round half up of q x factor / 100, never above a limit. Work without a request counts as
    250 milli-CPU and 200 MiB, mid work as nothing.
    """
    return {resource: _estimate(workload, resource, factor) for resource, factor in policy.factors_pct.items()}


def _estimate(workload: WorkloadRequest, resource: str, factor_pct: int) -> int:
    name = resource_of(resource, workload.band)
    limit = workload.limits.get(name, 0)
    asked = max(limit, workload.requests.get(name, 0))
    if asked == 0:
        return 0 if workload.band is PriorityBand.MID else _DEFAULTS.get(resource, 0)
    expected = (2 * asked * factor_pct + 100) // 200
    return min(expected, limit) if limit > 0 else expected


class Sums(NamedTuple):
    """The sums that the work placed on a node adds to its report.

    `delta` is added to measured usage, `full` replaces it where there is none, `prod` is the measured usage of prod work with its
    delta.
    """

    delta: dict[str, int]
    full: dict[str, int]
    prod: dict[str, int]


def used(load: NodeLoad, sums: Sums, basis: UsageBasis | None = None) -> dict[str, int]:
    """The use of a node with all placed work: by the newest usage, or by an aggregate when a basis is named.

    Where the aggregate has no value, the full estimates of all placed work stand for it.
    """
    base = load.usage if basis is None else aggregate_usage(load, basis)
    total: dict[str, int] = dict(base or {})
    add(total, sums.full if base is None else sums.delta)
    return total


def prod_used(load: NodeLoad, sums: Sums, policy: LoadPolicy) -> dict[str, int]:
    """The use of prod work on a node, with the system's usage when the policy includes it."""
    total: dict[str, int] = dict(load.system_usage) if policy.prod_usage_includes_system else {}
    add(total, sums.prod)
    return total
