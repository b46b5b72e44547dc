"""Two samples as one measurement: shares of zones, workloads and system; and when there is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from colo_collector.discover import Workload, batch_workloads
from colo_collector.measure import Measurement, measure
from colo_collector.parse_proc import CpuTicks, MachineCpuTicks
from colo_collector.parse_psi import Pressure, PressureLine
from colo_collector.readings import SampleRead, Skip, Unreadable
from colo_collector.sample import Sample
from colo_collector.usage import GroupCounters, MachineReading, Unknown
from colo_common.events.node import ClassUsage, PressureReading, WorkloadUsage, ZoneUsage
from colo_common.model.qos import PriorityBand, QosClass
from tests.support.builders import GIB, a_topology

S = 1_000_000_000
#: Two zones of two CPUs: 0-1 and 2-3.
TOPOLOGY = a_topology(cpus=2, memory_gib=8)
WEB = Workload(name="web", path="/web", qos=QosClass.LSR, band=PriorityBand.PROD)
(REPLICA,) = batch_workloads(("job.main.0@2",), "colo")


def ticks(cpu: int, busy: int, steal: int = 0) -> CpuTicks:
    return CpuTicks(cpu=cpu, user=busy, nice=0, system=0, idle=10_000, steal=steal)


def a_sample(
    at_s: float = 0,
    *,
    busy: tuple[int, ...] = (0, 0, 0, 0),
    steal: int = 0,
    groups: dict[str, int] | None = None,
    memory: dict[str, int] | None = None,
    pressure: Any = (),
    boot_id: str = "boot",
    used_gib: int = 4,
    zones: tuple[tuple[int, int], ...] = ((0, GIB), (1, 3 * GIB)),
    throttled_us: int = 0,
) -> Sample:
    """`busy` ticks of each CPU since boot, `groups` CPU nanoseconds since each began."""
    counters = tuple(
        GroupCounters(workload=name, cpu_usage_ns=used, throttled_us=throttled_us, identity=7)
        for name, used in (groups or {}).items()
    )
    machine = MachineCpuTicks(
        total=ticks(-1, sum(busy), steal), cpus=tuple(ticks(cpu, one) for cpu, one in enumerate(busy))
    )
    return Sample(
        reading=MachineReading(at_ns=int(at_s * S), boot_id=boot_id, ticks=machine, groups=counters),
        memory_used_bytes=used_gib * GIB,
        memory_total_bytes=16 * GIB,
        zone_memory_used_bytes=zones,
        workload_memory_bytes=memory or dict.fromkeys(groups or {}, GIB),
        pressure=pressure,
    )


def measure_samples(previous: Sample | None, current: Sample, **changes: Any) -> Measurement:
    given_: dict[str, Any] = {
        "at_ms": 5_000,
        "topology": TOPOLOGY,
        "workloads": (WEB, REPLICA),
        "zones_of": {"web": (0, 1), "job/main/0#2": (1,)},
        **changes,
    }
    given_["workloads"] = {workload.name: workload for workload in given_["workloads"]}
    return measure(previous, current, **given_)


def the_sample(measurement: Measurement) -> SampleRead:
    assert isinstance(measurement.event, SampleRead), measurement
    return measurement.event


def test_every_number_of_a_sample_comes_from_its_own_counter() -> None:
    before = a_sample(10, groups={"web": S, "job/main/0#2": 5 * S}, throttled_us=100)
    after = a_sample(
        12,
        busy=(100, 50, 200, 0),
        steal=4,
        groups={"web": 2 * S, "job/main/0#2": 6 * S + S // 2},
        memory={"web": 2 * GIB, "job/main/0#2": GIB},
        throttled_us=350,
    )
    result = measure_samples(before, after)
    assert result.left_out == ()
    assert result.event == SampleRead(
        at_ms=5_000,
        interval_ms=2_000,
        cpu_used_mcpu=1_750,
        memory_used_bytes=4 * GIB,
        zones=(
            ZoneUsage(zone=0, cpu_used_mcpu=750, memory_used_bytes=GIB, steal_mcpu=0),
            ZoneUsage(zone=1, cpu_used_mcpu=1_000, memory_used_bytes=3 * GIB, steal_mcpu=0),
        ),
        workloads=(
            WorkloadUsage(
                workload="job/main/0#2",
                qos=QosClass.BE,
                band=PriorityBand.BATCH,
                cpu_used_mcpu=750,
                memory_used_bytes=GIB,
                zones=(1,),
                replica="job/main/0",
                attempt=2,
                throttled_us=250,
            ),
            WorkloadUsage(
                workload="web",
                qos=QosClass.LSR,
                band=PriorityBand.PROD,
                cpu_used_mcpu=500,
                memory_used_bytes=2 * GIB,
                zones=(0, 1),
                throttled_us=250,
            ),
        ),
        system_cpu_used_mcpu=500,
        system_memory_used_bytes=GIB,
        steal_mcpu=20,
        monotonic_ms=12_000,
        classes=(
            ClassUsage(qos=QosClass.LSR, workloads=1, cpu_used_mcpu=500, memory_used_bytes=2 * GIB, throttled_us=250),
            ClassUsage(qos=QosClass.BE, workloads=1, cpu_used_mcpu=750, memory_used_bytes=GIB, throttled_us=250),
        ),
    )


@pytest.mark.parametrize(
    ("before", "after", "stall_us"),
    [
        ({"web": 1_000, "api": 5_000}, {"web": 41_000, "api": 8_000}, 40_000),
        ({"web": None, "api": 5_000}, {"web": None, "api": 8_000}, 3_000),
        ({"web": None}, {"web": None}, None),
        ({"web": 9_000}, {"web": 1_000}, None),
        ({"web": 0}, {"web": 3_000_000}, 2_000_000),
    ],
    ids=["the longest counts", "one is not measured", "none is", "went back", "cut to the interval"],
)
def test_the_stall_of_online_work_is_the_longest_of_its_groups(
    before: dict[str, int | None], after: dict[str, int | None], stall_us: int | None
) -> None:
    first, last = a_sample(10), a_sample(12)

    def with_stalls(sample: Sample, stalls: dict[str, int | None]) -> Sample:
        groups = tuple(
            GroupCounters(workload=name, cpu_usage_ns=0, identity=7, stalled_us=stalled)
            for name, stalled in stalls.items()
        )
        return replace(
            sample, reading=replace(sample.reading, groups=groups), workload_memory_bytes=dict.fromkeys(stalls, 0)
        )

    result = measure_samples(with_stalls(first, before), with_stalls(last, after))
    assert the_sample(result).online_stall_us == stall_us


def test_the_first_reading_gives_no_sample() -> None:
    assert measure_samples(None, a_sample()) == Measurement(event=Unreadable(reason=Skip.FIRST))


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (a_sample(2, boot_id="other"), Skip.REBOOTED),
        (a_sample(1), Skip.TIME_STOOD),
        (a_sample(0.5), Skip.TIME_BACKWARDS),
        (a_sample(2, busy=(9, 0, 0, 0)), Skip.RESET),
        (a_sample(2, busy=(10_000, 0, 0, 0)), Skip.ABSURD),
        (a_sample(2, busy=(10, 0, 0)), Skip.CPU_CAME),
        (a_sample(2, busy=(10, 0, 0, 0), zones=((0, GIB),)), Skip.ZONE_MEMORY),
    ],
)
def test_a_rate_of_the_machine_that_is_unknown_gives_no_sample(after: Sample, reason: Skip) -> None:
    result = measure_samples(a_sample(1, busy=(10, 0, 0, 0)), after)
    assert isinstance(result.event, Unreadable)
    assert result.event.reason is reason


def test_a_steal_counter_that_went_back_costs_the_stolen_time_only() -> None:
    result = measure_samples(a_sample(1, steal=5), a_sample(2, steal=4))
    sampled = the_sample(result)
    assert (sampled.steal_mcpu, sampled.missing) == (0, ("steal",))


def test_a_zone_without_memory_need_not_tell_any() -> None:
    zones = (TOPOLOGY.zones[0], structs.replace(TOPOLOGY.zones[1], memory_bytes=0))
    topology = structs.replace(TOPOLOGY, zones=zones)
    result = measure_samples(a_sample(1), a_sample(2, zones=((0, GIB),)), topology=topology)
    assert [zone.memory_used_bytes for zone in the_sample(result).zones] == [GIB, 0]


def test_a_workload_that_is_new_is_left_out_once_and_counts_as_system() -> None:
    readings = [
        a_sample(1),
        a_sample(2, busy=(50, 0, 0, 0), groups={"web": S // 2}),
        a_sample(3, busy=(100, 0, 0, 0), groups={"web": S}),
    ]
    first = measure_samples(readings[0], readings[1])
    assert the_sample(first).workloads == ()
    assert the_sample(first).system_cpu_used_mcpu == 500
    assert the_sample(first).system_memory_used_bytes == 4 * GIB
    assert first.left_out == (("web", Unknown.FIRST),)
    second = measure_samples(readings[1], readings[2])
    assert [one.cpu_used_mcpu for one in the_sample(second).workloads] == [500]
    assert the_sample(second).system_cpu_used_mcpu == 0
    assert second.left_out == ()


def test_a_removed_workload_is_neither_listed_nor_left_out() -> None:
    result = measure_samples(a_sample(1, groups={"web": S}), a_sample(2))
    assert the_sample(result).workloads == ()
    assert result.left_out == ()


def test_a_group_that_was_replaced_is_left_out() -> None:
    after = a_sample(2, groups={"web": 2 * S})
    other = structs.replace(
        after,
        reading=structs.replace(after.reading, groups=(GroupCounters(workload="web", cpu_usage_ns=0, identity=8),)),
    )
    result = measure_samples(a_sample(1, groups={"web": S}), other)
    assert result.left_out == (("web", Unknown.REPLACED),)


def test_system_use_is_never_negative_when_groups_say_more_than_the_machine() -> None:
    after = a_sample(2, busy=(10, 0, 0, 0), groups={"web": S // 2}, memory={"web": 9 * GIB})
    sample = the_sample(measure_samples(a_sample(1, groups={"web": 0}), after))
    assert sample.cpu_used_mcpu == 100
    assert sample.system_cpu_used_mcpu == 0
    assert sample.system_memory_used_bytes == 0


@pytest.mark.parametrize(("span_ns", "interval_ms"), [(1_000_400_000, 1_000), (1_000_500_000, 1_001), (1_000_000, 1)])
def test_the_interval_is_rounded_to_the_nearest_millisecond(span_ns: int, interval_ms: int) -> None:
    before = a_sample(0)
    after = structs.replace(before, reading=structs.replace(before.reading, at_ns=span_ns))
    assert the_sample(measure_samples(before, after)).interval_ms == interval_ms


def test_a_stall_is_listed_when_both_readings_have_it() -> None:
    def stall(us: int) -> Pressure:
        return Pressure(some=PressureLine(123, 0, 0, us), full=PressureLine(45, 0, 0, us // 2))

    before = a_sample(1, pressure=(("cpu", stall(1_000)), ("memory", stall(9_000))))
    after = a_sample(2, pressure=(("cpu", stall(3_000)), ("memory", stall(8_000)), ("io", stall(1))))
    # Memory went back and io is new: what is unknown is not listed.
    assert the_sample(measure_samples(before, after)).pressure == (
        PressureReading(
            resource="cpu",
            some_us=2_000,
            full_us=1_000,
            some_avg10_centipct=123,
            full_avg10_centipct=45,
            some_total_us=3_000,
            full_total_us=1_500,
        ),
    )
    assert the_sample(measure_samples(before, after)).missing == ("pressure-memory", "pressure-io")


def test_workloads_whose_zones_are_not_known_list_none() -> None:
    result = measure_samples(a_sample(1, groups={"web": 0}), a_sample(2, groups={"web": 1}), zones_of={})
    assert the_sample(result).workloads[0].zones == ()


@given(
    st.lists(st.integers(0, 120), min_size=4, max_size=4),
    st.lists(st.integers(0, 4 * S), max_size=6),
    st.integers(10_000_000, 5 * S),
)
def test_a_sample_adds_up_whatever_the_counters_say(busy: list[int], used: list[int], span_ns: int) -> None:
    names = [f"w{index}" for index in range(len(used))]
    workloads = [Workload(name=name, path=f"/{name}", qos=QosClass.LS, band=PriorityBand.PROD) for name in names]
    before = a_sample(0, groups=dict.fromkeys(names, 0))
    after = a_sample(0, busy=(busy[0], busy[1], busy[2], busy[3]), groups=dict(zip(names, used, strict=True)))
    after = structs.replace(after, reading=structs.replace(after.reading, at_ns=span_ns))
    result = measure_samples(before, after, workloads=workloads)
    if isinstance(result.event, Unreadable):
        assert result.event.reason is Skip.ABSURD
        return
    sample = result.event
    assert sample.cpu_used_mcpu == sum(zone.cpu_used_mcpu for zone in sample.zones)
    assert 0 <= sample.cpu_used_mcpu <= TOPOLOGY.cpu_capacity_mcpu
    listed = sum(one.cpu_used_mcpu for one in sample.workloads)
    assert sample.system_cpu_used_mcpu == max(sample.cpu_used_mcpu - listed, 0)
    assert len(sample.workloads) + len(result.left_out) == len(names)
