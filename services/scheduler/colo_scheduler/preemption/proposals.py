"""Proposes victims whose removal would let a rejected replica fit; a proposal is only published, no replica leaves by it.

A search reads the holds of many nodes, so it is no part of a decision: it starts only after a published rejection, while nothing
waits to be decided or planned, and runs in steps of bounded size, one a Wake. A result is tested again before it is published;
where it does not hold any more, or a victim leaves on its own, the search begins again, a few times.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from colo_common.events.effects import Effect, Publish
from colo_common.events.placement import (
    PlacementRejected,
    PreemptionProposed,
    ProposedPreemption,
    ProposedVictim,
)
from colo_common.model.placement import Attempt, Placement, attempt_key
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.cluster import Cluster, View
from colo_scheduler.commit.commit import Commits
from colo_scheduler.commit.held import HeldAttempt, Over
from colo_scheduler.ledger.port import name_of
from colo_scheduler.placement.report import Report
from colo_scheduler.preemption.search import Victims, VictimSearch, victims_on
from colo_scheduler.requests.queue import RequestQueue
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["STEP_HOLDS", "Proposals"]

_WAITING_MOST: Final = 64
_BEGINNINGS_MOST: Final = 4
STEP_HOLDS: Final = 200
"""About so many holds are read in one step."""


class _Asked(Struct, frozen=True):
    replica: str
    attempt: int
    job: str
    reason: Reason
    traceparent: str


class _Placements(Mapping[Attempt, Placement]):
    """The replicas' holds by the ledger: a hold that is only assumed, or stands for a reservation, cannot leave."""

    def __init__(self, held: Mapping[Attempt, HeldAttempt]) -> None:
        self._held = held

    def __getitem__(self, attempt: Attempt) -> Placement:
        held = self._held[attempt]
        if held.is_assumed or name_of(attempt[0]):
            raise KeyError(attempt)
        return held.placement

    def __iter__(self) -> Iterator[Attempt]:
        return (attempt for attempt in self._held if attempt in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _UnderWay:
    """The search that runs now. `machines`: the value of `_machines` at its beginning."""

    def __init__(self, request: RequestClass, asked: _Asked) -> None:
        self.request = request
        self.asked = asked
        self.search: VictimSearch | None = None
        self.machines = (0, 0)
        self.beginnings = self.steps = 0


class Proposals:
    """The classes with a search due, at most 64 beside the running search; of more, the class that waits longest is dropped."""

    def __init__(
        self,
        cluster: Cluster,
        commits: Commits,
        queue: RequestQueue,
        over: Over,
        propose: Callable[[RequestClass, str, ProposedPreemption | None], None],
        counts: Counter[str],
    ) -> None:
        """`over`: the attempts that have ended or were withdrawn; the place of one is held until the ledger has released it.

        `propose` keeps the result of a search for explanations: the class, its replica, and the proposal or None.
        """
        self._cluster = cluster
        self._queue = queue
        self._placements = _Placements(commits.held)
        self._over = over
        self._propose = propose
        self._counts = counts
        self._asked: OrderedDict[RequestClass, _Asked] = OrderedDict()
        self._under_way: _UnderWay | None = None

    def __len__(self) -> int:
        """The number of searches due or running."""
        return len(self._asked) + (self._under_way is not None)

    def note(self, request: RequestClass, reported: list[Effect], report: Report) -> None:
        """Take the published rejections of a class: queue a search for the first of them, unless no preemption could help."""
        if not reported or not request.is_admitted or request.reserves or request.place.reservation:
            return
        first = reported[0]
        if report.is_unresolvable or not isinstance(first, Publish) or not isinstance(first.fact, PlacementRejected):
            return
        most = max(report.counts, key=lambda count: count.nodes, default=None)
        if most is None or not report.nodes:
            return
        fact = first.fact
        self._asked[request] = _Asked(fact.replica, fact.attempt, fact.job, most.reason, first.traceparent)
        if len(self._asked) > _WAITING_MOST:
            self._asked.popitem(last=False)
            self._counts["preemptions_left_out"] += 1

    def step(self, now_ms: int) -> list[Effect]:
        """Continue one search; its result is published and kept for explanations."""
        if self._under_way is not None and not self._waits(self._under_way.asked):
            self._under_way = None
        one = self._under_way or self._next()
        if one is None:
            return []
        view = self._cluster.view(now_ms)
        search = one.search if one.machines == self._machines() else None
        search = search or self._begin(one, view)
        if search is None:
            return []
        search.step(view, STEP_HOLDS)
        one.steps += 1
        if not search.is_done:
            return []
        found = search.found
        if found is not None and self._is_outdated(one, view, found):
            one.search = None
            return []
        self._under_way = None
        return self._say(one, found, now_ms)

    def _is_outdated(self, one: _UnderWay, view: View, found: Victims) -> bool:
        """Whether the node changed since a search of several steps read it, or a victim leaves on its own."""
        if any((placement.replica, placement.attempt) in self._over for placement in found.leaving):
            return True
        return one.steps > 1 and victims_on(view, one.request, self._placements, found.row) != found

    def _next(self) -> _UnderWay | None:
        """The class that waits longest, among those whose replica still waits."""
        while self._asked:
            request, asked = self._asked.popitem(last=False)
            if self._waits(asked):
                self._under_way = _UnderWay(request, asked)
                return self._under_way
        return None

    def _begin(self, one: _UnderWay, view: View) -> VictimSearch | None:
        """Begin a search, or drop it where the nodes change faster than a search reads them."""
        if one.beginnings == _BEGINNINGS_MOST:
            self._counts["preemptions_given_up"] += 1
            self._under_way = None
            return None
        one.beginnings += 1
        one.steps = 0
        one.machines = self._machines()
        one.search = VictimSearch(view, one.request, self._placements)
        return one.search

    def _waits(self, asked: _Asked) -> bool:
        return (asked.replica, asked.attempt) in self._queue

    def _machines(self) -> tuple[int, int]:
        """Two counters that identify the assignment of nodes to rows: the number of nodes, and the number of their changes."""
        return len(self._cluster.rows), self._cluster.capacity_changes

    def _say(self, one: _UnderWay, found: Victims | None, now_ms: int) -> list[Effect]:
        request, asked = one.request, one.asked
        if found is None:
            self._propose(request, asked.replica, None)
            return []
        node = self._cluster.nodes[found.row]
        victims = tuple(_published(placement) for placement in found.leaving)
        proposal = ProposedPreemption(node=node.name, victims=victims, revision=node.revision, at_ms=now_ms)
        self._propose(request, asked.replica, proposal)
        self._counts["preemptions_proposed"] += 1
        fact = PreemptionProposed(
            at_ms=now_ms,
            replica=asked.replica,
            job=asked.job,
            attempt=asked.attempt,
            band=request.band,
            priority=request.priority,
            reason=asked.reason,
            proposal=proposal,
        )
        identity = f"scheduler:preemption:{attempt_key(asked.replica, asked.attempt)}:{now_ms}"
        return [Publish(fact=fact, id=identity, traceparent=asked.traceparent)]


def _published(placement: Placement) -> ProposedVictim:
    return ProposedVictim(
        replica=placement.replica,
        attempt=placement.attempt,
        band=placement.band,
        priority=placement.priority,
        cpu_mcpu=placement.cpu_mcpu,
        memory_bytes=placement.memory_bytes,
    )
