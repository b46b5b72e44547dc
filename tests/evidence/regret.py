"""How far from the best that could be: small clusters, each request decided before the next is known, against trying everything."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, NamedTuple

from tests.bench.openb import MIB
from tests.evidence.fleets import Fleet, Machine
from tests.evidence.mix import Ask, Mix
from tests.evidence.optimum import least_placed, most_placed
from tests.evidence.placers import Placer

__all__ = ["NODES_MOST", "REPLICAS", "Regret", "Small", "place_all", "regrets", "small_clusters"]

NODES_MOST: Final = 6
REPLICAS: Final = 8
#: The three smallest machines of the openb trace, so that eight of its requests are sometimes too many.
_SIZES: Final = (
    Machine(2, 1, 4_000, 16_384 * MIB),
    Machine(2, 1, 8_000, 61_440 * MIB),
    Machine(2, 1, 16_000, 65_536 * MIB),
)


class Small(NamedTuple):
    """A small cluster, what is asked of it in this order, how many of them fit at most, and how many are certain to be placed."""

    fleet: Fleet
    asks: tuple[Ask, ...]
    most: int
    least: int


class Regret(NamedTuple):
    """Of some small clusters: replicas placed, how many clusters took as many as possible, and the most that one missed."""

    placed: int
    at_optimum: int
    worst: int


def small_clusters(mix: Mix, seed: int, count: int) -> list[Small]:
    """Clusters of 2 to 6 machines, each asked for 8 replicas of the mix that one of its machines could hold."""
    rng = random.Random(f"small {seed}")
    found = []
    for number in range(count):
        machines = tuple(rng.choice(_SIZES) for _ in range(rng.randint(2, NODES_MOST)))
        fleet = Fleet(f"small {number}", machines)
        fitting = mix.without([ask for ask, _ in mix.classes if not fleet.holds(ask)])._replace(order=())
        if not fitting.classes:
            continue
        asks = tuple(islice(fitting.asks(rng.randrange(1 << 32)), REPLICAS))
        found.append(Small(fleet, asks, most_placed(machines, asks), least_placed(machines, asks)))
    return found


def place_all(placer: Placer, asks: tuple[Ask, ...]) -> int:
    """How many of the requests found a place, one after the other."""
    return sum(placer.place(number, ask) is not None for number, ask in enumerate(asks))


def regrets(smalls: list[Small], placers: Mapping[str, Callable[[Fleet], Placer]]) -> dict[str, Regret]:
    """The regret of each placer."""
    found = {}
    for name, placer_of in placers.items():
        missed = [small.most - place_all(placer_of(small.fleet), small.asks) for small in smalls]
        placed = sum(small.most for small in smalls) - sum(missed)
        found[name] = Regret(placed, missed.count(0), max(missed, default=0))
    return found
