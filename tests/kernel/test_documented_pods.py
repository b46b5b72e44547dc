"""The documented manifests, from their text over the choice of CPUs to the files of this kernel: where each class runs.

Four pods of the classes LSE, LSR, LS and BE, two CPUs each, as on the documented machine of 16 CPUs; and a batch job that requests
1 CPU and 2Gi with limits of 4 CPUs and 8Gi. On a machine that is too small for all four at once the pods have one CPU each, and of
the two with CPUs of their own one is there at a time.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from colo_common.model.constraints import CpuBind
from colo_common.model.cpuset import CpuSet
from colo_common.model.job_file import read_job
from colo_common.model.placement import Placement, replica_token
from colo_common.model.qos import QosClass
from colo_common.model.topology import NodeTopology
from colo_executor.cgroup import CgroupTree
from colo_executor.knob_table import Knob
from colo_executor.knobs import weight_v1, weight_v2
from colo_executor.local import CeilingWritten
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_scheduler.cpus.binding import BindPolicy
from colo_scheduler.cpus.choose import CpuRequest, choose_cpus
from colo_scheduler.cpus.exclusive import HeldCpus
from tests.kernel.inside import CGROUP_ROOT, observed_topology
from tests.support.adopted import AS_ROOT, adopted
from tests.support.attempts import start
from tests.support.builders import a_placement
from tests.support.cpu_topology import topology_from_node
from tests.support.four_pods import four_pods

pytestmark = pytest.mark.kernel

SUBTREE = f"colo-documented-{os.getpid()}"
BATCH = CgroupTree(str(CGROUP_ROOT), SUBTREE)
ONLINE = CgroupTree(str(CGROUP_ROOT), f"{SUBTREE}-online")
ANALYTICS = {
    "name": "data-analytics-job", "qos": "BE", "cpu": "1", "memory": "2Gi", "limits": {"cpu": "4", "memory": "8Gi"},
    "command": ["sleep", "3600"],
}  # fmt: skip


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[ProcessRuntime]:
    async with adopted(ProcessPolicy(users=AS_ROOT, state_dir=str(tmp_path / "state"), subtree=SUBTREE)) as made:
        yield made


class OneMachine:
    """This machine and who holds which of its CPUs, chosen as the scheduler does: all of it needs libraries that the lab lacks."""

    def __init__(self, topology: NodeTopology) -> None:
        self._cpus = topology_from_node(topology)
        self._held: list[HeldCpus] = []

    def placed(self, manifest: dict[str, Any]) -> Placement:
        """Where the only replica of the job goes; its command is one that waits, whatever its image would run."""
        spec = read_job(manifest).spec
        (task,) = spec.tasks
        cpus = CpuSet()
        if spec.qos in (QosClass.LSE, QosClass.LSR):
            assert task.constraints.cpu_bind is CpuBind.SPREAD_BY_PCPUS
            request = CpuRequest(count=task.request.cpu_mcpu // 1_000, bind=BindPolicy.SPREAD_BY_PCPUS)
            found = choose_cpus(self._cpus, request, self._held)
            assert isinstance(found, CpuSet), found
            cpus = found
            self._held.append(HeldCpus(cpus=cpus))
        made = a_placement(f"{spec.name}/{task.name}/0", mcpu=task.request.cpu_mcpu)
        run = replace(task.run, command=("sleep", "3600"))
        return replace(
            made, qos=spec.qos, band=spec.band, cpus=cpus.format(), run=run, memory_bytes=task.request.memory_bytes
        )


def sized(manifest: dict[str, Any], cpus: int) -> dict[str, Any]:
    """The manifest with so many CPUs."""
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    for amounts in container["resources"].values():
        for name in amounts:
            amounts[name] = str(cpus) if name == "cpu" else f"{cpus}k"
    return manifest


def kernel_cpus(placement: Placement) -> CpuSet:
    """The CPUs that the group of the replica has, in the kernel's file."""
    token = replica_token(placement.replica, placement.attempt)
    if placement.qos is QosClass.BE:
        return CpuSet.parse(BATCH.value(Knob.CPUSET_CPUS, f"batch/{token}"))
    return CpuSet.parse(ONLINE.value(Knob.CPUSET_CPUS, f"{placement.qos.value.lower()}.{token}"))


def allowed(pid: int) -> CpuSet:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return CpuSet.parse(next(line for line in lines if line.startswith("Cpus_allowed_list:")).split()[1])


def zone_cpus(topology: NodeTopology, placement: Placement) -> CpuSet:
    """The CPUs of the zones in which the scheduler put it."""
    zones = {share.zone for share in placement.zones}
    return CpuSet.from_iterable(cpu for one in topology.zones if one.zone in zones for cpu in CpuSet.parse(one.cpus))


@pytest.mark.parametrize("first", ["LSE", "LSR"])
async def test_the_pods_run_where_their_classes_say(runtime: ProcessRuntime, first: str) -> None:
    topology = observed_topology()[0]
    every = CpuSet.from_iterable(cpu for zone in topology.zones for cpu in CpuSet.parse(zone.cpus))
    if len(every) < 2:
        pytest.skip("two CPUs are needed")
    is_whole = len(every) >= 6
    second = {"LSE": "LSR", "LSR": "LSE"}[first]
    classes, count = ((first, second, "LS", "BE"), 2) if is_whole else ((first, "LS", "BE"), 1)
    machine, pods = OneMachine(topology), four_pods()
    held = {qos: machine.placed(sized(pods[qos], count)) for qos in classes}
    pids = {qos: (await start(runtime, held[qos])).pid for qos in classes}
    own = {qos: CpuSet.parse(held[qos].cpus) for qos in classes if qos in ("LSE", "LSR")}
    taken = CpuSet.from_iterable(cpu for cpus in own.values() for cpu in cpus)
    assert (len(taken), {len(cpus) for cpus in own.values()}) == (count * len(own), {count})
    lse = own.get("LSE", CpuSet())
    sets = {qos: kernel_cpus(held[qos]) for qos in classes}
    assert {qos: sets[qos] for qos in own} == own
    # LS runs on what both leave, BE on all that LSE leaves, each in the zones in which it was placed.
    for qos, closed in (("LS", taken), ("BE", lse)):
        assert sets[qos] == (zone_cpus(topology, held[qos]) - closed or every - closed), qos
    assert CpuSet.parse(BATCH.value(Knob.CPUSET_CPUS, "batch")) == every - lse
    assert {qos: allowed(pid) for qos, pid in pids.items()} == sets


async def test_the_job_has_its_request_as_a_weight_and_its_limits_as_limits(runtime: ProcessRuntime) -> None:
    topology = observed_topology()[0]
    held = OneMachine(topology).placed(ANALYTICS)
    assert (held.cpu_mcpu, held.memory_bytes) == (1_000, 2 << 30)
    pid = (await start(runtime, held)).pid
    assert kernel_cpus(held) == allowed(pid) == zone_cpus(topology, held)
    group = f"batch/{replica_token(held.replica, held.attempt)}"
    shares = weight_v1(1_000)
    assert BATCH.value(Knob.CPU_WEIGHT, group) == str(shares if BATCH.version == 1 else weight_v2(shares))
    assert BATCH.value(Knob.MEMORY_LIMIT, group) == str(8 << 30)
    assert BATCH.quota_us(group) == 400_000
    assert isinstance(runtime.set_ceiling(1_500), CeilingWritten)
    assert (BATCH.quota_us("batch"), BATCH.quota_us(group)) == (150_000, 150_000)
