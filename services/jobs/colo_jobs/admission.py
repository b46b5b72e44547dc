"""Queues: which there are, how much may wait in each, and what waits and runs there now."""

from typing import Final

from msgspec import Struct

from colo_common.events.requests import Refusal
from colo_common.model.invalid import InvalidInput
from colo_common.model.job_rules import check_name
from colo_common.model.reasons import SENTENCES, Reason

__all__ = ["DEFAULT_QUEUE", "UNSAID", "Queue", "QueueLimits", "quota_refusal", "validate_queues"]

DEFAULT_QUEUE: Final = "default"
# Counts of a queue are a report; nobody decides by them.
QUEUE_SAID_EVERY_MS: Final = 250
#: No counts are these: what a queue is set to whose counts have to be said, whatever they are.
UNSAID: Final = (-1, -1)


class QueueLimits(Struct, frozen=True, kw_only=True):
    """The most replicas that wait and the most jobs that have not ended in a queue."""

    max_waiting: int = 100_000
    max_jobs: int = 20_000


class Queue(Struct, kw_only=True):
    """A queue's counts. `said` is what QueueChanged said last, and `said_at_ms` when."""

    name: str
    limits: QueueLimits
    waiting: int = 0
    running: int = 0
    jobs: int = 0
    said: tuple[int, int] = (0, 0)
    said_at_ms: int = -QUEUE_SAID_EVERY_MS

    @property
    def is_changed(self) -> bool:
        """Whether the counts are not those that were said."""
        return self.said != (self.waiting, self.running)

    @property
    def due_ms(self) -> int:
        """When a change may be said."""
        return self.said_at_ms + QUEUE_SAID_EVERY_MS


def quota_refusal(queue: Queue, replicas: int) -> Refusal | None:
    """Why a job of so many replicas is not admitted now, or None.

    Replicas that come back to wait after an eviction or a failure are never refused; they may push a queue over its limit.
    """
    sentence = SENTENCES[Reason.QUEUE_FULL]
    if queue.waiting + replicas > queue.limits.max_waiting:
        rule = f"{sentence}: {queue.waiting} wait, at most {queue.limits.max_waiting} may, the job brings {replicas}"
        return Refusal(code=429, field="queue", rule=rule, got=queue.name)
    if queue.jobs >= queue.limits.max_jobs:
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
