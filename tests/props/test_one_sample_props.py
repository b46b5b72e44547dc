"""Every number comes from one sample, whatever comes in which order: late copies, restarted collectors, holds, policies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colo_common.events.effects import Publish, Wake
from colo_common.events.node import AllocatableChanged, LeaseRenewed, NodeUsageSampled
from colo_common.events.policy import PolicyChanged
from colo_common.model.colocation_policy import ColocationPolicy, PolicyValues
from colo_common.model.freshness import FreshnessPolicy
from colo_common.model.invalid import InvalidInput
from colo_overcommit.core import Event, OvercommitCore
from colo_overcommit.explain import recompute
from colo_overcommit.explained_values import values_by_zone
from colo_overcommit.policy import OvercommitPolicy
from tests.support.builders import a_batch_workload, a_node, a_placement, a_sample, decided

_WARM_AT_ONCE = FreshnessPolicy(stale_after_ms=10_000, lost_after_ms=60_000, warm_samples=1)

# What a step does, a number that says which one, and how many ms pass before it.
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ("sample", "sample", "sample", "again", "restart", "place", "policy", "topology", "zones", "wake")
        ),
        st.integers(0, 7),
        st.integers(0, 15_000),
    ),
    min_size=3,
    max_size=25,
)


def a_marked_sample(seq: int, boot: int, kind: int, at_ms: int) -> NodeUsageSampled:
    """A sample whose every number is that of no other one: the use of each zone and of batch work tells its sequence."""
    mark = boot * 1_000 + seq
    zones = ((2_000 * kind + mark, 8), (1_000 * kind + 2 * mark, 8))
    batch = a_batch_workload("j/main/0", mcpu=kind * 100 + mark, gib=1)
    return a_sample(seq=seq, zones=zones, workloads=(batch,), boot_id=f"b{boot}", at_ms=at_ms)


@given(steps)
def test_a_number_is_that_of_the_one_sample_that_it_names(moves: list[tuple[str, int, int]]) -> None:
    core = OvercommitCore(OvercommitPolicy(freshness=_WARM_AT_ONCE, grow_hold_ms=0))
    core.handle(a_node(), 0)
    taken: dict[tuple[int, int], NodeUsageSampled] = {}
    boot, seq, now_ms = 0, 0, 0
    newest: NodeUsageSampled | None = None
    for number, (what, kind, later_ms) in enumerate(moves, start=1):
        now_ms += later_ms
        event: Event
        match what:
            case "again" if newest is not None:
                # A copy, or one that was overtaken by newer ones.
                event = taken[boot, max(seq - kind, min(each for of, each in taken if of == boot))]
            case "restart":
                boot, seq = boot + 1, 1
                event = a_marked_sample(seq, boot, kind, now_ms)
            case "place":
                event = decided(a_placement(f"j/main/{number}", mcpu=1_000 * kind + 1, zone=kind % 2))
            case "policy":
                values = PolicyValues(cpu_reclaim_pct=50 + 5 * kind)
                event = PolicyChanged(revision=number, policy=ColocationPolicy(defaults=values))
            case "topology":
                event = a_node()
            case "zones":
                # Of a machine that this node is not: refused, and nothing of it counts.
                event = a_sample(seq=seq + 1, zones=((9_999, 8),), boot_id=f"b{boot}", at_ms=now_ms)
            case "wake":
                event = Wake()
            case _:
                seq += 1
                event = a_marked_sample(seq, boot, kind, now_ms)
        is_new = (
            isinstance(event, NodeUsageSampled)
            and what in ("sample", "restart", "again")
            and (newest is None or event.boot_id != newest.boot_id or event.sample_seq > newest.sample_seq)
        )
        try:
            effects = core.handle(event, now_ms)
        except InvalidInput:
            assert what == "zones"
            continue
        if is_new and isinstance(event, NodeUsageSampled):
            newest = event
            taken[boot, event.sample_seq] = event
        for effect in effects:
            fact = effect.fact if isinstance(effect, Publish) else None
            if isinstance(fact, AllocatableChanged):
                assert newest is not None
                assert_of_one_sample(fact, newest)
            if isinstance(fact, LeaseRenewed):
                assert newest is not None
                assert fact.sample_seq == newest.sample_seq


def assert_of_one_sample(fact: AllocatableChanged, sample: NodeUsageSampled) -> None:
    """Names, times and every measured term are those of the sample, and the number follows from them."""
    assert (fact.sample_seq, fact.sampled_at_ms) == (sample.sample_seq, sample.at_ms)
    assert fact.load is not None
    assert fact.load.cpu_used_mcpu == sample.cpu_used_mcpu
    (batch,) = sample.workloads
    for zone, used in zip(sample.zones, values_by_zone(fact.explanation).values(), strict=True):
        own = batch.cpu_used_mcpu if zone.zone in batch.zones else 0
        assert used["cpu_online_used"] == max(zone.cpu_used_mcpu - own, 0)
        assert used["memory_online_used"] == zone.memory_used_bytes - (batch.memory_used_bytes if own else 0)
    assert {term.sample_seq for term in fact.explanation.terms} <= {None, sample.sample_seq}
    assert recompute(fact.explanation) == fact.zones
    assert fact.batch_cpu_mcpu == sum(zone.batch_cpu_mcpu for zone in fact.zones)
