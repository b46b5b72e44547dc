"""The overcommit policy: reclaim percentages, reservations and the thresholds of publishing."""

from enum import StrEnum

from msgspec import Struct

from colo_common.model.estimator_rules import (
    HISTORY_MS,
    HORIZON_MS,
    LAST,
    check_estimator,
    check_history,
    check_horizon,
)
from colo_common.model.freshness import FreshnessPolicy
from colo_common.model.invalid import InvalidInput
from colo_overcommit.estimators.estimator import EstimatorChoice
from colo_overcommit.online_charge import CalculatePolicy
from colo_overcommit.reserved import ReservationForm
from colo_overcommit.risk import RiskPolicy

__all__ = ["MidMode", "OvercommitPolicy"]


class MidMode(StrEnum):
    """How much the mid tier gets. off: it is not published. reclaimable: what online work requests and will not use. static: a
    share of the machine.
    """

    OFF = "off"
    RECLAIMABLE = "reclaimable"
    STATIC = "static"


_PERCENTAGES = (
    "cpu_reclaim_pct",
    "memory_reclaim_pct",
    "batch_cpu_most_pct",
    "batch_memory_most_pct",
    "mid_cpu_most_pct",
    "mid_memory_most_pct",
    "mid_unallocated_pct",
    "mid_margin_pct",
    "mid_static_cpu_pct",
    "mid_static_memory_pct",
)
_AT_LEAST_ZERO = (
    "node_reserved_cpu_mcpu",
    "node_reserved_memory_bytes",
    "grow_hold_ms",
    "load_hold_ms",
    "stale_shrink_ms",
    "ramp_ms",
    "online_reserve_cpu_mcpu",
    "online_reserve_memory_bytes",
    "third_party_cpu_mcpu",
    "third_party_memory_bytes",
)


class OvercommitPolicy(Struct, frozen=True, kw_only=True):
    """The reclaim percentages are the share of a zone that online, system and batch work may use together; the rest is margin.

    `node_reserved_*` is kept for the system when its usage is lower. An allocatable is published when a zone's number fell by at
    least `shrink_pct` of the zone's capacity, when one grew by at least `grow_pct` and none fell for `grow_hold_ms`, and when the
    last publication is `refresh_ms` old. The node's usage is published with it. It causes a publication when it moved by at least
    `load_pct` of the node's capacity (0: never), the last publication is `load_hold_ms` old and no number fell for `grow_hold_ms`.

    `cpu_policy` and `memory_policy` say how online work counts (CalculatePolicy), `ramp_ms` for how long work that was placed a
    moment ago is charged more than it uses, `reservation` how reservations of several sources count together. `online_reserve_*` is
    kept for online work when it uses less, `third_party_*` was promised to another system, and no more than `batch_*_most_pct` of a
    zone is promised. Where the policy is not enabled nothing is promised beyond what is held.

    `mid_mode` (MidMode) says how much the mid tier gets, within `mid_*_most_pct` of a zone. reclaimable: what online work requests
    above its expected peak and `mid_margin_pct` of that, and `mid_unallocated_pct` of what nobody requests. static:
    `mid_static_*_pct` of a zone.

    Where the newest sample is late the promise shrinks to what is held, over `stale_shrink_ms` from when the node is stale, at most
    until it is lost (late_promise.py).

    With `risk` on, the margins begin as the policy's and then follow the promises that were broken. `estimator` names the one that
    says what online work may use beyond its newest use; one that looks ahead foretells the next `estimator_horizon_ms` from the
    last `estimator_history_ms`.
    """

    cpu_reclaim_pct: int = 75
    memory_reclaim_pct: int = 85
    node_reserved_cpu_mcpu: int = 1000
    node_reserved_memory_bytes: int = 1 << 30
    is_enabled: bool = True
    cpu_policy: str = CalculatePolicy.USAGE
    memory_policy: str = CalculatePolicy.USAGE
    reservation: str = ReservationForm.MAX
    ramp_ms: int = 60_000
    online_reserve_cpu_mcpu: int = 0
    online_reserve_memory_bytes: int = 0
    third_party_cpu_mcpu: int = 0
    third_party_memory_bytes: int = 0
    batch_cpu_most_pct: int = 100
    batch_memory_most_pct: int = 100
    mid_mode: str = MidMode.OFF
    mid_cpu_most_pct: int = 100
    mid_memory_most_pct: int = 100
    mid_unallocated_pct: int = 0
    mid_margin_pct: int = 10
    mid_static_cpu_pct: int = 0
    mid_static_memory_pct: int = 0
    shrink_pct: int = 2
    grow_pct: int = 4
    grow_hold_ms: int = 10_000
    refresh_ms: int = 60_000
    load_pct: int = 10
    load_hold_ms: int = 10_000
    lease_ms: int = 10_000
    stale_shrink_ms: int = 30_000
    freshness: FreshnessPolicy = FreshnessPolicy()
    risk: RiskPolicy = RiskPolicy()
    estimator: str = LAST
    estimator_horizon_ms: int = HORIZON_MS
    estimator_history_ms: int = HISTORY_MS

    @property
    def choice(self) -> EstimatorChoice:
        """The estimator, and how far it looks."""
        return EstimatorChoice(self.estimator, self.estimator_horizon_ms, self.estimator_history_ms)

    @property
    def learns(self) -> bool:
        """Whether it asks for what is learned from samples."""
        return self.estimator != LAST or self.mid_mode == MidMode.RECLAIMABLE

    def validate(self) -> None:
        """Raise InvalidInput for the first value that is out of its range or contradicts another."""
        for name in _PERCENTAGES:
            if not 0 <= getattr(self, name) <= 100:
                raise InvalidInput(name, "must be 0 to 100", getattr(self, name))
        for name in ("shrink_pct", "grow_pct", "load_pct"):
            if not 0 <= getattr(self, name) <= 50:
                raise InvalidInput(name, "must be 0 to 50", getattr(self, name))
        for name in _AT_LEAST_ZERO:
            if getattr(self, name) < 0:
                raise InvalidInput(name, "must not be negative", getattr(self, name))
        for name in ("refresh_ms", "lease_ms"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, "must be at least 1", getattr(self, name))
        if self.freshness.stale_after_ms >= self.freshness.lost_after_ms:
            raise InvalidInput("freshness.stale_after_ms", "must be below lost_after_ms", self.freshness.stale_after_ms)
        for name, words in (
            ("cpu_policy", CalculatePolicy),
            ("memory_policy", CalculatePolicy),
            ("reservation", ReservationForm),
            ("mid_mode", MidMode),
        ):
            if getattr(self, name) not in list(words):
                raise InvalidInput(name, f"must be one of {', '.join(words)}", getattr(self, name))
        self.risk.validate()
        check_estimator(self.estimator)
        check_horizon(self.estimator_horizon_ms)
        check_history(self.estimator_history_ms)
