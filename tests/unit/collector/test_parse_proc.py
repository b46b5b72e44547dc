"""The texts of /proc: what is read, what is tolerated, what is refused and with which words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_collector.parse_proc import (
    CpuTicks,
    parse_boot_id,
    parse_meminfo,
    parse_stat,
    parse_zone_meminfo,
)
from colo_common.model.invalid import InvalidInput

STAT = """cpu  300 10 200 5000 40 5 6 7 8 9
cpu0 100 10 100 2000 40 5 6 7 8 9
cpu3 200 0 100 3000 0 0 0 0 0 0
intr 9 0 0
ctxt 1
"""


def test_stat_gives_the_sum_and_every_online_cpu() -> None:
    ticks = parse_stat(STAT)
    assert ticks.total == CpuTicks(
        cpu=-1, user=300, nice=10, system=200, idle=5000, iowait=40, irq=5, softirq=6, steal=7
    )
    assert [one.cpu for one in ticks.cpus] == [0, 3]
    assert ticks.cpus[0].steal == 7


def test_busy_time_leaves_out_waiting_and_stolen_time_and_counts_guests_once() -> None:
    assert parse_stat(STAT).total.busy == 300 + 10 + 200 + 5 + 6


@pytest.mark.parametrize(
    ("columns", "steal"), [("1 2 3 4", 0), ("1 2 3 4 5", 0), ("1 2 3 4 5 6 7", 0), ("1 2 3 4 5 6 7 8", 8)]
)
def test_columns_that_an_old_kernel_lacks_count_as_nothing(columns: str, steal: int) -> None:
    ticks = parse_stat(f"cpu {columns}\ncpu0 {columns}\n")
    assert (ticks.total.user, ticks.total.idle, ticks.total.steal) == (1, 4, steal)


def test_a_text_cut_in_the_interrupts_is_enough() -> None:
    assert parse_stat(STAT[: STAT.index("intr") + 6]) == parse_stat(STAT)


@pytest.mark.parametrize(
    ("text", "field", "rule"),
    [
        ("", "/proc/stat line 1", 'first line must begin with "cpu"'),
        ("intr 1\n", "/proc/stat line 1", 'first line must begin with "cpu"'),
        ("cpu0 1 2 3 4\n", "/proc/stat line 1", 'first line must begin with "cpu"'),
        ("cpu 1 2 3 4\nintr 1\n", "/proc/stat line 2", 'at least one line "cpuN"'),
        ("cpu 1 2 3\ncpu0 1 2 3\n", "/proc/stat line 1", "at least user, nice, system and idle"),
        ("cpu 1 2 3 4\ncpu0 1 -2 3 4\n", "/proc/stat line 2", "unsigned decimal"),
        ("cpu 1 2 3 4\ncpu0 1 2.5 3 4\n", "/proc/stat line 2", "unsigned decimal"),
        ("cpu 1 2 3 4\ncpu0 1 1_0 3 4\n", "/proc/stat line 2", "unsigned decimal"),
        ("cpu 1 2 3 4\ncpu0 1 ² 3 4\n", "/proc/stat line 2", "unsigned decimal"),
        ("cpu 1 2 3 4\ncpu0 18446744073709551616 2 3 4\n", "/proc/stat line 2", "below 2**64"),
        ("cpu 1 2 3 4\ncpufreq 1 2 3 4\n", "/proc/stat line 2", "unsigned decimal"),
        ("cpu 1 2 3 4\ncpu8192 1 2 3 4\n", "/proc/stat line 2", "below 8192"),
        ("cpu 1 2 3 4\ncpu1 1 2 3 4\ncpu1 1 2 3 4\n", "/proc/stat line 3", "must ascend"),
    ],
)
def test_a_malformed_stat_is_refused_with_file_line_and_rule(text: str, field: str, rule: str) -> None:
    with pytest.raises(InvalidInput, match="must|needed|needs") as caught:
        parse_stat(text)
    assert caught.value.field == field
    assert rule in caught.value.rule


@given(st.lists(st.lists(st.integers(0, 2**64 - 1), min_size=4, max_size=10), min_size=1, max_size=40))
def test_every_well_formed_stat_is_read_back(rows: list[list[int]]) -> None:
    lines = ["cpu 0 0 0 0"] + [f"cpu{cpu} {' '.join(map(str, row))}" for cpu, row in enumerate(rows)]
    ticks = parse_stat("\n".join(lines) + "\n")
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    for row, one in zip(rows, ticks.cpus, strict=True):
        assert [getattr(one, name) for name in names] == (row[:8] + [0] * 8)[:8]


@given(st.text(max_size=200) | st.text(alphabet="cpu0123 -\n.x", max_size=60))
def test_any_text_is_read_or_refused_never_anything_else(text: str) -> None:
    refused: list[InvalidInput] = []
    for read in (parse_stat, parse_meminfo, parse_boot_id):
        try:
            read(text)
        except InvalidInput as error:
            refused.append(error)
    assert all(error.field.startswith("/proc/") and error.rule for error in refused)


MEMINFO = "MemTotal:       4417748 kB\nMemFree:  1000 kB\nMemAvailable:   4000 kB\nHugePages_Total:       3\n"


def test_meminfo_is_in_bytes_and_used_is_what_is_not_available() -> None:
    memory = parse_meminfo(MEMINFO)
    assert memory.total_bytes == 4417748 * 1024
    assert memory.used_bytes == (4417748 - 4000) * 1024


def test_without_memavailable_only_free_memory_counts_as_available() -> None:
    assert parse_meminfo("MemTotal: 100 kB\nMemFree: 30 kB\nCached: 50 kB\n").available_bytes == 30 * 1024


def test_used_memory_is_never_negative() -> None:
    assert parse_meminfo("MemTotal: 100 kB\nMemFree: 30 kB\nMemAvailable: 120 kB\n").used_bytes == 0


@pytest.mark.parametrize(
    ("text", "field", "rule"),
    [
        ("MemFree: 1 kB\n", "/proc/meminfo", "must have a line MemTotal"),
        ("MemTotal: 1 kB\n", "/proc/meminfo", "must have a line MemFree"),
        ("MemTotal: 1 kB\nMemFree: -1 kB\n", "/proc/meminfo line 2", 'must read "Key: number"'),
        ("MemTotal: 1 MB\n", "/proc/meminfo line 1", 'must read "Key: number"'),
        ("MemTotal: 99999999999999999999999 kB\n", "/proc/meminfo line 1", "unsigned decimal"),
    ],
)
def test_a_malformed_meminfo_is_refused(text: str, field: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_meminfo(text)
    assert caught.value.field == field
    assert rule in caught.value.rule


def test_zone_memory_in_use_leaves_out_file_pages_and_reclaimable_slab() -> None:
    text = (
        "Node 1 MemTotal: 1000 kB\nNode 1 MemFree: 400 kB\nNode 1 Active(file): 50 kB\n"
        "Node 1 Inactive(file): 60 kB\nNode 1 SReclaimable: 20 kB\nNode 1 HugePages_Total:     0\n"
    )
    assert parse_zone_meminfo(1, text, "/sys/node1").used_bytes == (1000 - 400 - 110 - 20) * 1024


def test_the_memory_of_another_zone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must be about zone 1") as caught:
        parse_zone_meminfo(1, "Node 0 MemTotal: 1000 kB\n", "/sys/node1/meminfo")
    assert caught.value.field == "/sys/node1/meminfo line 1"


def test_a_boot_id_is_a_uuid_in_lower_case() -> None:
    assert parse_boot_id("0DC5B5D6-e800-424b-bf49-a1e9730aeaa0\n") == "0dc5b5d6-e800-424b-bf49-a1e9730aeaa0"
    with pytest.raises(InvalidInput, match="must be a UUID"):
        parse_boot_id("0dc5b5d6\n")
