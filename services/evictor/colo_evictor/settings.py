"""The settings of the evictor."""

from colo_common.model.invalid import InvalidInput
from colo_common.runtime.lease_keeper import LEASE_TTL_MS, check_leases
from colo_common.runtime.settings import Common
from colo_evictor.policy import EvictorPolicy

__all__ = ["EvictorSettings"]


class EvictorSettings(Common, frozen=True, kw_only=True):
    """The values of EvictorPolicy, set as COLO_EVICTOR_POLICY_...

    `lease_ttl_ms`: how long evictions stay with an instance that does not renew its lease; 0: this instance is alone. The nodes
    fall into `partitions`, of which all instances hold an equal share; with 1 one instance serves and the others stand by. All
    instances need the same number.
    """

    lease_ttl_ms: int = LEASE_TTL_MS
    partitions: int = 1
    policy: EvictorPolicy = EvictorPolicy()

    def validate(self) -> None:
        """Raise InvalidInput when the policy contradicts itself, or a time is negative."""
        if self.forget_node_ms < 0:
            raise InvalidInput("forget_node_ms", "must not be negative", self.forget_node_ms)
        check_leases(self.lease_ttl_ms, self.partitions)
        self.policy.validate()
