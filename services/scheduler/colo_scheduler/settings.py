"""The settings of the scheduler's process."""

from msgspec import Struct, field

from colo_common.model.invalid import InvalidInput
from colo_common.model.partition import check_partitions
from colo_common.runtime.lease_keeper import LEASE_TTL_MS, check_lease_ttl
from colo_common.runtime.settings import Common
from colo_scheduler.policy import SchedulerPolicy, check_policy

__all__ = ["SchedulerSettings"]


class SchedulerSettings(Struct, frozen=True, kw_only=True):
    """The common settings, how work is shared with other schedulers, and the policy (keys `policy_...`).

    Jobs fall into `shards`; one scheduler holds each shard by a lease of `lease_ttl_ms`. All schedulers of a cluster need the same
    number. 0: this scheduler is alone and needs no lease.
    """

    common: Common = field(default_factory=Common)
    shards: int = 16
    lease_ttl_ms: int = LEASE_TTL_MS
    policy: SchedulerPolicy = field(default_factory=SchedulerPolicy)

    def validate(self) -> None:
        """Raise InvalidInput for a value that breaks a rule."""
        check_partitions(self.shards, "shards")
        if self.common.forget_node_ms < 0:
            raise InvalidInput("forget_node_ms", "must not be negative", self.common.forget_node_ms)
        check_lease_ttl(self.lease_ttl_ms)
        check_policy(self.policy)
