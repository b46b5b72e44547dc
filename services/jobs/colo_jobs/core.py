"""The jobs core: takes submissions and facts about replicas, moves the state machines, and publishes placement requests."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, TypeVar, assert_never

from colo_common.events.effects import (
    BusReachable,
    Conflict,
    Effect,
    FactsMissed,
    Publish,
    Record,
    Reply,
    RequestReceived,
    StoreLost,
    Wake,
    Write,
)
from colo_common.events.enforcement import NodeRecovered, PlacementRefused, ReplicaEnded, ReplicaStarted
from colo_common.events.job import QueueChanged, ReplicaChange, StopReplicas
from colo_common.events.job import ReplicaStop as Order
from colo_common.events.node import FreshnessChanged
from colo_common.events.placement import PlacementRejected, PlacementsDecided
from colo_common.events.requests import CancelJob, HoldsListed, PendingReplicas, PendingReply
from colo_common.events.subjects import encode_node
from colo_common.model.lifecycle import JOB, REPLICA
from colo_common.model.partition import WHOLE, Share
from colo_common.model.placement import Placement, attempt_key
from colo_common.model.reasons import Reason
from colo_jobs import replicas
from colo_jobs.admission import UNPUBLISHED
from colo_jobs.answers import AcceptedRequest, Answers, accepted
from colo_jobs.claims import Claims
from colo_jobs.completion import cancel, settle
from colo_jobs.earlier_lives import EarlierLives
from colo_jobs.effects import (
    AskHolds,
    JobReloaded,
    JobRowsLoaded,
    JobsLost,
    LogRefused,
    LogUnreadable,
    ReloadJob,
    RequestsPublished,
)
from colo_jobs.index import Index, Key
from colo_jobs.job import HOLDING, Job
from colo_jobs.load import Loaded, jobs_of_rows
from colo_jobs.lost import LostNodes
from colo_jobs.missed import MissedFacts
from colo_jobs.placement_requests import placement_requests_of, publish_requests
from colo_jobs.policy import JobsPolicy
from colo_jobs.publish import Result, deletion, put_back, result_of
from colo_jobs.published_end import end_as_published
from colo_jobs.queues_elsewhere import QueuesElsewhere
from colo_jobs.rebuild import JobEnd
from colo_jobs.records import MARK_BEGUN, MARK_KIND, MARK_USED, ReplicaRecord, mark_id
from colo_jobs.rejection import sentence_of
from colo_jobs.retention import EndedJobs
from colo_jobs.stored_times import by_this_clock
from colo_jobs.transaction import Counters, JobTransaction
from colo_jobs.waits import Waits

__all__ = ["Event", "JobsCore"]

# Jobs whose rows are written at one Wake.
_PUT_BACK_AT_ONCE = 200

Event = (
    PlacementsDecided
    | PlacementRejected
    | PlacementRefused
    | ReplicaStarted
    | ReplicaEnded
    | NodeRecovered
    | FreshnessChanged
    | QueueChanged
    | RequestReceived
    | Conflict
    | JobRowsLoaded
    | JobReloaded
    | JobsLost
    | StoreLost
    | FactsMissed
    | BusReachable
    | HoldsListed
    | Wake
)

# The node and the zones of a place.
Placed = tuple[str, tuple[int, ...]]

_ROW_KINDS = frozenset({"job", "job-spec", "replica-page"})
# States of an attempt that may have a place, or get one.
_GOES_ON: Final = frozenset({"Pending", "Assigned", "Starting", "Running", "Unknown"})
# The grace of an orphan's job is not known any more.
_ORPHAN_GRACE_MS = 10_000
# What waited on the bus while it was away is heard in this time.
_RECEIVED_MS: Final = 5_000
# Most facts name one of the same few nodes.
_check_node = lru_cache(maxsize=65_536)(encode_node)

# The facts of an executor about one replica.
_ReplicaFact = TypeVar("_ReplicaFact", ReplicaStarted, ReplicaEnded, PlacementRefused)


class JobsCore:
    """Keeps all jobs that have not ended, and the newest ended ones. A state is stored before its messages are published.

    With a `share` it keeps the jobs of that partition, and other cores those of the others: facts about them are no facts here. Of
    their queues it hears the counts, so that the limits are those of all together.
    """

    def __init__(self, policy: JobsPolicy, share: Share = WHOLE, counters: Counters | None = None) -> None:
        """`counters`: where several cores of one process count together."""
        policy.validate()
        self.policy = policy = policy.of_one(share.partitions)
        self.share = share
        self.index = Index(policy.queues)
        self.counters = counters or Counters()
        self._elsewhere = QueuesElsewhere(share)
        self.lost = LostNodes(policy.forget_node_ms)
        self._ended = EndedJobs(policy.retention)
        self._waits = Waits()
        self._answers = Answers(policy, self.index, self.counters, self._waits, self._elsewhere)
        self._missed = MissedFacts(share)
        self._claims = Claims()
        self._earlier = EarlierLives()
        #: Unfinished jobs that a store lost and nobody can rebuild, until they are submitted again.
        self.unknown: set[str] = set()
        # Jobs whose rows the store may have lost.
        self._to_put_back: list[str] = []
        # Attempts that need a place and whose request is not published yet, in order.
        self._unrequested: dict[Key, int] = {}
        # The transactions since the last Wake by job, not written and not published yet.
        self._pending: dict[str, JobTransaction] = {}
        self._reloading: set[str] = set()
        # Since when nothing that happens on a node can be heard; None: it can.
        self._deaf_since_ms: int | None = None
        self._now_ms = 0

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event and return its effects. Raises InvalidInput, before any change, for a malformed replica or node name."""
        if now_ms > self._now_ms:
            self._now_ms = now_ms
        match event:
            case ReplicaStarted():
                return self._started(event, now_ms)
            case ReplicaEnded():
                return self._ended_attempt(event, now_ms)
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
            case QueueChanged():
                self._elsewhere.note(event)
                return []
            case RequestReceived():
                return self._answer(event, now_ms)
            case Conflict():
                return self._conflict(event)
            case JobRowsLoaded():
                return self._load(event)
            case JobReloaded():
                return self._reloaded(event)
            case JobsLost():
                return self._restore(event, now_ms)
            case StoreLost():
                self._to_put_back = list(self.index.jobs)
                return [*self._missed.put_back()]
            case FactsMissed():
                return self._doubt_all(now_ms)
            case BusReachable():
                return self._hears(event.is_reachable, now_ms)
            case HoldsListed():
                return self._compare_holds(event, now_ms)
            case Wake():
                return self._wake(now_ms)
            case _:
                assert_never(event)

    def deadline_ms(self) -> int | None:
        """Now while transactions or requests are pending, else the time of the next timer or of a queue's next QueueChanged.

        While the bus is away no timer is due.
        """
        is_due = self._ended.has_due(self._now_ms) or self._to_put_back or self._missed.has_compared
        if self._pending or self._unrequested or is_due:
            return self._now_ms
        timer_ms = self.index.timers.next_ms() if self._deaf_since_ms is None else None
        dues_ms = [
            due_ms for queue in self.index.queues.values() if (due_ms := queue.report_ms(self.share)) is not None
        ]
        others_ms = (timer_ms, self._missed.again_at_ms, self._ended.over_ms)
        return min([*dues_ms, *(moment for moment in others_ms if moment is not None)], default=None)

    def check(self) -> None:
        """Raise InvariantBroken when counts or indexes disagree with the jobs."""
        self.index.check()

    def _answer(self, request: RequestReceived, now_ms: int) -> list[Effect]:
        """The rows, the messages and the reply of one request together.

        Changes by earlier events of the batch to a job that is cancelled are recorded and published before it. A request that
        changes a job is answered with the state and the version that its Record writes.
        """
        before = self._result(request.body.job).effects if isinstance(request.body, CancelJob) else []
        answer = self._answers.answer(request, now_ms)
        if not isinstance(answer, AcceptedRequest):
            lacks_facts = isinstance(request.body, PendingReplicas) and request.body.compare_holds
            doubts = self._doubt_all(now_ms) if lacks_facts and isinstance(answer, PendingReply) else []
            return [*before, *doubts, Reply(request=request.request, body=answer)]
        job = answer.txn.job
        self.unknown.discard(job.id)
        refused = self._finish(answer.txn)
        result = self._result(job.id)
        reply = Reply(request=request.request, body=accepted(job))
        return [*before, *result.record, *answer.messages, reply, *result.messages, *refused]

    def _started(self, fact: ReplicaStarted, now_ms: int) -> list[Effect]:
        """Apply a start. One that is told once more of a waiting attempt is a claim, and the ledger says whether it is right."""
        found = self.index.find(fact.replica) if fact.again else None
        if found is None or not _waits(found[0].records[found[1]], fact.attempt):
            return self._of_replica(fact, now_ms, replicas.on_started)
        return [AskHolds()] if self._claims.note((found[0].id, found[1]), fact) else []

    def _ended_attempt(self, fact: ReplicaEnded, now_ms: int) -> list[Effect]:
        """Apply an end, unless it is of an earlier job of this id, or may be: then the ledger says which."""
        if (found := self.index.find(fact.replica)) is not None:
            key, record = (found[0].id, found[1]), found[0].records[found[1]]
            if self._earlier.is_of_other(key, record, fact):
                return self._of_replica(fact, now_ms, replicas.on_used_before)
            if self._earlier.is_doubtful(record, found[0].record.submitted_at_ms, fact):
                return [AskHolds()] if self._earlier.doubt(key, fact) else []
        return self._of_replica(fact, now_ms, replicas.on_ended)

    def _of_replica(
        self, fact: _ReplicaFact, now_ms: int, react: Callable[[JobTransaction, int, _ReplicaFact], None]
    ) -> list[Effect]:
        found = self.index.find(fact.replica)
        if found is None:
            if not self._is_of_share(fact.replica):
                return []
            self.counters.unknown_replica += 1
            if self.index.is_unreadable(fact.replica):
                return []
            if isinstance(fact, ReplicaStarted):
                return [self._stop_orphans(fact.node, ((fact.replica, fact.attempt),), fact, now_ms)]
            return []
        job, index = found
        txn = self._pending.get(job.id)
        if txn is None:
            txn = JobTransaction(job, now_ms, self.counters, self.policy.retry)
        else:
            txn.begin_event(now_ms)
        react(txn, index, fact)
        return self._finish(txn)

    def _placed(self, event: PlacementsDecided, now_ms: int) -> list[Effect]:
        found: list[tuple[Placement, tuple[Job, int] | None]] = []
        find = self.index.find
        for placement in event.placements:
            _check_node(placement.node)
            found.append((placement, find(placement.replica)))
        txns: dict[str, JobTransaction] = {}
        txn: JobTransaction | None = None
        for placement, place in found:
            if place is None:
                self.counters.unknown_replica += self._is_of_share(placement.replica)
                continue
            job, index = place
            # Placements of one job mostly follow each other.
            if txn is None or txn.job is not job:
                txn = txns.get(job.id) or txns.setdefault(job.id, self._transaction(job, now_ms))
            node, zones = placement.node, placement.zones
            numbers = (zones[0].zone,) if len(zones) == 1 else tuple([share.zone for share in zones])
            record = job.records[index]
            waits = record.state == "Pending" and record.attempt == placement.attempt
            replicas.on_placed(txn, index, placement.attempt, node, numbers)
            if (end := self._earlier.placed((job.id, index), placement)) is not None:
                replicas.on_ended(txn, index, end)
            if waits and record.state != "Pending":
                self._waits.placed(job.spec.queue, job.spec.qos, max(now_ms - job.waits_since_ms(index), 0))
            if self.lost.is_lost(node) and job.records[index].node == node:
                replicas.on_node_lost(txn, index)
        return [effect for job in sorted(txns) for effect in self._finish(txns[job])]

    def _rejected(self, event: PlacementRejected, now_ms: int) -> list[Effect]:
        found = self.index.find(event.replica)
        if found is None:
            self.counters.unknown_replica += self._is_of_share(event.replica)
            return []
        job, index = found
        replica = job.replica(index)
        if replica.state != "Pending" or replica.attempt != event.attempt:
            self.counters.late += 1
            return []
        if event.newest_over >= replica.attempt:
            txn = self._transaction(job, now_ms)
            replicas.on_outlived(txn, index, event.newest_over)
            return self._finish(txn)
        # A reason to wait is no change of state: it is kept in memory and causes no write.
        sentence = sentence_of(event)
        # The scheduler publishes a rejection once for all replicas of a job with the same request.
        job.notes[job.task_of(index)] = sentence
        self._transaction(job, now_ms).add_page_line(index, f"{event.replica}#{event.attempt} waits: {sentence}")
        return []

    def _freshness(self, event: FreshnessChanged, now_ms: int) -> list[Effect]:
        if not self.lost.record(event, now_ms):
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
            if found is None and self._is_of_share(name):
                self.counters.unknown_replica += 1
                if not self.index.is_unreadable(name):
                    orphans.append((name, attempt))
            elif found is None:
                continue
            else:
                running[found[0].id, found[1]] = attempt

        def react(txn: JobTransaction, index: int) -> None:
            attempt = running.get((txn.job.id, index))
            replica = txn.job.replica(index)
            # A replica that holds a place here with another attempt than the running one is missing as well.
            if replica.node == event.node and attempt != replica.attempt:
                replicas.on_missing(txn, index, event.at_ms)
            if attempt is not None:
                replicas.on_still_running(txn, index, attempt, event.node, trigger)

        keys = sorted({*running, *self.index.held_on(event.node)})
        effects = self._of_keys(keys, now_ms, react)
        if orphans:
            effects.append(self._stop_orphans(event.node, tuple(orphans), event, now_ms))
        return effects

    def _is_of_share(self, replica: str) -> bool:
        """Whether the replica's job is one that would be known here."""
        return self.share.is_whole or self.share.owns(replica.split("/", 1)[0])

    def _doubt_all(self, now_ms: int) -> list[Effect]:
        """Facts were missed: ask which attempts still hold a place of those that held one as far as is known here."""
        return [*self._missed.miss(self.index.jobs.values(), now_ms), AskHolds()]

    def _compare_holds(self, event: HoldsListed, now_ms: int) -> list[Effect]:
        """Take from the ledger what was missed: places of waiting replicas, and ends of those that hold none any more.

        Whoever claims to run a waiting attempt that holds no place there is ordered to stop it. A node that is ordered to stop an
        attempt that has ended there says again how it ended.
        """
        is_complete = event.asked_at_ms > 0
        doubted = self._missed.compare(self.index.unreadable) if is_complete else self._missed.doubted
        claims = self._claims.take() if is_complete else {}
        ends = self._earlier.take() if is_complete else {}
        if not doubted and not self.index.waiting:
            return []
        held: set[tuple[str, int]] = set()
        keys: dict[Key, Placed] = {}
        decided_ms: dict[Key, int] = {}
        older: dict[Key, list[tuple[str, int]]] = {}
        for hold in event.holds:
            if hold.is_reservation or (found := self.index.find(hold.replica)) is None:
                continue
            held.add((hold.replica, hold.attempt))
            record = found[0].replica(found[1])
            if _waits(record, hold.attempt):
                keys[found[0].id, found[1]] = hold.node, tuple([share.zone for share in hold.zones])
                decided_ms[found[0].id, found[1]] = hold.decided_at_ms
            elif hold.attempt < record.attempt:
                older.setdefault((found[0].id, found[1]), []).append((hold.node, hold.attempt))

        def react(txn: JobTransaction, index: int) -> None:
            place = keys.get((txn.job.id, index))
            record = txn.job.replica(index)
            for node, attempt in older.get((txn.job.id, index), ()):
                txn.stop(index, node, attempt, Reason.OLDER_ATTEMPT, f"missed:{event.asked_at_ms}")
            end = ends.get((txn.job.id, index))
            claimed = [fact for fact in claims.get((txn.job.id, index), ()) if _waits(record, fact.attempt)]
            if place is not None:
                replicas.on_placed(txn, index, record.attempt, *place)
                for fact in claimed:
                    replicas.on_started(txn, index, fact)
                if end is not None and (end.node, end.decided_at_ms) == (place[0], decided_ms[txn.job.id, index]):
                    replicas.on_ended(txn, index, end)
            elif claimed:
                for fact in claimed:
                    trigger = f"claimed:{fact.boot_id}:{fact.seq}"
                    txn.stop(index, fact.node, fact.attempt, Reason.LEDGER_DISAGREES, trigger)
            elif end is not None and _waits(record, end.attempt):
                replicas.on_outlived(txn, index, end.attempt)
            elif (
                is_complete
                and record.state in HOLDING
                and record.attempt == doubted.get((txn.job.id, index))
                and (txn.job.name(index), record.attempt) not in held
            ):
                txn.stop(index, record.node, record.attempt, Reason.LEDGER_DISAGREES, f"missed:{event.asked_at_ms}")
                self._missed.note_ordered((txn.job.id, index), record.attempt, now_ms)

        return self._of_keys(sorted({*keys, *older, *doubted, *claims, *ends}), now_ms, react)

    def _of_node(self, node: str, now_ms: int, react: Callable[[JobTransaction, int], None]) -> list[Effect]:
        return self._of_keys(self.index.held_on(node), now_ms, react)

    def _of_keys(self, keys: list[Key], now_ms: int, react: Callable[[JobTransaction, int], None]) -> list[Effect]:
        txns: dict[str, JobTransaction] = {}
        for job, index in keys:
            if job in self.index.jobs:
                txn = txns.get(job) or txns.setdefault(job, self._transaction(self.index.jobs[job], now_ms))
                react(txn, index)
        return [effect for job in txns for effect in self._finish(txns[job])]

    def _wake(self, now_ms: int) -> list[Effect]:
        due = self.index.timers.due(now_ms) if self._deaf_since_ms is None else []
        effects = self._of_keys(due, now_ms, replicas.on_due) if due else []
        for txn in self._pending.values():
            effects.extend(result_of(txn).effects)
        self._pending.clear()
        effects.extend(self._publish_requests(now_ms))
        effects.extend(self._publish_queues(now_ms))
        for job in self._ended.take_due(now_ms):
            effects.append(deletion(self.index.jobs[job]))
            self.index.detach(self.index.jobs[job])
        effects.extend(self._put_back())
        if self._missed.doubt_again(self.index.jobs, now_ms):
            effects.append(AskHolds())
        effects.extend(self._missed.take_away())
        # The next Wake, one millisecond later, deletes more ended jobs and puts back more jobs.
        self._now_ms = now_ms + 1 if self._ended.has_due(now_ms) or self._to_put_back else self._now_ms
        return effects

    def _hears(self, is_reachable: bool, now_ms: int) -> list[Effect]:
        """Take that messages flow, or do not. Meanwhile nobody can say that a node is back, or that an attempt has ended.

        So lost times stand still, and what is left of them, five seconds at least, begins when the bus is back.
        """
        since_ms, self._deaf_since_ms = self._deaf_since_ms, None
        if not is_reachable:
            self._deaf_since_ms = now_ms if since_ms is None else since_ms
        elif since_ms is not None:
            least_ms, most_ms = now_ms + _RECEIVED_MS, now_ms + self.policy.retry.lost_after_ms
            for job in self.index.jobs.values():
                for index, replica in job.replicas():
                    if replica.due_ms and replica.state != "Backoff":
                        due_ms = max(replica.due_ms, least_ms, min(replica.due_ms + now_ms - since_ms, most_ms))
                        self.index.timers.change(job.id, index, replica.due_ms, due_ms)
                        replica.due_ms = due_ms
        return []

    def _put_back(self) -> list[Effect]:
        """Write the rows of the next jobs into a store that lost rows. The rows in memory were stored, and are the truth then."""
        names, self._to_put_back = self._to_put_back[:_PUT_BACK_AT_ONCE], self._to_put_back[_PUT_BACK_AT_ONCE:]
        return [put_back(job) for name in names if (job := self.index.jobs.get(name)) is not None and job.version]

    def _publish_requests(self, now_ms: int) -> list[Effect]:
        if not self._unrequested:
            return []
        waiting: list[tuple[Job, int]] = []
        for (id_, index), attempt in self._unrequested.items():
            job = self.index.jobs.get(id_)
            if job is not None and (replica := job.records[index]).state == "Pending" and replica.attempt == attempt:
                waiting.append((job, index))
        self._unrequested.clear()
        if not waiting:
            return []
        placement_requests = placement_requests_of(waiting, self.policy.trace_ratio)
        traces = tuple([job.record.submit_trace for job, _ in waiting])
        published = RequestsPublished(placement_requests=tuple(placement_requests), submit_traces=traces)
        return [*publish_requests(placement_requests, now_ms), published]

    def _publish_queues(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for name, queue in self.index.queues.items():
            due_ms = queue.report_ms(self.share)
            if due_ms is None or due_ms > now_ms:
                continue
            queue.published = (queue.waiting, queue.running)
            queue.published_at_ms = now_ms
            fact = QueueChanged(
                at_ms=now_ms,
                queue=name,
                waiting=queue.waiting,
                running=queue.running,
                capacity=queue.limits.max_waiting,
                jobs=queue.jobs,
                partition=self.share.partition,
                partitions=self.share.partitions,
            )
            part = "" if self.share.is_whole else f":{self.share.partition}"
            effects.append(Publish(fact=fact, id=f"jobs:queue:{name}:{now_ms}:{queue.waiting}:{queue.running}{part}"))
        return effects

    def _transaction(self, job: Job, now_ms: int) -> JobTransaction:
        """The pending transaction of the job, ready for the next event, or a new one."""
        txn = self._pending.get(job.id)
        if txn is None:
            return JobTransaction(job, now_ms, self.counters, self.policy.retry)
        txn.begin_event(now_ms)
        return txn

    def _finish(self, txn: JobTransaction) -> list[Effect]:
        """Finish one event of a transaction: settle it, update the index, and keep it pending until the end of the batch."""
        settle(txn)
        job = txn.job
        self.index.update(txn)
        if txn.requested:
            id_, records = job.id, job.records
            for index in txn.requested:
                self._unrequested[id_, index] = records[index].attempt
        if txn.has_ended:
            self._ended.add(job)
        self._pending[job.id] = txn
        if not txn.refused:
            return []
        return [LogRefused(machine=m, state=s, event=e, story=story) for m, s, e, story in txn.refused]

    def _result(self, job: str) -> Result:
        """The rows that changed since the job was written, and the messages about them; they are no longer pending."""
        txn = self._pending.pop(job, None)
        return Result([], []) if txn is None else result_of(txn)

    def _stop_orphans(
        self, node: str, attempts: tuple[tuple[str, int], ...], fact: ReplicaStarted | NodeRecovered, now_ms: int
    ) -> Publish:
        """Order a node to stop attempts of jobs that nobody stored: no later event would end them."""
        stops = tuple(
            Order(replica=replica, attempt=attempt, grace_ms=_ORPHAN_GRACE_MS, reason=Reason.CANCELLED)
            for replica, attempt in attempts
        )
        first = attempt_key(stops[0].replica, stops[0].attempt)
        return Publish(
            fact=StopReplicas(at_ms=now_ms, node=node, stops=stops),
            id=f"jobs:stop:{node}:{first}:orphan:{fact.boot_id}:{fact.seq}",
        )

    def _conflict(self, event: Conflict) -> list[Effect]:
        """Another writer changed a row. The store is the truth, so the job is read again."""
        self.counters.conflicts += 1
        # Placement requests that were to follow the refused Record are published again; the scheduler drops known ones.
        for id_, index in self.index.waiting:
            self._unrequested[id_, index] = self.index.jobs[id_].replica(index).attempt
        job = event.id.split("/", 1)[0]
        if event.kind not in _ROW_KINDS or job in self._reloading:
            return []
        self._reloading.add(job)
        return [ReloadJob(job=job)]

    def _reloaded(self, event: JobReloaded) -> list[Effect]:
        self._reloading.discard(event.job)
        self.index.unreadable.pop(event.job, None)
        if event.job in self.index.jobs:
            self.index.detach(self.index.jobs[event.job])
        self._ended.drop(event.job)
        self._pending.pop(event.job, None)
        self._unrequested = {key: attempt for key, attempt in self._unrequested.items() if key[0] != event.job}
        return self._take_in(jobs_of_rows(event.specs, event.jobs, event.pages))

    def _load(self, event: JobRowsLoaded) -> list[Effect]:
        if self.index.jobs:
            return []
        loaded = jobs_of_rows(event.specs, event.jobs, event.pages)
        # The last counts may not have been published before the restart.
        for job in loaded.jobs:
            self.index.queue(job).published = UNPUBLISHED
        missed = self._missed.load(event, loaded, self._now_ms)
        return [*self._take_in(loaded), *missed]

    def _restore(self, event: JobsLost, now_ms: int) -> list[Effect]:
        """Accept the jobs once more. An emptied store is marked before and after: a crash in between goes on where it was.

        Where the store is in use the ledger may know the newest attempts, which go on, and jobs whose rows differ from what was
        published are compared with what it holds, as after a gap in the stream. What was published to have ended goes on nowhere.
        """
        mark_version = event.mark_version
        self.unknown.update(event.unknown)
        effects: list[Effect] = [] if mark_version is None else [self._mark(MARK_BEGUN, mark_version)]
        doubted: list[Job] = []
        if mark_version is None:
            for end in event.ends:
                effects += self._end_again(end, event.moved.get(end.job, {}), now_ms)
            known = self.index.jobs
            doubted = [known[job] for job in event.older if job in known]
            doubted += [
                known[job] for job, moved in event.moved.items() if job in known and _differs(known[job], moved)
            ]
            self._missed.doubt(doubted)
        for lost in event.jobs:
            if lost.job in self.index.jobs or lost.job in self.index.unreadable:
                continue
            job = Job.new(lost.job, lost.spec, min(lost.submitted_at_ms, now_ms))
            self.index.attach(job)
            txn = JobTransaction(job, now_ms, self.counters, self.policy.retry)
            txn.add_story_line("accepted again: the store had lost it, and the stream of facts knew it")
            txn.fire_job("admit")
            if lost.replicas:
                txn.fire_job("gang_bound")
            for index, record in job.replicas():
                attempt, state = lost.replicas.get(job.name(index), (0, ""))
                txn.touch(index)
                if state in REPLICA.terminal:
                    record.attempt = attempt
                    job.move(index, state)
                else:
                    goes_on = mark_version is None and attempt and state in _GOES_ON
                    record.attempt = attempt if goes_on else attempt + 1
                    txn.request_place(index)
            if lost.state == "Terminating":
                cancel(txn)
            self.counters.jobs_restored += 1
            effects += [*self._finish(txn), *self._result(job.id).effects]
        if mark_version is None:
            return [*effects, AskHolds()] if doubted or event.jobs else effects
        effects.append(self._mark(MARK_USED, mark_version + 1))
        return [*effects, AskHolds()] if event.jobs else effects

    def _mark(self, value: bytes, version: int) -> Record:
        return Record(writes=(Write(kind=MARK_KIND, id=mark_id(self.share), value=value, expect=version),))

    def _end_again(self, end: JobEnd, moved: Mapping[str, ReplicaChange], now_ms: int) -> list[Effect]:
        """Move a job whose row is older than its published end to that end, or end it as ever where it was only cancelled.

        Nothing is published of an end once more.
        """
        job = self.index.jobs.get(end.job)
        if job is None:
            if end.spec is None or end.state not in JOB.terminal or end.job in self.index.unreadable:
                return []
            job = Job.new(end.job, end.spec, min(end.submitted_at_ms, end.at_ms))
        elif job.is_ended or job.record.state == end.state or job.record.submitted_at_ms > end.submitted_at_ms:
            return []
        elif end.state not in JOB.terminal:
            txn = self._transaction(job, now_ms)
            cancel(txn)
            return [*self._finish(txn), *self._result(job.id).effects]
        else:
            self.index.detach(job)
        txn = JobTransaction(job, now_ms, self.counters, self.policy.retry)
        end_as_published(txn, end.state, end.at_ms, moved)
        written = result_of(txn).effects
        self.index.attach(job)
        self._ended.add(job)
        self.counters.jobs_restored += 1
        return written

    def _take_in(self, loaded: Loaded) -> list[Effect]:
        """Add loaded jobs. Their waiting replicas are requested again: the last requests may be unpublished."""
        for job in loaded.jobs:
            if not job.is_ended:
                by_this_clock(job, self.policy.retry, self._now_ms)
            self.index.attach(job)
            if job.is_ended:
                self._ended.add(job)
            for index, replica in job.replicas():
                if replica.state == "Pending":
                    self._unrequested[job.id, index] = replica.attempt
        self.index.sort_waiting()
        for job in loaded.jobs:
            self.index.unreadable.pop(job.id, None)
        self.index.unreadable |= loaded.unreadable
        self.counters.unreadable_rows += len(loaded.unreadable)
        return [*(LogUnreadable(why=why) for why in loaded.unreadable.values()), *self._missed.mark(loaded.unreadable)]


def _waits(record: ReplicaRecord, attempt: int) -> bool:
    """Whether this attempt of a replica is the present one and waits for a place."""
    return record.state == "Pending" and record.attempt == attempt


def _differs(job: Job, moved: Mapping[str, ReplicaChange]) -> bool:
    """Whether replicas of the job are not as it was published last that they are."""
    return any(
        (change := moved.get(job.name(index))) is not None
        and (change.attempt, change.state) != (one.attempt, one.state)
        for index, one in job.replicas()
    )
