"""An order that ends the executor whenever it is carried out is found alone, and what waits beside it is carried out."""

import asyncio
from pathlib import Path

import pytest

from colo_common.events.effects import Publish
from colo_common.events.enforcement import ReplicaStarted
from colo_common.events.placement import ApplyPlacements
from colo_common.events.service import DeadLettered
from colo_common.events.wire import decode
from colo_common.model.placement import Placement
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.stamp import Stamp
from colo_executor.local import LaunchFailed, ReplicaLaunched
from colo_executor.main import executor_service
from colo_executor.settings import ExecutorSettings
from colo_executor.simulated import SimulatedRuntime
from colo_executor.trials_file import TrialsFile
from colo_sim.demand import OnlineDemand
from colo_sim.machine import SimMachine
from colo_sim.machine_spec import MachineSpec
from tests.support.builders import a_placement
from tests.support.bus_memory import MemoryBus
from tests.support.vloop import VirtualClock, run_virtual

NODE = "n1"
POISON = "poison/main/0"


class Poisoned(SimulatedRuntime):
    """A machine on which one replica cannot be launched, for a reason that nobody thought of."""

    async def launch(self, placement: Placement, now_ms: int) -> ReplicaLaunched | LaunchFailed:
        if placement.replica == POISON:
            raise ZeroDivisionError("a share of nothing")
        return await super().launch(placement, now_ms)


def test_an_order_that_ends_the_executor_becomes_a_dead_letter_and_its_neighbours_run(tmp_path: Path) -> None:
    path = tmp_path / "trials"
    clock, bus = VirtualClock(), MemoryBus(keep_sent=True)

    def facts(kind: type) -> list:
        return [fact for fact in (decode(sent.subject, sent.data) for sent in bus.sent) if isinstance(fact, kind)]

    async def life(runtime: SimulatedRuntime, boot: int, stop: asyncio.Event) -> None:
        """One start of the executor, until it dies or `stop` is set."""
        service, _ = executor_service(
            NODE, runtime, bus, clock, ExecutorSettings(), metrics=Metrics(), seed=boot, trials=TrialsFile(path)
        )
        await service.run(stop)

    async def story() -> None:
        spec = MachineSpec(sockets=1, zones_per_socket=2, cpus_per_zone=8, sub_step_ms=100)
        machine = SimMachine(spec, node=NODE, seed=1, demand=lambda _: OnlineDemand(0, 0), start_ms=clock.now_ms())
        runtime = Poisoned(machine, capacity_mcpu=16_000)
        stamp, stop = Stamp("test", "boot", clock), asyncio.Event()
        names = [*(f"before-{number}/main/0" for number in range(5)), POISON, "after/main/0"]
        for name in names:
            order = ApplyPlacements(node=NODE, generation=1, placements=(a_placement(name, node=NODE, mcpu=100),))
            await bus.publish([stamp.outgoing(Publish(fact=order))])
        for boot in range(4):
            with pytest.raises(ZeroDivisionError):
                await asyncio.wait_for(life(runtime, boot, stop), 300)
        last = asyncio.create_task(life(runtime, 4, stop))
        await asyncio.sleep(120)
        (letter,) = facts(DeadLettered)
        assert letter.reason.endswith("ended the process 3 times when it was handled")
        assert POISON.encode() in letter.data
        assert {fact.replica for fact in facts(ReplicaStarted)} == set(names) - {POISON}
        stop.set()
        await last
        assert await TrialsFile(path).load("running-executor") == ()

    run_virtual(story())
