"""What an executor that leaves writes comes after all that its reflex writes, however long the kernel kept that waiting."""

from __future__ import annotations

import asyncio
import threading

from msgspec.structs import replace

from colo_common.adapters.clock import SystemClock
from colo_common.events.enforcement import ZoneCeiling
from colo_common.model.workload import RunSpec
from colo_common.runtime.metrics import Metrics
from colo_executor.local import CeilingRefused, CeilingWritten, FastReading
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.shell import ExecutorShell
from colo_executor.simulated import SimulatedRuntime
from colo_executor.suppress import bounds_mcpu
from colo_sim.demand import OnlineDemand
from colo_sim.machine import SimMachine
from colo_sim.machine_spec import MachineSpec
from tests.support.builders import a_placement

CAPACITY_MCPU = 16_000
DECIDED_MCPU = 9_000


class SlowKernel(SimulatedRuntime):
    """A machine on which a turn of the reflex takes as long as the test wants, and writes a ceiling at its end."""

    def __init__(self, clock: SystemClock) -> None:
        machine = SimMachine(
            MachineSpec(sockets=1, zones_per_socket=2, cpus_per_zone=8, sub_step_ms=100),
            node="n1",
            seed=1,
            demand=lambda t_ms: OnlineDemand(2_000, 0),
            start_ms=clock.now_ms(),
        )
        super().__init__(machine, capacity_mcpu=CAPACITY_MCPU)
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.written: list[int] = []

    def read_fast(self, now_ms: int) -> FastReading | None:
        self.begun.set()
        assert self.may_go_on.wait(30)
        self.set_ceiling(DECIDED_MCPU)
        return None

    def set_ceiling(
        self, ceiling_mcpu: int, zones: tuple[ZoneCeiling, ...] | None = None, *, has_whole_cores: bool = False
    ) -> CeilingWritten | CeilingRefused:
        self.written.append(ceiling_mcpu)
        return super().set_ceiling(ceiling_mcpu, zones, has_whole_cores=has_whole_cores)


async def test_the_floor_is_written_after_the_turn_that_is_under_way() -> None:
    clock, policy = SystemClock(), ReflexPolicy()
    runtime = SlowKernel(clock)
    shell = ExecutorShell(runtime, clock, policy=policy, period_ms=20, metrics=Metrics())
    await shell.load()
    run = RunSpec(work_mcpu_ms=600_000_000)
    await runtime.launch(replace(a_placement(mcpu=4_000), run=run), clock.now_ms())
    turn = asyncio.create_task(asyncio.to_thread(shell.turn))
    await asyncio.to_thread(runtime.begun.wait, 30)
    leaving = asyncio.create_task(shell.leave())
    # Ten periods of the reflex.
    done, _ = await asyncio.wait((leaving,), timeout=0.2)
    assert not done
    runtime.may_go_on.set()
    await asyncio.gather(turn, leaving)
    floor_mcpu, _ = bounds_mcpu(policy.suppress, CAPACITY_MCPU)
    assert runtime.written == [DECIDED_MCPU, floor_mcpu]
    shell.turn()
    assert runtime.written == [DECIDED_MCPU, floor_mcpu], "no turn begins any more"
