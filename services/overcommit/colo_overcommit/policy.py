"""The overcommit policy: reclaim percentages, reservations and the thresholds of publishing."""

from msgspec import Struct

from colo_common.model.freshness import FreshnessPolicy
from colo_common.model.invalid import InvalidInput
from colo_common.model.nearest import hint
from colo_overcommit.estimators.estimator import ESTIMATORS, LAST
from colo_overcommit.risk import RiskPolicy

__all__ = ["OvercommitPolicy"]


class OvercommitPolicy(Struct, frozen=True, kw_only=True):
    """The reclaim percentages are the share of a zone that online, system and batch work may use together; the rest is margin.

    `node_reserved_*` is kept for the system when its usage is lower. An allocatable is published when a zone's number fell by at
    least `shrink_pct` of the zone's capacity, when one grew by at least `grow_pct` and none fell for `grow_hold_ms`, and when the
    last publication is `refresh_ms` old. The node's usage is published with it. It causes a publication when it moved by at least
    `load_pct` of the node's capacity (0: never), the last publication is `load_hold_ms` old and no number fell for `grow_hold_ms`.

    With `risk` on, the margins begin as the policy's and then follow the promises that were broken. `estimator` names the one that
    says what online work may use beyond its newest use.
    """

    cpu_reclaim_pct: int = 75
    memory_reclaim_pct: int = 85
    node_reserved_cpu_mcpu: int = 1000
    node_reserved_memory_bytes: int = 1 << 30
    shrink_pct: int = 2
    grow_pct: int = 4
    grow_hold_ms: int = 10_000
    refresh_ms: int = 60_000
    load_pct: int = 10
    load_hold_ms: int = 10_000
    lease_ms: int = 10_000
    freshness: FreshnessPolicy = FreshnessPolicy()
    risk: RiskPolicy = RiskPolicy()
    estimator: str = LAST

    def validate(self) -> None:
        """Raise InvalidInput for the first value that is out of its range or contradicts another."""
        for name in ("cpu_reclaim_pct", "memory_reclaim_pct"):
            if not 0 <= getattr(self, name) <= 100:
                raise InvalidInput(name, "must be 0 to 100", getattr(self, name))
        for name in ("shrink_pct", "grow_pct", "load_pct"):
            if not 0 <= getattr(self, name) <= 50:
                raise InvalidInput(name, "must be 0 to 50", getattr(self, name))
        for name in ("node_reserved_cpu_mcpu", "node_reserved_memory_bytes", "grow_hold_ms", "load_hold_ms"):
            if getattr(self, name) < 0:
                raise InvalidInput(name, "must not be negative", getattr(self, name))
        for name in ("refresh_ms", "lease_ms"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, "must be at least 1", getattr(self, name))
        if self.freshness.stale_after_ms >= self.freshness.lost_after_ms:
            raise InvalidInput("freshness.stale_after_ms", "must be below lost_after_ms", self.freshness.stale_after_ms)
        self.risk.validate()
        names = (LAST, *ESTIMATORS)
        if self.estimator not in names:
            raise InvalidInput("estimator", f"is not one; {hint(self.estimator, names, 'estimators')}", self.estimator)
