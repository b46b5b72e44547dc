"""The turn of one job: every change of its machines that events of one batch lead to, and what has to be said about it then."""

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
from colo_jobs.story import JOB_LINES, PAGE_LINES, Line, Moved, tail

__all__ = ["Counters", "Move", "Stop", "JobTransaction"]

_NOTHING: Final[Mapping[str, bool]] = {}
_FREE: Final = REPLICA.free


class Counters(Struct):
    """What was taken in without effect, and what happened how often; the shell exports them."""

    illegal: dict[tuple[str, str, str], int] = {}
    ignored: dict[str, int] = {}
    late: int = 0
    future: int = 0
    unknown_replica: int = 0
    conflicts: int = 0
    unreadable_rows: int = 0
    queue_full: int = 0
    submitted: int = 0
    evictions: int = 0
    losses: int = 0
    failures: int = 0
    jobs_ended: dict[str, int] = {}


class Move(Struct, frozen=True, gc=False):
    """One change of state, in the order in which it happened. `index` is the task's or the replica's number."""

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
    """One attempt that a node has to stop. `trigger` makes the order's id another one than that of an earlier order."""

    index: int
    node: str
    attempt: int
    reason: Reason
    trigger: str = ""


class JobTransaction:
    """Fires the tables for one job. Nothing changes a state but `fire_job`, `fire_task` and `fire_replica`."""

    __slots__ = (
        "before", "counters", "dirty_pages", "has_ended", "is_job_dirty", "job", "moves", "now_ms", "policy", "refused", "said",
        "spec_value", "stops", "wanted", "withdrawn",
    )  # fmt: skip

    def __init__(self, job: Job, now_ms: int, counters: Counters, policy: RetryPolicy) -> None:
        self.job = job
        self.now_ms = now_ms
        self.counters = counters
        self.policy = policy
        #: Whether the job came to its end with the present event.
        self.has_ended = False
        self.moves: list[Move] = []
        #: Task events and policy actions in order, as they were published: ("event", task, name) or ("action", name).
        self.said: list[tuple[str, ...]] = []
        self.withdrawn: list[tuple[int, int, Reason]] = []
        self.stops: list[Stop] = []
        self.wanted: list[int] = []
        #: State, node and timer of each replica that the present event touched, as they were before it.
        self.before: dict[int, tuple[str, str, int]] = {}
        #: The specification of a new job as it is stored, when it is at hand.
        self.spec_value: bytes | None = None
        self.dirty_pages: set[int] = set()
        self.is_job_dirty = False
        #: Machine, state, event and the story of each refused transition.
        self.refused: list[tuple[str, str, str, str]] = []

    @property
    def is_changed(self) -> bool:
        """Whether a row has to be written."""
        return self.is_job_dirty or bool(self.dirty_pages)

    def go_on(self, now_ms: int) -> None:
        """Take the next event of the batch: what is written and said stays together, what the lookups are told begins anew."""
        self.now_ms = now_ms
        self.has_ended = False
        self.before.clear()
        if self.wanted:
            self.wanted.clear()
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
        self.tell(f"job {previous} -> {fired.state} ({event})")
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
        self.tell(f"task {self.job.spec.tasks[task].name} {previous} -> {fired.state} ({event})")
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
            del story[1 : len(story) - PAGE_LINES + 1]
        return True

    def say(self, event: TaskEvent, task: str) -> None:
        """Note a task event that policies heard."""
        self.said.append(("event", task, event))

    def act(self, action: Action) -> None:
        """Note an action that a policy ordered."""
        self.said.append(("action", action))

    def withdraw(self, index: int, attempt: int, reason: Reason) -> None:
        """The attempt no longer wants or holds a place."""
        self.withdrawn.append((index, attempt, reason))

    def stop(self, index: int, node: str, attempt: int, reason: Reason, trigger: str = "") -> None:
        """The node has to stop the attempt."""
        self.stops.append(Stop(index=index, node=node, attempt=attempt, reason=reason, trigger=trigger))

    def placement_request(self, index: int) -> None:
        """The replica's present attempt wants a place, from now on."""
        self.touch(index)
        replica = self.job.replica(index)
        replica.queued_at_ms = self.now_ms
        replica.avoid = tuple((node, until_ms) for node, until_ms in replica.avoid if until_ms > self.now_ms)
        self.wanted.append(index)

    def tell(self, what: str) -> None:
        """A line in the job's story."""
        self._add(self.job.record.story, JOB_LINES, what)

    def tell_of(self, index: int, what: str) -> None:
        """A line in the story of the replica's page. It is stored when the page is written next."""
        self._add(self.job.pages[index // PAGE_REPLICAS].story, PAGE_LINES, what)

    def _add(self, story: list[Line], most: int, what: str | Moved) -> None:
        """Append a line and forget the oldest above `most`; the first (how it began) always stays."""
        job = self.job
        story.append(Line(self.now_ms, job.story_seq, what))
        job.story_seq += 1
        if len(story) > most:
            del story[1 : len(story) - most + 1]

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
        """The newest lines of the job's story, or of that of a replica's page."""
        if index < 0:
            return tail(self.job.record.story, self.job.name)
        page = index // PAGE_REPLICAS
        return tail(self.job.pages[page].story, self.job.naming(page))


@lru_cache(maxsize=1_024)
def _why(cause: EndCause | None, exit_code: int | None, reason: Reason | None) -> str:
    """What a line says after the place."""
    why = "".join(f", {part.value}" for part in (cause, reason) if part is not None)
    return f"{why}, exit code {exit_code}" if exit_code is not None else why


#: Of most that end: an enumeration's members are dear to look up.
_WELL: Final = _why(EndCause.EXITED, 0, None)
