"""The policy of the jobs service: all values that its core decides by."""

from msgspec import Struct, field, structs

from colo_common.model.freshness import FORGET_NODE_MS
from colo_common.model.invalid import InvalidInput
from colo_jobs.admission import DEFAULT_QUEUE, QueueLimits, validate_queues
from colo_jobs.requeue import RetryPolicy
from colo_jobs.retention import RetentionPolicy

__all__ = ["JobsPolicy"]


def _default_queues() -> dict[str, QueueLimits]:
    return {DEFAULT_QUEUE: QueueLimits()}


class JobsPolicy(Struct, frozen=True, kw_only=True):
    """`queues` are the queues that jobs may name. `trace_ratio` is the share of traced placements.

    `forget_node_ms`: a node's freshness is forgotten when it has not changed for so long (0: never).
    """

    queues: dict[str, QueueLimits] = field(default_factory=_default_queues)
    retry: RetryPolicy = RetryPolicy()
    retention: RetentionPolicy = RetentionPolicy()
    trace_ratio: float = 1.0
    forget_node_ms: int = FORGET_NODE_MS

    def of_one(self, partitions: int) -> "JobsPolicy":
        """The policy of one of so many partitions: each keeps its part of the ended jobs, at least one, and as long."""
        if partitions == 1:
            return self
        kept = self.retention
        part = structs.replace(
            kept,
            max_ended_jobs=max(1, kept.max_ended_jobs // partitions),
            max_ended_replicas=max(1, kept.max_ended_replicas // partitions),
        )
        return structs.replace(self, retention=part)

    def validate(self) -> None:
        """Raise InvalidInput for the first value that is out of its range."""
        validate_queues(self.queues)
        for part in (self.retry, self.retention):
            for name in part.__struct_fields__:
                if name != "ended_ms" and getattr(part, name) < 1:
                    raise InvalidInput(name, "must be at least 1", getattr(part, name))
        if self.retention.ended_ms < 0:
            raise InvalidInput("ended_ms", "must not be negative", self.retention.ended_ms)
        if self.retry.backoff_max_ms < self.retry.backoff_ms:
            raise InvalidInput("backoff_max_ms", "must not be below backoff_ms", self.retry.backoff_max_ms)
        if self.retry.avoid_max_ms < self.retry.avoid_ms:
            raise InvalidInput("avoid_max_ms", "must not be below avoid_ms", self.retry.avoid_max_ms)
        if self.forget_node_ms < 0:
            raise InvalidInput("forget_node_ms", "must not be negative", self.forget_node_ms)
        if not 0 <= self.trace_ratio <= 1:
            raise InvalidInput("trace_ratio", "must be from 0 to 1", self.trace_ratio)
