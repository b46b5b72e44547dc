"""Core scheduling on a machine with hyper-threads: a replica's processes have its tenant's cookie, or the kernel says why not."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.adapters import core_scheduling
from colo_common.model.workload import RunSpec
from colo_executor.process.hygiene import Hygiene
from colo_executor.process.settings import ProcessPolicy
from tests.support.adopted import adopted
from tests.support.attempts import start
from tests.support.builders import a_placement
from tests.support.waiting import eventually

pytestmark = pytest.mark.vm

SLEEP = RunSpec(command=("sleep", "600"))


async def test_replicas_of_a_tenant_have_one_cookie_or_the_kernel_lacks_them(tmp_path: Path) -> None:
    hygiene = Hygiene(core_scheduling="tenant")
    as_root = {"red": "root", "blue": "root"}
    policy = ProcessPolicy(users=as_root, state_dir=str(tmp_path / "state"), subtree="colo-vm-cores", hygiene=hygiene)
    async with adopted(policy) as runtime:
        placements = [
            replace(a_placement(f"job/main/{index}"), run=SLEEP, tenant=tenant)
            for index, tenant in enumerate(("red", "red", "blue"))
        ]
        pids = [(await start(runtime, placement)).pid for placement in placements]
        lacks = core_scheduling.lacking()
        print(f"core scheduling: {lacks or 'there'}")  # noqa: T201
        if lacks:
            assert "CONFIG_SCHED_CORE" in lacks or "second hardware thread" in lacks
            return
        red, same, blue = (core_scheduling.cookie_of(pid) for pid in pids)
        assert red == same != blue
        assert red
        assert blue
        assert core_scheduling.cookie_of(0) == 0

        async def command() -> int:
            """The command of the first replica, a child of its shell."""
            group = next(iter(runtime._running.values()))
            others = [pid for pid in group.tree.pids(group.group) if pid != group.pid]
            return others[0] if others else 0

        assert core_scheduling.cookie_of(await eventually(command, "the command")) == red, "inherited"
