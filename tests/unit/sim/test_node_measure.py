"""A simulated machine's counters as a collector's sample."""

from colo_sim.demand import OnlineDemand
from colo_sim.machine import SimMachine
from colo_sim.machine_spec import MachineSpec
from colo_sim.node_measure import measured_between

GIB = 1 << 30


def a_machine() -> SimMachine:
    spec = MachineSpec(sockets=1, zones_per_socket=2, cpus_per_zone=8, memory_bytes_per_zone=32 * GIB)
    return SimMachine(spec, node="n1", seed=1, demand=lambda _at_ms: OnlineDemand(4_000, 8 * GIB))


def test_a_sample_separates_online_from_batch_use() -> None:
    machine = a_machine()
    before = machine.counters()
    machine.start_replica("job/main/0", 1, (0,), 2_000, GIB, 600_000_000)
    machine.advance(10_000)
    sample = measured_between(before, machine.counters())
    assert sample is not None
    (workload,) = sample.workloads
    assert (workload.replica, workload.attempt, workload.zones) == ("job/main/0", 1, (0,))
    assert 1_999 <= workload.cpu_used_mcpu <= 2_000
    assert abs(sample.cpu_used_mcpu - 6_000) <= 2
    assert sample.interval_ms == 10_000
    assert [zone.zone for zone in sample.zones] == [0, 1]


def test_what_ended_replicas_used_is_still_batch_use() -> None:
    machine = a_machine()
    before = machine.counters()
    machine.start_replica("job/main/0", 1, (1,), 2_000, GIB, 10_000_000)
    machine.advance(10_000)
    assert machine.poll_exits()
    sample = measured_between(before, machine.counters())
    assert sample is not None
    (workload,) = sample.workloads
    assert (workload.workload, workload.replica, workload.zones) == ("batch-ended-1", "", (1,))
    assert 998 <= workload.cpu_used_mcpu <= 1_000


def test_no_time_and_a_reboot_give_no_sample() -> None:
    machine = a_machine()
    before = machine.counters()
    assert measured_between(before, machine.counters()) is None
    machine.advance(5_000)
    machine.reboot()
    machine.advance(6_000)
    assert measured_between(before, machine.counters()) is None
