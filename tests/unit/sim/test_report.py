"""The arithmetic of a verdict, with its roundings."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.invalid import InvalidInput
from colo_sim.machine_account import OnlineAccount
from colo_sim.machine_reading import MachineLedger
from colo_sim.report import jain_fairness, ratio_ceil, ratio_floor, verdict_from_ledgers

HOUR_MS = 3_600_000
ZERO = MachineLedger(
    **{field.name: 0 for field in msgspec.structs.fields(MachineLedger) if field.type is int},
)


def a_ledger(**changed: object) -> MachineLedger:
    return msgspec.structs.replace(ZERO, node_ms=HOUR_MS, cpu_capacity_mcpu=64_000, **changed)


def test_a_verdict_sums_machines_by_time_and_capacity() -> None:
    full = 64_000 * HOUR_MS
    verdict = verdict_from_ledgers(
        [
            a_ledger(
                online_demand_mcpu_ms=full // 4,
                online_used_mcpu_ms=full // 4,
                batch_used_mcpu_ms=full // 2,
                completed_mcpu_ms=full // 4,
                wasted_mcpu_ms=full // 16,
                running_mcpu_ms=full // 2 - full // 4 - full // 16,
                with_batch=OnlineAccount(
                    harm_ms=HOUR_MS // 100, longest_harm_ms=9_000, delay_ms={20: HOUR_MS - 36_000, 70: 35_999, 90: 1}
                ),
                alone=OnlineAccount(harm_ms=HOUR_MS // 200),
                plain=OnlineAccount(batch_mcpu_ms=full // 8),
                added_harm_ms=HOUR_MS // 200,
                longest_added_harm_ms=4_000,
                evictions=3,
                needless_evictions=1,
                replicas_started=9,
                replicas_completed=4,
                oom_kills=1,
            ),
            a_ledger(
                online_demand_mcpu_ms=full // 2,
                online_used_mcpu_ms=full // 2,
                with_batch=OnlineAccount(delay_ms={10: HOUR_MS}),
            ),
        ]
    )
    assert (verdict.machines, verdict.machine_hours) == (2, 2.0)
    assert (verdict.online_cpu_util_pct, verdict.cpu_util_pct) == (37.5, 62.5)
    assert (verdict.reclaimed_core_hours, verdict.completed_core_hours, verdict.wasted_core_hours) == (32.0, 16.0, 4.0)
    assert verdict.goodput_ratio == 0.8
    felt = verdict.with_batch
    assert (felt.harm_ratio, felt.longest_harm_s) == (0.005, 9.0)
    assert (felt.delay_p50_pct, felt.delay_p99_pct, felt.delay_max_pct) == (10, 20, 90)
    assert verdict.without_batch.harm_ratio == 0.0025
    assert (verdict.added_harm_ratio, verdict.longest_added_harm_s) == (0.0025, 4.0)
    assert verdict.worst_machine_added_harm_ratio == 0.005
    assert (verdict.plain_requests.batch_core_hours, verdict.plain_gain_ratio) == (8.0, 4.0)
    assert (verdict.evictions, verdict.needless_evictions) == (3, 1)
    assert (verdict.replicas_started, verdict.replicas_completed, verdict.oom_kills) == (9, 4, 1)


def test_gains_round_down_and_harm_rounds_up() -> None:
    verdict = verdict_from_ledgers(
        [a_ledger(batch_used_mcpu_ms=1, completed_mcpu_ms=2_000_000, wasted_mcpu_ms=1, added_harm_ms=1)]
    )
    assert verdict.reclaimed_core_hours == 0.0
    assert verdict.wasted_core_hours == 0.001
    assert verdict.goodput_ratio == 0.999999
    assert verdict.added_harm_ratio == 0.000001
    assert verdict.cpu_util_pct == 0.0


@pytest.mark.parametrize("ledgers", [[], [ZERO]], ids=["no machine", "no time"])
def test_a_verdict_of_nothing_is_zero(ledgers: list[MachineLedger]) -> None:
    verdict = verdict_from_ledgers(ledgers)
    assert (verdict.cpu_util_pct, verdict.added_harm_ratio, verdict.goodput_ratio) == (0.0, 0.0, 1.0)
    assert str(verdict.wasted_core_hours) == "0.0", "never minus zero"


def test_demand_above_the_machine_counts_as_a_full_machine() -> None:
    assert verdict_from_ledgers([a_ledger(online_demand_mcpu_ms=10**15)]).online_cpu_util_pct == 100.0


@pytest.mark.parametrize(
    ("shares", "index"),
    [
        pytest.param([1, 1, 1, 1], 1.0, id="equal"),
        pytest.param([1, 0, 0, 0], 0.25, id="one has all"),
        pytest.param([1, 1, 0, 0], 0.5, id="half have all"),
        pytest.param([], 1.0, id="nobody"),
        pytest.param([0, 0], 1.0, id="nothing to share"),
        pytest.param([1, 2], 0.9, id="one has twice as much"),
    ],
)
def test_jains_index(shares: list[int], index: float) -> None:
    assert jain_fairness(shares) == index


def test_negative_shares_are_refused() -> None:
    with pytest.raises(InvalidInput):
        jain_fairness([1, -1])


@given(st.lists(st.integers(0, 10**12), min_size=1))
def test_jains_index_is_between_one_nth_and_one(shares: list[int]) -> None:
    assert 1 / len(shares) - 0.000002 <= jain_fairness(shares) <= 1.0


@given(st.integers(0, 10**15), st.integers(1, 10**15))
def test_a_share_lies_between_its_roundings(part: int, whole: int) -> None:
    part = min(part, whole)
    assert ratio_floor(part, whole) <= ratio_ceil(part, whole)
    assert (ratio_floor(part, whole) == ratio_ceil(part, whole)) == (part * 1_000_000 % whole == 0)
