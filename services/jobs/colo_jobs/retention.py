"""The retention of ended jobs: up to a number of jobs and of replicas; above it the oldest job is deleted."""

import heapq
from typing import Final

from msgspec import Struct

from colo_jobs.job import Job

__all__ = ["EndedJobs", "RetentionPolicy"]

DELETIONS_PER_WAKE: Final = 20


class RetentionPolicy(Struct, frozen=True, kw_only=True):
    """The most ended jobs that are kept, and the most replicas in them."""

    max_ended_jobs: int = 5_000
    max_ended_replicas: int = 200_000


class EndedJobs:
    """The ended jobs, ordered by the time of their end."""

    def __init__(self, policy: RetentionPolicy) -> None:
        self._policy = policy
        self._heap: list[tuple[int, str]] = []
        self._jobs: dict[str, int] = {}
        self._replicas = 0

    def add(self, job: Job) -> None:
        """Add an ended job."""
        if job.id not in self._jobs and job.record.ended_at_ms is not None:
            heapq.heappush(self._heap, (job.record.ended_at_ms, job.id))
            self._jobs[job.id] = job.size
            self._replicas += job.size

    def drop(self, job: str) -> None:
        """Remove a job that was deleted or reloaded."""
        self._replicas -= self._jobs.pop(job, 0)

    @property
    def has_surplus(self) -> bool:
        """Whether the ended jobs exceed a limit."""
        return len(self._jobs) > self._policy.max_ended_jobs or self._replicas > self._policy.max_ended_replicas

    def take_surplus(self) -> list[str]:
        """Take out the oldest jobs above the limits, at most 20."""
        taken: list[str] = []
        while self.has_surplus and self._heap and len(taken) < DELETIONS_PER_WAKE:
            _, job = heapq.heappop(self._heap)
            if job in self._jobs:
                self.drop(job)
                taken.append(job)
        return taken
