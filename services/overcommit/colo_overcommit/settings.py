"""The settings of the overcommit service."""

from colo_common.model.freshness import FreshnessPolicy
from colo_common.model.invalid import InvalidInput
from colo_common.runtime.lease_keeper import LEASE_TTL_MS, check_leases
from colo_common.runtime.settings import Common
from colo_overcommit.fleet_guard import GuardPolicy
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.risk import RiskPolicy

__all__ = ["OvercommitSettings"]

_DEFAULT = OvercommitPolicy()
_FRESHNESS = FreshnessPolicy()
_GUARD = GuardPolicy()
_RISK = RiskPolicy()


class OvercommitSettings(Common, frozen=True, kw_only=True):
    """The values of OvercommitPolicy, set as COLO_OVERCOMMIT_... or COLO_...

    `lease_ttl_ms`: how long the promises stay with an instance that does not renew its lease; 0: this instance is alone. The nodes
    fall into `partitions`, of which all instances hold an equal share; with 1 one instance serves and the others stand by. All
    instances need the same number. What the estimators of a node have learned is stored every `history_ms` at most; 0: never.
    """

    lease_ttl_ms: int = LEASE_TTL_MS
    history_ms: int = 300_000
    partitions: int = 1
    cpu_reclaim_pct: int = _DEFAULT.cpu_reclaim_pct
    memory_reclaim_pct: int = _DEFAULT.memory_reclaim_pct
    node_reserved_cpu_mcpu: int = _DEFAULT.node_reserved_cpu_mcpu
    node_reserved_memory_bytes: int = _DEFAULT.node_reserved_memory_bytes
    cpu_policy: str = _DEFAULT.cpu_policy
    memory_policy: str = _DEFAULT.memory_policy
    reservation: str = _DEFAULT.reservation
    ramp_ms: int = _DEFAULT.ramp_ms
    online_reserve_cpu_mcpu: int = _DEFAULT.online_reserve_cpu_mcpu
    online_reserve_memory_bytes: int = _DEFAULT.online_reserve_memory_bytes
    third_party_cpu_mcpu: int = _DEFAULT.third_party_cpu_mcpu
    third_party_memory_bytes: int = _DEFAULT.third_party_memory_bytes
    batch_cpu_most_pct: int = _DEFAULT.batch_cpu_most_pct
    batch_memory_most_pct: int = _DEFAULT.batch_memory_most_pct
    mid_mode: str = _DEFAULT.mid_mode
    mid_cpu_most_pct: int = _DEFAULT.mid_cpu_most_pct
    mid_memory_most_pct: int = _DEFAULT.mid_memory_most_pct
    mid_unallocated_pct: int = _DEFAULT.mid_unallocated_pct
    mid_margin_pct: int = _DEFAULT.mid_margin_pct
    mid_static_cpu_pct: int = _DEFAULT.mid_static_cpu_pct
    mid_static_memory_pct: int = _DEFAULT.mid_static_memory_pct
    shrink_pct: int = _DEFAULT.shrink_pct
    grow_pct: int = _DEFAULT.grow_pct
    grow_hold_ms: int = _DEFAULT.grow_hold_ms
    refresh_ms: int = _DEFAULT.refresh_ms
    load_pct: int = _DEFAULT.load_pct
    load_hold_ms: int = _DEFAULT.load_hold_ms
    lease_ms: int = _DEFAULT.lease_ms
    stale_shrink_ms: int = _DEFAULT.stale_shrink_ms
    stale_after_ms: int = _FRESHNESS.stale_after_ms
    lost_after_ms: int = _FRESHNESS.lost_after_ms
    warm_samples: int = _FRESHNESS.warm_samples
    estimator: str = _DEFAULT.estimator
    estimator_horizon_ms: int = _DEFAULT.estimator_horizon_ms
    estimator_history_ms: int = _DEFAULT.estimator_history_ms
    risk_target_ratio: float = _RISK.target_ratio
    risk_take_back_ms: int = _RISK.take_back_ms
    risk_least_margin_pct: int = _RISK.least_margin_pct
    risk_most_margin_pct: int = _RISK.most_margin_pct
    fleet_lost_most_pct: int = _GUARD.lost_most_pct
    fleet_lost_most_nodes: int = _GUARD.lost_most_nodes
    fleet_together_most_pct: int = _GUARD.together_most_pct

    def policy(self) -> OvercommitPolicy:
        """The policy with the values of these settings."""
        return OvercommitPolicy(
            cpu_reclaim_pct=self.cpu_reclaim_pct,
            memory_reclaim_pct=self.memory_reclaim_pct,
            node_reserved_cpu_mcpu=self.node_reserved_cpu_mcpu,
            node_reserved_memory_bytes=self.node_reserved_memory_bytes,
            cpu_policy=self.cpu_policy,
            memory_policy=self.memory_policy,
            reservation=self.reservation,
            ramp_ms=self.ramp_ms,
            online_reserve_cpu_mcpu=self.online_reserve_cpu_mcpu,
            online_reserve_memory_bytes=self.online_reserve_memory_bytes,
            third_party_cpu_mcpu=self.third_party_cpu_mcpu,
            third_party_memory_bytes=self.third_party_memory_bytes,
            batch_cpu_most_pct=self.batch_cpu_most_pct,
            batch_memory_most_pct=self.batch_memory_most_pct,
            mid_mode=self.mid_mode,
            mid_cpu_most_pct=self.mid_cpu_most_pct,
            mid_memory_most_pct=self.mid_memory_most_pct,
            mid_unallocated_pct=self.mid_unallocated_pct,
            mid_margin_pct=self.mid_margin_pct,
            mid_static_cpu_pct=self.mid_static_cpu_pct,
            mid_static_memory_pct=self.mid_static_memory_pct,
            shrink_pct=self.shrink_pct,
            grow_pct=self.grow_pct,
            grow_hold_ms=self.grow_hold_ms,
            refresh_ms=self.refresh_ms,
            load_pct=self.load_pct,
            load_hold_ms=self.load_hold_ms,
            lease_ms=self.lease_ms,
            stale_shrink_ms=self.stale_shrink_ms,
            freshness=FreshnessPolicy(
                stale_after_ms=self.stale_after_ms, lost_after_ms=self.lost_after_ms, warm_samples=self.warm_samples
            ),
            estimator=self.estimator,
            estimator_horizon_ms=self.estimator_horizon_ms,
            estimator_history_ms=self.estimator_history_ms,
            risk=RiskPolicy(
                target_ratio=self.risk_target_ratio,
                take_back_ms=self.risk_take_back_ms,
                least_margin_pct=self.risk_least_margin_pct,
                most_margin_pct=self.risk_most_margin_pct,
            ),
        )

    def guard(self) -> GuardPolicy:
        """The guard with the values of these settings. A clock that runs faster than the wall may jump further."""
        fast = max(1.0, self.clock_speed)
        return GuardPolicy(
            beat_ms=round(_GUARD.beat_ms * fast),
            pause_ms=round(_GUARD.pause_ms * fast),
            lost_most_pct=self.fleet_lost_most_pct,
            lost_most_nodes=self.fleet_lost_most_nodes,
            together_ms=round(_GUARD.together_ms * fast),
            together_most_pct=self.fleet_together_most_pct,
        )

    def validate(self) -> None:
        """Raise InvalidInput when the policy contradicts itself, or a time is negative."""
        if self.forget_node_ms < 0:
            raise InvalidInput("forget_node_ms", "must not be negative", self.forget_node_ms)
        if self.history_ms < 0:
            raise InvalidInput("history_ms", "must not be negative", self.history_ms)
        check_leases(self.lease_ttl_ms, self.partitions)
        self.policy().validate()
        self.guard().validate()
