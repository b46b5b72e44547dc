"""The operator's rules for load: which nodes are too busy for new work, and by which usage they are judged for batch work.

Online work is judged by what online work and the system use, as batch work gives way to it. For batch work the thresholds are off:
what it may be promised is computed from the same usage, with a margin, and a second limit would only leave promised capacity idle.
"""

from typing import Final, Literal

from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.model.resource_list import CPU, MEMORY
from colo_scheduler.load.usage import AggregateThresholds, LoadPolicy, UsageBasis

__all__ = ["LoadRules"]

_WINDOWS_MS: Final = (0, 60_000, 300_000)
_WEIGHT_MOST: Final = 100
Usage = Literal["newest", "avg", "p50", "p90", "p95", "p99"]


class LoadRules(Struct, frozen=True, kw_only=True):
    """Thresholds in percent of the machine, 0 for off: `cpu_pct` and `memory_pct` of all usage for work below prod, `prod_*` of the
    usage of prod work and of the system for prod work. Koordinator ships 65 and 95 and judges all work by all usage.

    `usage`: what work below prod is judged by: the newest sample, or an average or a percentile over `window_ms` (0: the longest
    window there is); `score_usage`, `score_window_ms`: what it is scored by. Prod work goes by the newest sample, as Koordinator
    has it. `cpu_weight`, `memory_weight`, `scarcest_weight`: of both, and of the one of which less is left, in the score.
    `*_factor_pct`: how much of its request work is expected to use until a sample shows it, which is `settle_ms` after it was
    placed, when it has started and warmed up. A report older than `expiry_ms` says nothing (whether the node's facts are fresh is
    another filter's); it is renewed every minute.
    """

    cpu_pct: int = 0
    memory_pct: int = 0
    prod_cpu_pct: int = 65
    prod_memory_pct: int = 95
    usage: Usage = "newest"
    window_ms: int = 300_000
    score_usage: Usage = "newest"
    score_window_ms: int = 300_000
    cpu_weight: int = 1
    memory_weight: int = 1
    scarcest_weight: int = 0
    cpu_factor_pct: int = 85
    memory_factor_pct: int = 70
    settle_ms: int = 10_000
    expiry_ms: int = 180_000

    def policy(self) -> LoadPolicy:
        """The rules in the words of the filter and the scorer."""
        thresholds = _thresholds(self.cpu_pct, self.memory_pct)
        basis = _basis(self.usage, self.window_ms)
        weights = {name: weight for name, weight in ((CPU, self.cpu_weight), (MEMORY, self.memory_weight)) if weight}
        aggregated = None
        if basis is not None and thresholds:
            aggregated = AggregateThresholds(usage_pct=thresholds, kind=basis.kind, window_ms=basis.window_ms)
        return LoadPolicy(
            usage_pct=thresholds,
            prod_usage_pct=_thresholds(self.prod_cpu_pct, self.prod_memory_pct),
            aggregated=aggregated,
            factors_pct={CPU: self.cpu_factor_pct, MEMORY: self.memory_factor_pct},
            expiration_ms=self.expiry_ms,
            place_when_expired=True,
            score_prod_usage=True,
            score_basis=_basis(self.score_usage, self.score_window_ms),
            weights=weights,
            dominant_weight=self.scarcest_weight,
            prod_usage_includes_system=True,
        )

    def validate(self, field: str) -> None:
        """Raise InvalidInput for the first value that breaks a rule."""
        for name in ("cpu_pct", "memory_pct", "prod_cpu_pct", "prod_memory_pct"):
            if not 0 <= getattr(self, name) <= 100:
                raise InvalidInput(f"{field}_{name}", "must be 0 to 100", getattr(self, name))
        for name in ("cpu_factor_pct", "memory_factor_pct"):
            if not 1 <= getattr(self, name) <= 1_000:
                raise InvalidInput(f"{field}_{name}", "must be 1 to 1000", getattr(self, name))
        for name in ("window_ms", "score_window_ms"):
            if getattr(self, name) not in _WINDOWS_MS:
                rule = "must be one that nodes report: 60000 or 300000, or 0 for the longest of them"
                raise InvalidInput(f"{field}_{name}", rule, getattr(self, name))
        weights = ("cpu_weight", "memory_weight", "scarcest_weight")
        for name in weights:
            if not 0 <= getattr(self, name) <= _WEIGHT_MOST:
                raise InvalidInput(f"{field}_{name}", f"must be 0 to {_WEIGHT_MOST}", getattr(self, name))
        if not any(getattr(self, name) for name in weights):
            raise InvalidInput(
                f"{field}_cpu_weight", "must be above 0, unless another of the weights is", self.cpu_weight
            )
        if self.settle_ms < 0:
            raise InvalidInput(f"{field}_settle_ms", "must not be negative", self.settle_ms)
        if self.expiry_ms < 1:
            raise InvalidInput(f"{field}_expiry_ms", "must be at least 1", self.expiry_ms)


def _basis(usage: Usage, window_ms: int) -> UsageBasis | None:
    return None if usage == "newest" else UsageBasis(kind=usage, window_ms=window_ms)


def _thresholds(cpu_pct: int, memory_pct: int) -> dict[str, int]:
    return {name: pct for name, pct in ((CPU, cpu_pct), (MEMORY, memory_pct)) if pct > 0}
