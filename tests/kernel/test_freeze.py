"""The last rung of the reflex on this kernel: all batch work stands still, and runs again, by itself and after a restart."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.model.reasons import EndCause, Reason
from colo_common.model.workload import RunSpec
from colo_executor.desired import DesiredPolicy
from colo_executor.local import FreezeRefused, FreezeWritten, SignalReplica, StopIntent
from colo_executor.process.settings import ProcessPolicy
from tests.kernel.inside import CGROUP_ROOT
from tests.support.adopted import AS_ROOT, adopted
from tests.support.attempts import next_exit, start
from tests.support.builders import a_placement
from tests.support.waiting import eventually

pytestmark = pytest.mark.vm

SUBTREE = "colo-vm-freeze"
SPIN = "while :; do :; done"
INTENT = StopIntent(cause=EndCause.STOPPED, reason=Reason.CANCELLED, kill_at_ms=0)


async def test_the_kernel_freezes_all_of_batch_work_and_no_restart_leaves_it_so(tmp_path: Path) -> None:
    # Not of the idle class: beside other work that would stand still by itself.
    desired = DesiredPolicy(idle=False)
    policy = ProcessPolicy(users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=SUBTREE, desired=desired)
    group = "batch/job.main.0@1"
    output = tmp_path / "state" / "attempts" / "job.main.0@1" / "stdout"
    async with adopted(policy) as runtime:
        tree = runtime._tier.tree
        run = RunSpec(command=("sh", "-c", f"trap 'exit 7' TERM; echo listens; {SPIN}"))
        launched = await start(runtime, replace(a_placement(), run=run))

        async def runs() -> bool:
            return output.read_text() == "listens\n" and tree.cpu_used_us(group) > 20_000

        await eventually(runs, "it uses CPU")
        written = runtime.set_frozen(is_frozen=True)
        assert isinstance(written, FreezeWritten)
        (knob,) = written.knobs
        assert (CGROUP_ROOT / knob.path).read_text().strip() == knob.value == "1"

        async def is_frozen() -> bool:
            if tree.version == 1:
                return (CGROUP_ROOT / "freezer" / SUBTREE / group / "freezer.state").read_text().strip() == "FROZEN"
            return "frozen 1" in (CGROUP_ROOT / SUBTREE / group / "cgroup.events").read_text()

        await eventually(is_frozen, "the kernel says that every process of the replica stands still")
        used_us = tree.cpu_used_us(group)
        await runtime.reconcile()
        assert runtime.read_frozen(), "our own freeze is no drift"
        assert tree.cpu_used_us(group) == used_us
        await runtime.close()
        async with adopted(policy) as second:
            assert not second.read_frozen(), "the next executor lets it run"

            async def runs_on() -> bool:
                return second._tier.tree.cpu_used_us(group) > used_us

            await eventually(runs_on, "it runs on")
            assert launched.pid in second._tier.tree.pids(group)
            assert isinstance(second.set_frozen(is_frozen=True), FreezeWritten)
            await second.signal(SignalReplica(replica="job/main/0", attempt=1, signal="term", intent=INTENT))
            assert isinstance(second.set_frozen(is_frozen=True), FreezeRefused)
            assert isinstance(second.set_frozen(is_frozen=False), FreezeWritten)
            assert (await next_exit(second)).exit_code == 7
