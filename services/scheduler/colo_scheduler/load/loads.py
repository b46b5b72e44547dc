"""The load of all nodes: the newest report of each, and the work placed since that no report shows yet.

A report comes with `AllocatableChanged`. Work placed before the interval of its sample is in the sample; work placed later counts
with its expected use. Rows are written when they are read.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from colo_common.events.node import AllocatableChanged, LoadSummary, LoadWindow
from colo_common.model.placement import Attempt, ZoneShare
from colo_common.model.qos import PriorityBand
from colo_common.model.resource_list import CPU, MEMORY, ResourceList
from colo_common.model.topology import NodeTopology
from colo_scheduler.load.rows import (
    FIRST_RESOURCE,
    BoolArray,
    LoadArrays,
    LoadTable,
    kept_rows,
    loads_passing,
    newcomers_in_row,
    overloads_of_rows,
    score_in_row,
    scores_of_rows,
)
from colo_scheduler.load.rules import LoadRules
from colo_scheduler.load.usage import (
    Aggregate,
    LoadPolicy,
    NodeLoad,
    Sums,
    WorkloadRequest,
    add,
    estimate_of,
    resource_of,
)
from colo_scheduler.numa.zones import IntArray
from colo_scheduler.requests.request_class import RequestClass

__all__ = ["Loads", "load_of_summary"]

_ESTIMATES_MAX = 10_000


class _Newcomer(NamedTuple):
    """A hold since `at_ms` and its expected use: an entry for each column of the table."""

    at_ms: int
    is_prod: bool
    cpu_mcpu: int
    memory_bytes: int


class _OneLater(NamedTuple):
    """The rows at `now_ms`, and the addition of one newcomer."""

    rows: LoadArrays
    estimate: IntArray
    band: PriorityBand
    policy: LoadPolicy
    now_ms: int

    def score(self, at: int, more: int) -> int:
        return score_in_row(self.rows, at, self.estimate * (more + 1), self.band, self.policy, self.now_ms)


class Loads:
    """`judges(is_prod)`: a threshold is set for such work. `is_received`: a report with usage was received."""

    def __init__(self, rules: LoadRules) -> None:
        self._rules = rules
        self.policy = rules.policy()
        self._table = LoadTable(self.policy)
        self._reports: dict[int, tuple[LoadSummary, int]] = {}
        self._capacity: dict[int, ResourceList] = {}
        self._new: dict[int, dict[Attempt, _Newcomer]] = {}
        self._dirty: set[int] = set()
        self._estimates: dict[tuple[bool, int, int], tuple[dict[str, int], IntArray]] = {}
        self._own: set[int] | None = None
        self._judges = tuple(any(self.policy.thresholds_of(is_prod=is_prod)[0].values()) for is_prod in (False, True))

    @property
    def is_received(self) -> bool:
        """Whether there is anything to judge by."""
        return bool(self._reports)

    def judges(self, *, is_prod: bool) -> bool:
        """Whether a threshold may refuse nodes for prod work, or for other work."""
        return bool(self._reports) and self._judges[is_prod]

    def fork(self) -> "Loads":
        """An independent copy, for a trial."""
        other = Loads(self._rules)
        self._sync()
        other._table = self._table.fork()
        other._reports, other._capacity, other._new = self._reports, self._capacity, dict(self._new)
        other._own = set()
        return other

    # ---- changes

    def hear(self, row: int, fact: AllocatableChanged) -> None:
        """Take the usage of a node; a report without usage changes nothing."""
        if fact.load is None:
            return
        # When overcommit said it, and not the node: what it is compared with is told by this clock or one that is set as well.
        self._reports[row] = (fact.load, fact.at_ms)
        waiting = self._new.get(row)
        if waiting:
            since_ms = self._shown_ms(fact.load, fact.at_ms)
            self._new[row] = {attempt: new for attempt, new in waiting.items() if new.at_ms > since_ms}
        self._dirty.add(row)

    def know(self, row: int, topology: NodeTopology) -> None:
        """Take how large a machine is."""
        self._capacity[row] = {CPU: topology.cpu_capacity_mcpu, MEMORY: topology.memory_capacity_bytes}
        self._dirty.add(row)

    def hold(self, row: int, attempt: Attempt, shares: tuple[ZoneShare, ...], at_ms: int, *, is_prod: bool) -> None:
        """An attempt was placed; it counts until a report has had time to show it. `is_prod`: it is online work."""
        report = self._reports.get(row)
        if report is not None and at_ms <= self._shown_ms(*report):
            return
        cpu_mcpu = sum([share.cpu_mcpu for share in shares])
        memory_bytes = sum([share.memory_bytes for share in shares])
        new = _Newcomer(at_ms, is_prod, cpu_mcpu, memory_bytes)
        self._mine(row)[attempt] = new
        if row not in self._dirty:
            self._table.place_estimate(row, self._estimate(new)[1], is_prod=new.is_prod)

    def _shown_ms(self, load: LoadSummary, at_ms: int) -> int:
        """The time until which placed work is in a report of this time."""
        return at_ms - max(load.interval_ms, self._rules.settle_ms)

    def drop(self, row: int, attempt: Attempt) -> None:
        """Forget an attempt that ended. Its part of the report counts until the next report."""
        waiting = self._new.get(row)
        if not waiting or attempt not in waiting:
            return
        new = self._mine(row).pop(attempt)
        if row not in self._dirty:
            self._table.place_estimate(row, -self._estimate(new)[1], is_prod=new.is_prod)

    def _mine(self, row: int) -> dict[Attempt, _Newcomer]:
        if self._own is not None and row not in self._own:
            self._own.add(row)
            self._new[row] = dict(self._new.get(row, {}))
        return self._new.setdefault(row, {})

    def clear_row(self, row: int) -> None:
        """The node of the row is gone."""
        self._reports.pop(row, None)
        self._capacity.pop(row, None)
        self._new.pop(row, None)
        self._dirty.add(row)

    # ---- reads

    def passing(self, request: RequestClass, count: int, now_ms: int) -> BoolArray:
        """Which of the first `count` rows are not too busy for one replica: bool, shape (count,)."""
        rows = self._rows(count)
        return loads_passing(rows.rows(count), self.estimate(request), request.band, self.policy, now_ms)

    def overloads(self, request: RequestClass, count: int, now_ms: int) -> list[tuple[str, int, int] | None]:
        """For each of the first `count` rows the busy resource, its load in percent and the threshold, or None."""
        rows = self._rows(count).rows(count)
        codes, pct, most = overloads_of_rows(rows, self.estimate(request), request.band, self.policy, now_ms)
        delivered = zip(codes.tolist(), pct.tolist(), most.tolist(), strict=True)
        return [
            (rows.resources[code - FIRST_RESOURCE], have, limit) if code >= FIRST_RESOURCE else None
            for code, have, limit in delivered
        ]

    def newcomers(self, row: int, request: RequestClass, now_ms: int, most: int) -> int:
        """How many equal replicas may come until the node is too busy, at most `most`."""
        table = self._rows(row + 1)
        return newcomers_in_row(
            table.rows(row + 1), row, self.estimate(request), request.band, self.policy, now_ms, most
        )

    def score(self, row: int, request: RequestClass, now_ms: int, more: int = 0) -> int:
        """0 to 100, the less used the more, with one replica and `more` equal ones that are not held yet."""
        table = self._rows(row + 1)
        estimate = self.estimate(request) * (more + 1)
        return score_in_row(table.rows(row + 1), row, estimate, request.band, self.policy, now_ms)

    def kept(self, rows: Sequence[int], request: RequestClass, now_ms: int) -> dict[int, Callable[[int], int]]:
        """`score` of these rows by `more`, as it is now whenever it is asked for."""
        table = self._rows(max(rows, default=-1) + 1)
        kept, estimate = kept_rows(table.rows(table.size), rows), self.estimate(request)
        one = _OneLater(kept, estimate, request.band, self.policy, now_ms)
        return {row: partial(one.score, at) for at, row in enumerate(rows)}

    def scores(self, request: RequestClass, count: int, now_ms: int) -> IntArray:
        """`score` of the first `count` rows: int64, shape (count,)."""
        return scores_of_rows(self._rows(count).rows(count), self.estimate(request), request.band, self.policy, now_ms)

    def estimate(self, request: RequestClass) -> IntArray:
        """The expected use of one replica: int64, an entry for each column."""
        return self._estimate(_Newcomer(0, request.is_prod, request.cpu_mcpu, request.memory_bytes))[1]

    def _estimate(self, new: _Newcomer) -> tuple[dict[str, int], IntArray]:
        key = (new.is_prod, new.cpu_mcpu, new.memory_bytes)
        found = self._estimates.get(key)
        if found is None:
            if len(self._estimates) >= _ESTIMATES_MAX:
                self._estimates.clear()
            band = PriorityBand.PROD if new.is_prod else PriorityBand.BATCH
            asked = {CPU: new.cpu_mcpu, MEMORY: new.memory_bytes}
            requests = {resource_of(name, band): amount for name, amount in asked.items()}
            amounts = estimate_of(WorkloadRequest(band=band, requests=requests), self.policy)
            # What is left of a reservation may be nothing of something, and then nothing of it will be used.
            amounts = {name: amount if asked.get(name) else 0 for name, amount in amounts.items()}
            found = self._estimates[key] = (amounts, self._table.row_of(amounts))
        return found

    def _rows(self, count: int) -> LoadTable:
        self._sync()
        self._table.grow(count)
        return self._table

    def _sync(self) -> None:
        for row in sorted(self._dirty):
            self._write(row)
        self._dirty.clear()

    def _write(self, row: int) -> None:
        report = self._reports.get(row)
        load = None if report is None else load_of_summary(*report)
        sums = Sums({}, {}, {})
        if report is not None:
            summary = report[0]
            add(sums.prod, {CPU: summary.prod_cpu_used_mcpu, MEMORY: summary.prod_memory_used_bytes})
        for new in self._new.get(row, {}).values():
            amounts = self._estimate(new)[0]
            for part in (sums.delta, sums.full, sums.prod)[: 3 if new.is_prod else 2]:
                add(part, amounts)
        self._table.write_sums(row, load, sums, self._capacity.get(row, {}))

    def check(self, rows: range) -> list[tuple[int, str]]:
        """The rows, of these, and columns that differ from a fresh computation; they are corrected."""
        received = [row for row in rows if row in self._reports]
        for row in received:
            if row in self._dirty:
                self._dirty.discard(row)
                self._write(row)
        if not received:
            return []
        names = ("filter_used", "score_used", "prod_used")
        table = self._table.rows(self._table.size)
        kept = {name: np.array(getattr(table, name)[received]) for name in names}
        for row in received:
            self._write(row)
        return [
            (received[int(at)], name)
            for name, old in kept.items()
            for at in np.flatnonzero((getattr(table, name)[received] != old).any(1))
        ]


def load_of_summary(load: LoadSummary, updated_at_ms: int) -> NodeLoad:
    """The usage summary of a node as a report of the whole node."""
    return NodeLoad(
        updated_at_ms=updated_at_ms,
        usage={CPU: load.cpu_used_mcpu, MEMORY: load.memory_used_bytes},
        report_interval_ms=load.interval_ms,
        system_usage={CPU: load.system_cpu_used_mcpu, MEMORY: load.system_memory_used_bytes},
        aggregates=tuple(
            Aggregate(
                window_ms=window.window_ms,
                usage={
                    kind: {CPU: mcpu, MEMORY: size}
                    for kind, mcpu, size in _published_of(window)
                    if mcpu is not None and size is not None
                },
            )
            for window in load.windows
        ),
    )


def _published_of(window: LoadWindow) -> tuple[tuple[str, int | None, int | None], ...]:
    return (
        ("avg", window.cpu_avg_mcpu, window.memory_avg_bytes),
        ("p50", window.cpu_p50_mcpu, window.memory_p50_bytes),
        ("p90", window.cpu_p90_mcpu, window.memory_p90_bytes),
        ("p95", window.cpu_p95_mcpu, window.memory_p95_bytes),
        ("p99", window.cpu_p99_mcpu, window.memory_p99_bytes),
    )
