"""The retention of ended jobs: for a time, and up to a number of jobs and of replicas; above it the oldest job is deleted."""

import heapq
from typing import Final

from msgspec import Struct

from colo_jobs.job import Job

__all__ = ["EndedJobs", "RetentionPolicy"]

DELETIONS_PER_WAKE: Final = 20
# As long as the stream of facts keeps a job's history at most.
_ENDED_MS: Final = 7 * 86_400_000


class RetentionPolicy(Struct, frozen=True, kw_only=True):
    """The most ended jobs that are kept, the most replicas in them, and for how long each is kept after its end (0: for ever)."""

    max_ended_jobs: int = 5_000
    max_ended_replicas: int = 200_000
    ended_ms: int = _ENDED_MS

    def over_ms(self, ended_at_ms: int) -> int | None:
        """When a job that ended at this time is no longer kept, None: its time never ends."""
        return ended_at_ms + self.ended_ms if self.ended_ms else None

    def is_over(self, ended_at_ms: int, now_ms: int) -> bool:
        """Whether a job that ended at this time has been kept for long enough."""
        over_ms = self.over_ms(ended_at_ms)
        return over_ms is not None and over_ms <= now_ms


class EndedJobs:
    """The ended jobs, ordered by the time of their end."""

    def __init__(self, policy: RetentionPolicy) -> None:
        self._policy = policy
        self._heap: list[tuple[int, str]] = []
        # By job: when it ended, and how many replicas it has.
        self._jobs: dict[str, tuple[int, int]] = {}
        self._replicas = 0

    def add(self, job: Job) -> None:
        """Add an ended job."""
        ended_at_ms = job.record.ended_at_ms
        if job.id not in self._jobs and ended_at_ms is not None:
            heapq.heappush(self._heap, (ended_at_ms, job.id))
            self._jobs[job.id] = ended_at_ms, job.size
            self._replicas += job.size

    def drop(self, job: str) -> None:
        """Remove a job that was deleted or reloaded."""
        self._replicas -= self._jobs.pop(job, (0, 0))[1]

    @property
    def over_ms(self) -> int | None:
        """When the time of the oldest job ends, None: no job's does."""
        oldest = self._oldest()
        return None if oldest is None else self._policy.over_ms(oldest[0])

    def has_due(self, now_ms: int) -> bool:
        """Whether the ended jobs exceed a limit, or the oldest has been kept for long enough."""
        policy, oldest = self._policy, self._oldest()
        if oldest is None:
            return False
        is_surplus = len(self._jobs) > policy.max_ended_jobs or self._replicas > policy.max_ended_replicas
        return is_surplus or policy.is_over(oldest[0], now_ms)

    def take_due(self, now_ms: int) -> list[str]:
        """Take out the oldest jobs above the limits and those whose time is over, at most 20."""
        taken: list[str] = []
        while len(taken) < DELETIONS_PER_WAKE and self.has_due(now_ms):
            _, job = heapq.heappop(self._heap)
            self.drop(job)
            taken.append(job)
        return taken

    def _oldest(self) -> tuple[int, str] | None:
        """The job that ended first; entries of jobs that were removed since, or ended anew, are passed over."""
        while self._heap:
            ended_at_ms, job = self._heap[0]
            if self._jobs.get(job, (None, 0))[0] == ended_at_ms:
                return ended_at_ms, job
            heapq.heappop(self._heap)
        return None
