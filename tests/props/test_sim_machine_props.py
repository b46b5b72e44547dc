"""Conservation and determinism of the simulated machine under arbitrary commands."""

import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import QosClass
from colo_sim.demand import FLEET_NOISE, NodeDemand, Spike
from colo_sim.machine import SimMachine
from colo_sim.machine_online import spread_into_room
from colo_sim.machine_share import share_batch_cpu, spread_online_cpu
from colo_sim.machine_spec import GIB, MachineSpec
from colo_sim.synthetic import synthetic_day
from tests.support.profiles import examples

CAPACITY_MCPU = 16_000

zones = st.sets(st.integers(0, 3), min_size=1).map(lambda chosen: tuple(sorted(chosen)))
command = st.one_of(
    st.tuples(
        st.just("start"),
        st.integers(0, 9),
        zones,
        st.integers(1, 9_000),
        st.integers(1, 40 * GIB),
        st.integers(1, 10**8),
    ),
    st.tuples(
        st.just("online"),
        st.integers(0, 9),
        st.sampled_from([QosClass.LSE, QosClass.LSR, QosClass.LS]),
        st.sampled_from(["0", "1-2", "3-4", "8-11", "0-14", "15"]),
        st.integers(1, 9_000),
        st.integers(1, 10 * GIB),
        st.integers(1, 10**8),
    ),
    st.tuples(st.just("stop"), st.integers(0, 9), st.integers(0, 3_000)),
    st.tuples(st.just("kill"), st.integers(0, 9)),
    st.tuples(st.just("quota"), st.none() | st.integers(0, 20_000)),
    st.tuples(st.just("cpus"), st.sampled_from([None, "0", "0-1,4-6", "3,7,11,15"])),
    st.tuples(st.just("reboot")),
)
schedule = st.lists(st.tuples(st.integers(0, 20_000), command), max_size=25)


def a_machine(seed: int = 3, kind: type[SimMachine] = SimMachine) -> SimMachine:
    spec = MachineSpec(cpus_per_zone=4, memory_bytes_per_zone=16 * GIB)
    demand = NodeDemand(
        synthetic_day(seed),
        node="n-0",
        node_index=4,
        seed=seed,
        cpu_capacity_mcpu=spec.cpu_capacity_mcpu,
        memory_capacity_bytes=spec.memory_capacity_bytes,
        noise=FLEET_NOISE,
        spikes=(Spike(start_ms=20_000, length_ms=30_000, cpu_ppm=700_000, mem_ppm=400_000),),
    )
    return kind(spec, node="n-0", seed=seed, demand=demand.at)


def obey(machine: SimMachine, order: tuple) -> None:
    match order:
        case ("start", number, zone_ids, cpu_mcpu, memory_bytes, work_mcpu_ms):
            name = f"r-{number}"
            if name not in {one.replica for one in machine.counters().replicas}:
                machine.start_replica(name, 1, zone_ids, cpu_mcpu, memory_bytes, work_mcpu_ms)
        case ("online", number, qos, cpus, cpu_mcpu, memory_bytes, work_mcpu_ms):
            before = machine.digest()
            try:
                machine.start_online_replica(
                    f"o-{number}",
                    1,
                    (0,),
                    cpu_mcpu,
                    memory_bytes,
                    work_mcpu_ms,
                    qos,
                    "" if qos is QosClass.LS else cpus,
                )
            except InvalidInput:
                assert machine.digest() == before, "a refusal changes nothing"
        case ("stop", number, grace_ms):
            machine.stop_replica(f"r-{number}", grace_ms)
            machine.stop_replica(f"o-{number}", grace_ms)
        case ("kill", number):
            machine.kill_replica(f"r-{number}")
            machine.kill_replica(f"o-{number}")
        case ("quota", quota_mcpu):
            machine.set_batch_quota_mcpu(quota_mcpu)
        case ("cpus", cpus):
            machine.set_batch_cpus(cpus)
        case ("reboot",):
            machine.reboot()


def run(steps: list, *, piece_ms: int, peeks: bool, kind: type[SimMachine] = SimMachine) -> str:
    """Run commands at their times, advancing in pieces, perhaps reading on the way; return the final digest."""
    machine = a_machine(kind=kind)
    at_ms = 0
    for wait_ms, order in steps:
        at_ms += wait_ms
        while machine.at_ms < at_ms:
            machine.advance(min(at_ms, machine.at_ms + piece_ms))
            if peeks:
                machine.counters()
        obey(machine, order)
    machine.advance(at_ms + 5_000)
    machine.check()
    return machine.digest()


@examples(0.6)
@given(schedule, st.integers(1, 3_000))
def test_pieces_of_time_and_readings_never_change_the_outcome(steps: list, piece_ms: int) -> None:
    whole = run(steps, piece_ms=10**9, peeks=False)
    assert run(steps, piece_ms=max(piece_ms, 97), peeks=True) == whole


@examples(0.6)
@given(schedule)
def test_usage_stays_within_capacity_and_quota_and_counters_only_grow(steps: list) -> None:
    machine = a_machine()
    for wait_ms, order in steps:
        obey(machine, order)
        quota_mcpu = machine.batch_quota_mcpu
        before = machine.counters()
        machine.advance(machine.at_ms + wait_ms)
        after = machine.counters()
        for old, new in zip(before.zones, after.zones, strict=True):
            assert 0 <= new.batch_usage_ns - old.batch_usage_ns <= new.usage_ns - old.usage_ns
            assert new.usage_ns - old.usage_ns <= 4_000 * wait_ms * 1_000
            assert 0 <= new.memory_bytes <= 16 * GIB
        if quota_mcpu is not None:
            assert after.batch_usage_ns - before.batch_usage_ns <= quota_mcpu * wait_ms * 1_000
        for name in ("cpu_some_us", "memory_some_us", "memory_full_us", "online_cpu_some_us", "batch_throttled_us"):
            assert 0 <= getattr(after, name) - getattr(before, name) <= wait_ms * 1_000
        assert after.memory_full_us <= after.memory_some_us
        machine.check()


@examples(0.6)
@given(schedule)
def test_work_is_done_exactly_as_cpu_time_was_given(steps: list) -> None:
    machine = a_machine()
    ended = {"r": 0, "o": 0}
    for wait_ms, order in steps:
        if order[0] == "reboot":
            continue
        obey(machine, order)
        machine.advance(machine.at_ms + wait_ms)
        for one in machine.poll_exits():
            ended[one.replica[0]] += one.used_mcpu_ms
        running = {"r": 0, "o": 0}
        for found in machine.counters().replicas:
            running[found.replica[0]] += found.usage_ns
        ledger = machine.ledger()
        used_ns = ended["r"] * 1_000 + running["r"]
        assert ledger.batch_used_mcpu_ms * 1_000 == used_ns == machine.counters().batch_usage_ns
        assert ledger.replica_online_mcpu_ms * 1_000 == ended["o"] * 1_000 + running["o"]
        assert ledger.replica_online_mcpu_ms <= ledger.online_used_mcpu_ms
        assert (
            ledger.alone.harm_ms + ledger.added_harm_ms == ledger.with_batch.harm_ms <= ledger.node_ms == machine.at_ms
        )
        assert ledger.online_used_mcpu_ms <= ledger.online_demand_mcpu_ms


class Careful(SimMachine):
    """The slow twin: works out all rates anew in every sub-step, whether or not anything could have changed."""

    def _enter_sub_step(self) -> None:
        super()._enter_sub_step()
        self._changed()


@examples(0.6)
@given(schedule)
def test_keeping_rates_while_nothing_changed_is_only_faster(steps: list) -> None:
    assert run(steps, piece_ms=10**9, peeks=False) == run(steps, piece_ms=10**9, peeks=False, kind=Careful)


class AClaim:
    def __init__(self, cpu_mcpu: int, zones: tuple[int, ...]) -> None:
        self.cpu_mcpu = cpu_mcpu
        self.zones = zones


@given(
    st.lists(st.builds(AClaim, st.integers(1, 20_000), zones), max_size=12),
    st.lists(st.integers(0, CAPACITY_MCPU), min_size=4, max_size=4),
    st.none() | st.integers(0, 60_000),
)
def test_shares_stay_within_claims_rooms_and_quota_and_waste_nothing(claims, room_mcpu, quota_mcpu) -> None:
    shares = share_batch_cpu(claims, room_mcpu, quota_mcpu)
    granted = sum(shares.granted_mcpu)
    assert granted == sum(shares.zone_mcpu)
    assert all(0 <= got <= claim.cpu_mcpu for got, claim in zip(shares.granted_mcpu, claims, strict=True))
    assert all(0 <= used <= room for used, room in zip(shares.zone_mcpu, room_mcpu, strict=True))
    assert quota_mcpu is None or granted <= quota_mcpu
    for got, claim in zip(shares.granted_mcpu, claims, strict=True):
        # Whoever lacks CPU does so because its zones are full or the quota is used up.
        is_short = got < claim.cpu_mcpu
        assert not is_short or granted == quota_mcpu or all(shares.zone_mcpu[z] == room_mcpu[z] for z in claim.zones)


@given(st.integers(0, 100_000), st.lists(st.integers(900, 1_100), min_size=1, max_size=8))
def test_online_demand_is_spread_without_loss_up_to_the_capacity(demand_mcpu: int, weights: list[int]) -> None:
    spread = spread_online_cpu(demand_mcpu, weights, sum(weights), CAPACITY_MCPU)
    assert sum(spread) == min(demand_mcpu, CAPACITY_MCPU * len(weights))
    assert all(0 <= part <= CAPACITY_MCPU for part in spread)


PROGRAM = """
from tests.props.test_sim_machine_props import a_machine, obey
machine = a_machine()
for step in range(60):
    obey(machine, ("start", step % 10, ((step % 4),), 500 + 97 * step, 2 ** 30, 3_000_000 + step))
    obey(machine, [("quota", None), ("quota", 6_000), ("cpus", "0-1,4-6"), ("kill", 3)][step % 4])
    machine.advance(1_300 * (step + 1))
print(machine.digest())
"""


def test_the_digest_is_the_same_under_any_hash_seed() -> None:
    digests = set()
    for hash_seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout)
    assert len(digests) == 1
    assert len(digests.pop()) == 33


@given(st.integers(0, 80_000), st.lists(st.integers(900, 1_100), min_size=4, max_size=4), st.integers(1, 20_000))
def test_spreading_beside_nobody_is_spreading(demand_mcpu: int, weights: list[int], capacity_mcpu: int) -> None:
    alone = spread_online_cpu(demand_mcpu, weights, sum(weights), capacity_mcpu)
    assert spread_into_room(demand_mcpu, weights, sum(weights), [capacity_mcpu] * 4) == alone
