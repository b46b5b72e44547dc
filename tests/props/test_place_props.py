"""Whatever is asked of small clusters, every place can be had: CPUs, zones, devices and huge pages are given out once."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from colo_common.events.effects import Effect
from colo_common.events.job import PlacementRequest, PlacementsRequested
from colo_common.events.node import UnmanagedUse
from colo_common.model.constraints import (
    Constraints,
    CpuBind,
    CpuExclusive,
    CpuPolicy,
    DeviceRequest,
    HugePages,
    NumaPolicy,
)
from colo_common.model.cpuset import CpuSet
from colo_common.model.node_rules import NodeRules
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.topology import NodeTopology
from colo_executor.desired import MachineFacts as OnlineMachine
from colo_executor.kept_cpus import KeptCpus
from colo_executor.online import CpuHold, given_cpus
from colo_scheduler.core import SchedulerCore
from tests.props.test_scheduler_props import ended, placements_of
from tests.support.builders import GIB, a_node
from tests.support.profiles import examples
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable, gpus, topology_of

PAGE = 2 << 20
RULES = (
    NodeRules(),
    NodeRules(),
    NodeRules(reserved_cpus="0-1", reserved_memory_bytes=GIB),
    NodeRules(reserved_mcpu=1_500, batch_replicas_most=2),
    NodeRules(numa_policy=NumaPolicy.SINGLE_NUMA_NODE, numa_allocate="most-allocated"),
    NodeRules(cpu_bind=CpuBind.FULL_PCPUS),
    NodeRules(amplification_pct=150, system_cpus="2"),
    NodeRules(reserved_cpus="0-1", reserved_cpus_only=True),
)


class Machine(NamedTuple):
    """A node of the cluster."""

    topology: NodeTopology
    rules: NodeRules


def a_machine(zones: int, sockets: int, devices: int, pages: int, rule: int) -> Machine:
    topology = topology_of(zones, sockets=sockets, cpus=4, memory_gib=8)
    with_pages = tuple(
        structs.replace(zone, huge_pages=(HugePages(page_bytes=PAGE, total_bytes=pages * PAGE),) if pages else ())
        for zone in topology.zones
    )
    return Machine(structs.replace(topology, zones=with_pages, devices=gpus(devices, zones)), RULES[rule])


machines = st.builds(
    lambda shape, devices, pages, rule: a_machine(*shape, devices, pages, rule),
    st.sampled_from([(1, 1), (2, 1), (2, 2), (4, 2)]),
    st.integers(0, 3),
    st.sampled_from([0, 4]),
    st.integers(0, len(RULES) - 1),
)
align = st.sampled_from(list(NumaPolicy))
devices = st.sampled_from(
    [
        (),
        (),
        (DeviceRequest(kind="gpu", count=1),),
        (DeviceRequest(kind="gpu", count=2),),
        (DeviceRequest(kind="gpu", core_pct=40, memory_pct=40),),
    ]
)
pages = st.sampled_from([(), (), (HugePages(page_bytes=PAGE, total_bytes=3 * PAGE),)])
online = st.builds(
    lambda qos, cpus, bind, required, exclusive, policy, numa, gpu, huge: (
        qos,
        PriorityBand.PROD,
        cpus * 1000,
        Constraints(
            cpu_bind=bind if qos.has_own_cpus else CpuBind.DEFAULT,
            cpu_bind_required=required and qos.has_own_cpus and bind is not CpuBind.DEFAULT,
            cpu_exclusive=exclusive if qos.has_own_cpus else CpuExclusive.NONE,
            cpu_policy=CpuPolicy.DEFAULT if qos.has_own_cpus else policy,
            numa_policy=numa,
            devices=gpu,
            huge_pages=huge,
        ),
    ),
    st.sampled_from([QosClass.LSE, QosClass.LSR, QosClass.LS]),
    st.integers(1, 5),
    st.sampled_from(list(CpuBind)),
    st.booleans(),
    st.sampled_from(list(CpuExclusive)),
    st.sampled_from([CpuPolicy.DEFAULT, CpuPolicy.NUMA, CpuPolicy.IMMOVABLE]),
    align,
    devices,
    pages,
)
batch = st.builds(
    lambda mcpu, numa, gpu: (
        QosClass.BE,
        PriorityBand.BATCH,
        mcpu,
        Constraints(numa_policy=numa, devices=gpu),
    ),
    st.sampled_from([500, 1000, 3000]),
    align,
    devices,
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("want"), st.one_of(online, batch), st.integers(1, 3)),
        st.tuples(st.just("end"), st.integers(0, 20)),
        st.tuples(st.just("restart")),
        st.tuples(st.just("foreign"), st.integers(0, 2_700), st.integers(0, 5)),
    ),
    min_size=1,
    max_size=14,
)


class Life:
    """A scheduler and its cluster; after every step everything that is held is looked at, by the messages alone."""

    def __init__(self, cluster: Sequence[Machine]) -> None:
        self.cluster = {f"n{number}": machine for number, machine in enumerate(cluster)}
        self.held: dict[str, Placement] = {}
        self.bench = Bench()
        self.number = 0
        self.unmanaged_mcpu, self.unmanaged_bytes = 0, 0
        self.tell_cluster()

    def tell_cluster(self) -> list[Effect]:
        effects: list[Effect] = []
        for name, machine in self.cluster.items():
            effects += self.bench.tell(a_node(name, machine.topology, is_online=True, rules=machine.rules))
            free = [(3000, 6 * GIB) for _ in machine.topology.zones]
            unmanaged = tuple(
                UnmanagedUse(zone=zone.zone, cpu_mcpu=self.unmanaged_mcpu, memory_bytes=self.unmanaged_bytes)
                for zone in machine.topology.zones
            )
            effects += self.bench.tell(an_allocatable(name, free, at_ms=self.bench.now_ms, unmanaged=unmanaged))
        return effects + self.bench.wake()

    def placement_request(self, about: tuple[QosClass, PriorityBand, int, Constraints], count: int) -> None:
        qos, band, mcpu, constraints = about
        placement_requests: list[PlacementRequest] = []
        for _ in range(count):
            self.number += 1
            name = f"j{self.number:03}/t/0"
            placement_requests.append(
                a_placement_request(
                    name, mcpu=mcpu, qos=qos, band=band, constraints=constraints, queued_at_ms=self.number
                )
            )
        self.take(self.bench.say(PlacementsRequested(placement_requests=tuple(placement_requests))))

    def end(self, number: int) -> None:
        names = sorted(self.held)
        if names:
            placement = self.held.pop(names[number % len(names)])
            self.take(self.bench.say(ended(placement)))

    def use(self, mcpu: int, gib: int) -> None:
        """Others' online work uses so much of every zone from now on."""
        self.unmanaged_mcpu, self.unmanaged_bytes = mcpu, gib * GIB
        self.bench.now_ms += 1
        self.take(self.tell_cluster())

    def restart(self) -> None:
        before = {node.name: node.holdings for node in self.bench.core.cluster.nodes}
        self.bench.core = SchedulerCore()
        self.bench.load()
        self.take(self.bench.wake() + self.tell_cluster(), is_again=True)
        after = {node.name: node.holdings for node in self.bench.core.cluster.nodes}
        assert sorted(after) == sorted(before)
        for name, holdings in before.items():
            assert {key: held[:4] for key, held in holdings.items()} == {
                key: held[:4] for key, held in after[name].items() if key in holdings
            }

    def take(self, effects: list[Effect], *, is_again: bool = False) -> None:
        for placement in placements_of(effects):
            assert is_again or placement.replica not in self.held
            is_new = placement.replica not in self.held
            self.held[placement.replica] = placement
            if is_new and placement.band is PriorityBand.PROD:
                self.see_room(placement.node)
        self.bench.core.check()
        assert self.bench.core.cluster.disagreeing == {}
        for name, machine in self.cluster.items():
            look(machine, [placement for placement in self.held.values() if placement.node == name])

    def see_room(self, node: str) -> None:
        """Whoever came last left others' online work half as much again as it uses, of amounts and of CPUs to run on."""
        machine = self.cluster[node]
        here = [held for held in self.held.values() if held.node == node and held.band is PriorityBand.PROD]
        kept = CpuSet.parse(machine.rules.reserved_cpus) | CpuSet.parse(machine.rules.system_cpus)
        zones = machine.topology.zones
        cpu_mcpu = sum(held.cpu_mcpu for held in here)
        capacity_mcpu = sum(zone.cpu_capacity_mcpu for zone in zones) * machine.rules.amplification_pct // 100
        room_mcpu = (self.unmanaged_mcpu * 3 + 1) // 2
        assert cpu_mcpu + len(zones) * room_mcpu <= capacity_mcpu
        memory = sum(held.memory_bytes for held in here) + machine.rules.reserved_memory_bytes
        assert memory + len(zones) * self.unmanaged_bytes * 3 // 2 <= sum(zone.memory_bytes for zone in zones)
        own = {cpu for held in here if held.qos.has_own_cpus for cpu in CpuSet.parse(held.cpus)}
        newest = here[-1]
        for zone in zones:
            if newest.qos.has_own_cpus and CpuSet.parse(newest.cpus) & CpuSet.parse(zone.cpus):
                shared = [cpu for cpu in CpuSet.parse(zone.cpus) if cpu not in own and cpu not in kept]
                assert len(shared) * 1000 >= room_mcpu


def look(machine: Machine, placements: list[Placement]) -> None:
    """Every rule about one node, as its owner would check it."""
    topology, rules = machine.topology, machine.rules
    online = [placement for placement in placements if placement.band is PriorityBand.PROD]
    kept = CpuSet.parse(rules.reserved_cpus) | CpuSet.parse(rules.system_cpus)
    everyone: dict[int, list[QosClass]] = {}
    for placement in placements:
        own = CpuSet.parse(placement.cpus)
        assert sum(share.cpu_mcpu for share in placement.zones) == placement.cpu_mcpu
        assert sum(share.memory_bytes for share in placement.zones) == placement.memory_bytes
        assert bool(own) or not placement.qos.has_own_cpus
        if own:
            assert len(own) * 1000 == placement.cpu_mcpu
            assert not own & kept
            for zone in topology.zones:
                here = sum(share.cpu_mcpu for share in placement.zones if share.zone == zone.zone)
                assert len(own & CpuSet.parse(zone.cpus)) * 1000 == here
        for cpu in own:
            everyone.setdefault(cpu, []).append(placement.qos)
    for classes in everyone.values():
        assert len(classes) == 1 or not any(qos.has_own_cpus for qos in classes)
    taken_by_executor(topology, online, kept)
    for zone in topology.zones:
        cpus = CpuSet.parse(zone.cpus)
        shared = sum(
            share.cpu_mcpu
            for placement in online
            if not CpuSet.parse(placement.cpus)
            for share in placement.zones
            if share.zone == zone.zone
        )
        fixed = {cpu for placement in online for cpu in CpuSet.parse(placement.cpus)}
        paid = kept if not rules.reserved_cpus_only else CpuSet.parse(rules.system_cpus)
        left = len([cpu for cpu in cpus if cpu not in fixed and cpu not in paid])
        # The shared pool of online work is what nobody has by number, as often as the node claims it.
        assert shared <= left * 10 * rules.amplification_pct
        memory = sum(s.memory_bytes for p in online for s in p.zones if s.zone == zone.zone)
        assert memory + rules.reserved_memory_bytes // len(topology.zones) <= zone.memory_bytes
        huge = sum(h.total_bytes for p in placements for h in p.huge_pages if h.zone == zone.zone)
        assert huge <= sum(each.total_bytes for each in zone.huge_pages)
    for device in topology.devices:
        shares = [s for p in placements for s in p.devices if (s.kind, s.device) == (device.kind, device.device)]
        assert sum(share.core_pct for share in shares) <= 100
        assert sum(share.memory_bytes for share in shares) <= device.memory_bytes
    if rules.numa_policy is NumaPolicy.SINGLE_NUMA_NODE:
        for placement in online:
            assert len({*(s.zone for s in placement.zones), *(d.zone for d in placement.devices)}) == 1
    if rules.batch_replicas_most is not None:
        assert len(placements) - len(online) <= rules.batch_replicas_most


def taken_by_executor(topology: NodeTopology, online: list[Placement], kept: CpuSet) -> None:
    """The executor of the node would take each of them beside the others: it raises CpusRefused for what it refuses."""
    zones = {zone.zone: CpuSet.parse(zone.cpus) for zone in topology.zones}
    cpus = CpuSet.from_iterable(cpu.cpu for cpu in topology.cpus)
    machine = OnlineMachine(cpus=cpus, mems=CpuSet.from_iterable(zones), zones=zones, has=frozenset())
    holds: tuple[CpuHold, ...] = ()
    for placement in online:
        holds += (given_cpus(placement, placement.replica, machine, holds, KeptCpus(withheld=kept)),)


def live(cluster: Sequence[Machine], story: Sequence[tuple[object, ...]]) -> Life:
    life = Life(cluster)
    for step in story:
        match step:
            case ("want", about, int(count)):
                life.placement_request(about, count)  # type: ignore[arg-type]
            case ("end", int(number)):
                life.end(number)
            case ("restart",):
                life.restart()
            case ("foreign", int(mcpu), int(gib)):
                life.use(mcpu, gib)
            case _:
                raise AssertionError(step)
    return life


@examples(1.5)
@given(st.lists(machines, min_size=1, max_size=3), steps)
def test_whatever_is_asked_nothing_is_given_out_twice(cluster: list[Machine], story: list[tuple[object, ...]]) -> None:
    assert live(cluster, story).bench.core.cluster.disagreeing == {}


def digest(seed: int) -> str:
    """What becomes of a long random story."""
    rng = random.Random(seed)
    cluster = [
        a_machine(*rng.choice([(2, 1), (4, 2)]), rng.randrange(4), 4, rng.randrange(len(RULES))) for _ in range(5)
    ]
    life = Life(cluster)
    for _ in range(60):
        qos = rng.choice([QosClass.LSE, QosClass.LSR, QosClass.LS, QosClass.BE])
        band = PriorityBand.BATCH if qos is QosClass.BE else PriorityBand.PROD
        gpu = (DeviceRequest(kind="gpu", count=1),) if rng.random() < 0.3 else ()
        place = Constraints(numa_policy=rng.choice(list(NumaPolicy)), devices=gpu)
        life.placement_request((qos, band, rng.randrange(1, 5) * 1000, place), 1)
        if rng.random() < 0.4:
            life.end(rng.randrange(20))
    delivered = [f"{p.replica} {p.node} {p.zones} {p.cpus} {p.devices}" for _, p in sorted(life.held.items())]
    assert delivered
    return hashlib.sha256("\n".join(delivered).encode()).hexdigest()


def test_a_story_ends_alike_under_every_hash_seed() -> None:
    code = "from tests.props.test_place_props import digest; print(digest(3))"
    found = set()
    for seed in ("1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        found.add(done.stdout.strip())
    assert len(found) == 1
