"""The violation rate of online work: one figure, whoever asks."""

from __future__ import annotations

from msgspec.structs import replace

from colo_common.events.node import WorkloadUsage
from colo_common.model.qos import QosClass
from colo_common.model.slo import OnlineViolation, worst_online_violation
from colo_executor.core import Executor, ExecutorPolicy
from colo_executor.local import NoteViolation
from colo_gateway.harm import Harm
from colo_gateway.harm_reply import latency_summary
from tests.support.builders import a_latency, a_sample, an_online_workload


def web(above: int, samples: int, *, breaks_slo: bool = True, name: str = "web") -> WorkloadUsage:
    return an_online_workload(name, business=a_latency(above, samples, breaks_slo=breaks_slo))


def test_the_worst_online_workload_with_enough_values_counts() -> None:
    batch = replace(web(60, 60, name="train"), qos=QosClass.BE)
    few = web(4, 4, name="few")
    without_slo = an_online_workload("other", business=replace(a_latency(0, 9), violations=()))
    found = worst_online_violation(
        (an_online_workload("silent"), batch, few, without_slo, web(7, 60), web(7, 60, name="api", breaks_slo=False))
    )
    assert found is not None
    assert (found.workload, found.violation_pct, found.breaks_slo) == ("web", 11, True)
    assert worst_online_violation((batch, few, without_slo)) is None
    assert worst_online_violation(()) is None


def test_reflex_and_status_take_the_figure_of_the_sample() -> None:
    sample = a_sample("n1", workloads=(web(12, 60), web(1, 60, name="api")), at_ms=1_000)
    figure = OnlineViolation(workload="web", window_ms=300_000, samples=60, above=12, breaks_slo=True, age_ms=1_000)
    assert Executor("n1", ExecutorPolicy()).handle(sample, 0) == [NoteViolation(violation=figure)]
    assert Executor("n2", ExecutorPolicy()).handle(sample, 0) == []
    harm = Harm()
    harm.sampled(sample)
    found = latency_summary(harm, 2_000)
    assert found.sentence == (
        "worst web on n1: 20% of 60 values broke its SLO in the last 5m00s, of 1 node that measure it"
    )
    assert [(one.workload, one.violation_pct) for one in found.worst] == [("web", figure.violation_pct)]
    # A figure that is a minute old says nothing of now, and the next sample may know none.
    assert latency_summary(harm, 62_000).measured_nodes == 0
    harm.sampled(a_sample("n1", seq=2, at_ms=2_000))
    assert latency_summary(harm, 2_000).sentence == "not known: no online workload says its own latency"
