"""Rates from two readings: the arithmetic, and every way in which two readings may not be comparable."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_collector.parse_proc import CpuTicks, MachineCpuTicks
from colo_collector.usage import GroupCounters, MachineRates, MachineReading, Rate, Unknown, rates_between
from colo_common.model.cpuset import CpuSet

S = 1_000_000_000
ZONES = {0: CpuSet.parse("0-1"), 1: CpuSet.parse("2-3")}


def reading(
    at_ns: int,
    busy: Mapping[int, int],
    *,
    total: int | None = None,
    steal: int = 0,
    groups: Mapping[str, int] | None = None,
    boot_id: str = "a",
    identity: int = 1,
    throttled_us: int = 0,
) -> MachineReading:
    """A reading in which each CPU has that many busy ticks and each group that many nanoseconds."""
    everything = sum(busy.values()) if total is None else total
    return MachineReading(
        at_ns=at_ns,
        boot_id=boot_id,
        ticks=MachineCpuTicks(
            total=CpuTicks(cpu=-1, user=everything, nice=0, system=0, idle=0, steal=steal),
            cpus=tuple(CpuTicks(cpu=cpu, user=ticks, nice=0, system=0, idle=0) for cpu, ticks in sorted(busy.items())),
        ),
        groups=tuple(
            GroupCounters(workload=name, cpu_usage_ns=used_ns, identity=identity, throttled_us=throttled_us)
            for name, used_ns in (groups or {}).items()
        ),
    )


def rates(previous: MachineReading | None, current: MachineReading) -> MachineRates:
    return rates_between(previous, current, ZONES)


IDLE = {0: 0, 1: 0, 2: 0, 3: 0}


def test_ticks_become_milli_cpu_by_node_and_by_zone_rounded_down() -> None:
    found = rates(reading(0, IDLE), reading(3 * S, {0: 100, 1: 0, 2: 1, 3: 300}, steal=7))
    # 401 ticks of 10 ms in 3 s are 1336.67 milli-CPU.
    assert found.used == Rate(1336)
    assert found.steal == Rate(23)
    assert found.zones == ((0, Rate(333)), (1, Rate(1003)))
    assert found.interval_ns == 3 * S


def test_a_zone_is_rounded_once_and_not_per_cpu() -> None:
    # Two CPUs of 0.5 milli-CPU each are one milli-CPU.
    found = rates(reading(0, IDLE), reading(20 * S, {0: 1, 1: 1, 2: 0, 3: 0}))
    assert found.zones[0] == (0, Rate(1))


def test_a_group_is_its_nanoseconds_by_the_interval() -> None:
    found = rates(
        reading(0, IDLE, groups={"a": 5, "b": 0}, throttled_us=10),
        reading(2 * S, IDLE, groups={"a": 3 * S + 4, "b": 0}, throttled_us=25),
    )
    assert [(one.workload, one.used, one.throttled_us) for one in found.groups] == [
        ("a", Rate(1499), 15),
        ("b", Rate(0), 15),
    ]


@pytest.mark.parametrize(
    ("previous", "current", "reason"),
    [
        (None, reading(S, IDLE, groups={"a": 1}), Unknown.FIRST),
        (reading(0, IDLE, groups={"a": 1}), reading(S, IDLE, boot_id="b"), Unknown.REBOOTED),
        (reading(2 * S, IDLE, groups={"a": 1}), reading(S, IDLE), Unknown.TIME_BACKWARDS),
        (reading(S, IDLE, groups={"a": 1}), reading(S, IDLE), Unknown.TIME_STOOD),
        (reading(S, IDLE, groups={"a": 1}), reading(S + 999_999, IDLE), Unknown.TIME_STOOD),
    ],
)
def test_readings_that_cannot_be_compared_make_every_rate_unknown(
    previous: MachineReading | None, current: MachineReading, reason: Unknown
) -> None:
    found = rates(previous, current)
    unknown = Rate(None, reason)
    assert (found.used, found.steal) == (unknown, unknown)
    assert found.zones == ((0, unknown), (1, unknown))
    assert [(one.workload, one.used, one.throttled_us) for one in found.groups] == [("a", unknown, None)]


def test_a_counter_that_went_back_is_unknown_and_the_others_are_not() -> None:
    before = reading(0, {0: 500, 1: 0, 2: 0, 3: 0}, total=500, steal=9, groups={"a": 100, "b": 0})
    after = reading(S, {0: 0, 1: 50, 2: 50, 3: 0}, total=600, steal=0, groups={"a": 99, "b": S // 2})
    found = rates(before, after)
    assert found.used == Rate(1000)
    assert found.steal == Rate(None, Unknown.RESET)
    assert found.zones == ((0, Rate(None, Unknown.RESET)), (1, Rate(500)))
    assert [one.used for one in found.groups] == [Rate(None, Unknown.RESET), Rate(500)]


def test_a_cpu_that_came_or_went_makes_its_zone_unknown_once() -> None:
    three = {0: 0, 1: 0, 2: 0}
    came = rates(reading(0, three), reading(S, IDLE))
    went = rates(reading(0, IDLE), reading(S, three))
    assert came.zones == went.zones == ((0, Rate(0)), (1, Rate(None, Unknown.CPU_CAME)))
    assert came.used == went.used == Rate(0)
    assert rates(reading(S, IDLE), reading(2 * S, IDLE)).zones[1] == (1, Rate(0))


def test_workloads_that_are_new_removed_or_replaced_are_unknown() -> None:
    found = rates(
        reading(0, IDLE, groups={"gone": 1, "same": 1}), reading(S, IDLE, groups={"new": 1, "same": S}, identity=2)
    )
    assert {one.workload: one.used.unknown for one in found.groups} == {
        "gone": Unknown.ABSENT,
        "new": Unknown.FIRST,
        "same": Unknown.REPLACED,
    }


def test_what_the_clock_of_ticks_explains_is_cut_to_what_the_cpus_can_do() -> None:
    found = rates(reading(0, IDLE), reading(S // 10, {0: 11, 1: 11, 2: 12, 3: 12}))
    assert found.used == Rate(4000)
    assert found.zones == ((0, Rate(2000)), (1, Rate(2000)))


def test_what_nothing_explains_is_unknown() -> None:
    found = rates(reading(0, IDLE, groups={"a": 0}), reading(S, {0: 300, 1: 0, 2: 0, 3: 300}, groups={"a": 5 * S}))
    assert found.used == Rate(None, Unknown.ABSURD)
    assert found.zones[0] == (0, Rate(None, Unknown.ABSURD))
    assert found.groups[0].used == Rate(None, Unknown.ABSURD)


def test_a_zone_without_cpus_uses_none() -> None:
    found = rates_between(reading(0, IDLE), reading(S, IDLE), {5: CpuSet()})
    assert found.zones == ((5, Rate(0)),)


TICKS = st.integers(0, 10_000)
BUSY = st.dictionaries(st.integers(0, 3), TICKS, min_size=1, max_size=4)
GROUPS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 100 * S), max_size=3)
READINGS = st.builds(
    reading,
    at_ns=st.integers(0, 20 * S),
    busy=BUSY,
    total=st.none() | TICKS,
    steal=TICKS,
    groups=GROUPS,
    boot_id=st.sampled_from("aab"),
    identity=st.sampled_from((1, 1, 2)),
)


@given(READINGS, READINGS)
def test_a_rate_is_known_or_has_a_reason_and_is_never_negative_nor_absurd(
    previous: MachineReading, current: MachineReading
) -> None:
    found = rates(previous, current)
    cpus = max(len(previous.ticks.cpus), len(current.ticks.cpus))
    every = [(found.used, cpus), (found.steal, cpus)]
    every += [(rate, len(ZONES[zone])) for zone, rate in found.zones]
    every += [(one.used, cpus) for one in found.groups]
    for rate, limit in every:
        assert (rate.mcpu is None) != (rate.unknown is None)
        assert rate.mcpu is None or 0 <= rate.mcpu <= limit * 1000
    assert [one.workload for one in found.groups] == sorted(
        {one.workload for one in previous.groups} | {one.workload for one in current.groups}
    )
    assert all(one.throttled_us is None or one.throttled_us >= 0 for one in found.groups)


@given(
    st.lists(st.integers(0, 100), min_size=4, max_size=4),
    st.integers(1, 10),
    st.lists(st.integers(0, 5000), min_size=4, max_size=4),
)
def test_zones_never_add_up_to_more_than_the_node(shares: list[int], seconds: int, start: list[int]) -> None:
    before = dict(enumerate(start))
    after = {cpu: start[cpu] + share * seconds for cpu, share in enumerate(shares)}
    found = rates(reading(S, before), reading(S + seconds * S, after))
    # 100 ticks a second are one CPU, so a share of ticks is ten times as many milli-CPU.
    assert found.used.mcpu == sum(shares) * 10
    assert sum(rate.mcpu or 0 for _, rate in found.zones) == found.used.mcpu


@given(st.integers(0, 10**6), st.integers(1_000_000, 3600 * S), st.sampled_from((100, 250, 1000)))
def test_the_rate_is_the_exact_quotient_rounded_down(ticks: int, interval_ns: int, user_hz: int) -> None:
    found = rates_between(reading(0, IDLE), reading(interval_ns, {**IDLE, 0: ticks}), ZONES, user_hz=user_hz).used
    exact = ticks * 1000 * S // (user_hz * interval_ns)
    assert found.mcpu is None or found.mcpu == min(exact, 4000)
    if exact <= 4000:
        assert found == Rate(exact)
