"""The scheduler's core takes node facts and placement requests in, and returns reservations, placements and reports."""

from collections import Counter
from functools import partial
from itertools import islice
from typing import assert_never

from msgspec import Struct, structs

from colo_common.events.effects import Conflict, Effect, FactsMissed, Reply, RequestReceived, StoreLost, Wake
from colo_common.events.enforcement import NodeRecovered, PlacementRefused, ReplicaEnded
from colo_common.events.eviction import EvictionRequested
from colo_common.events.job import MidPlacementsRequested, PlacementRequest, PlacementsRequested, ReplicasWithdrawn
from colo_common.events.node import AllocatableChanged, FreshnessChanged, NodeTopologyReported
from colo_common.events.placement import PlacementsReleased
from colo_common.events.policy import PolicyChanged
from colo_common.events.replayed import Replayed
from colo_common.events.requests import (
    ExplainPlacement,
    ListHolds,
    PendingReply,
    PlanJob,
    Refusal,
)
from colo_common.events.reservation import ReservationChanged
from colo_common.events.restriction import RestrictionsChanged
from colo_common.model.freshness import FORGET_NODE_MS
from colo_common.model.partition import Partitions, PartitionsHeld
from colo_common.model.placement import Attempt
from colo_common.model.received_fences import ReceivedFences
from colo_scheduler.audit import StateAudit
from colo_scheduler.cluster.arrival import arrived
from colo_scheduler.cluster.cluster import Cluster, View
from colo_scheduler.cluster.colocation import NodeColocation
from colo_scheduler.cluster.signals import NodeSignals
from colo_scheduler.commit.commit import Commits, load_rows
from colo_scheduler.commit.evictions import EvictionHistory
from colo_scheduler.commit.forgetting import Forgetting
from colo_scheduler.commit.held import Over
from colo_scheduler.commit.holds_listing import HoldsListing
from colo_scheduler.commit.jobs_asked import AskPending, StartedKnown
from colo_scheduler.commit.ledger_retry import LedgerRetry, as_answered
from colo_scheduler.commit.over_requests import OverRequests
from colo_scheduler.commit.recoveries import Recovery
from colo_scheduler.commit.relist import Asking
from colo_scheduler.events import Event, LedgerEvent
from colo_scheduler.ledger.port import (
    CALL_MAX,
    CommitLedger,
    ConfirmHolds,
    Ending,
    HoldsReleased,
    LedgerAnswered,
    LedgerChanges,
    LedgerCompared,
    LedgerLoaded,
    LedgerRefused,
    LedgerRows,
    LoadLedgerRows,
    PutBackRows,
    RefreshLedger,
    ReleaseHolds,
    name_of,
)
from colo_scheduler.placement.choice import Choice
from colo_scheduler.placement.decide import ClassDecision, Stages, Unwatched, decide, turns
from colo_scheduler.placement.explain import full_report
from colo_scheduler.placement.records import Records
from colo_scheduler.placement.report import Report
from colo_scheduler.placement.scoring import scorings_of
from colo_scheduler.placement.wake import wake_by_capacity
from colo_scheduler.planning.plans import PlanInput, Plans
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.preemption.proposals import Proposals
from colo_scheduler.requests.paused import PausedRequests
from colo_scheduler.requests.queue import RequestQueue
from colo_scheduler.requests.request_class import (
    InvalidRequest,
    RequestClass,
    avoided_here,
    dead_letters_of,
    sorted_out,
)
from colo_scheduler.reservations.api import ReservationAnswers, is_reservation_request
from colo_scheduler.reservations.controller import ReservationController
from colo_scheduler.reservations.rows import JobsOver, ReservationsLoaded

__all__ = ["Event", "SchedulerCore"]


class SchedulerCore:
    """Decides where waiting replicas go. `counts` are its counters, by name; `stages` receives the stages of decisions.

    With `shards` above 0 the core decides only the placement requests of the shards that PartitionsHeld gave to it.
    """

    def __init__(
        self,
        policy: SchedulerPolicy | None = None,
        stages: Stages | None = None,
        *,
        shards: int = 0,
        reserves: bool = True,
        forget_node_ms: int = FORGET_NODE_MS,
    ) -> None:
        """`reserves`: a store for reservations exists. `forget_node_ms`: see `forgetting.py`; 0: no node is ever forgotten."""
        self.policy = policy or SchedulerPolicy()
        self.counts: Counter[str] = Counter()
        self.cluster = Cluster(self.policy.facts_max_age_ms, self.policy.tie_rotation, NodeSignals(self.policy.signals))
        self.shards = Partitions(shards)
        self.queue = RequestQueue(self.policy.waiting_max, self.policy.backoff)
        self.paused = PausedRequests(self.policy.waiting_max)
        self._stages = stages or Unwatched()
        self._over = Over(self.policy.over_max)
        self.commits = Commits(self.policy, self.cluster, self.queue, self._over, self.counts, self.shards)
        self._records = Records(self.policy)
        self._evictions = EvictionHistory(self.cluster, self.commits.held, self._over)
        self._holds_listing = HoldsListing(self.commits, is_shared=shards > 0)
        self._forgetting = Forgetting(forget_node_ms, self.cluster, self.commits, self.counts)
        self._fences = ReceivedFences()
        self._releasing: dict[Ending, None] = {}
        self._confirming: dict[Attempt, None] = {}
        self._ledger_retry = LedgerRetry(self.policy, self.counts)
        self.reserve = ReservationController(
            self.cluster, self.queue, self.commits, self.counts, self.shards, self._end
        )
        self._reservation_answers = ReservationAnswers(
            self.reserve.places, self.reserve.create, self.reserve.delete, self._records.explain
        )
        self._reserves = reserves
        self._audit = StateAudit(self.cluster, self.queue, self.commits.held, self.reserve.places)
        self._scorings = scorings_of(self.policy)
        self._plans = Plans(self.cluster, self.policy, self._scorings)
        self._proposals = Proposals(
            self.cluster, self.commits, self.queue, self._over, self._records.propose, self.counts
        )
        self._colocation = NodeColocation(self.policy.colocation)
        self._asking = Asking(self.policy, self.commits, self.queue)
        self._over_requests = OverRequests(self._over, self._asking, self.policy.over_after_ms)
        self._refresh_at_ms: int | None = None
        self._soon_ms = 0

    # ---- the door

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """The effects of one event. Raises InvalidInput when the event breaks a rule; it then changed nothing."""
        self._soon_ms = now_ms
        effects = self._take(event, now_ms)
        # Reservations need nothing of ReplicaEnded, the most frequent event: HoldsReleased reports the place that an owner leaves.
        if not isinstance(event, ReplicaEnded):
            self._follow(event, now_ms)
        return effects

    def _follow(self, event: Event, now_ms: int) -> None:
        """Show the event to the reservations, where there are any or may be some now."""
        if not self.reserve.is_empty or isinstance(event, (ReservationsLoaded, ReservationChanged, Conflict)):
            self.reserve.follow(event, now_ms)

    def _take(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case ReplicaEnded() | PlacementRefused():
                self._ended_on_node(event, now_ms)
            case NodeTopologyReported():
                received = self.cluster.on_topology(self._colocation.combine(event))
                self._colocation.keep(event)
                self._note_received(event.node, received, now_ms)
            case PolicyChanged():
                nodes = [self.cluster.nodes[row] for row in self.cluster.rows.values()]
                reports = [node.reported for node in nodes if node.reported is not None]
                for report in self._colocation.follow(event, reports):
                    self.cluster.on_topology(report)
            case AllocatableChanged() | FreshnessChanged():
                self._hear_of(arrived(event, now_ms), now_ms)
            case Replayed(fact=AllocatableChanged() | FreshnessChanged() as fact):
                self._hear_of(structs.replace(fact, at_ms=now_ms - event.age_ms), now_ms)
            case Replayed():
                pass
            case PlacementsRequested() | MidPlacementsRequested():
                asked = avoided_here(event.placement_requests, event.at_ms, now_ms)
                return self._placement_request(asked, now_ms)
            case PendingReply():
                return self._pending(avoided_here(event.placement_requests, event.at_ms, now_ms), now_ms)
            case PartitionsHeld():
                return self._shards_held(event, now_ms)
            case ReplicasWithdrawn():
                for attempt in event.attempts:
                    self._ended(attempt)
            case EvictionRequested():
                return self._evictions.requested(event, now_ms)
            case NodeRecovered():
                return self._recovered(event)
            case StartedKnown():
                for attempt in event.started:
                    self._started(attempt)
                for attempt in event.over:
                    self._ended(attempt)
                self.commits.redelivery.not_started(event.waiting)
            case PlacementsReleased():
                self._released(event)
            case RestrictionsChanged():
                if self.cluster.restrictions.take(event.revision, event.restrictions, now_ms):
                    return self._restricted(now_ms)
            case (
                LedgerAnswered()
                | HoldsReleased()
                | LedgerRows()
                | LedgerLoaded()
                | LedgerCompared()
                | LedgerChanges()
                | LedgerRefused()
            ):
                return self._from_ledger(event, now_ms)
            case RequestReceived():
                return self._asked(event, now_ms)
            case ReservationsLoaded() | ReservationChanged() | JobsOver():
                pass
            case Conflict():
                self.counts["conflicts"] += 1
            case StoreLost():
                return [*self.commits.put_back(), *self.reserve.put_back(), RefreshLedger()]
            case FactsMissed(stream=stream):
                return [*self.commits.order_all(f"{stream}:{now_ms}"), AskPending(compare_holds=True), RefreshLedger()]
            case Wake():
                return self._wake(now_ms)
            case _:
                assert_never(event)
        return []

    def _released(self, event: PlacementsReleased) -> None:
        for release in event.nodes:
            for attempt in release.attempts:
                if self.commits.is_elsewhere(attempt, release.node):
                    continue
                self._over.add(attempt, release.node)
                self.queue.remove(attempt)
                self.paused.remove(attempt)
                self.commits.gave_up(attempt)
                self.commits.forget(attempt)

    def _from_ledger(self, event: LedgerEvent, now_ms: int) -> list[Effect]:
        match event:
            case LedgerAnswered():
                effects = self.commits.answered(event, now_ms)
                for attempt in self.commits.take_outlived():
                    self._over_requests.note(attempt, now_ms)
                return effects
            case HoldsReleased():
                return self.commits.released(event, now_ms)
            case LedgerRows():
                return self._took_rows(event, now_ms)
            case LedgerLoaded():
                self._refresh_at_ms = self._next_refresh(now_ms)
                return self.commits.loaded(event.floor, now_ms)
            case LedgerCompared(identity=identity):
                self.commits.compared = identity
                return []
            case LedgerChanges():
                nodes = self.commits.changed_nodes(event.changes, event.floor)
                return [*load_rows(nodes), *self._holds_listing.changed(nodes)]
            case LedgerRefused(effect=effect):
                self._ledger_retry.note(event, now_ms)
                if isinstance(effect, (LoadLedgerRows, RefreshLedger, PutBackRows)):
                    return self._holds_listing.refused()
                if isinstance(effect, CommitLedger):
                    return self.commits.answered(as_answered(effect), now_ms, is_late=event.is_late)
                return []
            case _:
                assert_never(event)

    def deadline_ms(self) -> int | None:
        """Now (1 ms later after a Wake) while work is left; else the next timer; None without a timer or a loaded ledger."""
        if not self.commits.is_loaded:
            return None
        soon_ms = self._soon_ms
        if self._releasing or self._confirming or self.cluster.grown or self.reserve.has_pending_output:
            return soon_ms
        if self.queue.next_class() is not None or len(self._plans) or len(self._proposals):
            return soon_ms
        first_ms: int | None = None
        for moment in (
            self._refresh_at_ms,
            self.commits.expiry_ms(),
            self.commits.redelivery.deadline_ms(),
            self.queue.deadline_ms(),
            self._asking.deadline_ms(),
            self._ledger_retry.deadline_ms,
            self.reserve.deadline_ms(),
            self._forgetting.deadline_ms(),
            self.cluster.restrictions.deadline_ms(),
        ):
            if moment is not None and (first_ms is None or moment < first_ms):
                first_ms = moment
        # A moment that has passed without a Wake is due at once, and never before the event that was handled last.
        return soon_ms if first_ms is not None and first_ms < soon_ms else first_ms

    def check(self) -> None:
        """Raise InvariantBroken unless free is allocatable less held, no attempt is held twice, and no held attempt waits.

        Each call checks one part of a large state, all parts in turn, because events wait while it runs.
        """
        self._audit.check()

    def _hear_of(self, fact: AllocatableChanged | FreshnessChanged, now_ms: int) -> None:
        """Take what overcommit says of a node, which is as old as its `at_ms`; nothing of an instance that was replaced."""
        if not self._fences.admits(fact.node, fact.fence, now_ms):
            received = False
        elif isinstance(fact, AllocatableChanged):
            received = self.cluster.on_allocatable(fact)
        else:
            received = self.cluster.on_freshness(fact)
        self._note_received(fact.node, received, now_ms)

    # ---- placement requests and ends

    def _placement_request(self, placement_requests: tuple[PlacementRequest, ...], now_ms: int) -> list[Effect]:
        good, bad = sorted_out(placement_requests)
        effects = self._refuse([each for each in bad if self.shards.owns(each.placement_request.job)], now_ms)
        over, held, queue = self._over, self.commits.held, self.queue
        job, is_own, is_restricted = "", self.shards.owns(""), len(self.cluster.restrictions) > 0
        for placement_request in good:
            attempt = (placement_request.replica, placement_request.attempt)
            if placement_request.job != job:
                job, is_own = placement_request.job, self.shards.owns(placement_request.job)
            if not is_own:
                self.counts["wants_of_others"] += 1
            elif is_restricted and self.paused.holds_back(placement_request, self.cluster.restrictions):
                pass
            elif attempt in held:
                self.counts["wants_repeated"] += 1
            elif attempt in over:
                self.counts["wants_repeated"] += 1
                self._over_requests.note(attempt, now_ms)
            elif not queue.add(placement_request):
                self.counts["wants_left_out"] += 1
                self._asking.left_out()
            elif (request := queue.parked_class(placement_request)) is not None:
                effects.extend(self._records.joined(request, placement_request, now_ms))
        return effects

    def _refuse(self, bad: list[InvalidRequest], now_ms: int) -> list[Effect]:
        """The rejections and dead letters of placement requests that break a rule."""
        self.counts["wants_refused"] += len(bad)
        return [
            *dead_letters_of(bad, now_ms),
            *(reported for each in bad for reported in self._records.refused(each, now_ms)),
        ]

    def _pending(self, placement_requests: tuple[PlacementRequest, ...], now_ms: int) -> list[Effect]:
        """Take the placement requests that the jobs service listed as pending."""
        effects = self._placement_request(placement_requests, now_ms)
        for placement_request in placement_requests:
            attempt = (placement_request.replica, placement_request.attempt)
            if attempt in self._over and attempt not in self.commits.held and self.shards.owns(placement_request.job):
                effects += self._over_requests.listed(placement_request, now_ms)
        # All attempts go in one call, because the places of one commit share their orders.
        return effects + self.commits.tell_again(
            [(placement_request.replica, placement_request.attempt) for placement_request in placement_requests], now_ms
        )

    def _shards_held(self, event: PartitionsHeld, now_ms: int) -> list[Effect]:
        """Drop the requests of lost shards; for new shards ask for changed ledger rows and for pending requests."""
        new, lost = self.shards.take(event)
        # A node is preferred by the scheduler that holds the shard of its name.
        self.cluster.prefer(self.shards.owns)
        self._asking.shared(event, has_new=bool(new), now_ms=now_ms)
        if lost:
            self.queue.remove_where(lambda placement_request: not self.shards.owns(placement_request.job))
            self.paused.remove_where(lambda placement_request: not self.shards.owns(placement_request.job))
        if not new:
            return []
        self.counts["shards_taken"] += len(new)
        # Whoever had these shards before may have died before it said that facts are lost.
        return [RefreshLedger(), AskPending(compare_holds=True)]

    def _ended_on_node(self, event: ReplicaEnded | PlacementRefused, now_ms: int) -> None:
        attempt = (event.replica, event.attempt)
        # Under its number another node ran what no place is held for: it was stopped there, and the place stays.
        if not self.commits.is_elsewhere(attempt, event.node):
            self._evictions.ended(event, now_ms)
            self._ended(attempt, event.node)

    def _ended(self, attempt: Attempt, node: str = "") -> None:
        """Another service reports the end of an attempt; for a reservation it is only counted, since the scheduler ends those."""
        if name_of(attempt[0]):
            self.counts["ends_of_reservations"] += 1
        else:
            self._end(attempt, node)

    def _end(self, attempt: Attempt, node: str = "") -> None:
        """The attempt is over: it waits no more and its place is released. The ledger also remembers attempts that held nothing.

        Where it is known on which `node` it ended, no place on another node is released.
        """
        self._over.add(attempt, node)
        self.queue.remove(attempt)
        self.paused.remove(attempt)
        self.commits.gave_up(attempt)
        self._confirming.pop(attempt, None)
        self._releasing[attempt, node] = None

    def _started(self, attempt: Attempt) -> None:
        if attempt in self._over or name_of(attempt[0]):
            return
        if self.commits.started(attempt):
            self._confirming[attempt] = None

    def _recovered(self, event: NodeRecovered) -> list[Effect]:
        running = frozenset((replica, attempt) for replica, attempt in event.running)
        for attempt in sorted(running):
            if not self.commits.is_elsewhere(attempt, event.node):
                self._started(attempt)
        name = f"{event.boot_id}:{event.seq}" if event.boot_id else str(event.at_ms)
        return self.commits.recover(event.node, Recovery(running=running, name=name))

    def _took_rows(self, event: LedgerRows, now_ms: int) -> list[Effect]:
        effects = self.commits.rows(event, now_ms)
        for row in event.rows:
            self._forgetting.note(row.node, now_ms)
            for hold in row.holds:
                if self._over.judge_held(hold.attempt, row.node):
                    self._releasing[hold.attempt, row.node] = None
        nodes = [row.node for row in event.rows]
        self._evictions.took(nodes, now_ms)
        return [*effects, *self._holds_listing.took(nodes)]

    def _note_received(self, node: str, is_news: bool, now_ms: int) -> None:
        self._forgetting.note(node, now_ms)
        if not is_news:
            self.counts["facts_outdated"] += 1

    def _restricted(self, now_ms: int) -> list[Effect]:
        """Follow a change of what operators forbid: of nodes, and of the jobs and queues whose requests wait."""
        self.cluster.restrict()
        released = self.paused.follow(self.queue, self.cluster.restrictions)
        return self._placement_request(released, now_ms)

    # ---- the timer

    def _wake(self, now_ms: int) -> list[Effect]:
        self._soon_ms = now_ms + 1
        if not self.commits.is_loaded:
            return []
        records, effects = self._due_reservations(now_ms)
        if records:
            return records
        effects += self._due_before(now_ms)
        effects += self._decide(now_ms)
        effects += self._due_after(now_ms)
        return effects

    def _due_reservations(self, now_ms: int) -> tuple[list[Effect], list[Effect]]:
        """The work of reservations that is due now: Records, with the facts that depend on them; then all other effects."""
        return ([], []) if self.reserve.is_empty else self.reserve.wake(now_ms)

    def _due_before(self, now_ms: int) -> list[Effect]:
        """The work that is due now and may change what is decided: requests and nodes that count again, holds that end."""
        forgotten = self._forgetting.wake(now_ms)
        effects: list[Effect] = []
        if self.cluster.restrictions.expire(now_ms):
            effects += self._restricted(now_ms)
        self.queue.wake_due(now_ms)
        wake_by_capacity(self.queue, self.cluster)
        effects += self._flush()
        effects += forgotten
        effects += self._ledger_retry.take_due(now_ms)
        effects.extend(self.commits.expire(now_ms))
        if self._refresh_at_ms is not None and now_ms >= self._refresh_at_ms:
            self._refresh_at_ms = self._next_refresh(now_ms)
            effects.append(RefreshLedger())
            effects += self.commits.recheck(now_ms)
        return effects

    def _due_after(self, now_ms: int) -> list[Effect]:
        """The work that is due now and waits for decisions: questions to the jobs service, searches for victims, plans."""
        effects = [*self._asking.wake(now_ms), *self.commits.look_up(now_ms)]
        if self.queue.next_class() is None and not len(self._plans):
            effects.extend(self._proposals.step(now_ms))
        effects.extend(self._plans.step(partial(self._plan_input, now_ms)))
        return effects

    def _next_refresh(self, now_ms: int) -> int | None:
        return now_ms + self.policy.ledger_refresh_ms if self.policy.ledger_refresh_ms > 0 else None

    def _flush(self) -> list[Effect]:
        """Release all ended attempts, and confirm started attempts in one call of CALL_MAX: the next decisions wait for it."""
        effects: list[Effect] = [*ReleaseHolds.of(self._releasing)]
        self._releasing.clear()
        started = list(islice(self._confirming, CALL_MAX))
        for attempt in started:
            del self._confirming[attempt]
        if started:
            effects.append(ConfirmHolds(attempts=tuple(started)))
        return effects

    # ---- decisions

    def _decide(self, now_ms: int) -> list[Effect]:
        """Decide at most `batch_max` requests, class by class; chosen places are held at once and sent to the ledger."""
        effects: list[Effect] = []
        if self.queue.next_class() is not None:
            view = self.cluster.view(now_ms)
            for turn in turns(self.queue, view, self.policy.batch_max, self.policy.quantum):
                effects.extend(self._decide_class(view, turn.request, turn.placement_requests))
        return self.commits.calls() + effects

    def _decide_class(
        self, view: View, request: RequestClass, placement_requests: list[PlacementRequest]
    ) -> list[Effect]:
        """Decide these requests of one class: place the requests that fit a node, and let the others wait."""
        if self.reserve.book.has_places and not request.reserves:
            placement_requests = self._serve_owners(view, request, placement_requests)
        asked = self.reserve.narrowed(request) if request.reserves else request
        turn = self.commits.turn(request, view.now_ms)

        def take(number: int, choice: Choice) -> None:
            self.commits.place(turn, placement_requests[number], choice)

        count, rows = len(placement_requests), self.policy.score_rows
        decision = decide(view, asked, count, self._scorings, take, best_rows=rows, stages=self._stages)
        if request.reserves:
            decision = self.reserve.chosen(view, asked, placement_requests, decision, turn)
        placed = len(turn.placements)
        if placed:
            self._stages.decided(placement_requests[:placed])
            self._records.chosen(view, turn.placements, decision)
        if placed == len(placement_requests):
            self.queue.placed(request)
            return []
        report = self._report(view, asked, placement_requests, decision)
        return self._reject(request, placement_requests[placed:], report, view.now_ms)

    def _serve_owners(
        self, view: View, request: RequestClass, placement_requests: list[PlacementRequest]
    ) -> list[PlacementRequest]:
        """Place owners in their reservations first; return the requests that found no place in a reservation."""
        self._stages.mark("filter")
        turn = self.commits.turn(request, view.now_ms)
        served, others = self.reserve.serve(view, request, placement_requests, turn)
        # Reservations are not scored with nodes: all of this time counts as filtering.
        self._stages.mark("score")
        self._stages.mark("done")
        if served:
            self._stages.decided([taken.placement_request for taken in served])
            self._records.chosen(view, turn.placements, ClassDecision(tuple(taken.choice for taken in served), ()))
        return others

    def _report(
        self, view: View, request: RequestClass, placement_requests: list[PlacementRequest], decision: ClassDecision
    ) -> Report:
        if request.place.reservation:
            return self.reserve.report(view, request, placement_requests[0])
        return full_report(self.cluster, view, request, decision.refused)

    def _reject(
        self, request: RequestClass, placement_requests: list[PlacementRequest], report: Report, now_ms: int
    ) -> list[Effect]:
        """Put the requests back and park their class; return the rejections whose reasons are new."""
        self.queue.put_back(placement_requests)
        ends = [until_ms for _, until_ms in request.avoid if until_ms > now_ms]
        parked = self.queue.park(
            request,
            now_ms,
            capacity_changes=self.cluster.capacity_changes,
            is_unresolvable=report.is_unresolvable,
            sooner_ms=min(ends, default=None),
        )
        self.counts["classes_rejected"] += 1
        reported = self._records.rejected(
            request, placement_requests, report, retry_at_ms=parked.retry_at_ms or 0, now_ms=now_ms
        )
        self._proposals.note(request, reported, report)
        return reported

    # ---- questions

    def _asked(self, asked: RequestReceived, now_ms: int) -> list[Effect]:
        if is_reservation_request(asked.body):
            return self._answer_reservations(asked, now_ms)
        reply: Struct
        match asked.body:
            case ListHolds():
                return self._holds_listing.ask(asked.request, asked.body)
            case PlanJob():
                return self._plan(asked.request, asked.body)
            case ExplainPlacement():
                reply = self._records.answer(asked.body, self.queue.find(asked.body.replica))
            case _:
                reply = Refusal(
                    code=404, field="request", rule="is not for the scheduler", got=type(asked.body).__name__
                )
        return [Reply(request=asked.request, body=reply)]

    def _answer_reservations(self, asked: RequestReceived, now_ms: int) -> list[Effect]:
        if not self._reserves:
            rule = "reservations need a store"
            return [Reply(request=asked.request, body=Refusal(code=503, field="reservations", rule=rule))]
        if not self.commits.is_loaded:
            refusal = Refusal(code=503, field="ledger", rule="the ledger is not read yet")
            return [Reply(request=asked.request, body=refusal)]
        return self._reservation_answers.answer(asked.request, asked.body, now_ms)

    def _plan(self, request: str, ask: PlanJob) -> list[Effect]:
        refusal: Refusal | None = Refusal(code=503, field="ledger", rule="the ledger is not read yet")
        if self.commits.is_loaded:
            refusal = self._plans.ask(request, ask)
        return [Reply(request=request, body=refusal)] if refusal is not None else []

    def _plan_input(self, now_ms: int) -> PlanInput:
        """The state that a plan starting now is computed from."""
        placements = {attempt: held.placement for attempt, held in self.commits.held.items() if not name_of(attempt[0])}
        reserved = self.reserve.places.fork() if self.reserve.book.has_places else None
        return PlanInput(self.cluster.trial(now_ms), placements, len(self.queue), reserved)
