"""The simulated machine: what batch gets, how knobs act, how replicas end, what counters and the ledger say."""

import pytest

from colo_common.model.invalid import InvalidInput
from colo_sim.demand import OnlineDemand
from colo_sim.machine import MAX_REPLICAS, SimMachine
from colo_sim.machine_spec import GIB, Interference, MachineSpec

MINUTE = 60_000
CPU = 1_000


def a_machine(demand=OnlineDemand(0, 0), *, limits: Interference | None = None, **shape) -> SimMachine:
    spec = MachineSpec(**shape, interference=limits or Interference())
    return SimMachine(spec, node="n-0", seed=1, demand=demand if callable(demand) else lambda _: demand)


def started(machine: SimMachine, name: str = "j/t/0", **changed) -> SimMachine:
    wanted = {"attempt": 1, "zones": (0,), "cpu_mcpu": 4 * CPU, "memory_bytes": GIB, "work_mcpu_ms": 10**12, **changed}
    machine.start_replica(name, **wanted)
    return machine


def batch_mcpu(machine: SimMachine, length_ms: int = 1_000) -> float:
    """Return what batch used a ms over the next while."""
    before = machine.counters().batch_usage_ns
    machine.advance(machine.at_ms + length_ms)
    return (machine.counters().batch_usage_ns - before) / length_ms / 1_000


def test_a_replica_alone_gets_its_limit_and_ends_when_its_work_is_done() -> None:
    machine = started(a_machine(), work_mcpu_ms=4 * CPU * 2_500)
    machine.advance(2_499)
    assert machine.poll_exits() == ()
    machine.advance(10_000)
    (ended,) = machine.poll_exits()
    assert (ended.replica, ended.attempt, ended.code, ended.cause) == ("j/t/0", 1, 0, "completed")
    assert (ended.at_ms, ended.used_mcpu_ms) == (2_500, 4 * CPU * 2_500)
    assert machine.poll_exits() == ()
    ledger = machine.ledger()
    assert (ledger.completed_mcpu_ms, ledger.wasted_mcpu_ms) == (10_000_000, 0)
    assert machine.counters().batch_usage_ns == 10_000_000 * 1_000


def test_the_quick_reading_of_the_reflex_equals_the_counters() -> None:
    machine = started(a_machine(OnlineDemand(3 * CPU, GIB)))
    for now_ms in (0, 1, 999, 2_500, 7_003):
        machine.advance(now_ms)
        quick, full = machine.usage(), machine.counters()
        assert (quick.at_ms, quick.boot) == (full.at_ms, full.boot)
        assert (quick.online_usage_ns, quick.batch_usage_ns) == (full.online_usage_ns, full.batch_usage_ns)
    machine.reboot()
    assert machine.usage().boot == 2
    assert machine.usage().batch_usage_ns == 0


def test_online_work_comes_first_and_batch_shares_the_rest_in_proportion() -> None:
    machine = a_machine(OnlineDemand(56 * CPU, 0))
    started(machine, "a", cpu_mcpu=12 * CPU)
    started(machine, "b", cpu_mcpu=4 * CPU)
    machine.advance(10_000)
    used = {one.replica: one.usage_ns for one in machine.counters().replicas}
    assert used["a"] / used["b"] == pytest.approx(3, rel=0.01)
    zone = machine.counters().zones[0]
    assert zone.usage_ns == pytest.approx(16 * 10 * 10**9, rel=0.001)
    assert machine.ledger().online_used_mcpu_ms == 56 * CPU * 10_000


def test_the_quota_holds_batch_down_at_once_and_lifting_it_restores_all() -> None:
    machine = started(started(a_machine(), "a", cpu_mcpu=8 * CPU), "b", zones=(1,), cpu_mcpu=8 * CPU)
    assert batch_mcpu(machine) == 16 * CPU
    machine.set_batch_quota_mcpu(4 * CPU)
    assert machine.batch_quota_mcpu == 4 * CPU
    assert batch_mcpu(machine) == 4 * CPU
    assert machine.counters().batch_throttled_us == 750_000
    machine.set_batch_quota_mcpu(0)
    assert batch_mcpu(machine) == 0
    machine.set_batch_quota_mcpu(None)
    assert batch_mcpu(machine) == 16 * CPU
    assert machine.counters().batch_throttled_us == 1_750_000


def test_the_quota_left_by_a_full_zone_goes_to_replicas_elsewhere() -> None:
    machine = a_machine(OnlineDemand(64 * CPU, 0), limits=Interference(batch_weight_permille=0))
    started(machine, "a", cpu_mcpu=8 * CPU)
    machine.set_batch_quota_mcpu(10 * CPU)
    assert batch_mcpu(machine) == 0
    idle = started(started(a_machine(cpus_per_zone=4), "a", cpu_mcpu=8 * CPU), "b", zones=(1, 2), cpu_mcpu=8 * CPU)
    idle.set_batch_quota_mcpu(10 * CPU)
    assert batch_mcpu(idle) == 10 * CPU


def test_batch_cpus_limit_each_zone_by_its_allowed_cpus() -> None:
    machine = started(started(a_machine(), "a", cpu_mcpu=16 * CPU), "b", zones=(1,), cpu_mcpu=16 * CPU)
    machine.set_batch_cpus("0-3,16")
    assert machine.batch_cpus == "0-3,16"
    assert batch_mcpu(machine) == 5 * CPU
    machine.set_batch_cpus(None)
    assert machine.batch_cpus == "0-63"
    assert batch_mcpu(machine) == 32 * CPU


def test_a_replica_of_two_zones_moves_to_the_one_with_room() -> None:
    machine = started(a_machine(), "a", cpu_mcpu=16 * CPU)
    started(machine, "b", zones=(0, 1), cpu_mcpu=8 * CPU)
    machine.advance(1_000)
    first, second, *_ = machine.counters().zones
    assert first.batch_usage_ns == 16 * 10**9
    assert second.batch_usage_ns > 4 * 10**9
    assert machine.ledger().batch_used_mcpu_ms <= 24 * CPU * 1_000


def test_batch_yields_when_online_load_rises_and_gets_its_cpu_back_when_it_falls() -> None:
    machine = started(a_machine(lambda t: OnlineDemand(60 * CPU if 10_000 <= t < 20_000 else 0, 0)), cpu_mcpu=16 * CPU)
    machine.advance(10_000)
    assert batch_mcpu(machine, 10_000) < 3 * CPU
    assert batch_mcpu(machine, 10_000) == 16 * CPU


def test_a_machine_built_inside_a_sub_step_reads_the_demand_of_that_sub_step() -> None:
    asked: list[int] = []

    def demand(t_ms: int) -> OnlineDemand:
        asked.append(t_ms)
        return OnlineDemand(CPU, 0)

    machine = SimMachine(MachineSpec(), node="n-0", seed=1, demand=demand, start_ms=2_400)
    machine.advance(4_500)
    assert asked == [2_000, 3_000, 4_000]
    assert machine.ledger().node_ms == 2_100


def test_memory_that_is_there_at_once_counts_at_the_next_sub_step() -> None:
    for peeks in (False, True):
        machine = a_machine(OnlineDemand(0, 250 * GIB), limits=Interference(memory_ramp_ms=0))
        machine.advance(1_000)
        started(machine, memory_bytes=8 * GIB)
        if peeks:
            machine.counters()
        machine.advance(10_000)
        assert [(one.cause, one.at_ms) for one in machine.poll_exits()] == [("oom", 2_000)]


def test_memory_grows_to_the_request_and_is_where_the_replica_is() -> None:
    machine = started(a_machine(), zones=(1, 2), memory_bytes=6 * GIB)
    machine.advance(15_001)
    assert machine.counters().replicas[0].memory_bytes == 3 * GIB
    machine.advance(31_001)
    assert [zone.memory_bytes for zone in machine.counters().zones] == [0, 3 * GIB, 3 * GIB, 0]


def test_a_stopped_replica_ends_within_its_grace_by_itself_or_killed() -> None:
    machine = a_machine(limits=Interference(stop_least_ms=500, stop_most_ms=500))
    for name, grace_ms in (("easy", 10_000), ("short", 200), ("none", 0)):
        started(machine, name)
        assert machine.stop_replica(name, grace_ms)
    assert not machine.stop_replica("absent", 1)
    assert [one.is_stopping for one in machine.counters().replicas] == [True, True]
    machine.advance(5_000)
    exits = {one.replica: (one.code, one.cause, one.at_ms) for one in machine.poll_exits()}
    assert exits == {"none": (137, "killed", 0), "short": (137, "killed", 200), "easy": (143, "stopped", 500)}


def test_a_second_stop_never_lengthens_the_wait() -> None:
    machine = started(a_machine(limits=Interference(stop_least_ms=2_000, stop_most_ms=2_000)))
    machine.stop_replica("j/t/0", 1_000)
    machine.advance(500)
    machine.stop_replica("j/t/0", 10_000)
    machine.advance(10_000)
    assert [(one.code, one.at_ms) for one in machine.poll_exits()] == [(137, 1_000)]


def test_killed_and_crashed_replicas_waste_their_work() -> None:
    machine = started(started(a_machine(), "a"), "b")
    machine.advance(1_000)
    assert machine.kill_replica("a")
    assert machine.crash_replica("b", code=3)
    assert not machine.kill_replica("a")
    assert [(one.code, one.cause) for one in machine.poll_exits()] == [(137, "killed"), (3, "crashed")]
    assert machine.ledger().wasted_mcpu_ms == 8 * CPU * 1_000


def test_the_largest_batch_replica_is_killed_when_memory_runs_over() -> None:
    grown = lambda t: OnlineDemand(0, 200 * GIB if t < 60_000 else 240 * GIB)  # noqa: E731
    machine = a_machine(grown)
    for name, memory_bytes in (("a", 10 * GIB), ("b", 12 * GIB), ("c", 12 * GIB)):
        started(machine, name, memory_bytes=memory_bytes)
    machine.advance(60_000)
    assert machine.poll_exits() == ()
    assert machine.ledger().with_batch.harm_ms == 0
    machine.advance(62_500)
    (ended, *more) = machine.poll_exits()
    assert (ended.replica, ended.code, ended.cause, ended.at_ms) == ("b", 137, "oom", 61_000)
    assert [one.replica for one in more] == ["c"]
    assert machine.ledger().oom_kills == 2
    assert machine.ledger().with_batch.harm_ms == 1_000
    assert machine.ledger().alone.harm_ms == 0
    assert machine.counters().memory_some_us >= 1_000_000


def test_memory_that_online_work_alone_overfills_is_not_what_batch_work_adds() -> None:
    machine = a_machine(lambda at_ms: OnlineDemand(CPU, (200 if at_ms < 5_000 else 257) * GIB))
    started(machine)
    machine.advance(20_000)
    ledger = machine.ledger()
    assert ledger.alone.harm_ms == 15_000
    assert ledger.with_batch.harm_ms == 15_000
    assert ledger.added_harm_ms == 0


def test_memory_pressure_starts_near_the_top() -> None:
    def stall(used_bytes: int) -> int:
        machine = a_machine(OnlineDemand(0, used_bytes))
        machine.advance(1_000)
        return machine.counters().memory_some_us

    capacity = 256 * GIB
    assert stall(capacity * 94 // 100) == 0
    assert 0 < stall(capacity * 96 // 100) < stall(capacity * 99 // 100) < 1_000_000


def test_online_harm_is_counted_apart_from_those_without_batch() -> None:
    quiet = a_machine(OnlineDemand(30 * CPU, 0))
    quiet.advance(MINUTE)
    assert quiet.ledger().with_batch.harm_ms == 0
    full = a_machine(OnlineDemand(64 * CPU, 0))
    full.advance(MINUTE)
    assert full.ledger().with_batch.harm_ms == full.ledger().alone.harm_ms == MINUTE
    crowded = a_machine(OnlineDemand(48 * CPU, 0))
    for zone in range(4):
        started(crowded, f"r-{zone}", zones=(zone,), cpu_mcpu=16 * CPU)
    crowded.advance(MINUTE)
    assert (crowded.ledger().with_batch.harm_ms, crowded.ledger().alone.harm_ms) == (MINUTE, 0)
    assert crowded.counters().online_cpu_some_us > 0
    crowded.set_batch_quota_mcpu(2 * CPU)
    crowded.advance(2 * MINUTE)
    assert crowded.ledger().with_batch.harm_ms == MINUTE, "suppression ends the harm"


def test_batch_keeps_its_small_weight_on_a_full_machine_and_online_lacks_just_that() -> None:
    machine = started(a_machine(OnlineDemand(64 * CPU, 0)), cpu_mcpu=16 * CPU)
    machine.advance(1_000)
    ledger = machine.ledger()
    assert ledger.batch_used_mcpu_ms == 32 * 1_000
    assert ledger.online_demand_mcpu_ms - ledger.online_used_mcpu_ms == 32 * 1_000


def test_counters_only_grow_until_a_reboot_and_the_ledger_goes_on() -> None:
    machine = started(a_machine(OnlineDemand(20 * CPU, GIB)))
    machine.set_batch_quota_mcpu(2 * CPU)
    machine.advance(10_000)
    before = machine.counters()
    machine.reboot()
    after = machine.counters()
    assert (before.boot, after.boot) == (1, 2)
    assert (after.batch_usage_ns, after.online_usage_ns, after.replicas) == (0, 0, ())
    assert machine.batch_quota_mcpu is None
    assert machine.poll_exits() == ()
    ledger = machine.ledger()
    assert ledger.wasted_mcpu_ms == ledger.batch_used_mcpu_ms == 2 * CPU * 10_000
    machine.advance(20_000)
    assert machine.ledger().online_used_mcpu_ms == 20 * CPU * 20_000
    machine.check()


def test_the_topology_is_the_machine() -> None:
    topology = MachineSpec().topology()
    topology.validate()
    assert topology.cpu_capacity_mcpu == MachineSpec().cpu_capacity_mcpu == 64_000
    assert topology.memory_capacity_bytes == MachineSpec().memory_capacity_bytes == 256 * GIB
    assert [(zone.zone, zone.socket, zone.cpus) for zone in topology.zones][2] == (2, 1, "32-47")


@pytest.mark.parametrize(
    ("act", "field"),
    [
        pytest.param(lambda m: m.advance(9_999), "now_ms", id="time backwards"),
        pytest.param(lambda m: m.set_batch_quota_mcpu(-1), "quota_mcpu", id="negative quota"),
        pytest.param(lambda m: m.set_batch_cpus("64"), "cpus", id="a CPU it lacks"),
        pytest.param(lambda m: m.set_batch_cpus(""), "cpus", id="no CPU"),
        pytest.param(lambda m: m.set_batch_cpus("a"), "cpus", id="no list"),
        pytest.param(started, "replica", id="running already"),
        pytest.param(lambda m: started(m, "b", zones=()), "zones", id="no zone"),
        pytest.param(lambda m: started(m, "b", zones=(4,)), "zones", id="a zone it lacks"),
        pytest.param(lambda m: started(m, "b", zones=(1, 0)), "zones", id="zones not ascending"),
        pytest.param(lambda m: started(m, "b", cpu_mcpu=0), "cpu_mcpu", id="no CPU asked"),
        pytest.param(lambda m: started(m, "b", memory_bytes=0), "memory_bytes", id="no memory asked"),
        pytest.param(lambda m: started(m, "b", work_mcpu_ms=0), "work_mcpu_ms", id="no work"),
        pytest.param(lambda m: m.stop_replica("j/t/0", -1), "grace_ms", id="negative grace"),
    ],
)
def test_a_wrong_command_is_refused_and_changes_nothing(act, field: str) -> None:
    machine = started(a_machine(OnlineDemand(20 * CPU, GIB)))
    machine.advance(10_000)
    digest = machine.digest()
    with pytest.raises(InvalidInput) as caught:
        act(machine)
    assert caught.value.field == field
    assert machine.digest() == digest


def test_a_full_machine_refuses_another_replica() -> None:
    machine = a_machine()
    for number in range(MAX_REPLICAS):
        started(machine, f"r-{number}")
    with pytest.raises(InvalidInput, match="at most 4096"):
        started(machine, "one more")


@pytest.mark.parametrize(
    "shape", [{"sockets": 0}, {"cpus_per_zone": 0}, {"sub_step_ms": 0}, {"memory_bytes_per_zone": 0}]
)
def test_a_machine_of_nothing_is_refused(shape: dict[str, int]) -> None:
    with pytest.raises(InvalidInput):
        MachineSpec(**shape)


def test_gpus_hang_two_by_two_on_roots_of_their_zone_and_cards_beside_them() -> None:
    topology = MachineSpec(sockets=2, zones_per_socket=1, gpus_per_zone=3, nics_per_zone=2).topology()
    topology.validate()
    places = [(device.kind, device.device, device.zone, device.pcie) for device in topology.devices]
    assert places == [
        ("gpu", 0, 0, "pci0000:00"),
        ("gpu", 1, 0, "pci0000:00"),
        ("gpu", 2, 0, "pci0000:01"),
        ("gpu", 3, 1, "pci0001:00"),
        ("gpu", 4, 1, "pci0001:00"),
        ("gpu", 5, 1, "pci0001:01"),
        ("nic", 0, 0, "pci0000:00"),
        ("nic", 1, 0, "pci0000:01"),
        ("nic", 2, 1, "pci0001:00"),
        ("nic", 3, 1, "pci0001:01"),
    ]
    assert MachineSpec().topology().devices == ()
    with pytest.raises(InvalidInput, match="gpus_per_zone"):
        MachineSpec(gpus_per_zone=-1)
