"""Load from the sample to the choice: what the overcommit core says, over the wire, decides where the scheduler core places."""

from __future__ import annotations

import pytest

from colo_common.events.effects import Publish
from colo_common.events.node import AllocatableChanged, WorkloadUsage
from colo_common.events.registry import subject_of
from colo_common.events.wire import decode, encode
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_overcommit.core import OvercommitCore
from colo_overcommit.policy import OvercommitPolicy
from colo_scheduler.load.dynamic_rules import METRICS, DynamicRules
from colo_scheduler.load.rules import LoadRules
from colo_scheduler.policy import SchedulerPolicy
from tests.support.builders import GIB, a_node, a_sample, a_topology
from tests.support.scheduler_story import Bench, a_placement_request
from tests.unit.scheduler.test_node_choice import only, rejection, scores_of
from tests.unit.scheduler.test_signals import place

MINUTE_MS = 60_000
CPUS = 16_000
LAST_MS = 90 * MINUTE_MS + 50_000


def used_mcpu(node: str, at_ms: int) -> int:
    """What online work uses. `calm` is ever the same; `was-busy` was so for ten minutes half an hour ago, `spiky` every minute."""
    if node == "was-busy" and 50 * MINUTE_MS <= at_ms < 60 * MINUTE_MS:
        return 12_800
    if node == "spiky" and at_ms % MINUTE_MS < 20_000:
        return 12_800
    return 3_200


@pytest.fixture(scope="module")
def delivered() -> list[AllocatableChanged]:
    """The last word on each node after an hour and a half of samples, as it came over the wire."""
    core, last = OvercommitCore(OvercommitPolicy()), dict[str, AllocatableChanged]()
    nodes = ("calm", "spiky", "was-busy")
    for node in nodes:
        core.handle(a_node(node, a_topology(zones_per_socket=1)), 0)
    for seq, at_ms in enumerate(range(0, LAST_MS + 1, 5_000)):
        for node in nodes:
            mcpu = used_mcpu(node, at_ms)
            web = WorkloadUsage(
                workload="web", qos=QosClass.LS, band=PriorityBand.PROD, cpu_used_mcpu=mcpu, memory_used_bytes=16 * GIB
            )
            sample = a_sample(node, seq=seq, zones=((mcpu, 16),), workloads=(web,), at_ms=at_ms)
            for effect in core.handle(sample, at_ms):
                if isinstance(effect, Publish) and isinstance(effect.fact, AllocatableChanged):
                    fact = decode(subject_of(effect.fact), encode(effect.fact))
                    assert isinstance(fact, AllocatableChanged)
                    last[node] = fact
    return [last[node] for node in nodes]


def a_bench(delivered: list[AllocatableChanged], policy: SchedulerPolicy) -> Bench:
    bench = Bench(policy)
    bench.now_ms = LAST_MS
    for fact in delivered:
        bench.tell(a_node(fact.node, a_topology(zones_per_socket=1)))
        bench.tell(fact)
    return bench


def test_overcommit_tells_every_metric_that_a_policy_may_name(delivered: list[AllocatableChanged]) -> None:
    assert {fact.node for fact in delivered} == {"calm", "was-busy", "spiky"}
    for fact in delivered:
        assert fact.load is not None
        assert None not in [source.amount(fact.load) for source in METRICS.values()]


def test_the_score_is_that_of_what_was_measured(delivered: list[AllocatableChanged]) -> None:
    bench = a_bench(delivered, SchedulerPolicy(weights=only(dynamic_load=1)))
    assert place(bench, a_placement_request()) == ["calm"]
    scores = {node: row["dynamic-load"] for node, row in scores_of(bench, "job/main/0").items()}
    # calm used 20 % of the CPU and 25 % of the memory all the time; was-busy peaked at 80 % within the hour and the day.
    assert scores["calm"] == 77
    assert scores["was-busy"] == 77 - 24
    # A third of every minute at 80 % is 40 % on average, in five minutes as in any of the day.
    assert scores["spiky"] in (67, 68)


@pytest.mark.parametrize(
    ("limits", "refused"),
    [
        ({"cpu_usage_avg_5m": 35}, ["spiky"]),
        ({"cpu_usage_max_avg_1h": 65}, ["was-busy"]),
        ({"cpu_usage_max_avg_1d": 35}, ["spiky", "was-busy"]),
        ({"mem_usage_avg_5m": 24}, ["calm", "spiky", "was-busy"]),
        ({"mem_usage_avg_5m": 25}, []),
    ],
)
def test_a_limit_refuses_the_nodes_that_were_above_it(
    delivered: list[AllocatableChanged], limits: dict[str, int], refused: list[str]
) -> None:
    bench = a_bench(delivered, SchedulerPolicy(dynamic=DynamicRules(limits_pct=limits)))
    huge = rejection(bench).counts if len(refused) == len(delivered) else ()
    if huge:
        assert [(each.reason, each.nodes) for each in huge] == [(Reason.LOAD_OVER_THRESHOLD, 3)]
        return
    placement_requests = [a_placement_request(f"job/main/{n:02}", mcpu=2_000) for n in range(12)]
    assert sorted({fact.node for fact in delivered} - set(place(bench, *placement_requests))) == refused


@pytest.mark.parametrize(
    ("usage", "placed"), [("p50", "spiky"), ("avg", "spiky"), ("p90", "-"), ("p95", "-"), ("p99", "-")]
)
def test_a_node_of_short_peaks_is_busy_by_a_high_percentile_only(
    delivered: list[AllocatableChanged], usage: str, placed: str
) -> None:
    rules = LoadRules(cpu_pct=65, usage=usage)  # type: ignore[arg-type]
    spiky = [fact for fact in delivered if fact.node == "spiky"]
    assert place(a_bench(spiky, SchedulerPolicy(load=rules)), a_placement_request()) == [placed]
