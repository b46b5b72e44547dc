"""The newest decision of each replica, and the rejections to publish: a rejection is published only when it is news."""

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from msgspec import structs

from colo_common.events.effects import Effect, Publish
from colo_common.events.job import PlacementRequest
from colo_common.events.placement import PlacementRejected, ProposedPreemption, ReasonCount
from colo_common.events.requests import DecisionRecord, ExplainPlacement, PlacementsExplained, Refusal
from colo_common.model.invalid import InvalidInput
from colo_common.model.paging import PAGE_MOST, page_by_name
from colo_common.model.placement import Attempt, Placement, attempt_key
from colo_common.model.reasons import Reason
from colo_common.model.workload import RunSpec
from colo_scheduler.cluster.cluster import View
from colo_scheduler.placement.decide import ClassDecision, ScoreHistory, ScoreSnapshot
from colo_scheduler.placement.report import Report
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.requests.request_class import InvalidRequest, RequestClass, class_of

__all__ = ["Decisions", "Records", "RejectionThrottle"]

# The most jobs to which one decision is published; the other jobs read it on request, or at the next decision.
_JOBS_PUBLISHED: Final = 200
_REPEATS_DOUBLED: Final = 4
# Commands and environments are long, and explain no decision.
_NO_RUN: Final = RunSpec()


class Records:
    """Keeps decision records for explanations and decides which rejections are published."""

    def __init__(self, policy: SchedulerPolicy) -> None:
        self._limit = policy.records_max
        self._decisions = Decisions(policy.records_max)
        self._class_records: OrderedDict[RequestClass, DecisionRecord] = OrderedDict()
        self._class_reports: dict[RequestClass, Report] = {}
        self._mentioned = RejectionThrottle(policy.records_max, policy.reject_again_ms)

    def chosen(self, view: View, placements: Sequence[Placement], decision: ClassDecision) -> None:
        """Keep the places of these replicas of one class."""
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
        """Keep that no node takes the class; returns a rejection for each job to which it is news."""
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
        """Keep that a placement request breaks a rule; returns a rejection for its job, where the request names one."""
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
        """Keep where a rejected replica, and equal requests, would fit after a preemption; None: nowhere."""
        self._decisions.propose(replica, proposal)
        record = self._class_records.get(request)
        if record is not None:
            self._class_records[request] = structs.replace(record, preemption=proposal)

    def joined(self, request: RequestClass, placement_request: PlacementRequest, now_ms: int) -> list[Effect]:
        """A request joins a class that no node takes now: its rejection is known at once, and returned where it is news."""
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

    def answer(
        self, asked: ExplainPlacement, placement_request: PlacementRequest | None
    ) -> PlacementsExplained | Refusal:
        """A page of what `explain` finds; a Refusal (400) for what is no cursor."""
        found = self.explain(asked.job, asked.replica, placement_request)
        try:
            page, following = page_by_name(found, lambda each: each.replica, asked.cursor, PAGE_MOST)
        except InvalidInput as error:
            return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
        return PlacementsExplained(decisions=page, next=following)

    def explain(self, job: str, replica: str, placement_request: PlacementRequest | None) -> tuple[DecisionRecord, ...]:
        """The newest decisions of a job's replicas, or of one replica. `placement_request` is that replica's, when it waits.

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
    """Replicas decided together: their places, in order, and the history of node scores."""

    placements: Sequence[Placement]
    at_ms: int
    nodes: int
    counts: tuple[ReasonCount, ...]
    matrix: ScoreHistory | None

    def records(self, numbers: Sequence[int]) -> Iterator[DecisionRecord]:
        """The records of these placements, ascending, each as it was when it was decided."""
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
            placement=structs.replace(placement, run=_NO_RUN),
            counts=moment.counts,
            scores=moment.scores,
            fitting=moment.fitting,
            number=number + 1,
            together=len(self.placements),
        )


class Decisions:
    """The newest decision of each replica: of the last `limit` placements, and of at most `limit` rejected replicas.

    Placements are kept as they were decided, turn by turn, and searched on request: requests for them are few.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._turns: deque[_Turn] = deque()
        self._placed = 0
        self._rejected: OrderedDict[str, tuple[str, DecisionRecord]] = OrderedDict()

    def place(self, placements: Sequence[Placement], at_ms: int, nodes: int, decision: ClassDecision) -> None:
        """Keep placements; they replace older decisions on the same replicas."""
        self._turns.append(_Turn(placements, at_ms, nodes, decision.counts, decision.matrix))
        self._placed += len(placements)
        while self._placed - len(self._turns[0].placements) >= self._limit:
            self._placed -= len(self._turns.popleft().placements)
        if self._rejected:
            for placement in placements:
                self._rejected.pop(placement.replica, None)

    def reject(self, job: str, record: DecisionRecord) -> None:
        """Keep the rejection in place of an older decision on the replica. The least recently touched is deleted first."""
        self._rejected[record.replica] = (job, record)
        self._rejected.move_to_end(record.replica)
        if len(self._rejected) > self._limit:
            self._rejected.popitem(last=False)

    def propose(self, replica: str, proposal: ProposedPreemption | None) -> None:
        """Add the proposal to the replica's rejection, if one is kept."""
        kept = self._rejected.get(replica)
        if kept is not None:
            self._rejected[replica] = (kept[0], structs.replace(kept[1], preemption=proposal))

    def of(self, job: str, replica: str) -> tuple[DecisionRecord, ...]:
        """The decisions of the replica, or of all replicas of the job in ascending id when `replica` is empty."""
        if replica:
            kept = self._rejected.get(replica)
            # A rejection that is kept is newer than any placement.
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
        """At most `limit` placements, each with its number in its turn; the newest first."""
        every = (
            (turn, number, turn.placements[number])
            for turn in reversed(self._turns)
            for number in reversed(range(len(turn.placements)))
        )
        return islice(every, self._limit)


class RejectionThrottle:
    """The rejections published by class and job, so that only news is published. At most `limit` are kept."""

    def __init__(self, limit: int, again_after_ms: int) -> None:
        self._limit = limit
        self._again_after_ms = again_after_ms
        self._published: OrderedDict[tuple[RequestClass, str], tuple[Report, int, int]] = OrderedDict()

    def is_news(self, request: RequestClass, job: str, report: Report, now_ms: int) -> bool:
        """Whether to publish the report: its reasons changed, or its numbers did and the last one is old enough. Kept if so.

        Old enough is `again_after_ms`, doubled each time that only the numbers changed, up to 16 times: a job that waits for hours
        does not get a rejection every minute because the load changes, and an explanation on request has the newest numbers.
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
