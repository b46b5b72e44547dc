"""The jobs core: the business of work. It hears submissions and what became of replicas, and says what wants a place."""

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar, assert_never

from colo_common.events.effects import Conflict, Effect, Publish, Reply, RequestReceived, Wake
from colo_common.events.enforcement import NodeRecovered, PlacementRefused, ReplicaEnded, ReplicaStarted
from colo_common.events.job import QueueChanged, StopReplicas
from colo_common.events.job import ReplicaStop as Order
from colo_common.events.node import FreshnessChanged
from colo_common.events.placement import PlacementRejected, PlacementsDecided
from colo_common.events.requests import CancelJob
from colo_common.events.subjects import encode_node
from colo_common.model.placement import Placement, attempt_key
from colo_common.model.reasons import Reason
from colo_jobs import replicas
from colo_jobs.admission import UNSAID
from colo_jobs.answers import Accepted, Answers, accepted
from colo_jobs.completion import settle
from colo_jobs.effects import JobReloaded, JobRowsLoaded, LogRefused, LogUnreadable, ReloadJob, RequestsPublished
from colo_jobs.index import Index, Key
from colo_jobs.job import Job
from colo_jobs.load import Loaded, jobs_of_rows
from colo_jobs.lost import LostNodes
from colo_jobs.placement_requests import publish_wants, wants_of
from colo_jobs.policy import JobsPolicy
from colo_jobs.publish import Result, deletion, result_of
from colo_jobs.rejection import sentence_of
from colo_jobs.retention import EndedJobs
from colo_jobs.transaction import Counters, JobTransaction

__all__ = ["Event", "JobsCore"]

Event = (
    PlacementsDecided
    | PlacementRejected
    | PlacementRefused
    | ReplicaStarted
    | ReplicaEnded
    | NodeRecovered
    | FreshnessChanged
    | RequestReceived
    | Conflict
    | JobRowsLoaded
    | JobReloaded
    | Wake
)

_ROW_KINDS = frozenset({"job", "job-spec", "replica-page"})
# An orphan's own grace is not known any more.
_ORPHAN_GRACE_MS = 10_000
# The same nodes are named again and again.
_check_node = lru_cache(maxsize=65_536)(encode_node)

# What a node tells of one replica.
_Told = TypeVar("_Told", ReplicaStarted, ReplicaEnded, PlacementRefused)


class JobsCore:
    """Keeps all jobs that have not ended and the newest that have. Every state is stored before anybody hears of it."""

    def __init__(self, policy: JobsPolicy) -> None:
        policy.validate()
        self.policy = policy
        self.index = Index(policy.queues)
        self.counters = Counters()
        self.lost = LostNodes(policy.forget_node_ms)
        self._ended = EndedJobs(policy.retention)
        self._answers = Answers(policy, self.index, self.counters)
        # Attempts that want a place and were not said yet, in order.
        self._fresh: dict[Key, int] = {}
        # What turns since the last Wake changed, by job: written and said together, once.
        self._unsaid: dict[str, JobTransaction] = {}
        self._reloading: set[str] = set()
        self._now_ms = 0

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """The only way in. Raises InvalidInput, before anything changed, for a fact that names no replica or no node."""
        if now_ms > self._now_ms:
            self._now_ms = now_ms
        match event:
            case ReplicaStarted():
                return self._of_replica(event, now_ms, replicas.on_started)
            case ReplicaEnded():
                return self._of_replica(event, now_ms, replicas.on_ended)
            case PlacementsDecided():
                return self._placed(event, now_ms)
            case PlacementRefused():
                return self._of_replica(event, now_ms, replicas.on_refused)
            case PlacementRejected():
                return self._rejected(event, now_ms)
            case FreshnessChanged():
                return self._freshness(event, now_ms)
            case NodeRecovered():
                return self._recovered(event, now_ms)
            case RequestReceived():
                return self._answer(event, now_ms)
            case Conflict():
                return self._conflict(event)
            case JobRowsLoaded():
                return self._load(event)
            case JobReloaded():
                return self._reloaded(event)
            case Wake():
                return self._wake(now_ms)
            case _:
                assert_never(event)

    def deadline_ms(self) -> int | None:
        """Now when something waits to be said together, else the next timer or when a queue's counts may be said again."""
        if self._unsaid or self._fresh or self._ended.has_surplus:
            return self._now_ms
        timer_ms = self.index.timers.next_ms()
        dues_ms = [queue.due_ms for queue in self.index.queues.values() if queue.is_changed]
        return min(dues_ms if timer_ms is None else [*dues_ms, timer_ms], default=None)

    def check(self) -> None:
        """Raise InvariantBroken when counts or lookups are not what the jobs say."""
        self.index.check()

    def _answer(self, asked: RequestReceived, now_ms: int) -> list[Effect]:
        """The rows, the messages and the reply of one request together.

        What an earlier event of the batch changed in a job that is cancelled is recorded and published before it. A request that
        changes a job is answered with the state and the version that its Record writes.
        """
        before = self._result(asked.body.job).effects if isinstance(asked.body, CancelJob) else []
        answer = self._answers.answer(asked, now_ms)
        if not isinstance(answer, Accepted):
            return [*before, Reply(request=asked.request, body=answer)]
        job = answer.turn.job
        refused = self._finish(answer.turn)
        result = self._result(job.id)
        reply = Reply(request=asked.request, body=accepted(job))
        return [*before, *result.record, *answer.messages, reply, *result.messages, *refused]

    def _of_replica(
        self, fact: _Told, now_ms: int, react: Callable[[JobTransaction, int, _Told], None]
    ) -> list[Effect]:
        found = self.index.find(fact.replica)
        if found is None:
            self.counters.unknown_replica += 1
            if isinstance(fact, ReplicaStarted):
                return [self._stop_orphans(fact.node, ((fact.replica, fact.attempt),), fact, now_ms)]
            return []
        job, index = found
        turn = self._unsaid.get(job.id)
        if turn is None:
            turn = JobTransaction(job, now_ms, self.counters, self.policy.retry)
        else:
            turn.go_on(now_ms)
        react(turn, index, fact)
        return self._finish(turn)

    def _placed(self, event: PlacementsDecided, now_ms: int) -> list[Effect]:
        found: list[tuple[Placement, tuple[Job, int] | None]] = []
        find = self.index.find
        for placement in event.placements:
            _check_node(placement.node)
            found.append((placement, find(placement.replica)))
        turns: dict[str, JobTransaction] = {}
        turn: JobTransaction | None = None
        for placement, place in found:
            if place is None:
                self.counters.unknown_replica += 1
                continue
            job, index = place
            # Those of a job mostly come one after the other.
            if turn is None or turn.job is not job:
                turn = turns.get(job.id) or turns.setdefault(job.id, self._turn(job, now_ms))
            node, zones = placement.node, placement.zones
            numbers = (zones[0].zone,) if len(zones) == 1 else tuple([share.zone for share in zones])
            replicas.on_placed(turn, index, placement.attempt, node, numbers)
            if self.lost.is_lost(node) and job.records[index].node == node:
                replicas.on_node_lost(turn, index)
        return [effect for job in sorted(turns) for effect in self._finish(turns[job])]

    def _rejected(self, event: PlacementRejected, now_ms: int) -> list[Effect]:
        found = self.index.find(event.replica)
        if found is None:
            self.counters.unknown_replica += 1
            return []
        job, index = found
        replica = job.replica(index)
        if replica.state != "Pending" or replica.attempt != event.attempt:
            self.counters.late += 1
            return []
        # A reason to wait is no change of state: it is kept, but not worth a write.
        sentence = sentence_of(event)
        # The scheduler says it once for all replicas of a job that want the same.
        job.notes[job.task_of(index)] = sentence
        self._turn(job, now_ms).tell_of(index, f"{event.replica}#{event.attempt} waits: {sentence}")
        return []

    def _freshness(self, event: FreshnessChanged, now_ms: int) -> list[Effect]:
        if not self.lost.heard(event):
            self.counters.late += 1
            return []
        react = replicas.on_node_lost if self.lost.is_lost(event.node) else replicas.on_node_back
        return self._of_node(event.node, now_ms, react)

    def _recovered(self, event: NodeRecovered, now_ms: int) -> list[Effect]:
        trigger = f"recovered:{event.boot_id}:{event.seq}"
        running: dict[Key, int] = {}
        orphans = []
        for name, attempt in event.running:
            found = self.index.find(name)
            if found is None:
                self.counters.unknown_replica += 1
                orphans.append((name, attempt))
            else:
                running[found[0].id, found[1]] = attempt

        def react(turn: JobTransaction, index: int) -> None:
            attempt = running.get((turn.job.id, index))
            replica = turn.job.replica(index)
            # What holds a place here under another attempt than the one that runs is missing as well.
            if replica.node == event.node and attempt != replica.attempt:
                replicas.on_missing(turn, index, event.at_ms)
            if attempt is not None:
                replicas.on_still_running(turn, index, attempt, event.node, trigger)

        keys = sorted({*running, *self.index.held_on(event.node)})
        effects = self._of_keys(keys, now_ms, react)
        if orphans:
            effects.append(self._stop_orphans(event.node, tuple(orphans), event, now_ms))
        return effects

    def _of_node(self, node: str, now_ms: int, react: Callable[[JobTransaction, int], None]) -> list[Effect]:
        return self._of_keys(self.index.held_on(node), now_ms, react)

    def _of_keys(self, keys: list[Key], now_ms: int, react: Callable[[JobTransaction, int], None]) -> list[Effect]:
        turns: dict[str, JobTransaction] = {}
        for job, index in keys:
            if job in self.index.jobs:
                turn = turns.get(job) or turns.setdefault(job, self._turn(self.index.jobs[job], now_ms))
                react(turn, index)
        return [effect for job in turns for effect in self._finish(turns[job])]

    def _wake(self, now_ms: int) -> list[Effect]:
        due = self.index.timers.due(now_ms)
        effects = self._of_keys(due, now_ms, replicas.on_due) if due else []
        for turn in self._unsaid.values():
            effects.extend(result_of(turn).effects)
        self._unsaid.clear()
        effects.extend(self._publish_requests(now_ms))
        effects.extend(self._say_queues(now_ms))
        if self._ended.has_surplus:
            for job in self._ended.take_surplus():
                effects.append(deletion(self.index.jobs[job]))
                self.index.detach(self.index.jobs[job])
        # What is left of a surplus is for the next Wake, in a moment.
        self._now_ms = now_ms + 1 if self._ended.has_surplus else self._now_ms
        return effects

    def _publish_requests(self, now_ms: int) -> list[Effect]:
        if not self._fresh:
            return []
        waiting: list[tuple[Job, int]] = []
        for (id_, index), attempt in self._fresh.items():
            job = self.index.jobs.get(id_)
            if job is not None and (replica := job.records[index]).state == "Pending" and replica.attempt == attempt:
                waiting.append((job, index))
        self._fresh.clear()
        if not waiting:
            return []
        placement_requests = wants_of(waiting, self.policy.wall, self.policy.trace_ratio)
        traces = tuple([job.record.submit_trace for job, _ in waiting])
        said = RequestsPublished(placement_requests=tuple(placement_requests), submit_traces=traces)
        return [*publish_wants(placement_requests, now_ms), said]

    def _say_queues(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for name, queue in self.index.queues.items():
            if queue.due_ms > now_ms or not queue.is_changed:
                continue
            queue.said = (queue.waiting, queue.running)
            queue.said_at_ms = now_ms
            fact = QueueChanged(
                at_ms=now_ms,
                queue=name,
                waiting=queue.waiting,
                running=queue.running,
                capacity=queue.limits.max_waiting,
            )
            effects.append(Publish(fact=fact, id=f"jobs:queue:{name}:{now_ms}:{queue.waiting}:{queue.running}"))
        return effects

    def _turn(self, job: Job, now_ms: int) -> JobTransaction:
        """The turn of the job that is not said yet goes on; without one it begins."""
        turn = self._unsaid.get(job.id)
        if turn is None:
            return JobTransaction(job, now_ms, self.counters, self.policy.retry)
        turn.go_on(now_ms)
        return turn

    def _finish(self, turn: JobTransaction) -> list[Effect]:
        """Conclude one event of a turn: settle it, tell the lookups, and keep what it changed for the end of the batch."""
        settle(turn)
        job = turn.job
        self.index.update(turn)
        if turn.wanted:
            id_, records = job.id, job.records
            for index in turn.wanted:
                self._fresh[id_, index] = records[index].attempt
        if turn.has_ended:
            self._ended.add(job)
        self._unsaid[job.id] = turn
        if not turn.refused:
            return []
        return [LogRefused(machine=m, state=s, event=e, story=story) for m, s, e, story in turn.refused]

    def _result(self, job: str) -> Result:
        """The rows that changed since the job was written, and the messages about them; they are no longer unsaid."""
        turn = self._unsaid.pop(job, None)
        return Result([], []) if turn is None else result_of(turn)

    def _stop_orphans(
        self, node: str, attempts: tuple[tuple[str, int], ...], fact: ReplicaStarted | NodeRecovered, now_ms: int
    ) -> Publish:
        """Order a node to stop what belongs to no job that is known: nobody would ever ask for its end."""
        stops = tuple(
            Order(replica=replica, attempt=attempt, grace_ms=_ORPHAN_GRACE_MS, reason=Reason.CANCELLED)
            for replica, attempt in attempts
        )
        first = attempt_key(stops[0].replica, stops[0].attempt)
        return Publish(
            fact=StopReplicas(at_ms=now_ms, node=node, generation=now_ms, stops=stops),
            id=f"jobs:stop:{node}:{first}:orphan:{fact.boot_id}:{fact.seq}",
        )

    def _conflict(self, event: Conflict) -> list[Effect]:
        """Somebody else wrote a row of ours. The store is the truth: what we hold of that job is read anew."""
        self.counters.conflicts += 1
        # Wants that were to be said with the refused row are said again; the scheduler knows which it has.
        for id_, index in self.index.waiting:
            self._fresh[id_, index] = self.index.jobs[id_].replica(index).attempt
        job = event.id.split("/", 1)[0]
        if event.kind not in _ROW_KINDS or job in self._reloading:
            return []
        self._reloading.add(job)
        return [ReloadJob(job=job)]

    def _reloaded(self, event: JobReloaded) -> list[Effect]:
        self._reloading.discard(event.job)
        if event.job in self.index.jobs:
            self.index.detach(self.index.jobs[event.job])
        self._ended.drop(event.job)
        self._unsaid.pop(event.job, None)
        self._fresh = {key: attempt for key, attempt in self._fresh.items() if key[0] != event.job}
        return self._take_in(jobs_of_rows(event.specs, event.jobs, event.pages))

    def _load(self, event: JobRowsLoaded) -> list[Effect]:
        if self.index.jobs:
            return []
        loaded = jobs_of_rows(event.specs, event.jobs, event.pages)
        # The last counts may not have been said before the end.
        for job in loaded.jobs:
            self.index.queue(job).said = UNSAID
        return self._take_in(loaded)

    def _take_in(self, loaded: Loaded) -> list[Effect]:
        """Hold these jobs; what waits in them is said again, for nobody knows whether it was said before."""
        for job in loaded.jobs:
            self.index.attach(job)
            if job.is_ended:
                self._ended.add(job)
            for index, replica in job.replicas():
                if replica.state == "Pending":
                    self._fresh[job.id, index] = replica.attempt
        self.index.sort_waiting()
        self.counters.unreadable_rows += len(loaded.unreadable)
        return [LogUnreadable(why=why) for why in loaded.unreadable]
