"""Who would have to leave so that a rejected replica fits: said beside its rejection, and nobody has to leave by it.

A search looks at many nodes and what they hold, so it is no part of a decision: it is made when nothing waits to be decided, one a
Wake, and only after a rejection that was said.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from colo_common.events.effects import Effect, Publish
from colo_common.events.placement import (
    PlacementRejected,
    PreemptionProposed,
    ProposedPreemption,
    ProposedVictim,
)
from colo_common.model.placement import Placement, attempt_key
from colo_common.model.reasons import Reason
from colo_scheduler.attempts import Held
from colo_scheduler.cluster import Cluster
from colo_scheduler.commit import Commits
from colo_scheduler.explain import Report
from colo_scheduler.ledger import Attempt
from colo_scheduler.preempt import Victims, find_victims, take_place_of
from colo_scheduler.records import Records
from colo_scheduler.request import RequestClass
from colo_scheduler.reservation.held_place import name_of
from colo_scheduler.search import needs_search

__all__ = ["Proposals"]

_WAITING_MOST: Final = 64


class _Asked(Struct, frozen=True):
    replica: str
    attempt: int
    job: str
    reason: Reason
    traceparent: str


class _Placements(Mapping[Attempt, Placement]):
    """What replicas hold by the ledger: what is only assumed, or stands for a reservation, cannot leave."""

    def __init__(self, held: Mapping[Attempt, Held]) -> None:
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


class Proposals:
    """The classes for which a search is due, at most 64; of more the one that waits longest is left out."""

    def __init__(self, cluster: Cluster, commits: Commits, records: Records, counts: Counter[str]) -> None:
        self._cluster = cluster
        self._commits = commits
        self._placements = _Placements(commits.held)
        self._records = records
        self._counts = counts
        self._asked: OrderedDict[RequestClass, _Asked] = OrderedDict()

    def __len__(self) -> int:
        """How many searches are due."""
        return len(self._asked)

    def note(self, request: RequestClass, said: list[Effect], report: Report) -> None:
        """These rejections of a class were said: a search for the first of them, unless no leaving could help."""
        if not said or not request.is_admitted or request.reserves or request.place.reservation:
            return
        first = said[0]
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
        """One search; what came of it is said and kept for explanations."""
        if not self._asked:
            return []
        request, asked = self._asked.popitem(last=False)
        found = self._find(request, now_ms)
        if found is None:
            self._records.propose(request, asked.replica, None)
            return []
        node = self._cluster.nodes[found.row]
        victims = tuple(_told(placement) for placement in found.leaving)
        proposal = ProposedPreemption(node=node.name, victims=victims, revision=node.revision, at_ms=now_ms)
        self._records.propose(request, asked.replica, proposal)
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

    def _find(self, request: RequestClass, now_ms: int) -> Victims | None:
        """Victims after whom the request fits by every filter: where it needs more than amounts, that is tried."""
        least = self._commits.least_important
        if least is None or least >= (request.band.rank, request.priority):
            return None
        view = self._cluster.view(now_ms)
        found = find_victims(view, request, self._placements)
        if found is None or not needs_search(view, request):
            return found
        trial = self._cluster.trial(now_ms)
        return found if take_place_of(trial, request, found, ("", 0)) else None


def _told(placement: Placement) -> ProposedVictim:
    return ProposedVictim(
        replica=placement.replica,
        attempt=placement.attempt,
        band=placement.band,
        priority=placement.priority,
        cpu_mcpu=placement.cpu_mcpu,
        memory_bytes=placement.memory_bytes,
    )
