"""Queues: their limits, their counts, and the admission of a job into its queue."""

from typing import Final

from msgspec import Struct

from colo_common.events.requests import Refusal
from colo_common.model.invalid import InvalidInput
from colo_common.model.job_rules import check_name
from colo_common.model.partition import Share
from colo_common.model.reasons import SENTENCES, Reason

__all__ = ["DEFAULT_QUEUE", "UNPUBLISHED", "Queue", "QueueLimits", "quota_refusal", "validate_queues"]

DEFAULT_QUEUE: Final = "default"
# QueueChanged is a report; no service decides by it.
QUEUE_PUBLISH_INTERVAL_MS: Final = 250
#: Half of what a service that begins hears of the past.
QUEUE_AGAIN_MS: Final = 60_000
#: A value of `Queue.published` that differs from all counts: it makes the queue publish its counts.
UNPUBLISHED: Final = (-1, -1)


class QueueLimits(Struct, frozen=True, kw_only=True):
    """The most waiting replicas of a queue, and the most jobs in it that have not ended."""

    max_waiting: int = 100_000
    max_jobs: int = 20_000


class Queue(Struct, kw_only=True):
    """A queue's counts. `published` is the (waiting, running) of the last QueueChanged, `published_at_ms` its time."""

    name: str
    limits: QueueLimits
    waiting: int = 0
    running: int = 0
    jobs: int = 0
    published: tuple[int, int] = (0, 0)
    published_at_ms: int = -QUEUE_PUBLISH_INTERVAL_MS

    @property
    def is_changed(self) -> bool:
        """Whether the counts differ from the published ones."""
        return self.published != (self.waiting, self.running)

    def report_ms(self, share: Share) -> int | None:
        """When the counts are to be published; None: they are known.

        Where the work is divided others add them to their own, and who begins has heard those of the last minutes only: counts
        that are not zero are said again.
        """
        if self.is_changed:
            return self.published_at_ms + QUEUE_PUBLISH_INTERVAL_MS
        is_published_again = not share.is_whole and (self.waiting or self.jobs)
        return self.published_at_ms + QUEUE_AGAIN_MS if is_published_again else None


def quota_refusal(queue: Queue, replicas: int, waiting: int = 0, jobs: int = 0) -> Refusal | None:
    """The refusal (429) of a job with this number of replicas, or None when the queue admits it now.

    `waiting` and `jobs` are those of the queue in other partitions. Replicas that come back to wait after an eviction or a failure
    are never refused; they may push a queue over its limit.
    """
    sentence = SENTENCES[Reason.QUEUE_FULL]
    waiting += queue.waiting
    if waiting + replicas > queue.limits.max_waiting:
        rule = f"{sentence}: {waiting} wait, at most {queue.limits.max_waiting} may, the job brings {replicas}"
        return Refusal(code=429, field="queue", rule=rule, got=queue.name)
    if queue.jobs + jobs >= queue.limits.max_jobs:
        rule = f"{sentence.replace('waiting replicas', 'jobs')}: {queue.limits.max_jobs}"
        return Refusal(code=429, field="queue", rule=rule, got=queue.name)
    return None


def validate_queues(queues: dict[str, QueueLimits]) -> None:
    """Raise InvalidInput for a name that is not a DNS-1123 label or a limit below 1."""
    if not queues:
        raise InvalidInput("queues", "at least one queue is needed", queues)
    for name, limits in queues.items():
        check_name(name, "queues")
        for field in limits.__struct_fields__:
            if getattr(limits, field) < 1:
                raise InvalidInput(f"queues.{name}.{field}", "must be at least 1", getattr(limits, field))
