"""One turn of one job: every change of its machines that one event leads to, and what has to be said about it afterwards."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from colo_common.model.lifecycle import JOB, REPLICA, TASK
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.transitions import Fired, Ignored, Machine, Outcome, Refusal, Refused
from colo_jobs.job import Job
from colo_jobs.policies import Action, TaskEvent
from colo_jobs.records import PAGE_REPLICAS
from colo_jobs.requeue import RetryPolicy
from colo_jobs.story import JOB_LINES, PAGE_LINES, Line, add_line, tail

__all__ = ["Before", "Counters", "Move", "Stop", "Turn"]

_NOTHING: Final[Mapping[str, bool]] = {}


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


class Move(Struct, frozen=True, kw_only=True):
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


class Stop(Struct, frozen=True, kw_only=True):
    """One attempt that a node has to stop. `trigger` makes the order's id another one than that of an earlier order."""

    index: int
    node: str
    attempt: int
    reason: Reason
    trigger: str = ""


class Before(Struct, frozen=True, kw_only=True):
    """A replica as it was when the turn began."""

    state: str
    node: str
    due_ms: int


class Turn:
    """Fires the tables for one job. Nothing changes a state but `fire_job`, `fire_task` and `fire_replica`."""

    def __init__(self, job: Job, now_ms: int, counters: Counters, policy: RetryPolicy) -> None:
        self.job = job
        self.now_ms = now_ms
        self.counters = counters
        self.policy = policy
        self.was_ended = job.is_ended
        self.moves: list[Move] = []
        #: Task events and policy actions in order, as they were published: ("event", task, name) or ("action", name).
        self.said: list[tuple[str, ...]] = []
        self.withdrawn: list[tuple[int, int, Reason]] = []
        self.stops: list[Stop] = []
        self.wanted: list[int] = []
        self.before: dict[int, Before] = {}
        self.dirty_pages: set[int] = set()
        self.is_job_dirty = False
        #: Machine, state, event and the story of each refused transition.
        self.refused: list[tuple[str, str, str, str]] = []

    @property
    def is_changed(self) -> bool:
        """Whether a row has to be written."""
        return self.is_job_dirty or bool(self.dirty_pages)

    def take_in(self, later: "Turn") -> None:
        """Add what a later turn of the same job changed, so that both are written and said as one."""
        self.now_ms = later.now_ms
        self.moves += later.moves
        self.withdrawn += later.withdrawn
        self.stops += later.stops
        self.dirty_pages |= later.dirty_pages
        self.is_job_dirty = self.is_job_dirty or later.is_job_dirty

    def touch(self, index: int) -> None:
        """Note that a replica's record is about to change."""
        if index not in self.before:
            replica = self.job.replica(index)
            self.before[index] = Before(state=replica.state, node=replica.node, due_ms=replica.due_ms)
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
        replica = self.job.replica(index)
        previous = replica.state
        fired = self._fired(REPLICA, event, REPLICA.fire(previous, event, guards), previous, index)
        if fired is None:
            return False
        self.touch(index)
        self.job.move(index, fired.state)
        self.moves.append(
            Move(
                machine="replica",
                index=index,
                previous=previous,
                state=fired.state,
                transition=fired.transition_id,
                attempt=replica.attempt,
                node=replica.node,
                cause=cause,
                exit_code=exit_code,
                reason=reason,
            )
        )
        place = f" on {replica.node}" if replica.node else ""
        why = "".join(f", {part.value}" for part in (cause, reason) if part is not None)
        code = f", exit code {exit_code}" if exit_code is not None else ""
        self.tell_of(
            index,
            f"{self.job.name(index)}#{replica.attempt} {previous} -> {fired.state} ({event}{place}{why}{code})",
        )
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

    def want(self, index: int) -> None:
        """The replica's present attempt wants a place, from now on."""
        self.touch(index)
        replica = self.job.replica(index)
        replica.queued_at_ms = self.now_ms
        replica.avoid = tuple((node, until_ms) for node, until_ms in replica.avoid if until_ms > self.now_ms)
        self.wanted.append(index)

    def tell(self, what: str) -> None:
        """A line in the job's story."""
        add_line(self.job.record.story, JOB_LINES, self._line(what))

    def tell_of(self, index: int, what: str) -> None:
        """A line in the story of the replica's page. It is stored when the page is written next."""
        add_line(self.job.pages[index // PAGE_REPLICAS].story, PAGE_LINES, self._line(what))

    def _line(self, what: str) -> Line:
        line = Line(self.now_ms, self.job.story_seq, what)
        self.job.story_seq += 1
        return line

    def _fired(self, machine: Machine, event: str, outcome: Outcome, state: str, index: int) -> Fired | None:
        match outcome:
            case Fired():
                return outcome
            case Ignored():
                self.counters.ignored[machine.name] = self.counters.ignored.get(machine.name, 0) + 1
            case Refused(refusal=Refusal.GUARD):
                self.counters.ignored[machine.name] = self.counters.ignored.get(machine.name, 0) + 1
            case Refused(why=why):
                key = (machine.name, state, event)
                self.counters.illegal[key] = self.counters.illegal.get(key, 0) + 1
                story = self.job.record.story if index < 0 else self.job.pages[index // PAGE_REPLICAS].story
                self.refused.append((*key, f"{self.job.id}: {why}\n{tail(story)}"))
        return None
