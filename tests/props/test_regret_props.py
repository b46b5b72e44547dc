"""How far from the optimum a scheduler can be that decides one request after the other: never further than is stated.

Stated in tests/evidence/optimum.py: equal replicas on machines of equal zones are placed as many as fit at all; of unequal ones at
least `least_placed`. Both whatever the weights.
"""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from colo_scheduler.policy import ScorerWeights
from tests.bench.openb import MIB
from tests.evidence.fleets import Fleet, Machine
from tests.evidence.mix import Ask
from tests.evidence.optimum import least_placed, most_placed
from tests.evidence.placers import COLO_WEIGHTS, ByColo
from tests.evidence.regret import NODES_MOST, REPLICAS, place_all

machines = st.builds(
    Machine,
    st.integers(1, 2),
    st.integers(1, 2),
    st.sampled_from([2_000, 4_000, 7_000]),
    st.sampled_from([2, 4, 7]).map(lambda gib: gib * 1_024 * MIB),
)
fleets = st.lists(machines, min_size=1, max_size=NODES_MOST).map(lambda found: Fleet("", tuple(found)))
asks = st.builds(
    Ask,
    st.one_of(st.integers(300, 9_000), st.sampled_from([500, 1_000, 3_000])),
    st.integers(100, 9_000).map(lambda m: m * MIB),
)
weights = st.one_of(
    st.sampled_from(sorted(COLO_WEIGHTS)).map(COLO_WEIGHTS.__getitem__),
    st.builds(
        ScorerWeights,
        fewest_zones=st.integers(1, 20),
        most_free=st.integers(0, 5),
        most_allocated=st.integers(0, 20),
        least_allocated=st.integers(0, 20),
        balanced_allocation=st.integers(0, 20),
        binpack=st.integers(0, 20),
    ),
)


@given(fleets, asks, st.integers(1, REPLICAS), weights)
def test_of_equal_replicas_as_many_are_placed_as_fit_at_all(
    fleet: Fleet, ask: Ask, count: int, chosen: ScorerWeights
) -> None:
    wanted = (ask,) * count
    most = most_placed(fleet.machines, wanted)
    assert place_all(ByColo(fleet, chosen), wanted) == most
    # The bound is for requests that some machine could hold.
    assert most == 0 or least_placed(fleet.machines, wanted) == most


@given(fleets, st.lists(asks, min_size=1, max_size=REPLICAS), weights)
def test_of_unequal_replicas_no_fewer_are_placed_than_the_bound_says(
    fleet: Fleet, wanted: list[Ask], chosen: ScorerWeights
) -> None:
    fitting = tuple(ask for ask in wanted if fleet.holds(ask))
    placed = place_all(ByColo(fleet, chosen), fitting)
    assert least_placed(fleet.machines, fitting) <= placed <= most_placed(fleet.machines, fitting)


@given(st.lists(machines, min_size=1, max_size=3), st.lists(asks, max_size=5))
def test_the_optimum_is_what_trying_every_assignment_finds(found: list[Machine], wanted: list[Ask]) -> None:
    best = 0
    for places in product(range(-1, len(found)), repeat=len(wanted)):
        free = [[machine.cpu_mcpu, machine.memory_bytes] for machine in found]
        for ask, place in zip(wanted, places, strict=True):
            if place >= 0:
                free[place][0] -= ask.cpu_mcpu
                free[place][1] -= ask.memory_bytes
        if all(cpu >= 0 and memory >= 0 for cpu, memory in free):
            best = max(best, sum(place >= 0 for place in places))
    assert most_placed(found, wanted) == best
