"""The plans in progress: each gets its steps in turn, after the decisions of waiting requests.

A plan says which places a job would get if it were submitted now: the scheduler's own decision on a trial view, of which nothing is
kept. It is made in steps of bounded size, so that a plan of thousands of replicas delays no other work.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from colo_common.events.effects import Reply
from colo_common.events.job import PlacementRequest
from colo_common.events.placement import NodeScore
from colo_common.events.requests import JobPlanned, PlanJob, PlannedReplica, PlannedTask, PlannedVictim, Refusal
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.job_rules import validate_spec
from colo_common.model.paging import parts_of
from colo_common.model.placement import Attempt, Placement
from colo_common.model.workload import TaskSpec
from colo_scheduler.cluster.cluster import Cluster, View
from colo_scheduler.cluster.holding import holding_of
from colo_scheduler.cluster.pool import pool_of
from colo_scheduler.commit.commit import placement_of
from colo_scheduler.placement.choice import Choice
from colo_scheduler.placement.decide import SEARCH_COST, ClassDecision, decide, turns
from colo_scheduler.placement.explain import full_report
from colo_scheduler.placement.report import Report
from colo_scheduler.placement.scoring import Scorings
from colo_scheduler.policy import SchedulerPolicy
from colo_scheduler.preemption.search import Victims, VictimSearch, take_place_of
from colo_scheduler.requests.queue import RequestQueue
from colo_scheduler.requests.request_class import RequestClass, class_of
from colo_scheduler.reservations.book import ReservationBook
from colo_scheduler.reservations.owner_search import Taken, serve
from colo_scheduler.reservations.report import report_for_owner
from colo_scheduler.reservations.reservation import attempt_of
from colo_scheduler.reservations.snapshot import ReservationSnapshot

__all__ = [
    "PLANS_MOST",
    "PlanInput",
    "Plans",
    "STEP_REPLICAS",
]

PLACES_MOST: Final = 1_000
STEP_REPLICAS: Final = 100
"""The most replicas decided in one step; a replica that needs the exact fit counts as several."""
_QUEUED_A_STEP: Final = 1_000
# So many holds read by a search for victims count as one replica.
_HOLDS_FOR_ONE: Final = 10
_NODES_PUBLISHED: Final = 100
_NODES_OF_ALL_TASKS: Final = 2_000
_PREEMPTORS_MOST: Final = 20
# Longer than a plan takes.
_AVOIDED_MS: Final = 3_600_000


class PlanInput(NamedTuple):
    """The input of a plan, which consumes the trial view and `reserved`. `placements`: all holds, `waiting`: waiting requests."""

    view: View
    placements: Mapping[Attempt, Placement]
    waiting: int
    reserved: ReservationSnapshot | None = None


class Plan:
    """One plan in progress, step by step: decides as the core does, and takes capacity from its own input only."""

    def __init__(
        self, cluster: Cluster, plan_input: PlanInput, ask: PlanJob, policy: SchedulerPolicy, scorings: Scorings
    ) -> None:
        self._cluster = cluster
        self._view, self._placements, self._waiting, self._reserved = plan_input
        self._ask = ask
        self._policy = policy
        self._scorings = scorings
        self._coming = _requests_of(ask, self._view.now_ms)
        self._queue = RequestQueue(ask.spec.replica_count, policy.backoff)
        self._missing: list[tuple[RequestClass, list[PlacementRequest]]] = []
        self._used_once: list[Placement] = []
        self._is_placed = False
        self._search: VictimSearch | None = None
        self._deleted: set[Attempt] = set()
        self._leaving: list[Placement] = []
        self._helped = 0
        self._places: list[PlannedReplica] = []
        self._reports: dict[RequestClass, Report] = {}
        self._scores: dict[RequestClass, tuple[NodeScore, ...]] = {}
        self._classes: dict[str, RequestClass] = {}

    # ---- steps

    def step(self) -> bool:
        """Do a part of bounded size; returns whether all is done."""
        if self._queue_some() == _QUEUED_A_STEP:
            return False
        budget = STEP_REPLICAS
        while budget > 0 and not self._is_placed:
            for turn in turns(self._queue, self._view, budget, self._policy.quantum):
                self._decide(turn.request, turn.placement_requests)
                budget -= turn.cost
            self._is_placed = self._queue.next_class() is None and not self._try_what_is_left()
        while budget > 0 and self._missing:
            budget -= self._preempt_some(budget)
        return self._is_placed and not self._missing

    def _queue_some(self) -> int:
        """Queue the next replicas of the job; returns their number."""
        some = list(islice(self._coming, _QUEUED_A_STEP))
        for placement_request in some:
            self._queue.add(placement_request)
            if (task := _task_of(_short(placement_request))) not in self._classes:
                self._classes[task] = class_of(placement_request)
        return len(some)

    def _try_what_is_left(self) -> bool:
        """The rest of a one-use reservation is free once its owner holds a place: replicas without one are then tried again."""
        left, self._used_once = self._used_once, []
        for place in left:
            row = self._view.rows[place.node]
            self._view.leave(pool_of(place.band), row, place.zones, (place.replica, place.attempt))
        missing, self._missing = (self._missing, []) if left else ([], self._missing)
        for request, placement_requests in missing:
            self._reports.pop(request, None)
            for placement_request in placement_requests:
                self._queue.add(placement_request)
        return bool(missing)

    def _decide(self, request: RequestClass, placement_requests: list[PlacementRequest]) -> None:
        """Place one turn: owners in their reservations, then the others on nodes."""
        if self._reserved is not None:
            _, placement_requests = serve(self._reserved, self._view, request, placement_requests, self._take_reserved)
        if placement_requests:
            self._decide_on_nodes(request, placement_requests)
        self._queue.placed(request)

    def _decide_on_nodes(self, request: RequestClass, placement_requests: list[PlacementRequest]) -> None:
        """Choose nodes for a turn. When one finds none, all waiting replicas of its class are missing and none is tried again."""
        decision = decide(
            self._view,
            request,
            len(placement_requests),
            self._scorings,
            partial(self._take, placement_requests),
            best_rows=0 if request in self._scores else self._policy.score_rows,
        )
        self._scores.setdefault(request, decision.best)
        if len(decision.choices) < len(placement_requests):
            self._reports[request] = self._report(request, placement_requests[0], decision)
            others = self._queue.take(request, self._ask.spec.replica_count)
            self._missing.append((request, [*placement_requests[len(decision.choices) :], *others]))

    def _take(self, placement_requests: list[PlacementRequest], number: int, choice: Choice) -> None:
        placement_request = placement_requests[number]
        # The same job may run already: a planned replica is no real attempt.
        self._view.take(
            pool_of(placement_request.band), choice.row, choice.shares, (placement_request.replica, 0), choice.holding
        )
        held = choice.holding
        self._places.append(
            PlannedReplica(
                replica=_short(placement_request),
                node=self._view.nodes[choice.row].name,
                zones=choice.shares,
                cpus=CpuSet(held.cpus).format() if held else "",
                devices=held.devices if held else (),
                reservation=choice.reservation,
            )
        )

    def _take_reserved(self, taken: Taken) -> None:
        """Place an owner: the hold of its reservation shrinks by the owner's part."""
        places = self._reserved
        found = places.book.find(taken.reservation) if places else None
        before = places.placement(taken.reservation) if places else None
        if places is None or found is None or before is None:
            return
        name, row, attempt = pool_of(before.band), taken.choice.row, attempt_of(found)
        places.use(placement_of(taken.placement_request, self._view.nodes[row], taken.choice, self._view.now_ms))
        left = places.placement(taken.reservation) or before
        self._view.leave(name, row, before.zones, attempt)
        self._view.take(name, row, left.zones, attempt, holding_of(left), is_choice=False)
        if found.spec.allocate_once:
            self._used_once.append(left)
        self._take([taken.placement_request], 0, taken.choice)

    def _report(self, request: RequestClass, placement_request: PlacementRequest, decision: ClassDecision) -> Report:
        if request.place.reservation:
            places = self._reserved or ReservationSnapshot(ReservationBook())
            return report_for_owner(places, self._view, request, placement_request)
        return full_report(self._cluster, self._view, request, decision.refused)

    def _preempt_some(self, budget: int) -> int:
        """Search victims for the next of the missing replicas; returns the part of the budget used.

        No replica counts as missing when no further one is tried.
        """
        request, placement_requests = self._missing[0]
        if self._helped == _PREEMPTORS_MOST or not request.is_admitted:
            self._missing.clear()
            return 1
        if self._search is None and self._deleted and self._fits_now(request):
            self._has_helped(placement_requests)
            return SEARCH_COST
        search = self._search or VictimSearch(self._view, request, self._placements, frozenset(self._deleted))
        cost = 1 + search.step(self._view, budget * _HOLDS_FOR_ONE) // _HOLDS_FOR_ONE
        self._search = None if search.is_done else search
        if search.is_done:
            self._give_way(request, placement_requests, search.found)
        return cost

    def _give_way(
        self, request: RequestClass, placement_requests: list[PlacementRequest], found: Victims | None
    ) -> None:
        """Remove the victims and place one replica; without victims, no further replica is tried."""
        if found is None or not take_place_of(self._view, request, found, ("", self._helped)):
            self._missing.pop(0)
            return
        self._deleted.update((placement.replica, placement.attempt) for placement in found.leaving)
        self._leaving.extend(found.leaving)
        self._has_helped(placement_requests)

    def _has_helped(self, placement_requests: list[PlacementRequest]) -> None:
        self._helped += 1
        if len(placement_requests) == 1:
            self._missing.pop(0)
        else:
            placement_requests.pop()

    def _fits_now(self, request: RequestClass) -> bool:
        """Whether one more replica fits, which is then placed, where earlier victims made room for several."""

        def take(number: int, choice: Choice) -> None:
            self._view.take(pool_of(request.band), choice.row, choice.shares, ("", self._helped), choice.holding)

        return bool(decide(self._view, request, 1, self._scorings, take, best_rows=0).choices)

    # ---- the result

    def delivered(self) -> JobPlanned:
        """The plan, when all is done."""
        spec = self._ask.spec
        order = {task.name: number for number, task in enumerate(spec.tasks)}
        on: dict[str, Counter[str]] = {task.name: Counter() for task in spec.tasks}
        for place in self._places:
            on[_task_of(place.replica)][place.node] += 1

        def in_order(place: PlannedReplica) -> tuple[int, int]:
            task, _, index = place.replica.partition("/")
            return order[task], int(index)

        return JobPlanned(
            fits=len(self._places) == spec.replica_count,
            at_ms=self._view.now_ms,
            nodes=self._view.node_count,
            replicas=spec.replica_count,
            placed=len(self._places),
            waiting=self._waiting,
            tasks=tuple(self._task(task, on[task.name]) for task in spec.tasks),
            places=next(parts_of(sorted(self._places, key=in_order)[: self._ask.most], PLACES_MOST), ()),
            victims=tuple(_victim(placement) for placement in self._leaving),
            by_preempting=self._helped,
        )

    def _task(self, task: TaskSpec, on: Counter[str]) -> PlannedTask:
        request = self._classes[task.name]
        most = min(_NODES_PUBLISHED, _NODES_OF_ALL_TASKS // len(self._ask.spec.tasks))
        nodes = sorted(on.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
        report = self._reports.get(request) if on.total() < task.replicas else None
        return PlannedTask(
            task=task.name,
            replicas=task.replicas,
            placed=on.total(),
            nodes=tuple(nodes),
            counts=report.counts if report else (),
            nearest=report.nearest if report else None,
            never=report is not None and report.is_unresolvable,
            scores=self._scores.get(request, ()),
        )


def check_plan(ask: PlanJob) -> None:
    """Raise InvalidInput for a job that breaks a rule and for a `most` out of range."""
    if not 0 <= ask.most <= PLACES_MOST:
        raise InvalidInput("most", f"must be from 0 to {PLACES_MOST}", ask.most)
    validate_spec(ask.spec)


def _requests_of(ask: PlanJob, now_ms: int) -> Iterator[PlacementRequest]:
    spec = ask.spec
    avoid = tuple((node, now_ms + _AVOIDED_MS) for node in ask.avoid)
    labels = tuple(sorted(spec.labels.items()))
    return (
        PlacementRequest(
            replica=f"{spec.name}/{task.name}/{index}",
            job=spec.name,
            queue=spec.queue,
            attempt=1,
            request=task.request,
            run=task.run,
            qos=spec.qos,
            band=spec.band,
            priority=spec.priority,
            queued_at_ms=now_ms,
            constraints=task.constraints,
            labels=labels,
            avoid=avoid,
        )
        for task in spec.tasks
        for index in range(task.replicas)
    )


def _victim(placement: Placement) -> PlannedVictim:
    return PlannedVictim(
        replica=placement.replica,
        attempt=placement.attempt,
        node=placement.node,
        band=placement.band,
        priority=placement.priority,
        cpu_mcpu=placement.cpu_mcpu,
        memory_bytes=placement.memory_bytes,
    )


def _short(placement_request: PlacementRequest) -> str:
    """ "task/index" of a replica."""
    return placement_request.replica.partition("/")[2]


def _task_of(replica: str) -> str:
    return replica.partition("/")[0]


PLANS_MOST: Final = 8
_BEGINNINGS_MOST: Final = 4


class _Asked:
    def __init__(self, request: str, ask: PlanJob) -> None:
        self.request = request
        self.ask = ask
        self.plan: Plan | None = None
        self.machines: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = []
        self.changes = 0
        self.beginnings = 0


class Plans:
    """At most PLANS_MOST; a step is one part of bounded size of the plan that was requested first."""

    def __init__(self, cluster: Cluster, policy: SchedulerPolicy, scorings: Scorings) -> None:
        self._cluster = cluster
        self._policy = policy
        self._scorings = scorings
        self._asked: deque[_Asked] = deque()

    def __len__(self) -> int:
        """The number of plans in progress."""
        return len(self._asked)

    def ask(self, request: str, ask: PlanJob) -> Refusal | None:
        """Take a plan that `step` will answer; a refusal when it breaks a rule or too many are under way."""
        if len(self._asked) >= PLANS_MOST:
            return Refusal(code=503, field="plan", rule=f"{PLANS_MOST} plans are under way, ask again in a moment")
        try:
            check_plan(ask)
        except InvalidInput as error:
            return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
        self._asked.append(_Asked(request, ask))
        return None

    def step(self, plan_input: Callable[[], PlanInput]) -> list[Reply]:
        """One step; returns the reply when it was the last step of a plan. `plan_input` returns the input of a plan that begins.

        The input of a plan stays as it was when the plan began. Where nodes are new or have other zones than before, the input is
        out of date and the plan begins again, a few times.
        """
        if not self._asked:
            return []
        asked = self._asked[0]
        if asked.plan is None or self._has_changed(asked):
            if asked.beginnings == _BEGINNINGS_MOST:
                self._asked.popleft()
                rule = "nodes came or changed again and again meanwhile, ask again"
                return [Reply(request=asked.request, body=Refusal(code=503, field="plan", rule=rule))]
            asked.beginnings += 1
            asked.machines, asked.changes = self._machines(), self._cluster.capacity_changes
            asked.plan = Plan(self._cluster, plan_input(), asked.ask, self._policy, self._scorings)
        if not asked.plan.step():
            return []
        self._asked.popleft()
        return [Reply(request=asked.request, body=asked.plan.delivered())]

    def _has_changed(self, asked: _Asked) -> bool:
        if len(asked.machines) == len(self._cluster.nodes) and asked.changes == self._cluster.capacity_changes:
            return False
        asked.changes = self._cluster.capacity_changes
        return asked.machines != self._machines()

    def _machines(self) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
        """Every node in its row, with its zones and their sockets."""
        return [(node.name, node.zone_ids, node.sockets) for node in self._cluster.nodes]
