"""CpuSet: the kernel's list notation and set algebra."""

from __future__ import annotations

import pytest

from colo_common.model.cpuset import MAX_CPUS, CpuSet, InvalidCpuList
from colo_common.model.invalid import InvalidInput


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", []),
        ("\n", []),
        (" ,, ", []),
        ("0-3,8", [0, 1, 2, 3, 8]),
        ("8,0-3", [0, 1, 2, 3, 8]),
        ("0 2\t4\n", [0, 2, 4]),
        ("0-3,2-5", [0, 1, 2, 3, 4, 5]),
        ("007", [7]),
        ("all", list(range(16))),
        ("N", [15]),
        ("14-N", [14, 15]),
        ("0-7:1/2", [0, 2, 4, 6]),
        ("0-8:2/4", [0, 1, 4, 5, 8]),
        ("ALL:1/8", [0, 8]),
        ("0-3:0/2", []),
        ("1\n5", [1]),
        ("0-1:2/2\n5", [0, 1, 5]),
    ],
)
def test_a_list_is_read_as_the_kernel_reads_it(text: str, cpus: list[int]) -> None:
    assert list(CpuSet.parse(text, nr_cpus=16)) == cpus


@pytest.mark.parametrize(
    ("text", "errno_name"),
    [
        ("1-0", "EINVAL"),
        ("a", "EINVAL"),
        ("-1", "EINVAL"),
        ("0-", "EINVAL"),
        ("0-1-", "EINVAL"),
        ("0x1", "EINVAL"),
        ("0:1/1", "EINVAL"),
        ("0-1:1", "EINVAL"),
        ("0-1:2/1", "EINVAL"),
        ("0-1:0/0", "EINVAL"),
        ("n", "EINVAL"),
        ("16", "ERANGE"),
        ("0-16", "ERANGE"),
        ("4294967294", "ERANGE"),
        ("4294967295", "EINVAL"),
        ("4294967296", "EOVERFLOW"),
        ("9" * 400, "EOVERFLOW"),
    ],
)
def test_a_bad_list_carries_the_errno_of_the_kernel(text: str, errno_name: str) -> None:
    with pytest.raises(InvalidCpuList) as refused:
        CpuSet.parse(text, "zones[0].cpus", nr_cpus=16)
    assert refused.value.errno_name == errno_name
    assert refused.value.field == "zones[0].cpus"


@pytest.mark.parametrize("text", ["all", "N", "0-N"])
def test_all_and_last_need_a_known_number_of_cpus(text: str) -> None:
    with pytest.raises(InvalidCpuList, match="known number of CPUs"):
        CpuSet.parse(text)


def test_ids_have_a_limit() -> None:
    assert len(CpuSet.parse(f"0-{MAX_CPUS - 1}")) == MAX_CPUS
    with pytest.raises(InvalidCpuList, match="below 8192"):
        CpuSet.parse(str(MAX_CPUS))
    for bad in (-1, MAX_CPUS, True, "1", 1.0):
        with pytest.raises(InvalidInput, match="from 0 to 8191"):
            CpuSet.from_iterable([bad])
    with pytest.raises(InvalidInput):
        CpuSet(1 << MAX_CPUS)
    with pytest.raises(InvalidInput):
        CpuSet(-1)
    with pytest.raises(InvalidCpuList, match="at most 65536 characters"):
        CpuSet.parse("0," * 40_000)
    with pytest.raises(InvalidCpuList, match="must be text"):
        CpuSet.parse(7)


def test_set_algebra() -> None:
    low, mid = CpuSet.parse("0-3"), CpuSet.parse("2-5")
    assert (low | mid).format() == "0-5"
    assert (low & mid).format() == "2-3"
    assert (low - mid).format() == "0-1"
    assert (low ^ mid).format() == "0-1,4-5"
    assert low & mid <= low
    assert low < low | mid
    assert not low <= mid
    assert low | mid > mid
    assert (low - mid).is_disjoint(mid)
    assert 3 in low
    assert 4 not in low
    assert "3" not in low
    assert not CpuSet()
    assert low.first(2).format() == "0-1"
    assert CpuSet.parse("1,4-6").first(3).format() == "1,4-5"
    assert low.first(99) == low
    assert len({low, CpuSet.from_iterable([3, 2, 1, 0, 0])}) == 1
    assert repr(mid) == "CpuSet('2-5')"
