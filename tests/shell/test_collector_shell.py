"""The shell on virtual time: an absolute schedule, missed periods, and a log that tells changes only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog
from msgspec import Struct

from colo_collector.core import CollectorCore
from colo_collector.machine import Observation
from colo_collector.policy import CollectorPolicy
from colo_collector.readings import PressureRaised, SampleRead, Skip, TopologyRead, Unreadable
from colo_collector.shell import CollectorShell
from colo_collector.usage import Unknown
from colo_common.events.node import NodeTopologyReported, NodeUsageSampled, ZoneUsage
from colo_common.events.wire import decode
from colo_common.ports import Clock
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.service import Service
from tests.support.builders import a_topology
from tests.support.bus_memory import MemoryBus
from tests.support.vloop import VirtualClock, run_virtual

MACHINE = TopologyRead(topology=a_topology())
BROKEN = Observation(event=Unreadable(reason=Skip.UNREADABLE, detail="/proc/stat: must be readable"))


def good(faults: tuple[str, ...] = ()) -> Observation:
    zones = tuple(ZoneUsage(zone=zone, cpu_used_mcpu=100, memory_used_bytes=1) for zone in (0, 1))
    event = SampleRead(at_ms=0, interval_ms=1_000, cpu_used_mcpu=200, memory_used_bytes=2, zones=zones)
    return Observation(event=event, faults=faults, workloads=3, left_out=(("w", Unknown.FIRST),))


class Script:
    """A machine that gives observations in turn, the last one for ever, and notes when it was read."""

    def __init__(self, *observations: Observation) -> None:
        self.observations = list(observations)
        self.at_s: list[float] = []

    def observe(self) -> Observation:
        self.at_s.append(round(asyncio.get_running_loop().time(), 6))
        return self.observations.pop(0) if len(self.observations) > 1 else self.observations[0]


class FastClock(VirtualClock):
    """A lab's clock, sixty times as fast."""

    def real_s(self, span_ms: int) -> float:
        return super().real_s(span_ms) / 60


def watch(
    machine: Script,
    *,
    seconds: float = 3.5,
    clock: Callable[[], Clock] = VirtualClock,
    busy_s: dict[int, float] | None = None,
) -> tuple[list[Struct], Metrics, list[str], CollectorShell]:
    """Run the shell for some virtual seconds; what it injected (taking as long as `busy_s` says), metrics and log events."""
    injected: list[Struct] = []
    metrics = Metrics()
    core = CollectorCore("n1", CollectorPolicy())

    async def inject(event: Struct) -> None:
        injected.append(event)
        core.handle(event, 0)  # type: ignore[arg-type]
        await asyncio.sleep((busy_s or {}).get(len(machine.at_s), 0.0))

    async def main() -> CollectorShell:
        shell = CollectorShell(
            machine, inject=inject, skipped=core.skipped, clock=clock(), period_ms=1_000, metrics=metrics
        )
        task = asyncio.create_task(shell.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return shell

    with structlog.testing.capture_logs() as logs:
        shell = run_virtual(main())
    return injected, metrics, [line["event"] for line in logs], shell


def test_looks_come_at_once_and_then_once_a_period() -> None:
    machine = Script(Observation(event=Unreadable(reason=Skip.FIRST), topology_read=MACHINE), good())
    injected, _, logs, shell = watch(machine)
    assert machine.at_s == [0.0, 1.0, 2.0, 3.0]
    assert [type(event) for event in injected] == [TopologyRead, Unreadable, SampleRead, SampleRead, SampleRead]
    assert logs == ["topology-read", "machine-readable"]
    assert shell.problem() == ""


def test_a_late_look_does_not_move_the_next_and_what_was_missed_is_not_made_up_for() -> None:
    machine = Script(good())
    # The first reading is late by a bit, the third (at 2 s) by more than two periods.
    _, metrics, _, _ = watch(machine, seconds=7.5, busy_s={1: 0.4, 3: 2.7})
    assert machine.at_s == [0.0, 1.0, 2.0, 5.0, 6.0, 7.0]
    assert b"colo_collector_periods_missed_total 2.0" in metrics.text()


class Kernel:
    """Tells of what it is asked about; nothing hangs."""

    hangs = 0

    def named(self, names: Sequence[str]) -> tuple[Struct, ...]:
        return tuple(PressureRaised(signal=name) for name in names)


def test_what_the_kernel_tells_is_handed_on_within_a_tenth_of_a_second_and_many_words_together() -> None:
    woken_s = {f"signal {number}": number * 0.007 for number in range(40)}
    handed_on: list[list[tuple[str, float]]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def inject(event: Struct) -> None:
            assert isinstance(event, PressureRaised)
            if not handed_on or handed_on[-1][0][1] != loop.time():
                handed_on.append([])
            handed_on[-1].append((event.signal, loop.time()))

        shell = CollectorShell(
            Script(good()),
            inject=inject,
            skipped={},
            clock=VirtualClock(),
            period_ms=1_000,
            metrics=Metrics(),
            kernel=Kernel(),
        )
        began_s = loop.time()
        for name, at_s in woken_s.items():
            loop.call_at(began_s + at_s, shell.wake, (name,))
        task = asyncio.create_task(shell.hear_kernel())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        late_s = {name: at_s - began_s - woken_s[name] for batch in handed_on for name, at_s in batch}
        assert late_s.keys() == woken_s.keys()
        # The other half of the time is left for reading and publishing.
        assert max(late_s.values()) <= 0.051
        assert len(handed_on) <= 7

    run_virtual(main())


def test_a_fast_clock_shortens_the_period_but_not_without_end() -> None:
    machine = Script(good())
    watch(machine, seconds=0.35, clock=FastClock)
    assert machine.at_s == [0.0, 0.1, 0.2, 0.3]


def test_the_log_tells_a_failing_read_once_and_its_end_once() -> None:
    other = Observation(event=Unreadable(reason=Skip.REBOOTED))
    machine = Script(good(), BROKEN, BROKEN, BROKEN, other, good(), good())
    _, metrics, logs, shell = watch(machine, seconds=7.5)
    assert logs == ["machine-readable", "machine-unreadable", "machine-unreadable", "machine-readable"]
    assert shell.problem() == ""
    text = metrics.text()
    assert b'colo_collector_samples_skipped_total{reason="unreadable"} 3.0' in text
    assert b'colo_collector_samples_skipped_total{reason="rebooted"} 1.0' in text


def test_a_machine_that_cannot_be_read_is_a_problem_that_says_why() -> None:
    *_, shell = watch(Script(BROKEN))
    assert shell.problem() == "/proc/stat: must be readable"


def test_before_the_first_sample_the_machine_is_not_ready() -> None:
    *_, shell = watch(Script(Observation(event=Unreadable(reason=Skip.FIRST))))
    assert shell.problem() == "has not been read yet"


def test_faults_are_logged_when_they_come_and_when_they_go() -> None:
    many = tuple(f"w{index:02}: broken" for index in range(25))
    machine = Script(good(("a: broken",)), good(("a: broken",)), good(), good(many))
    _, metrics, logs, _ = watch(machine)
    assert logs == [
        "machine-readable",
        "file-fault",
        "file-faults-over",
        *["file-fault"] * 20,
        "file-faults-not-logged",
    ]
    text = metrics.text()
    assert b"colo_collector_faults 25.0" in text
    assert b"colo_collector_workloads 3.0" in text
    assert b'colo_collector_workloads_left_out_total{reason="first-reading"} 4.0' in text


def test_service_and_shell_together_say_topology_and_numbered_samples() -> None:
    bus = MemoryBus(keep_sent=True)

    async def main() -> None:
        core = CollectorCore("n1", CollectorPolicy())
        clock = VirtualClock()
        service = Service(name="collector", core=core, bus=bus, clock=clock, subscriptions=(), boot_id="b1", seed=1)
        machine = Script(Observation(event=Unreadable(reason=Skip.FIRST), topology_read=MACHINE), good())
        shell = CollectorShell(
            machine, inject=service.inject, skipped=core.skipped, clock=clock, period_ms=1_000, metrics=Metrics()
        )
        stop = asyncio.Event()
        running = asyncio.create_task(service.run(stop))
        looking = asyncio.create_task(shell.run())
        await asyncio.sleep(3.5)
        looking.cancel()
        stop.set()
        await running

    run_virtual(main())
    facts = [decode(message.subject, message.data) for message in bus.sent]
    assert [type(fact) for fact in facts] == [
        NodeTopologyReported,
        NodeUsageSampled,
        NodeUsageSampled,
        NodeUsageSampled,
    ]
    assert [fact.sample_seq for fact in facts if isinstance(fact, NodeUsageSampled)] == [1, 2, 3]
    assert {fact.boot_id for fact in facts} == {"b1"}
    topology, *samples = bus.sent
    assert topology.durable
    assert topology.msg_id.startswith("collector:topology:n1:")
    assert not any(sample.durable for sample in samples)
