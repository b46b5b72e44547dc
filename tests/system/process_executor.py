"""A process runtime in a process of its own, to be killed: `python -m tests.system.process_executor STATE SUBTREE MODE COMMAND...`.

It starts one replica for each command (a shell script), says `started`, and waits for ever. MODE `gate` dies at the moment at which
the first replica's gate would open. MODE `attach` attaches an online replica to the control group that stands in place of the
command; `half` does too, and dies when the journal has that and no value is written. MODE `watched` writes a ceiling of 1.5 CPUs
and beats for a watchdog, which gives batch work a floor of 0.2 CPUs half a second after the last beat.
"""

import asyncio
import os
import sys

import structlog
from msgspec.structs import replace

from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import AttachSpec, RunSpec
from colo_executor.local import ReplicaLaunched, SignalReplica, StopIntent
from colo_executor.process import launch
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.unmanaged_cpus import UnmanagedCpus
from colo_executor.process.watched import Watched
from tests.support.adopted import AS_ROOT
from tests.support.builders import a_placement


async def main(state_dir: str, subtree: str, mode: str, *scripts: str) -> None:
    # What is printed is read by the test.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    attaches = mode in ("attach", "half")
    allowed = tuple(scripts) if attaches else ()
    runtime = ProcessRuntime(ProcessPolicy(users=AS_ROOT, state_dir=state_dir, subtree=subtree, attach=allowed))
    await runtime.adopt(1)
    if mode == "half":
        UnmanagedCpus.clear_attached = lambda cpus, group: os._exit(9)  # type: ignore[method-assign]
    if mode == "gate":
        launch.Gate.open = lambda gate: os._exit(9)  # type: ignore[method-assign]
    for index, script in enumerate(scripts):
        placement = replace(a_placement(f"job/main/{index}"), run=RunSpec(command=("sh", "-c", script)))
        if attaches:
            run = RunSpec(attach=AttachSpec(cgroup=script))
            online = replace(a_placement("web/main/0"), qos=QosClass.LS, band=PriorityBand.PROD, cpu_mcpu=4_000)
            placement = replace(online, run=run, zones=())
        launched = await runtime.launch(placement, 1)
        assert isinstance(launched, ReplicaLaunched), launched
    if mode == "stop":
        intent = StopIntent(cause="stopped", reason="cancelled", kill_at_ms=12_345, grace_ms=600_000)
        await runtime.signal(SignalReplica(replica="job/main/0", attempt=1, signal="term", intent=intent))
    watched = None
    if mode == "watched":
        runtime.set_ceiling(1_500)
        watched = Watched(runtime.quota_path, 20_000, 500, runtime.frozen_path, runtime.take_watchdog)
    print("started", flush=True)  # noqa: T201
    forever = asyncio.get_running_loop().create_future()
    while watched is not None:
        watched.beat()
        await asyncio.wait((forever,), timeout=0.02)
    await forever


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
