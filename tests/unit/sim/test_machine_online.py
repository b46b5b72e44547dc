"""Placed online work on a simulated machine: CPUs of its own, shared ones, and what is left to batch work and to services."""

import asyncio

import pytest
from msgspec.structs import replace

from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import Reason
from colo_common.model.workload import RunSpec
from colo_executor.local import LaunchFailed, ReplicaLaunched
from colo_executor.simulated import SimulatedRuntime
from colo_sim.demand import OnlineDemand
from colo_sim.machine import SimMachine
from colo_sim.machine_spec import GIB, Interference, MachineSpec
from colo_sim.node_measure import measured_between
from tests.support.builders import a_placement

LSE, LSR, LS = QosClass.LSE, QosClass.LSR, QosClass.LS
WORK = 10**12


def a_machine(demand: OnlineDemand = OnlineDemand(0, 0)) -> SimMachine:
    """Two zones of four CPUs, memory that is there at once."""
    spec = MachineSpec(
        sockets=1,
        zones_per_socket=2,
        cpus_per_zone=4,
        memory_bytes_per_zone=16 * GIB,
        interference=Interference(memory_ramp_ms=0),
    )
    return SimMachine(spec, node="n1", seed=1, demand=lambda _: demand)


def online(
    machine: SimMachine, name: str, qos: QosClass, cpus: str = "", *, mcpu: int = 2_000, work: int = WORK
) -> None:
    machine.start_online_replica(name, 1, (0,), mcpu, GIB, work, qos, cpus)


def batch(machine: SimMachine, name: str, *, mcpu: int = 8_000, zones: tuple[int, ...] = (0, 1)) -> None:
    machine.start_replica(name, 1, zones, mcpu, GIB, WORK)


def rates(machine: SimMachine, length_ms: int = 10_000) -> dict[str, int]:
    """What each replica uses over the next while, in mcpu."""
    before = {one.replica: one.usage_ns for one in machine.counters().replicas}
    machine.advance(machine.at_ms + length_ms)
    machine.check()
    return {
        one.replica: (one.usage_ns - before.get(one.replica, 0)) // (length_ms * 1_000)
        for one in machine.counters().replicas
    }


def test_lse_work_has_its_cpus_alone_and_lsr_work_comes_before_batch_work() -> None:
    machine = a_machine()
    online(machine, "lse", LSE, "0-1")
    online(machine, "lsr", LSR, "4-5", mcpu=1_500)
    batch(machine, "batch")
    assert rates(machine) == {"lse": 2_000, "lsr": 1_500, "batch": 8_000 - 2_000 - 1_500}
    assert machine.kill_replica("lse")
    assert rates(machine) == {"lsr": 1_500, "batch": 6_500}


def test_idle_cpus_of_lse_work_are_nobodys_and_those_of_lsr_work_are_batch_works() -> None:
    machine = a_machine()
    online(machine, "lse", LSE, "0-3", mcpu=1_000)
    batch(machine, "batch", zones=(0,))
    assert rates(machine) == {"lse": 1_000, "batch": 0}
    machine = a_machine()
    online(machine, "lsr", LSR, "0-3", mcpu=1_000)
    batch(machine, "batch", zones=(0,))
    assert rates(machine) == {"lsr": 1_000, "batch": 3_000}


def a_machine_of_one_zone(services_mcpu: int) -> SimMachine:
    """Eight CPUs, four of them of LSE work."""
    spec = MachineSpec(sockets=1, zones_per_socket=1, cpus_per_zone=8, memory_bytes_per_zone=16 * GIB)
    return SimMachine(spec, node="n1", seed=1, demand=lambda _: OnlineDemand(services_mcpu, 0))


@pytest.mark.parametrize(
    ("batch_mcpu", "harm_ms"),
    [(0, 0), (100, 0), (900, 10_000)],
    ids=["alone", "to four fifths of the four others", "to all of them"],
)
def test_cpus_of_lse_work_are_no_part_of_what_services_share_with_batch_work(batch_mcpu: int, harm_ms: int) -> None:
    machine = a_machine_of_one_zone(3_100)
    online(machine, "lse", LSE, "0-3", mcpu=4_000)
    if batch_mcpu:
        batch(machine, "batch", mcpu=batch_mcpu, zones=(0,))
    machine.advance(10_000)
    ledger = machine.ledger()
    assert (ledger.with_batch.harm_ms, ledger.alone.harm_ms, ledger.added_harm_ms) == (harm_ms, 0, harm_ms)
    assert ledger.batch_used_mcpu_ms == batch_mcpu * 10_000


def test_batch_work_gets_no_more_beside_services_than_its_weight_while_lse_work_is_idle() -> None:
    machine = a_machine_of_one_zone(4_000)
    online(machine, "lse", LSE, "0-3", mcpu=1_000)
    batch(machine, "batch", mcpu=2_000, zones=(0,))
    assert rates(machine) == {"lse": 1_000, "batch": 8_000 * 2 // 1_000}


def test_the_quota_of_batch_work_does_not_hold_online_work() -> None:
    machine = a_machine()
    online(machine, "ls", LS, mcpu=3_000)
    batch(machine, "batch")
    machine.set_batch_quota_mcpu(500)
    assert rates(machine) == {"ls": 3_000, "batch": 500}


def test_services_run_on_what_nobody_owns_and_use_is_online_use() -> None:
    machine = a_machine(OnlineDemand(6_000, 0))
    online(machine, "lsr", LSR, "0-3", mcpu=4_000)
    machine.advance(10_000)
    ledger = machine.ledger()
    assert ledger.online_used_mcpu_ms == 8_000 * 10_000, "four CPUs of its own, and four for 6000 mcpu of services"
    assert ledger.replica_online_mcpu_ms == 4_000 * 10_000
    assert ledger.with_batch.harm_ms == 10_000
    assert machine.usage().batch_usage_ns == 0


def test_it_ends_when_its_work_is_done_and_frees_its_cpus() -> None:
    machine = a_machine()
    online(machine, "lse", LSE, "0-1", work=2_000 * 1_000)
    batch(machine, "batch")
    machine.advance(5_000)
    (ended,) = machine.poll_exits()
    assert (ended.replica, ended.code, ended.at_ms, ended.used_mcpu_ms) == ("lse", 0, 1_000, 2_000_000)
    assert rates(machine)["batch"] == 8_000
    assert machine.ledger().completed_mcpu_ms == 0, "online work is no batch work"
    online(machine, "lse", LSE, "0-1")
    machine.reboot()
    assert machine.counters().replicas == ()


def test_memory_of_online_work_counts_and_batch_work_is_killed_for_it() -> None:
    machine = a_machine()
    machine.start_replica("batch", 1, (0,), 1_000, 20 * GIB, WORK)
    machine.start_online_replica("ls", 1, (0,), 1_000, 20 * GIB, WORK, LS, "")
    machine.advance(5_000)
    assert [(one.replica, one.cause) for one in machine.poll_exits()] == [("batch", "oom")]
    assert machine.counters().online_memory_bytes == 20 * GIB


@pytest.mark.parametrize(
    ("qos", "cpus", "rule"),
    [
        (LSE, "", "needs CPUs of its own"),
        (LSE, "8", "must be CPUs of this machine"),
        (LSR, "0-1", "must not be held by others"),
        (LSE, "2-7", "must leave a CPU to the rest of the machine"),
        (LSR, "2-7", "must leave a CPU to LS work"),
        (LSR, "x", "must be a list"),
        (QosClass.BE, "", "must be LSE, LSR or LS"),
    ],
)
def test_what_cannot_be_given_is_refused_and_nothing_changes(qos: QosClass, cpus: str, rule: str) -> None:
    machine = a_machine()
    online(machine, "first", LSE, "0-1")
    online(machine, "shared", LS)
    before = machine.digest()
    with pytest.raises(InvalidInput, match=rule):
        online(machine, "second", qos, cpus)
    assert machine.digest() == before


def test_a_sample_lists_online_replicas_by_their_class() -> None:
    machine = a_machine(OnlineDemand(1_000, 0))
    online(machine, "web/main/0", LSE, "4-5")
    batch(machine, "job/main/0", mcpu=1_000)
    before = machine.counters()
    machine.advance(10_000)
    sample = measured_between(before, machine.counters())
    assert sample is not None
    job, web = sample.workloads
    assert (job.qos, job.band, job.cpu_used_mcpu) == (QosClass.BE, PriorityBand.BATCH, 1_000)
    assert (web.qos, web.band, web.cpu_used_mcpu, web.zones) == (LSE, PriorityBand.PROD, 2_000, (1,))
    assert sample.cpu_used_mcpu == 4_000


def placed(index: int, qos: QosClass, cpus: str = "") -> Placement:
    run = RunSpec(work_mcpu_ms=WORK)
    return replace(a_placement(f"web/main/{index}"), qos=qos, band=PriorityBand.PROD, cpus=cpus, run=run)


def test_the_executor_of_a_simulated_node_runs_online_work_or_refuses_it_with_a_reason() -> None:
    machine = a_machine()
    runtime = SimulatedRuntime(machine, capacity_mcpu=8_000)
    asyncio.run(runtime.adopt(0))
    assert isinstance(asyncio.run(runtime.launch(placed(0, LSE, "0-1"), 0)), ReplicaLaunched)
    assert not runtime.has_batch
    refused = asyncio.run(runtime.launch(placed(1, LSR, "1-2"), 0))
    assert isinstance(refused, LaunchFailed)
    assert refused.reason is Reason.CPUS_SHORT
    assert "held by others" in refused.detail
    without = SimulatedRuntime(a_machine(), capacity_mcpu=8_000, admits_online=False)
    refused = asyncio.run(without.launch(placed(0, LS), 0))
    assert isinstance(refused, LaunchFailed)
    assert refused.reason is Reason.RUNTIME_ABSENT
    again = SimulatedRuntime(machine, capacity_mcpu=8_000, journal=runtime.journal)
    adopted = asyncio.run(again.adopt(0))
    assert [one.alive for one in adopted.replicas] == [True]


def test_a_reading_of_the_reflex_leaves_out_cpus_and_use_of_lse_work() -> None:
    machine = a_machine(OnlineDemand(3_000, 0))
    runtime = SimulatedRuntime(machine, capacity_mcpu=8_000)
    asyncio.run(runtime.adopt(0))
    for index, qos, cpus in ((0, LSE, "0-1"), (1, LSR, "4")):
        placement = replace(placed(index, qos, cpus), cpu_mcpu=2_000 if qos is LSE else 1_000)
        assert isinstance(asyncio.run(runtime.launch(placement, 0)), ReplicaLaunched)
    assert runtime.read_fast(0) is None
    reading = runtime.read_fast(1_000)
    assert reading is not None
    assert (reading.capacity_mcpu, reading.online_used_mcpu) == (6_000, 1_000 + 3_000)
