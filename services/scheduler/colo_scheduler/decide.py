"""Decides a request class: filters and scores every node once, then takes the best node for one replica after the other.

A score depends on its own node only and never rises when something is placed there, so the best `count` nodes at the start are all
that can ever be chosen, and after each choice only the chosen node is scored again. The result is the same as scoring all nodes
anew for every replica.
"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from colo_common.events.job import ReplicaWant
from colo_common.events.placement import NodeScore, ReasonCount
from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import ZoneShare
from colo_scheduler import scores
from colo_scheduler.cluster import View
from colo_scheduler.request import RequestClass
from colo_scheduler.scores import Weights
from colo_scheduler.stack import Filtered, run_filters, score_rows, scores_of, sort_key, weighted
from colo_scheduler.zones import Part, ZoneFree, choose_zones, cost_of

__all__ = ["Choice", "ClassDecision", "Stages", "Unwatched", "decide_class"]


class Stages(Protocol):
    """Told when a stage of a decision begins and ends; it measures, the core does not. It must change nothing the core sees."""

    def mark(self, stage: str) -> None:
        """A stage begins: "filter", "score"; "done" ends the class."""
        ...

    def decided(self, wants: Sequence[ReplicaWant]) -> None:
        """These wants got a place in the decision that the last marks belong to."""
        ...


class Unwatched:
    """Stages that nobody measures."""

    def mark(self, stage: str) -> None:
        """Nothing."""

    def decided(self, wants: Sequence[ReplicaWant]) -> None:
        """Nothing."""


class Choice(NamedTuple):
    """A node and what the replica takes of its zones."""

    row: int
    shares: tuple[ZoneShare, ...]


class ClassDecision(NamedTuple):
    """Choices, one a replica in order. `filtered`: who refused at the end when they are fewer than asked, else at the start.

    `best` is the top of the score matrix before the first choice.
    """

    choices: tuple[Choice, ...]
    filtered: Filtered
    best: tuple[NodeScore, ...]

    @property
    def counts(self) -> tuple[ReasonCount, ...]:
        """How many nodes each reason refused."""
        return self.filtered.counts


class _Candidate:
    """One node while its class is decided, in plain integers."""

    def __init__(self, view: View, row: int) -> None:
        node = view.nodes[row]
        self.row = row
        self.node = node
        self.rank = int(view.rank[row])
        self.sockets = view.socket[row].tolist()
        self.free_cpu: list[int] = view.free_cpu[row].tolist()
        self.free_memory: list[int] = view.free_memory[row].tolist()
        self.allocatable_cpu = int(view.allocatable_cpu[row])
        self.allocatable_memory = int(view.allocatable_memory[row])

    def parts(self, request: RequestClass) -> tuple[Part, ...] | None:
        """What the request would take now, None when it does not fit."""
        if sum(self.free_cpu) < request.cpu_mcpu or sum(self.free_memory) < request.memory_bytes:
            return None
        return choose_zones(request.cpu_mcpu, request.memory_bytes, self._zones())

    def cost(self, parts: tuple[Part, ...]) -> int:
        """How scattered these parts are."""
        return 1 if len(parts) == 1 else cost_of(parts, self._zones())

    def free_pct(self, request: RequestClass) -> int:
        """The most-free score if the request were placed here now."""
        left_cpu = sum(self.free_cpu) - request.cpu_mcpu
        left_memory = sum(self.free_memory) - request.memory_bytes
        return scores.most_free(left_cpu, left_memory, self.allocatable_cpu, self.allocatable_memory)

    def key(self, request: RequestClass, parts: tuple[Part, ...], weights: Weights) -> int:
        """The sort key as stack.score_rows computes it."""
        left_cpu = sum(self.free_cpu) - request.cpu_mcpu
        return sort_key(weighted(self.cost(parts), self.free_pct(request), weights), left_cpu, self.rank)

    def _zones(self) -> list[ZoneFree]:
        slots = range(len(self.node.zone_ids))
        return [ZoneFree(slot, self.sockets[slot], self.free_cpu[slot], self.free_memory[slot]) for slot in slots]

    def take(self, parts: tuple[Part, ...]) -> Choice:
        """Subtract the parts and name them by zone."""
        for slot, cpu_mcpu, memory_bytes in parts:
            self.free_cpu[slot] -= cpu_mcpu
            self.free_memory[slot] -= memory_bytes
        ids = self.node.zone_ids
        return Choice(
            self.row,
            tuple(ZoneShare(zone=ids[p.slot], cpu_mcpu=p.cpu_mcpu, memory_bytes=p.memory_bytes) for p in parts),
        )


def decide_class(
    view: View, request: RequestClass, count: int, weights: Weights, *, best_rows: int = 0, stages: Stages | None = None
) -> ClassDecision:
    """Choose a node for each of `count` equal replicas, in order; what is chosen is subtracted from the view's free arrays.

    `best_rows` is how many rows of the score matrix to tell, best first, as they were before the first choice.
    """
    stages = stages or Unwatched()
    stages.mark("filter")
    filtered = run_filters(view, request)
    stages.mark("score")
    if filtered.rows.size == 0 or count == 0:
        stages.mark("done")
        return ClassDecision((), filtered, ())
    keys = score_rows(view, request, filtered.rows, weights)
    wanted = min(max(count, best_rows), keys.size)
    top = np.argpartition(-keys, wanted - 1)[:wanted] if wanted < keys.size else np.arange(keys.size)
    top = top[np.argsort(-keys[top])]
    best = tuple(_scores_now(view, request, int(row), weights) for row in filtered.rows[top[:best_rows]].tolist())
    heap = [(-key, row) for key, row in zip(keys[top].tolist(), filtered.rows[top].tolist(), strict=True)]
    choices = _take_best(view, request, count, weights, heap)
    stages.mark("done")
    return ClassDecision(tuple(choices), run_filters(view, request) if len(choices) < count else filtered, best)


def _take_best(
    view: View, request: RequestClass, count: int, weights: Weights, heap: list[tuple[int, int]]
) -> list[Choice]:
    """Take the best node `count` times, or until none is left. `heap` holds (-sort key, row), sorted."""
    candidates: dict[int, _Candidate] = {}
    next_parts: dict[int, tuple[Part, ...]] = {}
    choices: list[Choice] = []
    while heap and len(choices) < count:
        _, row = heap[0]
        candidate = candidates.get(row)
        if candidate is None:
            candidate = candidates[row] = _Candidate(view, row)
            first = candidate.parts(request)
            if first is None:
                raise InvariantBroken("a node passed the filters and cannot hold the request", node=candidate.node.name)
            parts = first
        else:
            parts = next_parts[row]
        choices.append(candidate.take(parts))
        following = candidate.parts(request)
        if following is None:
            heapq.heappop(heap)
        else:
            next_parts[row] = following
            heapq.heapreplace(heap, (-candidate.key(request, following, weights), row))
    for row, candidate in candidates.items():
        view.free_cpu[row] = candidate.free_cpu
        view.free_memory[row] = candidate.free_memory
        view.node_free_cpu[row] = sum(candidate.free_cpu)
        view.node_free_memory[row] = sum(candidate.free_memory)
    return choices


def _scores_now(view: View, request: RequestClass, row: int, weights: Weights) -> NodeScore:
    candidate = _Candidate(view, row)
    parts = candidate.parts(request)
    if parts is None:
        raise InvariantBroken("a node passed the filters and cannot hold the request", node=candidate.node.name)
    return scores_of(candidate.node.name, candidate.cost(parts), candidate.free_pct(request), weights)
