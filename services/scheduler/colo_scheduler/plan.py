"""Where a job would go if it were submitted now: the scheduler's own decision on a trial view, and nothing is kept of it."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Final

from colo_common.events.job import ReplicaWant
from colo_common.events.placement import NodeScore
from colo_common.events.requests import JobPlanned, PlanJob, PlannedReplica, PlannedTask, PlannedVictim
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.job_rules import validate_spec
from colo_common.model.placement import Placement
from colo_common.model.workload import JobSpec
from colo_scheduler.cluster import View
from colo_scheduler.commit import placement_of
from colo_scheduler.decide import Choice, ClassDecision
from colo_scheduler.explain import Report, report_of
from colo_scheduler.held_places import HeldPlaces, Taken, serve
from colo_scheduler.inventory import holding_of
from colo_scheduler.ledger import Attempt
from colo_scheduler.policy import Policy
from colo_scheduler.pool import pool_of
from colo_scheduler.preempt import find_victims, take_place_of
from colo_scheduler.queue import WantQueue
from colo_scheduler.request import RequestClass, class_of
from colo_scheduler.reservation.book import ReservationBook
from colo_scheduler.reservation.held_place import attempt_of
from colo_scheduler.reservation_report import report_for_owner
from colo_scheduler.turn import decide_turn

__all__ = ["PLACES_MOST", "Plan", "plan_job"]

PLACES_MOST: Final = 1_000
_NODES_TOLD: Final = 100
_PREEMPTORS_MOST: Final = 20


class Plan:
    """One plan while it is made: decides as the core does, and takes from its own view."""

    def __init__(
        self,
        view: View,
        policy: Policy,
        placements: Mapping[Attempt, Placement],
        reserved: HeldPlaces | None = None,
    ) -> None:
        self._view = view
        self._policy = policy
        self._placements = placements
        self._reserved = reserved
        self._gone: set[Attempt] = set()
        self.places: list[PlannedReplica] = []
        self.reports: dict[RequestClass, Report] = {}
        self.scores: dict[RequestClass, tuple[NodeScore, ...]] = {}

    def decide(self, wants: list[ReplicaWant]) -> list[tuple[RequestClass, int]]:
        """Place these wants in the order of the queue; how many of which request class found no place."""
        queue = WantQueue(len(wants), self._policy.backoff)
        for want in wants:
            queue.add(want)
        missing = []
        while (request := queue.next_class()) is not None:
            taken = queue.take(request, self._policy.quantum)
            if self._reserved is not None:
                _, taken = serve(self._reserved, self._view, request, taken, self._take_reserved)
            decision = decide_turn(
                self._view,
                request,
                len(taken),
                self._policy,
                partial(self._take, taken),
                best_rows=0 if request in self.scores else self._policy.score_rows,
            )
            self.scores.setdefault(request, decision.best)
            if len(decision.choices) < len(taken):
                self.reports[request] = self._report(request, taken[0], decision)
                rest = queue.take(request, len(wants))
                missing.append((request, len(taken) - len(decision.choices) + len(rest)))
            queue.placed(request)
        return missing

    def _take(self, wants: list[ReplicaWant], number: int, choice: Choice) -> None:
        want = wants[number]
        # The same job may run already: what is planned is nobody's attempt.
        self._view.take(pool_of(want.band), choice.row, choice.shares, (want.replica, 0), choice.holding)
        held = choice.holding
        self.places.append(
            PlannedReplica(
                replica=_short(want),
                node=self._view.nodes[choice.row].name,
                zones=choice.shares,
                cpus=CpuSet(held.cpus).format() if held else "",
                devices=held.devices if held else (),
                reservation=choice.reservation,
            )
        )

    def _take_reserved(self, taken: Taken) -> None:
        """An owner's place: what stands for the reservation holds so much less."""
        places = self._reserved
        found = places.book.find(taken.reservation) if places else None
        before = places.placement(taken.reservation) if places else None
        if places is None or found is None or before is None:
            return
        name, row, attempt = pool_of(before.band), taken.choice.row, attempt_of(found)
        places.use(placement_of(taken.want, self._view.nodes[row], taken.choice, self._view.now_ms))
        left = places.placement(taken.reservation) or before
        self._view.leave(name, row, before.zones, attempt)
        self._view.take(name, row, left.zones, attempt, holding_of(left))
        self._take([taken.want], 0, taken.choice)

    def _report(self, request: RequestClass, want: ReplicaWant, decision: ClassDecision) -> Report:
        if request.place.reservation:
            places = self._reserved or HeldPlaces(ReservationBook())
            return report_for_owner(places, self._view, request, want)
        return report_of(self._view, request, decision.refused)

    def preempt(self, missing: list[tuple[RequestClass, int]]) -> tuple[list[Placement], int]:
        """Who would have to leave for the first of the missing replicas, and for how many of them that is enough."""
        leaving: list[Placement] = []
        helped = 0
        for request, count in missing:
            for _ in range(count):
                if helped == _PREEMPTORS_MOST or not request.is_admitted:
                    return leaving, helped
                found = find_victims(self._view, request, self._placements, frozenset(self._gone))
                if found is None or not take_place_of(self._view, request, found, ("", helped)):
                    break
                self._gone.update((placement.replica, placement.attempt) for placement in found.leaving)
                leaving.extend(found.leaving)
                helped += 1
        return leaving, helped


def plan_job(
    view: View,
    ask: PlanJob,
    policy: Policy,
    placements: Mapping[Attempt, Placement],
    *,
    waiting: int,
    reserved: HeldPlaces | None = None,
) -> JobPlanned:
    """The plan for a job on a trial view, which is used up by it, as `reserved` is. `placements`: what is held now.

    Raises InvalidInput for a job that breaks a rule and for a `most` out of range.
    """
    if not 0 <= ask.most <= PLACES_MOST:
        raise InvalidInput("most", f"must be from 0 to {PLACES_MOST}", ask.most)
    validate_spec(ask.spec)
    plan = Plan(view, policy, placements, reserved)
    wants = _wants_of(ask.spec, view.now_ms)
    missing = plan.decide(wants)
    leaving, helped = plan.preempt(missing)
    order = {_short(want): number for number, want in enumerate(wants)}
    places = sorted(plan.places, key=lambda place: order[place.replica])
    classes = {_task_of(_short(want)): class_of(want) for want in wants}
    return JobPlanned(
        fits=not missing,
        at_ms=view.now_ms,
        nodes=view.count,
        replicas=ask.spec.replica_count,
        placed=len(places),
        waiting=waiting,
        tasks=tuple(_task(plan, task.name, task.replicas, classes[task.name]) for task in ask.spec.tasks),
        places=tuple(places[: ask.most]),
        victims=tuple(_victim(placement) for placement in leaving),
        by_preempting=helped,
    )


def _wants_of(spec: JobSpec, now_ms: int) -> list[ReplicaWant]:
    labels = tuple(sorted(spec.labels.items()))
    return [
        ReplicaWant(
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
        )
        for task in spec.tasks
        for index in range(task.replicas)
    ]


def _task(plan: Plan, name: str, replicas: int, request: RequestClass) -> PlannedTask:
    on = Counter(place.node for place in plan.places if _task_of(place.replica) == name)
    nodes = sorted(on.items(), key=lambda pair: (-pair[1], pair[0]))[:_NODES_TOLD]
    report = plan.reports.get(request) if on.total() < replicas else None
    return PlannedTask(
        task=name,
        replicas=replicas,
        placed=on.total(),
        nodes=tuple(nodes),
        counts=report.counts if report else (),
        nearest=report.nearest if report else None,
        scores=plan.scores[request],
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


def _short(want: ReplicaWant) -> str:
    """ "task/index" of a replica."""
    return want.replica.partition("/")[2]


def _task_of(replica: str) -> str:
    return replica.partition("/")[0]
