"""What the core publishes of a machine: a changed topology, every sample once, and pressure at the moment it crosses."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from colo_collector.core import CollectorCore, Event, content_hash
from colo_collector.crossing import Gauge
from colo_collector.policy import CollectorPolicy, Threshold
from colo_collector.readings import SampleRead, Skip, TopologyRead, Unreadable
from colo_collector.usage import Unknown
from colo_common.events.effects import Publish, Wake
from colo_common.events.node import (
    Capability,
    NodeTopologyReported,
    NodeUsageSampled,
    PressureCrossed,
    PressureReading,
    WorkloadUsage,
    ZoneUsage,
)
from colo_common.model.invalid import InvalidInput
from colo_common.model.topology import uniform_topology
from tests.support.builders import GIB, a_batch_workload, a_topology

MACHINE = TopologyRead(
    topology=a_topology(), capabilities=(Capability(name="psi", present=True),), labels={"rack": "r1", "pool": "a"}
)


def a_sample(*, at_ms: int = 1_000, interval_ms: int = 1_000, cpu_some_us: int | None = None) -> SampleRead:
    """A sample of the two zones of MACHINE."""
    readings = () if cpu_some_us is None else (PressureReading(resource="cpu", some_us=cpu_some_us, full_us=0),)
    return SampleRead(
        at_ms=at_ms,
        interval_ms=interval_ms,
        cpu_used_mcpu=3_000,
        memory_used_bytes=2 * GIB,
        zones=(
            ZoneUsage(zone=0, cpu_used_mcpu=1_000, memory_used_bytes=GIB),
            ZoneUsage(zone=1, cpu_used_mcpu=2_000, memory_used_bytes=GIB),
        ),
        workloads=(a_batch_workload(),),
        pressure=readings,
        system_cpu_used_mcpu=2_000,
        system_memory_used_bytes=GIB,
        steal_mcpu=5,
    )


def published(core: CollectorCore, event: Event, now_ms: int = 0) -> list[Publish]:
    effects = core.handle(event, now_ms)
    core.check()
    assert all(isinstance(effect, Publish) for effect in effects)
    assert core.deadline_ms() is None
    return [effect for effect in effects if isinstance(effect, Publish)]


def a_core(policy: CollectorPolicy | None = None) -> CollectorCore:
    core = CollectorCore("n1", policy or CollectorPolicy())
    published(core, MACHINE)
    return core


def test_the_topology_is_published_at_the_start_and_not_again_while_it_is_the_same() -> None:
    core = CollectorCore("n1", CollectorPolicy())
    (first,) = published(core, MACHINE, 5)
    assert first.fact == NodeTopologyReported(
        at_ms=5,
        node="n1",
        topology=MACHINE.topology,
        capabilities=MACHINE.capabilities,
        labels={"rack": "r1", "pool": "a"},
    )
    assert first.id == f"collector:topology:n1:{content_hash(MACHINE)}:5"
    assert published(core, structs.replace(MACHINE), 9) == []


@pytest.mark.parametrize(
    "other",
    [
        structs.replace(MACHINE, topology=a_topology(cpus=8)),
        structs.replace(MACHINE, labels={"rack": "r2"}),
        structs.replace(MACHINE, capabilities=()),
        structs.replace(MACHINE, simulated=True),
    ],
)
def test_a_changed_topology_is_published_and_so_is_its_return(other: TopologyRead) -> None:
    core = a_core()
    (changed,) = published(core, other, 10)
    (back,) = published(core, MACHINE, 20)
    assert isinstance(changed.fact, NodeTopologyReported)
    assert (changed.fact.topology, changed.fact.labels) == (other.topology, other.labels)
    assert isinstance(back.fact, NodeTopologyReported)
    assert back.fact.topology == MACHINE.topology
    # The bus forgets nothing for minutes: a third fact with the first one's id would be dropped there.
    assert len({changed.id, back.id, f"collector:topology:n1:{content_hash(MACHINE)}:0"}) == 3


def test_the_hash_of_the_content_does_not_depend_on_the_order_of_labels() -> None:
    turned = structs.replace(MACHINE, labels=dict(reversed(MACHINE.labels.items())))
    assert msgspec.json.encode(turned) != msgspec.json.encode(MACHINE)
    assert content_hash(turned) == content_hash(MACHINE)
    assert content_hash(structs.replace(MACHINE, simulated=True)) != content_hash(MACHINE)


def test_samples_carry_every_reading_and_count_from_one() -> None:
    core = a_core()
    event = a_sample(cpu_some_us=7)
    (first,) = published(core, event)
    (second,) = published(core, a_sample(at_ms=2_000))
    assert first.fact == NodeUsageSampled(
        at_ms=1_000,
        node="n1",
        sample_seq=1,
        interval_ms=1_000,
        cpu_used_mcpu=3_000,
        memory_used_bytes=2 * GIB,
        zones=event.zones,
        workloads=event.workloads,
        pressure=event.pressure,
        system_cpu_used_mcpu=2_000,
        system_memory_used_bytes=GIB,
        steal_mcpu=5,
    )
    assert isinstance(second.fact, NodeUsageSampled)
    assert second.fact.sample_seq == 2


def test_a_period_without_a_sample_is_counted_by_its_reason_and_takes_no_number() -> None:
    core = a_core()
    for reason in (Skip.FIRST, Skip.UNREADABLE, Skip.UNREADABLE):
        assert published(core, Unreadable(reason=reason, detail="why")) == []
    (sample,) = published(core, a_sample())
    assert isinstance(sample.fact, NodeUsageSampled)
    assert sample.fact.sample_seq == 1
    assert core.skipped == {Skip.FIRST: 1, Skip.UNREADABLE: 2}


def test_a_sample_before_the_first_topology_is_counted_and_not_published() -> None:
    core = CollectorCore("n1", CollectorPolicy())
    assert published(core, a_sample()) == []
    assert core.skipped == {Skip.NO_TOPOLOGY: 1}
    assert core.sample_seq == 0


def test_the_topology_is_published_again_now_and_then() -> None:
    core = CollectorCore("n1", CollectorPolicy(topology_again_ms=60_000))
    published(core, MACHINE, 0)
    assert [type(one.fact) for one in published(core, a_sample(), 59_999)] == [NodeUsageSampled]
    again = published(core, a_sample(), 60_000)
    assert [type(one.fact) for one in again] == [NodeTopologyReported, NodeUsageSampled]
    assert [type(one.fact) for one in published(core, a_sample(), 60_001)] == [NodeUsageSampled]
    with pytest.raises(InvalidInput, match="topology_again_ms"):
        CollectorCore("n1", CollectorPolicy(topology_again_ms=59_999))


def test_a_wake_changes_nothing() -> None:
    assert published(a_core(), Wake()) == []


def test_every_unknown_of_a_machine_is_a_reason_to_skip() -> None:
    of_groups_only = {Unknown.ABSENT, Unknown.REPLACED}
    assert {one.value for one in Unknown if one not in of_groups_only} <= {one.value for one in Skip}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"interval_ms": 0}, "sample.interval_ms"),
        ({"zones": ()}, "sample.zones"),
        ({"zones": tuple(reversed(a_sample().zones))}, "sample.zones"),
        ({"zones": (a_sample().zones[0], ZoneUsage(zone=1, cpu_used_mcpu=-1, memory_used_bytes=0))}, "sample.zones"),
        ({"cpu_used_mcpu": -1}, "sample"),
        ({"system_memory_used_bytes": -1}, "sample"),
        ({"workloads": (a_batch_workload(), a_batch_workload())}, "sample.workloads"),
        ({"workloads": (a_batch_workload(mcpu=-1),)}, "sample.workloads[job/main/0]"),
        ({"pressure": (PressureReading(resource="io", some_us=-1, full_us=0),)}, "sample.pressure[io]"),
        ({"pressure": (PressureReading(resource="io", some_us=0, full_us=0),) * 2}, "sample.pressure"),
    ],
)
def test_a_sample_that_cannot_be_is_refused_and_changes_nothing(change: dict[str, object], field: str) -> None:
    core = a_core()
    with pytest.raises(InvalidInput) as caught:
        core.handle(structs.replace(a_sample(), **change), 0)
    assert caught.value.field == field
    assert core.sample_seq == 0
    core.check()


def test_a_machine_that_contradicts_itself_is_refused_and_the_known_one_stays() -> None:
    core = a_core()
    broken = structs.replace(MACHINE.topology, cpus=MACHINE.topology.cpus[:-1])
    with pytest.raises(InvalidInput):
        core.handle(structs.replace(MACHINE, topology=broken), 0)
    assert core.topology_read == MACHINE


@pytest.mark.parametrize("node", ["", "Node", "a b", "x" * 254, "-a"])
def test_a_node_name_that_no_subject_takes_is_refused_at_the_start(node: str) -> None:
    with pytest.raises(InvalidInput):
        CollectorCore(node, CollectorPolicy())


# ------------------------------------------------------------ pressure


def crossings(core: CollectorCore, some_us: list[int], *, interval_ms: int = 1_000) -> list[tuple[int, bool, int, int]]:
    """Which of the samples (from 1) crossed: number, above, value, mark."""
    found = []
    for index, stall in enumerate(some_us, 1):
        for publish in published(core, a_sample(at_ms=index * 1_000, interval_ms=interval_ms, cpu_some_us=stall)):
            if isinstance(publish.fact, PressureCrossed):
                fact = publish.fact
                assert (fact.signal, fact.window_ms, fact.node) == ("cpu_some", 10_000, "n1")
                found.append((fact.sample_seq, fact.above, fact.value_pct, fact.threshold_pct))
    return found


def test_pressure_is_published_in_the_sample_in_which_its_stall_is_there() -> None:
    assert crossings(a_core(), [1_000_000] * 8) == [(6, True, 60, 60)]


def test_pressure_falls_below_only_at_the_lower_mark() -> None:
    stalls = [1_000_000] * 10 + [0] * 6
    assert crossings(a_core(), stalls) == [(6, True, 60, 60), (16, False, 40, 40)]


def test_between_the_marks_nothing_is_published() -> None:
    # Six bad seconds of ten, then half of each second: the window stays between 40 and 60 %.
    assert crossings(a_core(), [1_000_000] * 6 + [500_000] * 60) == [(6, True, 60, 60)]


def test_a_single_bad_second_after_the_start_is_no_pressure() -> None:
    assert crossings(a_core(), [1_000_000, 0, 0, 0]) == []


def test_the_fact_of_a_crossing_comes_before_its_sample_and_has_an_id_of_its_own() -> None:
    core = a_core(CollectorPolicy(window_ms=1_000))
    crossed, sample = published(core, a_sample(cpu_some_us=900_000))
    assert isinstance(sample.fact, NodeUsageSampled)
    assert crossed.fact == PressureCrossed(
        at_ms=1_000,
        node="n1",
        signal="cpu_some",
        above=True,
        value_pct=90,
        threshold_pct=60,
        window_ms=1_000,
        sample_seq=1,
    )
    assert crossed.id == "collector:pressure:n1:cpu_some:1000:1"


def test_a_resource_that_a_sample_lacks_keeps_its_state() -> None:
    core = a_core()
    crossings(core, [1_000_000] * 7)
    assert [type(one.fact) for _ in range(20) for one in published(core, a_sample())] == [NodeUsageSampled] * 20
    assert crossings(core, [1_000_000]) == []


def test_each_signal_has_its_own_line_and_marks() -> None:
    core = a_core(CollectorPolicy(window_ms=1_000))
    readings = (
        PressureReading(resource="memory", some_us=900_000, full_us=100_000),
        PressureReading(resource="io", some_us=900_000, full_us=399_000),
    )
    publishes = published(core, structs.replace(a_sample(), pressure=readings))
    facts = [publish.fact for publish in publishes if isinstance(publish.fact, PressureCrossed)]
    assert [(fact.signal, fact.value_pct, fact.threshold_pct) for fact in facts] == [("memory_full", 10, 10)]


def test_a_stall_longer_than_its_interval_counts_as_the_interval() -> None:
    assert crossings(a_core(), [5_000_000] * 6) == [(6, True, 60, 60)]


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (CollectorPolicy(window_ms=999), "window_ms"),
        (
            CollectorPolicy(thresholds=(Threshold(signal="io_some", above_pct=0, below_pct=0),)),
            "thresholds.io_some.above_pct",
        ),
        (
            CollectorPolicy(thresholds=(Threshold(signal="io_some", above_pct=9, below_pct=9),)),
            "thresholds.io_some.below_pct",
        ),
        (
            CollectorPolicy(thresholds=(Threshold(signal="io_some", above_pct=9, below_pct=1),) * 2),
            "thresholds.io_some",
        ),
    ],
)
def test_a_policy_that_contradicts_itself_names_the_field(policy: CollectorPolicy, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        CollectorCore("n1", policy)
    assert caught.value.field == field


@given(
    st.lists(st.tuples(st.integers(1, 30_000), st.integers(0, 100)), max_size=60),
    st.integers(1, 100).flatmap(lambda above: st.tuples(st.just(above), st.integers(0, above - 1))),
)
def test_the_window_is_what_a_sum_over_the_last_samples_gives(
    spans: list[tuple[int, int]], marks: tuple[int, int]
) -> None:
    gauge = Gauge(Threshold(signal="cpu_some", above_pct=marks[0], below_pct=marks[1]), 10_000)
    states = [False]
    for index, (interval_ms, pct) in enumerate(spans, 1):
        crossing = gauge.take(interval_ms * 1_000, interval_ms * pct * 10)
        gauge.check()
        left = 10_000_000
        stalled = 0
        for span_ms, share in reversed(spans[:index]):
            inside = min(span_ms * 1_000, left)
            stalled += span_ms * share * 10 * inside // (span_ms * 1_000)
            left -= inside
        assert gauge.share_pct == stalled * 100 // 10_000_000
        if crossing is not None:
            assert crossing.above is not states[-1]
            states.append(crossing.above)
        assert gauge.is_above is states[-1]


def test_a_good_period_never_crosses_upwards_and_a_long_one_does_not_dilute() -> None:
    core = a_core()
    published(core, a_sample(interval_ms=9_500, cpu_some_us=0))
    assert crossings(core, [6_000_000], interval_ms=6_000) == [(2, True, 60, 60)]


@given(
    st.lists(
        st.one_of(
            st.builds(a_sample, at_ms=st.integers(0, 10**6), cpu_some_us=st.none() | st.integers(0, 2 * 10**6)),
            st.sampled_from(list(Skip)).map(lambda reason: Unreadable(reason=reason)),
            st.sampled_from([8, 16]).map(lambda cpus: TopologyRead(topology=a_topology(cpus=cpus))),
            st.just(Wake()),
        ),
        max_size=40,
    )
)
def test_the_same_events_give_the_same_effects_and_ids_are_never_used_twice_at_different_times(
    events: list[Event],
) -> None:
    runs = []
    for _ in range(2):
        core = CollectorCore("n1", CollectorPolicy())
        effects = []
        for now_ms, event in enumerate(events):
            effects += core.handle(event, now_ms)
            core.check()
        runs.append(effects)
    assert runs[0] == runs[1]
    ids = [effect.id for effect in runs[0] if isinstance(effect, Publish) and effect.id]
    assert len(ids) == len(set(ids))
    samples = [e.fact.sample_seq for e in runs[0] if isinstance(e, Publish) and isinstance(e.fact, NodeUsageSampled)]
    assert samples == list(range(1, len(samples) + 1))


def test_a_simulated_machine_is_published_as_one() -> None:
    core = CollectorCore("sim-1", CollectorPolicy())
    topology = uniform_topology(sockets=2, zones_per_socket=2, cpus_per_zone=16, memory_bytes_per_zone=64 * GIB)
    (publish,) = published(core, TopologyRead(topology=topology, simulated=True))
    assert isinstance(publish.fact, NodeTopologyReported)
    assert publish.fact.simulated


def test_a_workload_with_a_negative_throttle_is_refused() -> None:
    workload = structs.replace(a_batch_workload(), throttled_us=-1)
    assert isinstance(workload, WorkloadUsage)
    with pytest.raises(InvalidInput):
        a_core().handle(structs.replace(a_sample(), workloads=(workload,)), 0)
