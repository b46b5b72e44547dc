"""Attempts of replicas: placed once, started where they were placed, one after the other, and never twice at a time."""

from __future__ import annotations

from msgspec import Struct

from colo_common.events.enforcement import NodeRecovered, PlacementRefused, ReplicaEnded, ReplicaStarted
from colo_common.events.fact import Fact
from colo_common.events.job import MidPlacementsRequested, PlacementsRequested, ReplicasChanged, ReplicasWithdrawn
from colo_common.events.node import FreshnessChanged
from colo_common.events.placement import PlacementsDecided
from colo_common.model.freshness import Freshness
from tests.audit.findings import Finding
from tests.audit.recording import Emptied, Received, Record, StoredAtEnd

__all__ = ["DOUBLED", "Attempts"]

DOUBLED = "no replica runs twice at a time, but where its node was lost"

Attempt = tuple[str, int]


class _Run(Struct, frozen=True, kw_only=True):
    node: str
    where: str
    at_us: int


class Attempts:
    """Follows every attempt from its request to its end.

    Two attempts of a replica may run at a time only when the first one's node was lost after it had been placed there: the control
    plane gives a silent node up after a stated time. What runs there, or is started by an order that was under way, is stopped when
    the node is heard again; each such overlap is counted as excused.
    """

    def __init__(self) -> None:
        self._requested: dict[Attempt, str] = {}
        self._placed: dict[Attempt, _Run] = {}
        self._starts: list[tuple[Attempt, _Run]] = []
        self._running: dict[str, dict[int, _Run]] = {}
        self._over: dict[Attempt, str] = {}
        self._lost_us: dict[str, int] = {}
        self._emptied, self._drained = False, False
        self._once = Finding(invariant="an attempt is placed on one node")
        self._there = Finding(invariant="an attempt starts on the node that its placement names")
        self._order = Finding(invariant="a later attempt is placed only after the earlier one was over")
        self._doubled = Finding(invariant=DOUBLED)
        self._answered = Finding(invariant="a requested attempt was placed, withdrawn or ended")
        self._left = Finding(invariant="nothing runs after the drain")
        self.findings = (self._once, self._there, self._order, self._doubled, self._answered, self._left)

    def take(self, record: Record, fact: Fact | None) -> None:
        """The next record."""
        if isinstance(record, Emptied):
            self._emptied = True
        elif isinstance(record, StoredAtEnd):
            self._drained = True
        elif isinstance(record, Received) and fact is not None:
            self._hear(record, fact)

    def _hear(self, record: Received, fact: Fact) -> None:
        match fact:
            case PlacementsRequested() | MidPlacementsRequested():
                for request in fact.placement_requests:
                    self._requested.setdefault((request.replica, request.attempt), record.where)
            case PlacementsDecided():
                for placement in fact.placements:
                    attempt = placement.replica, placement.attempt
                    self._place(attempt, _Run(node=placement.node, where=record.where, at_us=record.at_us))
            case ReplicaStarted():
                attempt = fact.replica, fact.attempt
                self._start(attempt, _Run(node=fact.node, where=record.where, at_us=record.at_us))
            case ReplicaEnded() | PlacementRefused():
                self._stop((fact.replica, fact.attempt), record.where)
            case ReplicasWithdrawn():
                for attempt in fact.attempts:
                    self._over.setdefault(attempt, record.where)
            case ReplicasChanged():
                for change in fact.changes:
                    # A replica that waits again has left its earlier attempt.
                    before = change.attempt - 1 if change.state == "Pending" else change.attempt
                    if change.state in ("Pending", "Backoff"):
                        self._over.setdefault((change.replica, before), record.where)
            case NodeRecovered():
                self._recover(fact.node, frozenset(fact.running), record.where)
            case FreshnessChanged() if fact.freshness is Freshness.LOST:
                self._lost_us[fact.node] = record.at_us
            case _:
                # No rule of this file is about the other facts.
                pass

    def end(self) -> None:
        """What can only be judged when everything was heard."""
        for attempt, run in self._starts:
            placed = self._placed.get(attempt)
            if placed is None and self._emptied:
                self._there.unknown += 1
                continue
            self._there.checked += 1
            if placed is None:
                self._there.broken(
                    _named(attempt), f"started on {run.node}, and no placement was published", (run.where,)
                )
            elif placed.node != run.node:
                seen = f"placed on {placed.node}, started on {run.node}"
                self._there.broken(_named(attempt), seen, (placed.where, run.where))
        if not self._drained:
            return
        for attempt, where in self._requested.items():
            self._answered.checked += 1
            if attempt not in self._placed and attempt not in self._over and not self._is_superseded(attempt):
                if self._emptied:
                    self._answered.unknown += 1
                else:
                    self._answered.broken(_named(attempt), "neither placed nor withdrawn nor ended", (where,))
        self._left.checked += len(self._starts)
        for replica, runs in sorted(self._running.items()):
            for number, run in sorted(runs.items()):
                self._left.broken(_named((replica, number)), f"still runs on {run.node}", (run.where,))

    def _is_superseded(self, attempt: Attempt) -> bool:
        return (attempt[0], attempt[1] + 1) in self._placed

    def _place(self, attempt: Attempt, run: _Run) -> None:
        self._once.checked += 1
        before = self._placed.setdefault(attempt, run)
        if before.node != run.node:
            seen = f"placed on {before.node} and on {run.node}"
            self._once.broken(_named(attempt), seen, (before.where, run.where))
        if attempt[1] == 1 or before is not run:
            return
        earlier = attempt[0], attempt[1] - 1
        if earlier not in self._over and self._emptied:
            self._order.unknown += 1
            return
        self._order.checked += 1
        if earlier not in self._over:
            evidence = [run.where] + ([self._placed[earlier].where] if earlier in self._placed else [])
            self._order.broken(_named(attempt), f"attempt {earlier[1]} was not over", evidence)

    def _start(self, attempt: Attempt, run: _Run) -> None:
        replica, number = attempt
        self._starts.append((attempt, run))
        self._doubled.checked += 1
        runs = self._running.setdefault(replica, {})
        for other, earlier in runs.items():
            since_us = self._placed.get((replica, other), earlier).at_us
            if other != number and self._lost_us.get(earlier.node, 0) > since_us:
                self._doubled.excused += 1
            else:
                seen = f"attempt {other} runs on {earlier.node}, attempt {number} starts on {run.node}"
                self._doubled.broken(replica, seen, (earlier.where, run.where))
        runs[number] = run

    def _stop(self, attempt: Attempt, where: str) -> None:
        self._over.setdefault(attempt, where)
        self._running.get(attempt[0], {}).pop(attempt[1], None)

    def _recover(self, node: str, running: frozenset[Attempt], where: str) -> None:
        """What an executor that starts does not find is gone: its machine was switched off."""
        for replica, runs in self._running.items():
            for number in [number for number, run in runs.items() if run.node == node]:
                if (replica, number) not in running:
                    del runs[number]
                    self._over.setdefault((replica, number), where)


def _named(attempt: Attempt) -> str:
    return f"{attempt[0]}#{attempt[1]}"
