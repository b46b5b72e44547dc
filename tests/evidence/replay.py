"""Offers a mix to a scheduler, one request after the other, and measures what came of it."""

from __future__ import annotations

import heapq
import math
import random
from typing import Final, NamedTuple

from tests.evidence.fleets import Fleet
from tests.evidence.measures import Book, Fragments, Scatter, pct
from tests.evidence.mix import Ask, Mix
from tests.evidence.placers import Placer, Spot

__all__ = ["Saturated", "Steady", "saturate", "steady"]

_OFFERED_PCT: Final = 130
_HALF_PCT: Final = 50
_LOAD_PCT: Final = 90
_LIVES: Final = 2


class Held(NamedTuple):
    """What is held of the fleet at a moment, in per cent."""

    cpu_pct: float
    memory_pct: float


class Saturated(NamedTuple):
    """Offered until 130 % of the fleet's CPU was asked for, each request once, nothing ends.

    `at_first`, `at_one_pct`: what was held when the first request was refused, and when as many were as are one per cent of those
    that ask for all of the CPU (None: it never came to that). `half_nodes`: used when half of the CPU was asked for.
    `decision_us`: CPU time of a decision.
    """

    offered: int
    placed: int
    at_first: Held | None
    at_one_pct: Held | None
    at_end: Held
    half_nodes: int
    half_scatter: Scatter
    scatter: Scatter
    fragments: Fragments
    decision_us: float


class Steady(NamedTuple):
    """Replicas come and end; 90 % of the CPU is asked for on average. Counted over two mean lives, beginning with a full fleet."""

    offered: int
    placed: int
    held_cpu_pct: float
    nodes_used: float
    scatter: Scatter


def saturate(fleet: Fleet, mix: Mix, placer: Placer, seed: int) -> Saturated:
    """Fill a fleet. The mix must hold only what some machine can take."""
    book = Book(fleet)
    offered = placed = offered_mcpu = half_nodes = 0
    half_scatter = Scatter()
    at_first = at_one_pct = None
    asks = _until(_OFFERED_PCT, fleet, mix, seed)
    one_pct = math.ceil(len(_until(100, fleet, mix, seed)) / 100)
    for ask in asks:
        spot = placer.place(offered, ask)
        offered += 1
        offered_mcpu += ask.cpu_mcpu
        if spot is not None:
            book.place(ask, spot)
            placed += 1
        elif at_first is None:
            at_first = Held(book.cpu_pct, book.memory_pct)
        if at_one_pct is None and offered - placed >= one_pct:
            at_one_pct = Held(book.cpu_pct, book.memory_pct)
        if not half_nodes and pct(offered_mcpu, fleet.cpu_mcpu) >= _HALF_PCT:
            half_nodes, half_scatter = book.nodes_used, book.scatter
    return Saturated(
        offered,
        placed,
        at_first,
        at_one_pct,
        Held(book.cpu_pct, book.memory_pct),
        half_nodes,
        half_scatter,
        book.scatter,
        book.fragments(mix.classes),
        1e6 * placer.seconds / offered,
    )


def _until(offered_pct: int, fleet: Fleet, mix: Mix, seed: int) -> list[Ask]:
    """The first requests that together ask for so many per cent of the CPU."""
    asks: list[Ask] = []
    offered_mcpu = 0
    for ask in mix.asks(seed):
        if 100 * offered_mcpu >= offered_pct * fleet.cpu_mcpu:
            break
        asks.append(ask)
        offered_mcpu += ask.cpu_mcpu
    return asks


def steady(fleet: Fleet, mix: Mix, placer: Placer, seed: int) -> Steady:
    """Run a fleet whose replicas end: each lives for a number of arrivals, exponentially distributed, alike for all placers."""
    book = Book(fleet)
    mean_life = max(1, fleet.cpu_mcpu * _LOAD_PCT // (100 * mix.mean_mcpu))
    rng = random.Random(f"lives {seed}")
    asks = mix.asks(seed)
    ends: list[tuple[int, int, Spot]] = []
    placed, nodes, held, before = 0, 0, 0.0, Scatter()
    for number in range((1 + _LIVES) * mean_life):
        # The first ones are there at the start: what is left of an exponential life is as long as a whole one.
        now = max(0, number - mean_life)
        if number == mean_life:
            before, placed = book.scatter, 0
        while ends and ends[0][0] <= now:
            _, ended, spot = heapq.heappop(ends)
            placer.end(ended, spot)
            book.end(spot)
        ask, until = next(asks), now + math.ceil(rng.expovariate(1 / mean_life))
        found = placer.place(number, ask)
        if found is not None:
            book.place(ask, found)
            heapq.heappush(ends, (until, number, found))
            placed += 1
        if number >= mean_life:
            nodes += book.nodes_used
            held += book.cpu_pct
    counted = _LIVES * mean_life
    return Steady(counted, placed, held / counted, nodes / counted, book.scatter.less(before))
