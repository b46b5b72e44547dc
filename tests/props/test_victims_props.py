"""Who would have to leave, and what is known of holds by importance: the same as looking at everything afresh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.events.job import PlacementRequest, PlacementsRequested, ReplicasWithdrawn
from colo_common.model.invalid import InvariantBroken
from colo_common.model.placement import Attempt, Placement, ZoneShare
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_scheduler.cluster.cluster import View
from colo_scheduler.cluster.pool import LEVELS_MOST, Importance, PreemptibleIndex, pool_of
from colo_scheduler.placement.filters import judge
from colo_scheduler.placement.fit import NodeFit, fit_node_exactly
from colo_scheduler.preemption.search import Victims, VictimSearch, importance, take_place_of, victims_on
from colo_scheduler.requests.request_class import RequestClass, class_of
from tests.props.test_place_props import RULES, Machine, a_machine, batch, online
from tests.support.builders import GIB, a_node
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable

ROWS = 5
amounts = st.tuples(st.integers(1, 9) | st.just(0), st.integers(0, 9))
holds = st.lists(
    st.tuples(st.integers(0, ROWS - 1), st.tuples(st.integers(0, 3), st.integers(-4, 40)), amounts), max_size=120
)


def shares_of(cpu_mcpu: int, memory_bytes: int) -> tuple[ZoneShare, ...]:
    return (ZoneShare(zone=0, cpu_mcpu=cpu_mcpu, memory_bytes=memory_bytes),)


@given(holds, st.data())
def test_levels_are_what_is_held_and_nobody_is_in_one_above_its_importance(
    taken: list[tuple[int, Importance, tuple[int, int]]], data: st.DataObject
) -> None:
    levels = PreemptibleIndex(ROWS)
    held: list[tuple[int, Importance, tuple[ZoneShare, ...]]] = []
    for row, one, size in taken:
        levels.hold(row, one, shares_of(*size))
        held.append((row, one, shares_of(*size)))
        if len(held) > 20 and data.draw(st.booleans()):
            deleted = held.pop(data.draw(st.integers(0, len(held) - 1)))
            levels.drop(*deleted)
        levels.check(held)
        below = levels.below((9, 0))
        assert len(below) <= LEVELS_MOST
        assert [level.least for level in below] == sorted(level.least for level in below)
        assert (sum(level.holds for level in below)) == len(held)
        # Up to a level there is at least what those of no more importance hold.
        for number, level in enumerate(below):
            for row in range(ROWS):
                so_far = sum(int(each.cpu[row]) for each in below[: number + 1])
                assert so_far >= sum(s[0].cpu_mcpu for r, i, s in held if r == row and i <= level.least)
    levels.fork().check(held)
    for each in held:
        levels.drop(*each)
    assert levels.below((9, 0)) == ()
    with pytest.raises(InvariantBroken):
        levels.drop(0, (0, 0), shares_of(1, 1))


def test_rows_grow_with_their_levels() -> None:
    levels = PreemptibleIndex(2)
    levels.hold(1, (2, 0), shares_of(5, 7))
    levels.resize(9)
    levels.hold(8, (2, 0), shares_of(1, 1))
    levels.check([(1, (2, 0), shares_of(5, 7)), (8, (2, 0), shares_of(1, 1))])


# ---- the search, and a look at every node that really takes everybody away and lets them come back


def fits(view: View, request: RequestClass, row: int) -> bool:
    """Whether all filters and a closer look let the request onto the node of a trial view."""
    if row not in judge(view, request).rows.tolist():
        return False
    return not view.needs_search(request) or isinstance(fit_node_exactly(view, row, request), NodeFit)


def looked_at_all(bench: Bench, request: RequestClass, placements: Mapping[Attempt, Placement]) -> list[Attempt] | None:
    """Who has to leave by the words of the module: for every node its own trial of the whole cluster."""
    best: tuple[object, list[Attempt]] | None = None
    own = (request.band.rank, request.priority)
    for node in bench.core.cluster.nodes:
        view = bench.core.cluster.trial(bench.now_ms)
        lesser = [
            p
            for p in placements.values()
            if p.node == node.name and importance(p) < own and pool_of(p.band) is pool_of(request.band)
        ]
        if fits(view, request, node.row):
            continue
        holdings = dict(inventory.holdings) if (inventory := view.inventory_index.of(node.row)) else {}
        name = pool_of(request.band)
        for p in lesser:
            view.leave(name, node.row, p.zones, (p.replica, p.attempt))
        if not fits(view, request, node.row):
            continue
        leaving = []
        for p in sorted(lesser, key=lambda p: (importance(p), p.cpu_mcpu, p.memory_bytes, p.replica), reverse=True):
            attempt = (p.replica, p.attempt)
            view.take(name, node.row, p.zones, attempt, holdings.get(attempt), is_choice=False)
            if not fits(view, request, node.row):
                view.leave(name, node.row, p.zones, attempt)
                leaving.append(p)
        if not leaving:
            continue
        rank = int(view.facts.rank[node.row])
        order = (importance(leaving[0]), len(leaving), sum(p.priority for p in leaving), rank)
        if best is None or order < best[0]:
            best = (order, [(p.replica, p.attempt) for p in reversed(leaving)])
    return None if best is None else best[1]


def searched(view: View, request: RequestClass, placements: Mapping[Attempt, Placement], budget: int) -> Victims | None:
    search = VictimSearch(view, request, placements)
    for _ in range(10_000):
        if search.is_done:
            return search.found
        assert search.step(view, budget) > 0
    raise AssertionError("it does not end")


rules = st.sampled_from([number for number, each in enumerate(RULES) if each.batch_replicas_most is None])
fleets = st.lists(
    st.builds(
        lambda shape, devices, pages, rule: a_machine(*shape, devices, pages, rule),
        st.sampled_from([(1, 1), (2, 1), (2, 2), (4, 2)]),
        st.integers(0, 3),
        st.sampled_from([0, 4]),
        rules,
    ),
    min_size=1,
    max_size=3,
)
plain = st.builds(
    lambda mcpu, gib, band: (QosClass.BE, band, mcpu, gib),
    st.sampled_from([250, 500, 1000, 1500, 3000]),
    st.integers(1, 4),
    st.sampled_from([PriorityBand.BATCH, PriorityBand.BATCH, PriorityBand.MID, PriorityBand.FREE]),
)
works = st.one_of(batch.map(lambda w: (*w[:3], 1, w[3])), online.map(lambda w: (*w[:3], 1, w[3])), plain)


def placement_request_of(replica: str, work: tuple[Any, ...], priority: int) -> PlacementRequest:
    qos, band, mcpu, gib, *place = work
    more = {"constraints": place[0]} if place else {}
    return a_placement_request(
        replica, mcpu=mcpu, memory_bytes=gib * GIB, qos=qos, band=band, priority=priority, **more
    )


def a_full_fleet(fleet: list[Machine], wanted: list[tuple[Any, int]], deleted: set[int]) -> Bench:
    """A core that placed of these wants what found a place, and of which some ended since."""
    bench = Bench()
    for number, machine in enumerate(fleet):
        bench.tell(a_node(f"n{number}", machine.topology, is_online=True, rules=machine.rules))
        zones = len(machine.topology.zones)
        bench.tell(an_allocatable(f"n{number}", [(2500, 5 * GIB)] * zones, mid=[(1500, 3 * GIB)] * zones))
    for at in range(0, len(wanted), 5):
        numbered = list(enumerate(wanted))[at : at + 5]
        bench.say(
            PlacementsRequested(
                placement_requests=tuple(
                    placement_request_of(f"j{n}/t/0", work, priority) for n, (work, priority) in numbered
                )
            )
        )
    bench.say(ReplicasWithdrawn(attempts=tuple((f"j{n}/t/0", 1) for n in sorted(deleted)), reason=Reason.CANCELLED))
    return bench


@given(
    fleets,
    st.lists(st.tuples(works, st.integers(0, 20)), min_size=20, max_size=40),
    st.sets(st.integers(0, 60), max_size=3),
    st.lists(st.tuples(works, st.sampled_from([10, 21, 21]), st.sampled_from([1, 7, 1_000])), min_size=6, max_size=6),
)
def test_a_search_finds_whom_a_look_at_every_node_finds(
    fleet: list[Machine], wanted: list[tuple[Any, int]], deleted: set[int], coming: list[tuple[Any, int, int]]
) -> None:
    bench = a_full_fleet(fleet, wanted, deleted)
    placements = {attempt: held.placement for attempt, held in bench.core.commits.held.items()}
    for work, priority, budget in coming:
        request = class_of(placement_request_of("new/t/0", work, priority))
        expected = looked_at_all(bench, request, placements)
        view = bench.core.cluster.view(bench.now_ms)
        found = searched(view, request, placements, budget)
        leaving = None if found is None else [(p.replica, p.attempt) for p in found.leaving]
        assert leaving == expected
        if found is not None:
            assert victims_on(view, request, placements, found.row) == found
            assert take_place_of(bench.core.cluster.trial(bench.now_ms), request, found, ("", 0))
    bench.core.check()
