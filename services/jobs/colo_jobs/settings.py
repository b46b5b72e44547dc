"""The settings of the jobs service."""

from msgspec import Struct, field

from colo_common.runtime.lease_keeper import LEASE_TTL_MS, check_leases
from colo_common.runtime.settings import Common
from colo_jobs.admission import DEFAULT_QUEUE, QueueLimits
from colo_jobs.policy import JobsPolicy
from colo_jobs.requeue import RetryPolicy
from colo_jobs.retention import RetentionPolicy

__all__ = ["JobsSettings"]


def _default_queues() -> dict[str, int]:
    return {DEFAULT_QUEUE: QueueLimits().max_waiting}


class JobsSettings(Struct, frozen=True, kw_only=True):
    """`queues`: each queue's name and the most replicas that may wait in it ("default=100000,night=5000").

    `queue_jobs`: the most jobs in one queue that have not ended. `lease_ttl_ms`: how long the jobs stay with an instance that does
    not renew its lease; 0: this instance is alone. `partitions`: into how many parts the jobs fall, of which all instances hold an
    equal share; 1: one serves, the others stand by.
    """

    common: Common = Common()
    queues: dict[str, int] = field(default_factory=_default_queues)
    queue_jobs: int = QueueLimits().max_jobs
    lease_ttl_ms: int = LEASE_TTL_MS
    partitions: int = 1
    retry: RetryPolicy = RetryPolicy()
    retention: RetentionPolicy = RetentionPolicy()

    def policy(self) -> JobsPolicy:
        """The policy with the values of these settings."""
        return JobsPolicy(
            queues={
                name: QueueLimits(max_waiting=waiting, max_jobs=self.queue_jobs)
                for name, waiting in self.queues.items()
            },
            retry=self.retry,
            retention=self.retention,
            trace_ratio=self.common.trace_ratio,
            forget_node_ms=self.common.forget_node_ms,
        )

    def validate(self) -> None:
        """Raise InvalidInput for the first value that breaks a rule."""
        check_leases(self.lease_ttl_ms, self.partitions)
        self.policy().validate()
