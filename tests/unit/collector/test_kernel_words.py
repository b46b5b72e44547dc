"""What the kernel says between two samples: pressure that reached its mark, memory that ran out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from colo_collector.core import CollectorCore
from colo_collector.memory_events import MemoryEventsRead, MemoryEventWatch
from colo_collector.parse_detail import MemoryEvents
from colo_collector.policy import CollectorPolicy
from colo_collector.readings import PressureRaised
from colo_common.events.effects import Publish
from colo_common.events.node import MemoryEventsGrew, PressureCrossed
from tests.support.machine_tree import GIB
from tests.unit.collector.test_collector_core import a_core, a_sample
from tests.unit.collector.test_machine import WEB, Bench

S = 1_000_000_000


def facts(core: CollectorCore, event: object) -> list[object]:
    found = core.handle(event, 5_000)  # type: ignore[arg-type]
    core.check()
    return [one.fact for one in found if isinstance(one, Publish)]


def test_pressure_of_which_the_kernel_tells_is_published_at_once_and_only_once() -> None:
    core = a_core()
    (crossed,) = facts(core, PressureRaised(signal="cpu_some"))
    assert isinstance(crossed, PressureCrossed)
    assert (crossed.signal, crossed.above, crossed.value_pct, crossed.threshold_pct) == ("cpu_some", True, 60, 60)
    assert facts(core, PressureRaised(signal="cpu_some")) == []
    assert facts(core, PressureRaised(signal="irq_full")) == []
    fell = []
    for number in range(1, 25):
        sampled = facts(core, a_sample(at_ms=number * 1_000, interval_ms=1_000, cpu_some_us=0))
        fell += [
            (number, one.above) for one in sampled if isinstance(one, PressureCrossed) and one.signal == "cpu_some"
        ]
    # The kernel's word holds for its window; then the samples, which saw no stall, end it.
    assert fell == [(10, False)]


def test_a_signal_that_the_samples_raised_is_not_raised_again() -> None:
    core = a_core()
    for number in range(1, 8):
        facts(core, a_sample(at_ms=number * 1_000, interval_ms=1_000, cpu_some_us=1_000_000))
    assert facts(core, PressureRaised(signal="cpu_some")) == []


def test_the_kernels_trigger_is_the_mark_of_the_samples() -> None:
    assert CollectorPolicy().triggers()["pressure memory_full"] == ("/proc/pressure/memory", "full 1000000 10000000")
    assert CollectorPolicy(window_ms=30_000).triggers() == {}


def test_out_of_memory_is_said_at_once_and_being_throttled_once_in_ten_seconds() -> None:
    watch = MemoryEventWatch()

    def take(high: int, oom: int, at_s: int, identity: int = 1) -> tuple[int, int] | None:
        events = MemoryEvents(high=high, max=0, oom=oom, oom_kill=0)
        found = watch.take("web", events, identity=identity, at_ns=at_s * S)
        return None if found is None else (found.high_events, found.oom_events)

    assert take(5, 1, 0) is None
    assert take(7, 1, 1) == (2, 0)
    assert take(9, 1, 2) is None
    assert take(9, 2, 3) == (2, 1)
    assert take(12, 2, 4) is None
    assert take(12, 2, 13) == (3, 0)
    assert take(12, 2, 30) is None
    # Another group of the name counts from its own beginning.
    assert take(50, 9, 31, identity=2) is None


def test_a_workload_that_ran_out_of_memory_is_told_by_its_turn_and_between_samples(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cgroup="v2", online=("web=/web:LSR",), workloads=(WEB,))
    bench.observe()
    observation = bench.second()
    assert observation.event_files == {"memory web": ("/sys/fs/cgroup/web/memory.events", "")}
    bench.change(replace(bench.tree.spec, workloads=(replace(WEB, oom_kills=2, memory_bytes=GIB),)))
    (read,) = bench.machine.named(("memory web", "memory no-such-workload"))
    assert read == MemoryEventsRead(workload="web", oom_kill_events=2)
    (fact,) = facts(bench.core, read)
    assert isinstance(fact, MemoryEventsGrew)
    assert (fact.node, fact.workload, fact.oom_kill_events) == ("n1", "web", 2)
    # The turn after it has nothing to add.
    assert bench.second().memory_events == ()
    bench.change(replace(bench.tree.spec, workloads=(replace(WEB, oom_kills=3, memory_bytes=GIB),)))
    assert [one.oom_kill_events for one in bench.second().memory_events] == [1]
