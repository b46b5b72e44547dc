"""A job in memory: its records, the numbering of its replicas, and the counts of each task's replicas by state."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

from colo_common.events.requests import StoryLine
from colo_common.model.invalid import InvariantBroken
from colo_common.model.lifecycle import JOB, REPLICA
from colo_common.model.workload import JobSpec, TaskSpec
from colo_jobs.policies import DEFAULT_POLICIES, LifecyclePolicy
from colo_jobs.records import PAGE_REPLICAS, JobRecord, PageRecord, ReplicaRecord, TaskRecord, page_count
from colo_jobs.story import merged, next_seq

__all__ = ["HOLDING", "WAITING", "Job"]

# The states in which a replica waits for capacity, and those in which it holds (or may hold) a place.
WAITING: Final = frozenset({"Pending", "Backoff"})
HOLDING: Final = frozenset({"Assigned", "Starting", "Running", "Unknown", "Stopping"})
_ENDED: Final = JOB.terminal
_NONE: Final = dict.fromkeys(REPLICA.state_names, 0)
_INITIAL: Final = REPLICA.initial


class Job:
    """One job. Its replicas are numbered from 0 over all tasks in order; `pages` and `records` hold their records in that order.

    `version` and `page_versions` are those of the rows as last written. `notes` (by task, not stored) are the reasons why replicas
    wait. `main_tasks` are the indices of the tasks whose success raises MainTaskEvent. A job that `is_new` has no story, and all
    its replicas are Pending.
    """

    __slots__ = (
        "_begins", "_prefixes", "counts", "id", "main_tasks", "notes", "page_versions", "pages", "policies", "record",
        "records", "spec", "story_seq", "version",
    )  # fmt: skip

    def __init__(
        self,
        spec: JobSpec,
        record: JobRecord,
        pages: list[PageRecord],
        *,
        version: int = 0,
        page_versions: list[int] | None = None,
        policies: tuple[LifecyclePolicy, ...] = DEFAULT_POLICIES,
        main_tasks: frozenset[int] = frozenset(),
        is_new: bool = False,
    ) -> None:
        self.id = record.job
        self.spec = spec
        self.record = record
        self.pages = pages
        self.version = version
        self.page_versions = page_versions if page_versions is not None else [0] * len(pages)
        self.policies = policies
        self.main_tasks = main_tasks
        self.notes: dict[int, str] = {}
        self.story_seq = 0 if is_new else next_seq((record.story, *(page.story for page in pages)))
        self._begins = tuple(accumulate([task.replicas for task in spec.tasks], initial=0))
        self.records = (
            [replica for page in pages for replica in page.replicas] if len(pages) > 1 else [*pages[0].replicas]
        )
        self._prefixes = tuple([f"{self.id}/{task.name}/" for task in spec.tasks])
        if is_new:
            self.counts: list[dict[str, int]] = [{**_NONE, _INITIAL: task.replicas} for task in spec.tasks]
        else:
            self.counts = [self._counted(task) for task in range(len(spec.tasks))]

    @classmethod
    def new(cls, job: str, spec: JobSpec, now_ms: int, submit_trace: str = "", key: str = "") -> "Job":
        """A submitted job: Pending, with all replicas Pending."""
        left = spec.replica_count
        pages = []
        for _ in range(page_count(left)):
            pages.append(PageRecord(replicas=[ReplicaRecord() for _ in range(min(left, PAGE_REPLICAS))]))
            left -= PAGE_REPLICAS
        record = JobRecord(
            job=job,
            submitted_at_ms=now_ms,
            tasks=[TaskRecord() for _ in spec.tasks],
            submit_trace=submit_trace,
            key=key,
        )
        return cls(spec, record, pages, is_new=True)

    @property
    def is_ended(self) -> bool:
        """Whether the job is in a state without a way out."""
        return self.record.state in _ENDED

    @property
    def prefix(self) -> str:
        """The first part "job/task/" of all replica ids; "" when the job has more than one task."""
        return self._prefixes[0] if len(self._prefixes) == 1 else ""

    @property
    def size(self) -> int:
        """Replicas of all tasks."""
        return self._begins[-1]

    def replica(self, index: int) -> ReplicaRecord:
        """The replica of that number."""
        return self.records[index]

    def replicas(self) -> Iterator[tuple[int, ReplicaRecord]]:
        """All replicas with their numbers, in order."""
        return enumerate(self.records)

    def task_of(self, index: int) -> int:
        """The number of the task that a replica belongs to."""
        return bisect_right(self._begins, index) - 1 if len(self._prefixes) > 1 else 0

    def task_spec(self, index: int) -> TaskSpec:
        """The specification of the task that a replica belongs to."""
        return self.spec.tasks[self.task_of(index)]

    def move(self, index: int, state: str) -> None:
        """Set a replica's state and keep the counts."""
        replica = self.records[index]
        counts = self.counts[self.task_of(index)] if len(self.counts) > 1 else self.counts[0]
        counts[replica.state] -= 1
        counts[state] += 1
        replica.state = state

    def tasks(self) -> Iterator[tuple[str, range]]:
        """For each task the first part "job/task/" of its replica ids, and the numbers of its replicas."""
        return ((prefix, self.members(task)) for task, prefix in enumerate(self._prefixes))

    def members(self, task: int) -> range:
        """The numbers of a task's replicas."""
        return range(self._begins[task], self._begins[task + 1])

    def name(self, index: int) -> str:
        """The replica's id "job/task/index"."""
        task = self.task_of(index)
        return f"{self._prefixes[task]}{index - self._begins[task]}" if task else f"{self._prefixes[0]}{index}"

    def waits_since_ms(self, index: int) -> int:
        """The time since which the replica's present attempt waits for a place."""
        return self.replica(index).queued_at_ms or self.record.submitted_at_ms

    def story_lines(self) -> tuple[StoryLine, ...]:
        """The newest lines of the story of the job and its replicas, in order."""
        pages = ((page.story, self.naming(number)) for number, page in enumerate(self.pages))
        return merged(((self.record.story, self.name), *pages))

    def naming(self, page: int) -> Callable[[int], str]:
        """A function from a replica's number in the page to its id."""
        return lambda member: self.name(page * PAGE_REPLICAS + member)

    def count(self, *states: str) -> int:
        """How many replicas are in one of the states."""
        return sum(counts[state] for counts in self.counts for state in states)

    def check(self) -> None:
        """Raise InvariantBroken when counts, sizes or states contradict one another."""
        if sum(len(page.replicas) for page in self.pages) != self.size or len(self.records) != self.size:
            raise InvariantBroken("a job has not the replicas of its specification", job=self.id)
        again = [self._counted(task) for task in range(len(self.spec.tasks))]
        for index, replica in self.replicas():
            if replica.state in HOLDING and not replica.node:
                raise InvariantBroken("a replica holds a place on no node", replica=self.name(index))
            if replica.state in ("Backoff", "Unknown") and not replica.due_ms:
                raise InvariantBroken("a replica waits for a timer that is not set", replica=self.name(index))
        if again != self.counts:
            raise InvariantBroken("the counts of a job are not those of its replicas", job=self.id)
        if self.is_ended and any(again[task][state] for task in range(len(again)) for state in (*WAITING, *HOLDING)):
            raise InvariantBroken("an ended job has live replicas", job=self.id, state=self.record.state)
        if self.is_ended != (self.record.ended_at_ms is not None):
            raise InvariantBroken("only an ended job has an end", job=self.id, state=self.record.state)

    def _counted(self, task: int) -> dict[str, int]:
        """How many replicas of a task are in each state, by their records."""
        counts = _NONE.copy()
        for replica in self.records[self._begins[task] : self._begins[task + 1]]:
            counts[replica.state] += 1
        return counts
