"""The transaction of one job: all changes of its state machines by the events of one batch, and the messages about them."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from colo_common.model.lifecycle import JOB, REPLICA, TASK
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.transitions import (
    Fired,
    Outcome,
    StateMachine,
    TransitionIgnored,
    TransitionRefusal,
    TransitionRefused,
)
from colo_jobs.job import Job
from colo_jobs.policies import Action, TaskEvent
from colo_jobs.records import PAGE_REPLICAS
from colo_jobs.requeue import RetryPolicy
from colo_jobs.story import JOB_LINES, PAGE_LINES, Line, Moved, drop_oldest, tail

__all__ = ["Counters", "Move", "Stop", "JobTransaction"]

_NOTHING: Final[Mapping[str, bool]] = {}
_FREE: Final = REPLICA.free


class Counters(Struct):
    """Counts of events that had no effect, and of outcomes of jobs and replicas. The shell exports them as metrics."""

    illegal: dict[tuple[str, str, str], int] = {}
    ignored: dict[str, int] = {}
    late: int = 0
    future: int = 0
    unknown_replica: int = 0
    conflicts: int = 0
    unreadable_rows: int = 0
    queue_full: int = 0
    submitted: int = 0
    jobs_restored: int = 0
    evictions: int = 0
    losses: int = 0
    failures: int = 0
    jobs_ended: dict[str, int] = {}


class Move(Struct, frozen=True, gc=False):
    """One change of state of a job, a task or a replica. `index` is the number of the task or the replica."""

    machine: str
    index: int
    previous: str
    state: str
    transition: str
    attempt: int = 0
    node: str = ""
    cause: EndCause | None = None
    exit_code: int | None = None
    reason: Reason | None = None


class Stop(Struct, frozen=True, kw_only=True, gc=False):
    """One attempt that a node has to stop. `trigger` is part of the order's message id and differs from that of earlier orders."""

    index: int
    node: str
    attempt: int
    reason: Reason
    trigger: str = ""


class JobTransaction:
    """The changes of one job. Only `fire_job`, `fire_task` and `fire_replica` change a state, along the tables of the lifecycle."""

    __slots__ = (
        "before", "counters", "dirty_pages", "has_ended", "is_job_dirty", "job", "moves", "now_ms", "policy", "refused",
        "requested", "spec_value", "stops", "task_events", "withdrawn",
    )  # fmt: skip

    def __init__(self, job: Job, now_ms: int, counters: Counters, policy: RetryPolicy) -> None:
        self.job = job
        self.now_ms = now_ms
        self.counters = counters
        self.policy = policy
        #: Whether the job came to its end with the present event.
        self.has_ended = False
        self.moves: list[Move] = []
        #: Task events and policy actions in order: ("event", task, name) or ("action", name).
        self.task_events: list[tuple[str, ...]] = []
        self.withdrawn: list[tuple[int, int, Reason]] = []
        self.stops: list[Stop] = []
        #: The numbers of the replicas that the present event made wait for a place.
        self.requested: list[int] = []
        #: State, node and timer of each replica that the present event touched, as they were before it.
        self.before: dict[int, tuple[str, str, int]] = {}
        #: The encoded specification of a new job, None when it must be encoded for the store.
        self.spec_value: bytes | None = None
        self.dirty_pages: set[int] = set()
        self.is_job_dirty = False
        #: Machine, state, event and the story of each refused transition.
        self.refused: list[tuple[str, str, str, str]] = []

    @property
    def is_changed(self) -> bool:
        """Whether a row has to be written."""
        return self.is_job_dirty or bool(self.dirty_pages)

    def begin_event(self, now_ms: int) -> None:
        """Begin the next event of the batch: rows and messages accumulate, the changes for the index start empty."""
        self.now_ms = now_ms
        self.has_ended = False
        self.before.clear()
        if self.requested:
            self.requested.clear()
        if self.refused:
            self.refused.clear()

    def touch(self, index: int) -> None:
        """Note that a replica's record is about to change."""
        if index not in self.before:
            replica = self.job.records[index]
            self.before[index] = (replica.state, replica.node, replica.due_ms)
            self.dirty_pages.add(index // PAGE_REPLICAS)

    def fire_job(self, event: str, guards: Mapping[str, bool] = _NOTHING) -> bool:
        """Move the job along its table; False when the event was ignored or refused."""
        record = self.job.record
        previous = record.state
        fired = self._fired(JOB, event, JOB.fire(previous, event, guards), previous, -1)
        if fired is None:
            return False
        record.state = fired.state
        self.is_job_dirty = True
        if self.job.is_ended:
            self.has_ended = True
            record.ended_at_ms = self.now_ms
            self.counters.jobs_ended[fired.state] = self.counters.jobs_ended.get(fired.state, 0) + 1
        self.moves.append(
            Move(machine="job", index=0, previous=previous, state=fired.state, transition=fired.transition_id)
        )
        self.add_story_line(f"job {previous} -> {fired.state} ({event})")
        return True

    def fire_task(self, task: int, event: str, guards: Mapping[str, bool] = _NOTHING) -> bool:
        """Move a task along its table; False when the event was ignored or refused."""
        record = self.job.record.tasks[task]
        previous = record.state
        fired = self._fired(TASK, event, TASK.fire(previous, event, guards), previous, -1)
        if fired is None:
            return False
        record.state = fired.state
        self.is_job_dirty = True
        self.moves.append(
            Move(machine="task", index=task, previous=previous, state=fired.state, transition=fired.transition_id)
        )
        self.add_story_line(f"task {self.job.spec.tasks[task].name} {previous} -> {fired.state} ({event})")
        return True

    def fire_replica(
        self,
        index: int,
        event: str,
        guards: Mapping[str, bool] = _NOTHING,
        *,
        cause: EndCause | None = None,
        exit_code: int | None = None,
        reason: Reason | None = None,
    ) -> bool:
        """Move a replica along its table; False when the event was ignored or refused."""
        job = self.job
        replica = job.records[index]
        previous = replica.state
        fired = _FREE.get((previous, event))
        if fired is None:
            outcome = REPLICA.fire(previous, event, guards)
            if not isinstance(outcome, Fired):
                self._fired(REPLICA, event, outcome, previous, index)
                return False
            fired = outcome
        attempt, node, state, row = replica.attempt, replica.node, fired.state, fired.transition_id
        page, member = index // PAGE_REPLICAS, index % PAGE_REPLICAS
        if index not in self.before:
            self.before[index] = (previous, node, replica.due_ms)
            self.dirty_pages.add(page)
        job.move(index, state)
        self.moves.append(Move("replica", index, previous, state, row, attempt, node, cause, exit_code, reason))
        if cause is None and reason is None and exit_code is None:
            why = ""
        elif cause is EndCause.EXITED and exit_code == 0 and reason is None:
            why = _WELL
        else:
            why = _why(cause, exit_code, reason)
        story = job.pages[page].story
        story.append(Line(self.now_ms, job.story_seq, Moved(member, attempt, row, previous, node, why)))
        job.story_seq += 1
        if len(story) > PAGE_LINES:
            drop_oldest(story, PAGE_LINES)
        return True

    def note_task_event(self, event: TaskEvent, task: str) -> None:
        """Note an event of a task, to which policies apply."""
        self.task_events.append(("event", task, event))

    def note_action(self, action: Action) -> None:
        """Note the action of a policy on the job."""
        self.task_events.append(("action", action))

    def withdraw(self, index: int, attempt: int, reason: Reason) -> None:
        """Withdraw the attempt: it no longer needs or holds a place."""
        self.withdrawn.append((index, attempt, reason))

    def stop(self, index: int, node: str, attempt: int, reason: Reason, trigger: str = "") -> None:
        """Order the node to stop the attempt."""
        self.stops.append(Stop(index=index, node=node, attempt=attempt, reason=reason, trigger=trigger))

    def request_place(self, index: int) -> None:
        """Let the replica's present attempt wait for a place from now on."""
        self.touch(index)
        replica = self.job.replica(index)
        replica.queued_at_ms = self.now_ms
        replica.avoid = tuple((node, until_ms) for node, until_ms in replica.avoid if until_ms > self.now_ms)
        self.requested.append(index)

    def add_story_line(self, what: str) -> None:
        """Add a line to the job's story."""
        self._add(self.job.record.story, JOB_LINES, what)

    def add_page_line(self, index: int, what: str) -> None:
        """Add a line to the story of the replica's page. The next write of the page stores it."""
        self._add(self.job.pages[index // PAGE_REPLICAS].story, PAGE_LINES, what)

    def _add(self, story: list[Line], most: int, what: str | Moved) -> None:
        """Append a line and drop the oldest above `most`, see `drop_oldest`."""
        job = self.job
        story.append(Line(self.now_ms, job.story_seq, what))
        job.story_seq += 1
        drop_oldest(story, most)

    def _fired(self, machine: StateMachine, event: str, outcome: Outcome, state: str, index: int) -> Fired | None:
        match outcome:
            case Fired():
                return outcome
            case TransitionIgnored():
                self.counters.ignored[machine.name] = self.counters.ignored.get(machine.name, 0) + 1
            case TransitionRefused(refusal=TransitionRefusal.GUARD):
                self.counters.ignored[machine.name] = self.counters.ignored.get(machine.name, 0) + 1
            case TransitionRefused(why=why):
                key = (machine.name, state, event)
                self.counters.illegal[key] = self.counters.illegal.get(key, 0) + 1
                self.refused.append((*key, f"{self.job.id}: {why}\n{self._tail(index)}"))
        return None

    def _tail(self, index: int) -> str:
        """The newest lines of the job's story (`index` -1) or of the story of a replica's page."""
        if index < 0:
            return tail(self.job.record.story, self.job.name)
        page = index // PAGE_REPLICAS
        return tail(self.job.pages[page].story, self.job.naming(page))


@lru_cache(maxsize=1_024)
def _why(cause: EndCause | None, exit_code: int | None, reason: Reason | None) -> str:
    """The end of a story line, after the node: cause, reason and exit code."""
    why = "".join(f", {part.value}" for part in (cause, reason) if part is not None)
    return f"{why}, exit code {exit_code}" if exit_code is not None else why


#: The end of the line of a succeeded attempt, which most are: computed once, because lookups of enum members are slow.
_WELL: Final = _why(EndCause.EXITED, 0, None)
