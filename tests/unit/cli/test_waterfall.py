"""The waterfall of a node's allocatable: its steps are those of the formula and sum to the published number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colo_cli.waterfall import Step, bar_of, steps_of
from colo_common.events.node import AllocatableChanged
from colo_common.model.freshness import Freshness
from colo_overcommit.allocatable import Resource, ZoneInputs, allocatable_of_zone
from colo_overcommit.explain import explain

AMOUNT = st.integers(0, 20_000)
RESOURCE = st.builds(
    Resource,
    capacity=st.integers(1, 20_000),
    reclaim_pct=st.integers(0, 100),
    reserved=AMOUNT,
    system_used=AMOUNT,
    online_used=AMOUNT,
    held=AMOUNT,
    lse_requested=AMOUNT,
    lse_used=AMOUNT,
    online_expected=AMOUNT,
    online_added=st.integers(-500, 500),
    online_reserve=AMOUNT,
    third_party=AMOUNT,
    most=st.none() | AMOUNT,
    external=st.none() | AMOUNT,
    promised=st.none() | AMOUNT,
    age_pct=st.sampled_from((100, 100, 60, 0)),
    normalization_pct=st.sampled_from((100, 100, 120, 500)),
)


def published(*zones: ZoneInputs) -> AllocatableChanged:
    numbers = tuple(allocatable_of_zone(zone) for zone in zones)
    return AllocatableChanged(
        node="n1",
        sample_seq=1,
        sampled_at_ms=1,
        freshness=Freshness.FRESH,
        batch_cpu_mcpu=sum(zone.batch_cpu_mcpu for zone in numbers),
        batch_memory_bytes=sum(zone.batch_memory_bytes for zone in numbers),
        headroom_cpu_mcpu=0,
        headroom_memory_bytes=0,
        zones=numbers,
        explanation=explain(zones),
    )


@given(st.lists(st.tuples(RESOURCE, RESOURCE), min_size=1, max_size=3))
def test_the_steps_end_at_what_is_published(resources: list[tuple[Resource, Resource]]) -> None:
    fact = published(*(ZoneInputs(zone=n, cpu=cpu, memory=memory) for n, (cpu, memory) in enumerate(resources)))
    for prefix, number in (("cpu", fact.batch_cpu_mcpu), ("memory", fact.batch_memory_bytes)):
        steps = steps_of(fact, prefix)
        assert (steps[0].name, steps[-1].name, steps[-1].left) == ("capacity", "= allocatable", number)
        assert sum(step.change for step in steps) == number
        assert all(step.change for step in steps[:-1])


def test_a_node_is_drawn_step_by_step() -> None:
    cpu = Resource(capacity=16_000, reclaim_pct=75, reserved=500, system_used=0, online_used=4_000, held=0)
    fact = published(ZoneInputs(zone=0, cpu=cpu, memory=cpu), ZoneInputs(zone=1, cpu=cpu, memory=cpu))
    steps = steps_of(fact, "cpu")
    assert steps == [
        Step("capacity", 32_000, 32_000),
        Step("- margin", -8_000, 24_000),
        Step("- system or reserved", -1_000, 23_000),
        Step("- online use", -8_000, 15_000),
        Step("= allocatable", 0, 15_000),
    ]
    assert [bar_of(step, 32_000, 16) for step in steps] == [
        "█" * 16,
        "█" * 12 + "▒" * 4,
        "█" * 11 + "▒",
        "█" * 7 + "▒" * 4,
        "█" * 7,
    ]
