"""What is remembered and said of decisions: the newest one of each replica, and a rejection only when it is news."""

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from msgspec import structs

from colo_common.events.effects import Effect, Publish
from colo_common.events.job import PlacementRequest
from colo_common.events.placement import PlacementRejected, ProposedPreemption, ReasonCount
from colo_common.events.requests import DecisionRecord
from colo_common.model.placement import Placement, attempt_key
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.snapshot import View
from colo_scheduler.ledger.port import Attempt
from colo_scheduler.placement.decide import ClassDecision
from colo_scheduler.placement.explain import Report
from colo_scheduler.placement.score_history import ScoreHistory, ScoreSnapshot
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.requests.request_class import RequestClass, class_of
from colo_scheduler.requests.validation import InvalidRequest

__all__ = ["Decisions", "Records", "RejectionThrottle"]

# The most jobs that one decision is told to; the others learn it when they ask, or at the next one.
_JOBS_PUBLISHED: Final = 200
_REPEATS_DOUBLED: Final = 4


class Records:
    """Keeps decision records for explanations and decides which rejections are said."""

    def __init__(self, policy: SchedulerPolicy) -> None:
        self._limit = policy.records_max
        self._decisions = Decisions(policy.records_max)
        self._class_records: OrderedDict[RequestClass, DecisionRecord] = OrderedDict()
        self._class_reports: dict[RequestClass, Report] = {}
        self._mentioned = RejectionThrottle(policy.records_max, policy.reject_again_ms)

    def chosen(self, view: View, placements: Sequence[Placement], decision: ClassDecision) -> None:
        """Remember where these replicas of one class go."""
        self._decisions.place(placements, view.now_ms, view.node_count, decision)

    def rejected(
        self,
        request: RequestClass,
        placement_requests: Sequence[PlacementRequest],
        report: Report,
        *,
        retry_at_ms: int,
        now_ms: int,
    ) -> list[Effect]:
        """Remember that no node takes the class; a rejection for each job to which it is news."""
        effects: list[Effect] = []
        delivered: set[str] = set()
        before = self._class_records.get(request)
        for placement_request in placement_requests:
            record = DecisionRecord(
                replica=placement_request.replica,
                attempt=placement_request.attempt,
                at_ms=now_ms,
                nodes=report.nodes,
                counts=report.counts,
                nearest=report.nearest,
                retry_at_ms=retry_at_ms,
                never=report.is_unresolvable,
                preemption=before.preemption if before is not None else None,
            )
            self._decisions.reject(placement_request.job, record)
            self._class_records[request] = record
            if request.reserves or placement_request.job in delivered or len(delivered) >= _JOBS_PUBLISHED:
                continue
            delivered.add(placement_request.job)
            if self._mentioned.is_news(request, placement_request.job, report, now_ms):
                fact = rejection(
                    (placement_request.replica, placement_request.attempt),
                    placement_request.job,
                    report,
                    retry_at_ms,
                    now_ms,
                )
                identity = (
                    f"scheduler:rejected:{attempt_key(placement_request.replica, placement_request.attempt)}:{now_ms}"
                )
                effects.append(Publish(fact=fact, id=identity, traceparent=placement_request.traceparent))
        self._class_reports[request] = report
        self._class_records.move_to_end(request)
        if len(self._class_records) > self._limit:
            self._class_reports.pop(self._class_records.popitem(last=False)[0], None)
        return effects

    def refused(self, bad: InvalidRequest, now_ms: int) -> list[Effect]:
        """Remember that a want breaks a rule, and tell its job, where the want says whose it is."""
        placement_request, rule = bad.placement_request, bad.rule
        if not bad.is_addressed:
            return []
        counts = (ReasonCount(reason=Reason.REQUEST_MALFORMED, nodes=0),)
        record = DecisionRecord(
            replica=placement_request.replica,
            attempt=placement_request.attempt,
            at_ms=now_ms,
            nodes=0,
            counts=counts,
            never=True,
            broken_rule=rule,
        )
        self._decisions.reject(placement_request.job, record)
        fact = PlacementRejected(
            at_ms=now_ms,
            replica=placement_request.replica,
            job=placement_request.job,
            attempt=placement_request.attempt,
            nodes=0,
            counts=counts,
            never=True,
            broken_rule=rule,
        )
        identity = f"scheduler:refused:{attempt_key(placement_request.replica, placement_request.attempt)}:{now_ms}"
        return [Publish(fact=fact, id=identity, traceparent=placement_request.traceparent)]

    def propose(self, request: RequestClass, replica: str, proposal: ProposedPreemption | None) -> None:
        """Remember where a rejected replica, and those that ask for the same, would fit if others left; None: nowhere."""
        self._decisions.propose(replica, proposal)
        record = self._class_records.get(request)
        if record is not None:
            self._class_records[request] = structs.replace(record, preemption=proposal)

    def joined(self, request: RequestClass, placement_request: PlacementRequest, now_ms: int) -> list[Effect]:
        """A want joins a class that no node takes now: the answer to it is known at once, and said where it is news."""
        record, report = self._class_records.get(request), self._class_reports.get(request)
        if (
            request.reserves
            or record is None
            or report is None
            or not self._mentioned.is_news(request, placement_request.job, report, now_ms)
        ):
            return []
        fact = rejection(
            (placement_request.replica, placement_request.attempt),
            placement_request.job,
            report,
            record.retry_at_ms,
            now_ms,
        )
        identity = f"scheduler:rejected:{attempt_key(placement_request.replica, placement_request.attempt)}:{now_ms}"
        return [Publish(fact=fact, id=identity, traceparent=placement_request.traceparent)]

    def explain(self, job: str, replica: str, placement_request: PlacementRequest | None) -> tuple[DecisionRecord, ...]:
        """The newest decisions of a job's replicas, or of one. `placement_request` is that replica's, when it waits.

        A replica that never came to the head of its class waits for the same reason as the head.
        """
        found = self._decisions.of(job, replica)
        if found or placement_request is None:
            return found
        record = self._class_records.get(class_of(placement_request))
        return (
            ()
            if record is None
            else (structs.replace(record, replica=placement_request.replica, attempt=placement_request.attempt),)
        )


class _Turn(NamedTuple):
    """What was decided together: where the replicas go, in order, and what is kept of how nodes scored."""

    placements: Sequence[Placement]
    at_ms: int
    nodes: int
    counts: tuple[ReasonCount, ...]
    matrix: ScoreHistory | None

    def records(self, numbers: Sequence[int]) -> Iterator[DecisionRecord]:
        """The records of these placements, ascending, each as it was at its own moment."""
        wanted, last = set(numbers), max(numbers, default=-1)
        snapshots = self.matrix.snapshots() if self.matrix else iter(())
        for number, placement in enumerate(self.placements[: last + 1]):
            moment = next(snapshots, None)
            if number in wanted:
                yield self._record(number, placement, moment or ScoreSnapshot(self.counts, ()))

    def _record(self, number: int, placement: Placement, moment: ScoreSnapshot) -> DecisionRecord:
        return DecisionRecord(
            replica=placement.replica,
            attempt=placement.attempt,
            at_ms=self.at_ms,
            nodes=self.nodes,
            placement=placement,
            counts=moment.counts,
            scores=moment.scores,
            fitting=moment.fitting,
            number=number + 1,
            together=len(self.placements),
        )


class Decisions:
    """The newest decision of each replica: of the last `limit` placements, and of as many replicas that found no place.

    Placements are kept as they were decided, turn by turn, and looked through when somebody asks: who asks are few.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._turns: deque[_Turn] = deque()
        self._placed = 0
        self._rejected: OrderedDict[str, tuple[str, DecisionRecord]] = OrderedDict()

    def place(self, placements: Sequence[Placement], at_ms: int, nodes: int, decision: ClassDecision) -> None:
        """Take places in place of older decisions on the same replicas."""
        self._turns.append(_Turn(placements, at_ms, nodes, decision.counts, decision.matrix))
        self._placed += len(placements)
        while self._placed - len(self._turns[0].placements) >= self._limit:
            self._placed -= len(self._turns.popleft().placements)
        if self._rejected:
            for placement in placements:
                self._rejected.pop(placement.replica, None)

    def reject(self, job: str, record: DecisionRecord) -> None:
        """Take the rejection in place of an older decision on the replica; that of the one untouched for longest goes first."""
        self._rejected[record.replica] = (job, record)
        self._rejected.move_to_end(record.replica)
        if len(self._rejected) > self._limit:
            self._rejected.popitem(last=False)

    def propose(self, replica: str, proposal: ProposedPreemption | None) -> None:
        """Add to the rejection of a replica that is kept."""
        kept = self._rejected.get(replica)
        if kept is not None:
            self._rejected[replica] = (kept[0], structs.replace(kept[1], preemption=proposal))

    def of(self, job: str, replica: str) -> tuple[DecisionRecord, ...]:
        """The decisions of the replica, or of all replicas of the job in ascending id when `replica` is empty."""
        if replica:
            kept = self._rejected.get(replica)
            # A rejection that is kept is newer than any place.
            if kept is not None:
                return (kept[1],)
            newest = next(((turn, number) for turn, number, p in self._newest() if p.replica == replica), None)
            return () if newest is None else tuple(newest[0].records([newest[1]]))
        found = {record.replica: record for of_job, record in self._rejected.values() if of_job == job}
        names = set(found)
        wanted: dict[int, tuple[_Turn, list[int]]] = {}
        for turn, number, placement in self._newest():
            if placement.job == job and placement.replica not in names:
                names.add(placement.replica)
                wanted.setdefault(id(turn), (turn, []))[1].append(number)
        for turn, numbers in wanted.values():
            found.update((record.replica, record) for record in turn.records(numbers))
        return tuple(found[name] for name in sorted(found))

    def _newest(self) -> Iterator[tuple[_Turn, int, Placement]]:
        """At most `limit` places, each with its number in its turn; the newest first."""
        every = (
            (turn, number, turn.placements[number])
            for turn in reversed(self._turns)
            for number in reversed(range(len(turn.placements)))
        )
        return islice(every, self._limit)


class RejectionThrottle:
    """What was said of which class and job, so that a rejection is news only when it is. At most `limit` are remembered."""

    def __init__(self, limit: int, again_after_ms: int) -> None:
        self._limit = limit
        self._again_after_ms = again_after_ms
        self._published: OrderedDict[tuple[RequestClass, str], tuple[Report, int, int]] = OrderedDict()

    def is_news(self, request: RequestClass, job: str, report: Report, now_ms: int) -> bool:
        """Whether to say it: the reasons changed, or the numbers did and the last word is old enough. Remembers it if so.

        Old enough is `again_after_ms`, and twice as long each time that only the numbers changed, up to 16 times: who waits for
        hours is not told every minute that others come and go, and who asks is answered with the newest numbers.
        """
        key = (request, job)
        repeats = 0
        before = self._published.get(key)
        if before is not None:
            reported, at_ms, repeats_before = before
            if reported.substance == report.substance:
                if reported == report or now_ms - at_ms < self._again_after_ms << repeats_before:
                    return False
                repeats = min(repeats_before + 1, _REPEATS_DOUBLED)
        self._published[key] = (report, now_ms, repeats)
        self._published.move_to_end(key)
        if len(self._published) > self._limit:
            self._published.popitem(last=False)
        return True


def rejection(attempt: Attempt, job: str, report: Report, retry_at_ms: int, now_ms: int) -> PlacementRejected:
    """The fact that no node takes the replica now."""
    return PlacementRejected(
        at_ms=now_ms,
        replica=attempt[0],
        job=job,
        attempt=attempt[1],
        nodes=report.nodes,
        counts=report.counts,
        nearest=report.nearest,
        retry_at_ms=retry_at_ms,
        never=report.is_unresolvable,
    )
