"""The collector on this machine, over a real NATS: a real replica is measured as the kernel counts it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from colo_collector.core import CollectorCore
from colo_collector.files import FileReader, Gathered
from colo_collector.machine import Machine, Observation
from colo_collector.policy import CollectorPolicy
from colo_collector.shell import CollectorShell
from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.clock import SystemClock
from colo_common.events.node import NodeTopologyReported, NodeUsageSampled
from colo_common.events.wire import decode
from colo_common.model.qos import PriorityBand
from colo_common.model.workload import RunSpec
from colo_common.ports import Delivery
from colo_common.runtime.core import Subscription, source_of
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.service import Service
from colo_executor.local import ReplicaLaunched
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from tests.support.adopted import AS_ROOT
from tests.support.builders import a_placement
from tests.support.waiting import eventually

pytestmark = pytest.mark.kernel

SPIN = RunSpec(command=("sh", "-c", "while :; do :; done"))
SAMPLES = 4
SHARP_NS = 5_000_000
LEAST_MCPU = 200


@pytest.fixture
async def subtree(tmp_path: Path) -> AsyncIterator[str]:
    """The name of an executor's subtree in which one replica spins; everything is put back at the end."""
    name = f"colo-test-{os.getpid()}"
    runtime = ProcessRuntime(ProcessPolicy(users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=name))
    try:
        await runtime.adopt(1)
        launched = await runtime.launch(replace(a_placement("job/main/0", attempt=3), run=SPIN), 1)
        assert isinstance(launched, ReplicaLaunched), launched
        yield name
    finally:
        await runtime.restore()
        await runtime.close()


class Ear:
    """What was heard on the bus of one node."""

    def __init__(self, url: str, node: str) -> None:
        self.facts: list[Struct] = []
        self._bus = NatsBus(url, name="test-ear")
        self._node = node
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Ear:
        self._bus.start()
        await self._bus.connected(5)
        for kind, replay in ((NodeTopologyReported, True), (NodeUsageSampled, False)):
            source = source_of(
                "ear", Subscription(type=kind, parameters={"node": self._node}, durable=False, replay=replay)
            )
            self._tasks.append(asyncio.create_task(self._bus.listen(source, self._hear)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._bus.close()

    async def _hear(self, delivery: Delivery) -> None:
        self.facts.append(decode(delivery.subject, delivery.data))
        await delivery.ack()

    def samples(self) -> list[NodeUsageSampled]:
        return [fact for fact in self.facts if isinstance(fact, NodeUsageSampled)]

    def topologies(self) -> list[NodeTopologyReported]:
        return [fact for fact in self.facts if isinstance(fact, NodeTopologyReported)]


class Note(Struct, frozen=True):
    """The kernel's counter of the group just before and just after the collector read its files."""

    before_ns: int
    before_used_ns: int
    after_ns: int
    after_used_ns: int

    @property
    def is_sharp(self) -> bool:
        """Whether nobody else had the CPU in between, so that it is known to half a percent what was read."""
        return self.after_ns - self.before_ns < SHARP_NS


class Witness(FileReader):
    """Reads for the collector, and asks the kernel for one counter by itself around every batch that is read each period."""

    def __init__(self, usage_path: str, unit_ns: int) -> None:
        super().__init__()
        self.last: Note | None = None
        self._path = Path(usage_path)
        self._unit_ns = unit_ns

    def read_all(self, paths: Sequence[str], *, keep: bool = True) -> Gathered:
        if not keep:
            return super().read_all(paths, keep=keep)
        before = self._note()
        gathered = super().read_all(paths, keep=keep)
        self.last = Note(*before, *self._note())
        return gathered

    def _note(self) -> tuple[int, int]:
        at_ns = time.monotonic_ns()
        text = self._path.read_text()
        return at_ns, int(text.split("usage_usec", 1)[-1].split()[0]) * self._unit_ns


class NotedMachine:
    """Reads as the machine does, and keeps the witness's last note at every observation."""

    def __init__(self, machine: Machine, witness: Witness) -> None:
        self.notes: list[Note] = []
        self._machine = machine
        self._witness = witness

    def observe(self) -> Observation:
        observation = self._machine.observe()
        assert self._witness.last is not None
        self.notes.append(self._witness.last)
        return observation

    def sharp(self) -> dict[int, float]:
        """The samples (from 0) between two sharp notes in which the spinner really ran, and its mcpu by the notes."""
        found = {}
        for index, (first, last) in enumerate(zip(self.notes, self.notes[1:], strict=False)):
            mcpu = (last.before_used_ns - first.before_used_ns) * 1_000 / (last.before_ns - first.before_ns)
            # On a busy machine batch work gets next to nothing, of which two percent is less than the unit.
            if first.is_sharp and last.is_sharp and mcpu > LEAST_MCPU:
                found[index] = mcpu
        return found


def usage_file(subtree: str) -> tuple[str, int]:
    """The CPU counter of the spinning replica's group, and its unit."""
    group = f"{subtree}/batch/job.main.0@3"
    v1 = Path("/sys/fs/cgroup/cpuacct", group, "cpuacct.usage")
    return (str(v1), 1) if v1.exists() else (str(Path("/sys/fs/cgroup", group, "cpu.stat")), 1_000)


async def test_a_replica_is_measured_within_two_percent_of_the_kernels_own_counter(subtree: str, nats_url: str) -> None:
    node = f"witness-{os.getpid()}"
    clock = SystemClock()
    witness = Witness(*usage_file(subtree))
    machine = NotedMachine(Machine(witness, subtree=subtree, online=(), labels={}, clock=clock), witness)
    core = CollectorCore(node, CollectorPolicy())
    bus = NatsBus(nats_url, name="collector")
    bus.start()
    await bus.connected(5)
    service = Service(name="collector", core=core, bus=bus, clock=clock, subscriptions=(), discoverable=False)
    shell = CollectorShell(
        machine, inject=service.inject, skipped=core.skipped, clock=clock, period_ms=1_000, metrics=Metrics()
    )
    stop = asyncio.Event()
    async with Ear(nats_url, node) as ear:
        running = asyncio.create_task(service.run(stop))
        looking = asyncio.create_task(shell.run())

        async def enough() -> bool:
            found = list(machine.sharp())
            return len(found) >= SAMPLES and len(ear.samples()) > found[SAMPLES - 1]

        await eventually(enough, f"{SAMPLES} samples between undisturbed readings")
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        stop.set()
        await running
        samples = ear.samples()
        (topology,) = ear.topologies()
    await bus.close()
    witness.close()
    assert len(topology.topology.cpus) == os.cpu_count()
    assert [sample.sample_seq for sample in samples] == list(range(1, len(samples) + 1))
    for index, expected_mcpu in list(machine.sharp().items())[:SAMPLES]:
        sample = samples[index]
        (replica,) = sample.workloads
        assert (replica.replica, replica.attempt, replica.band) == ("job/main/0", 3, PriorityBand.BATCH)
        assert replica.zones == tuple(zone.zone for zone in topology.topology.zones)[:1]
        assert replica.cpu_used_mcpu == pytest.approx(expected_mcpu, rel=0.02)
        assert 0 < replica.memory_used_bytes < 64 << 20
        assert sample.cpu_used_mcpu == sum(zone.cpu_used_mcpu for zone in sample.zones)


async def test_the_command_measures_this_machine_and_leaves_on_sigterm(
    subtree: str, nats_url: str, tmp_path: Path
) -> None:
    node = f"command-{os.getpid()}"
    arguments = ["--node", node, "--nats-url", nats_url, "--subtree", subtree, "--period-ms", "200"]
    log = tmp_path / "log"
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "colo_collector", *arguments, stderr=sink)
        try:
            async with Ear(nats_url, node) as ear:

                async def listed() -> bool:
                    return any(sample.workloads for sample in ear.samples())

                await eventually(listed, "a sample with the replica")
                assert ear.topologies()[0].capabilities
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 120) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert "topology-read" in events
    assert events.count("machine-readable") == 1
    assert "machine-unreadable" not in events
    assert events[-1] == "service-stopped"
