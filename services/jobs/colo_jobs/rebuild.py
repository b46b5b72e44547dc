"""What the stream of facts still says of jobs whose rows are gone: the store lost them while no jobs service was alive.

A job is known from the fact that it was accepted, which has its specification, and from the moves of its replicas. Of a replica
that had not ended only the number of its newest attempt counts: it is placed again under a higher one, and the old one is stopped.
"""

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.events.job import JobStateChanged, JobSubmitted, ReplicaChange, ReplicasChanged
from colo_common.model.lifecycle import JOB
from colo_common.model.partition import WHOLE, Share
from colo_common.model.workload import JobSpec

__all__ = ["REBUILT_FROM", "FactsOfJobs", "JobEnd", "LostJob"]

#: The facts to be read, which one stream keeps.
REBUILT_FROM = (JobSubmitted, JobStateChanged, ReplicasChanged)


class LostJob(Struct, kw_only=True):
    """A job that had not ended: what was accepted and when, its last state, attempt and state of each replica that moved."""

    job: str
    spec: JobSpec
    submitted_at_ms: int
    state: str = JOB.initial
    replicas: dict[str, tuple[int, str]] = {}


class JobEnd(Struct, frozen=True, kw_only=True):
    """A job that came to its end, or to Terminating, at `at_ms`; `spec` is None where its acceptance was not read.

    It was submitted at `submitted_at_ms` or, where that was not read, before its end: a job that came back under the id later has
    not ended.
    """

    job: str
    state: str
    at_ms: int
    submitted_at_ms: int
    spec: JobSpec | None = None


class FactsOfJobs:
    """Folds facts in their order. `unknown` are unfinished jobs whose acceptance the stream does not keep any more.

    `versions` has for each job that moved the version of its row at the newest move, `moved` the newest move of each replica, by
    job, `ends` the jobs whose newest state is an end or Terminating.
    """

    def __init__(self, share: Share = WHOLE) -> None:
        """`share`: the jobs of other partitions are left out."""
        self._share = share
        self.versions: dict[str, int] = {}
        self.moved: dict[str, dict[str, ReplicaChange]] = {}
        self.ends: dict[str, JobEnd] = {}
        self._jobs: dict[str, LostJob] = {}
        self._unknown: set[str] = set()

    def take(self, fact: Fact) -> None:
        """Fold one more fact."""
        if isinstance(fact, REBUILT_FROM) and not self._share.owns(fact.job):
            return
        if isinstance(fact, JobStateChanged):
            self.versions[fact.job] = max(fact.version, self.versions.get(fact.job, 0))
            self._take_end(fact)
        match fact:
            case JobSubmitted():
                self._unknown.discard(fact.job)
                self.versions.pop(fact.job, None)
                self.moved.pop(fact.job, None)
                self.ends.pop(fact.job, None)
                self._jobs[fact.job] = LostJob(job=fact.job, spec=fact.spec, submitted_at_ms=fact.at_ms, replicas={})
            case JobStateChanged() if fact.state in JOB.terminal:
                self._jobs.pop(fact.job, None)
                self._unknown.discard(fact.job)
            case JobStateChanged():
                if fact.job in self._jobs:
                    self._jobs[fact.job].state = fact.state
                else:
                    self._unknown.add(fact.job)
            case ReplicasChanged():
                self._take_moves(fact)
            case _:
                pass

    def _take_end(self, fact: JobStateChanged) -> None:
        """Note an end; what comes after it is of a job that goes on."""
        before = self.ends.pop(fact.job, None)
        if fact.state not in JOB.terminal and fact.state != "Terminating":
            return
        accepted = self._jobs.get(fact.job)
        if accepted is not None:
            spec, submitted_at_ms = accepted.spec, accepted.submitted_at_ms
        else:
            spec, submitted_at_ms = None, before.submitted_at_ms if before is not None else fact.at_ms
        self.ends[fact.job] = JobEnd(
            job=fact.job, state=fact.state, at_ms=fact.at_ms, submitted_at_ms=submitted_at_ms, spec=spec
        )

    def _take_moves(self, fact: ReplicasChanged) -> None:
        moved = self.moved.setdefault(fact.job, {})
        for change in fact.changes:
            if change.replica not in moved or change.attempt >= moved[change.replica].attempt:
                moved[change.replica] = change
        job = self._jobs.get(fact.job)
        for change in fact.changes if job is not None else ():
            newest, _ = job.replicas.get(change.replica, (0, "")) if job is not None else (0, "")
            if job is not None and change.attempt >= newest:
                job.replicas[change.replica] = change.attempt, change.state

    def lost(self) -> tuple[LostJob, ...]:
        """The jobs that had not ended, by id."""
        return tuple(self._jobs[job] for job in sorted(self._jobs))

    @property
    def unknown(self) -> tuple[str, ...]:
        """Unfinished jobs whose specification is known to nobody."""
        return tuple(sorted(self._unknown))
