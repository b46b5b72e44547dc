"""The rules of evictions: one victim of a node at a time, its cool-down, and the budget of the cluster."""

from __future__ import annotations

from collections import deque
from typing import Final

from colo_common.events.eviction import EvictionFinished, EvictionRequested
from colo_common.events.fact import Fact
from tests.audit.findings import Finding
from tests.audit.recording import Emptied, Received, Record

__all__ = ["Evictions"]

_WINDOW_MS: Final = 60_000


class Evictions:
    """Times are compared by the publisher's clock and by the server's: a rule is broken when both say so.

    A message that waited for the bus is stored late, and a clock that was stepped tells another distance; neither is a violation.
    """

    def __init__(self) -> None:
        self._in_flight: dict[str, tuple[EvictionRequested, str]] = {}
        self._last: dict[str, tuple[EvictionRequested, Received]] = {}
        self._window: deque[tuple[int, int, str]] = deque()
        self._ids: set[str] = set()
        self._one = Finding(invariant="a node has one victim at a time")
        self._cool = Finding(invariant="a node has its cool-down after an eviction")
        self._budget = Finding(invariant="the cluster evicts within its budget of a minute")
        self.findings = (self._one, self._cool, self._budget)

    def take(self, record: Record, fact: Fact | None) -> None:
        """The next record."""
        if isinstance(record, Emptied):
            self._in_flight.clear()
        elif isinstance(record, Received) and isinstance(fact, EvictionRequested):
            if fact.eviction not in self._ids:
                self._ids.add(fact.eviction)
                self._requested(record, fact)
        elif isinstance(record, Received) and isinstance(fact, EvictionFinished):
            known = self._in_flight.get(fact.node)
            if known is not None and known[0].eviction == fact.eviction:
                del self._in_flight[fact.node]

    def end(self) -> None:
        """Nothing is left to judge."""

    def _requested(self, record: Received, fact: EvictionRequested) -> None:
        self._one.checked += 1
        in_flight = self._in_flight.get(fact.node)
        if in_flight is not None:
            seen = f"{fact.replica} must leave while {in_flight[0].replica} does"
            self._one.broken(fact.node, seen, (in_flight[1], record.where))
        self._in_flight[fact.node] = fact, record.where
        self._cooled(record, fact)
        self._last[fact.node] = fact, record
        self._budget.checked += 1
        self._window.append((fact.at_ms, record.at_us // 1_000, record.where))
        while self._window and record.at_us // 1_000 - self._window[0][1] >= _WINDOW_MS:
            self._window.popleft()
        recent = [where for at_ms, _, where in self._window if fact.at_ms - at_ms < _WINDOW_MS]
        if fact.evictions_allowed and len(recent) > fact.evictions_allowed:
            seen = f"{len(recent)} in a minute, {fact.evictions_allowed} allowed"
            self._budget.broken(fact.node, seen, (recent[0], record.where))

    def _cooled(self, record: Received, fact: EvictionRequested) -> None:
        known = self._last.get(fact.node)
        if known is None:
            return
        last, earlier = known
        self._cool.checked += 1
        waited_ms = max(fact.at_ms - last.at_ms, (record.at_us - earlier.at_us) // 1_000)
        if waited_ms < last.cool_ms:
            seen = f"{waited_ms} ms after {last.eviction}, whose cool-down is {last.cool_ms} ms"
            self._cool.broken(fact.node, seen, (earlier.where, record.where))
