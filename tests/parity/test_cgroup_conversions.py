"""Conversions: one row per class of input, with the value the kernel or the runtime writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.cpuset import MAX_CPUS, CpuSet
from colo_common.model.invalid import InvalidInput
from colo_executor import knobs
from tests.parity.peers import cgroup_conversions as convert


def test_every_weight_survives_the_kernels_own_shares() -> None:
    for weight in range(1, 10_001):
        assert knobs.weight_v2(convert.kernel_shares_from_weight(weight)) == weight


def test_nice_0_is_the_default_weight_and_the_ends_are_checked() -> None:
    assert [convert.weight_from_nice(nice) for nice in (-20, 0, 19)] == [8668, 100, 1]
    for nice in (-21, 20):
        with pytest.raises(InvalidInput):
            convert.weight_from_nice(nice)


@pytest.mark.parametrize(
    ("mcpu", "quota_us", "shares", "text"),
    [
        (0, 0, 2, "max 100000"),
        (1, 1000, 2, "1000 100000"),
        (10, 1000, 10, "1000 100000"),
        (11, 1100, 11, "1100 100000"),
        (1500, 150_000, 1536, "150000 100000"),
        (300_000, 30_000_000, 262_144, "30000000 100000"),
    ],
)
def test_milli_cpu_becomes_quota_and_shares_rounded_down(mcpu: int, quota_us: int, shares: int, text: str) -> None:
    assert convert.quota_from_mcpu(mcpu) == quota_us
    assert convert.shares_from_mcpu(mcpu) == shares
    assert convert.cpu_max_text(quota_us) == text


@pytest.mark.parametrize(
    ("quota_us", "period_us", "per_second_us"),
    [
        (-1, 100_000, None),
        (0, 0, None),
        (33_333, 100_000, 340_000),
        (100_000, 0, 1_000_000),
        (50_000, 50_000, 1_000_000),
    ],
)
def test_systemd_keeps_steps_of_10_ms_rounded_up(quota_us: int, period_us: int, per_second_us: int | None) -> None:
    assert convert.systemd_quota_us(quota_us, period_us) == per_second_us


@pytest.mark.parametrize(("both", "memory", "swap"), [(0, -1, -1), (-1, 5, -1), (0, 5, 0), (7, 5, 2), (5, 5, 0)])
def test_memory_and_swap_are_split(both: int, memory: int, swap: int) -> None:
    assert convert.swap_max_from_v1(both, memory) == swap


@pytest.mark.parametrize(("both", "memory", "field"), [(7, 0, "memory"), (7, -1, "memory"), (4, 5, "memory_swap")])
def test_a_sum_that_cannot_be_split_is_refused(both: int, memory: int, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        convert.swap_max_from_v1(both, memory)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("old_us", "new_us", "first"), [(1, 2, "pod"), (2, 1, "container"), (-1, 9, "container"), (9, -1, "pod")]
)
def test_the_pods_quota_is_never_below_its_containers(old_us: int, new_us: int, first: str) -> None:
    assert convert.quota_write_order(old_us, new_us)[0] == first


def test_the_narrowest_limit_on_the_path_counts() -> None:
    assert convert.effective_cpus(["max 100000", "50000 100000", "30000 20000"]) == 0.5
    assert convert.effective_cpus(["max 100000"]) is None
    assert convert.effective_cpus([]) is None


def test_a_slice_lies_in_the_slices_its_name_spells() -> None:
    assert convert.expand_slice("a-b-c.slice") == "/a.slice/a-b.slice/a-b-c.slice"
    assert convert.expand_slice("-.slice") == "/"
    for bad in (".slice", "a", "a.scope", "a/b.slice", "-a.slice", "a-.slice", "a--b.slice"):
        with pytest.raises(InvalidInput):
            convert.expand_slice(bad)


def test_a_pod_is_found_under_both_drivers() -> None:
    assert convert.pod_path("BestEffort", "a-b", "cgroupfs") == "kubepods/besteffort/poda-b"
    pod = convert.pod_path("burstable", "a-b", "systemd")
    assert pod == "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice"
    assert convert.container_path(pod, "c1", "systemd", "crio") == f"{pod}/crio-c1.scope"
    assert convert.container_path("p", "c1", "cgroupfs", "crio") == "p/c1"
    with pytest.raises(InvalidInput):
        convert.pod_path("LS", "a", "cgroupfs")


def test_a_mask_is_as_wide_as_the_machine() -> None:
    assert convert.cpu_mask_text(CpuSet.parse("0"), 40) == "00,00000001"
    assert convert.cpu_mask_text(CpuSet.parse("63"), 64) == "80000000,00000000"
    assert convert.cpu_mask_text(CpuSet(), 1) == "0"
    with pytest.raises(InvalidInput, match="must cover the set"):
        convert.cpu_mask_text(CpuSet.parse("8"), 8)


@given(st.frozensets(st.integers(0, MAX_CPUS - 1), max_size=40))
def test_a_mask_reads_back_as_a_number(ids: frozenset[int]) -> None:
    cpus = CpuSet.from_iterable(ids)
    assert int(convert.cpu_mask_text(cpus, MAX_CPUS).replace(",", ""), 16) == cpus.mask
