"""The one rule of stall, for threads and for groups, and who it may blame."""

from __future__ import annotations

import pytest

from colo_common.model.stall import RunTimes, StallShare, stall_share, waited_share
from colo_executor.stall import OnlineStalls, StallPolicy, StallState, decide_stall
from colo_overcommit.explain import explain, recompute
from tests.support.builders import a_sample, an_online_workload

S = 1_000_000


@pytest.mark.parametrize(
    ("times", "share"),
    [
        (RunTimes(span_us=10 * S, run_us=3 * S, wait_us=S), StallShare(stall_pct=25)),
        (RunTimes(span_us=10 * S, run_us=3 * S, wait_us=S, steal_us=S), StallShare(stall_pct=40)),
        # The time that its own quota stopped it is no waiting.
        (RunTimes(span_us=10 * S, run_us=3 * S, wait_us=2 * S, throttled_us=S), StallShare(stall_pct=25)),
        (
            RunTimes(span_us=10 * S, run_us=3 * S, wait_us=4 * S, throttled_us=S + 1),
            StallShare(stall_pct=49, gate="self-throttled"),
        ),
        (RunTimes(span_us=10 * S, run_us=S // 4, wait_us=S // 4), StallShare(stall_pct=50)),
        (RunTimes(span_us=10 * S, run_us=S // 4, wait_us=S // 4 - 1), StallShare(stall_pct=0, gate="idle")),
        (RunTimes(span_us=0, run_us=0, wait_us=0), StallShare(stall_pct=0)),
    ],
)
def test_the_stall_of_threads(times: RunTimes, share: StallShare) -> None:
    assert stall_share(times) == share


def test_the_stall_of_a_group_whose_threads_nobody_sees() -> None:
    assert waited_share(150_999, 0, S) == StallShare(stall_pct=15)
    assert waited_share(3 * S, 0, S) == StallShare(stall_pct=100)
    assert waited_share(900_000, 100_001, S) == StallShare(stall_pct=90, gate="self-throttled")
    assert waited_share(5, 0, 0) == StallShare(stall_pct=0)


@pytest.mark.parametrize(("throttled_us", "group", "pct"), [(0, "web", 30), (200_000, "", 0)])
def test_the_reflex_takes_nothing_for_a_group_that_its_own_quota_stops(throttled_us: int, group: str, pct: int) -> None:
    state = StallState(ceiling_mcpu=4_000)
    for at_ms, waited_us, stopped_us in ((0, 0, 0), (1_000, 300_000, throttled_us)):
        decision = decide_stall(
            StallPolicy(),
            state,
            capacity_mcpu=4_000,
            floor_mcpu=100,
            batch_used_mcpu=2_000,
            stalls=OnlineStalls(at_ms=at_ms, total_us=(("web", waited_us),), throttled_us=(("web", stopped_us),)),
            now_ms=at_ms,
        )
        state = decision.state
    assert (decision.group, decision.stall_pct) == (group, pct)
    assert (decision.change == "trial") == bool(group)


def test_the_explanation_says_what_online_work_feels_and_recomputes_without_it() -> None:
    sample = a_sample(workloads=(an_online_workload("web", stall_pct=12), an_online_workload("api", stall_pct=40)))
    (term,) = explain((), sample).terms
    assert (term.name, term.value, term.unit, term.zone) == ("stall_pct", 40, "pct", None)
    assert "api" in term.source
    assert recompute(explain((), sample)) == ()
    assert explain((), a_sample()).terms == ()
