"""The usage of unmanaged online work, and when it causes a publication."""

import pytest
from msgspec import structs

from colo_common.events.effects import Publish
from colo_common.events.node import AllocatableChanged, NodeUsageSampled, WorkloadUsage
from colo_common.events.placement import NodeRelease, PlacementsReleased
from colo_common.model.freshness import FreshnessPolicy
from colo_common.model.qos import PriorityBand, QosClass
from colo_overcommit.core import OvercommitCore
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.unmanaged import WINDOW_MS
from tests.support.builders import GIB, a_batch_workload, a_node, a_placement, a_sample, decided

WARM_AT_ONCE = OvercommitPolicy(
    freshness=FreshnessPolicy(stale_after_ms=10_000_000, lost_after_ms=20_000_000, warm_samples=1)
)


def own(mcpu: int, zones: tuple[int, ...] = (), attempt: int = 1) -> WorkloadUsage:
    workload = a_batch_workload("web/t/0", attempt=attempt, mcpu=mcpu, zones=zones)
    return structs.replace(workload, qos=QosClass.LS, band=PriorityBand.PROD)


def a_core() -> OvercommitCore:
    """One node, on which colo placed the online replica web/t/0."""
    core = OvercommitCore(WARM_AT_ONCE)
    core.handle(a_node(), 0)
    core.handle(decided(structs.replace(a_placement("web/t/0"), qos=QosClass.LS, band=PriorityBand.PROD)), 0)
    return core


def published(core: OvercommitCore, sample: NodeUsageSampled) -> AllocatableChanged | None:
    effects = core.handle(sample, sample.at_ms)
    core.check()
    facts = [effect.fact for effect in effects if isinstance(effect, Publish)]
    return next((fact for fact in facts if isinstance(fact, AllocatableChanged)), None)


def uses(fact: AllocatableChanged | None) -> list[tuple[int, int]]:
    assert fact is not None
    assert fact.unmanaged is not None
    return [(use.cpu_mcpu, use.memory_bytes) for use in fact.unmanaged]


@pytest.mark.parametrize(
    ("workloads", "expected"),
    [
        ((), [(4_000, 8 * GIB), (6_000, 8 * GIB)]),
        ((own(1_500, (0,)),), [(2_500, 7 * GIB), (6_000, 8 * GIB)]),
        ((own(1_501),), [(3_250, 8 * GIB - GIB // 2), (5_250, 8 * GIB - GIB // 2)]),
        ((own(9_000, (0,)),), [(0, 7 * GIB), (6_000, 8 * GIB)]),
        ((own(1_500, (0,), attempt=2),), [(4_000, 8 * GIB), (6_000, 8 * GIB)]),
        ((a_batch_workload(mcpu=1_000),), [(3_000, 7 * GIB), (6_000, 8 * GIB)]),
    ],
    ids=["all", "less-placed", "divided-down", "never-negative", "another-attempt", "less-batch"],
)
def test_online_work_without_a_place_is_unmanaged(
    workloads: tuple[WorkloadUsage, ...], expected: list[tuple[int, int]]
) -> None:
    sample = a_sample(zones=((4_000, 8), (6_000, 8)), workloads=workloads)
    assert uses(published(a_core(), sample)) == expected


def test_a_replica_that_runs_on_after_its_release_is_unmanaged_until_it_exits() -> None:
    core = a_core()
    assert uses(published(core, a_sample(seq=1, workloads=(own(4_000, (0,)),))))[0] == (0, 7 * GIB)
    core.handle(PlacementsReleased(nodes=(NodeRelease(node="n1", attempts=(("web/t/0", 1),)),)), 0)
    assert uses(published(core, a_sample(seq=2, at_ms=1_000, workloads=(own(4_000, (0,)),))))[0] == (4_000, 8 * GIB)


def test_a_peak_counts_until_its_window_is_over() -> None:
    core, p95 = a_core(), []
    for step, mcpu in enumerate([8_000, 8_000, *[1_000] * 40]):
        core.handle(a_sample(seq=step + 1, at_ms=step * 10_000, zones=((mcpu, 8), (0, 8))), step * 10_000)
        p95.append(core.nodes["n1"].unmanaged.usage(core.nodes["n1"].inputs)[0].cpu_p95_mcpu)
    steps = WINDOW_MS // 10_000
    assert p95 == [8_000] * steps + [1_000] * (42 - steps)


def test_more_unmanaged_usage_is_published_at_once_even_where_batch_work_has_nothing_to_lose() -> None:
    core = a_core()
    assert uses(published(core, a_sample(seq=1, zones=((15_000, 8), (15_000, 8)))))[0][0] == 15_000
    assert published(core, a_sample(seq=2, at_ms=1_000, zones=((15_200, 8), (15_000, 8)))) is None
    fact = published(core, a_sample(seq=3, at_ms=2_000, zones=((15_400, 8), (15_000, 8))))
    assert fact is not None
    assert fact.batch_cpu_mcpu == 0
    assert uses(fact)[0][0] == 15_400
