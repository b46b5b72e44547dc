"""Owners of reserved CPUs come and go: they take these first, free ones after them, and what is left is always right."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.constraints import Constraints, CpuBind
from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import Placement
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reservation import AllocatePolicy
from colo_scheduler.cpus.accumulate import Wish
from colo_scheduler.cpus.binding import BindPolicy, ExclusivePolicy, NoCpus
from colo_scheduler.cpus.exclusive import HeldCpus
from tests.parity.peers.reserved_cpus import choose_reserved_cpus
from tests.support.builders import GIB, a_node, a_topology
from tests.support.cpu_topology import topology_from_node
from tests.support.profiles import examples
from tests.support.reserve_story import ReservingBench
from tests.support.scheduler_story import an_allocatable
from tests.unit.scheduler.test_reserve import claim, decided, ended, reserve

CPUS = 12
MACHINE = a_topology(sockets=1, zones_per_socket=1, cpus=CPUS, memory_gib=64)
TOPOLOGY = topology_from_node(MACHINE)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("owner"), st.integers(1, 7)),
        st.tuples(st.just("other"), st.integers(1, 4)),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=12,
)


class Life:
    """One machine, one reservation that is used again and again, owners and others."""

    def __init__(self, policy: AllocatePolicy, bind: CpuBind) -> None:
        self.policy, self.bind = policy, bind
        self.bench = ReservingBench()
        self.tell()
        self.held: dict[str, Placement] = {}
        self.number = 0
        self.claim("batch", 2)
        reserve(
            self.bench,
            mcpu=4000,
            gib=16,
            allocate_once=False,
            policy=policy,
            qos=QosClass.LSR,
            band=PriorityBand.PROD,
        )
        self.kept = CpuSet.parse(self.bench.find("r1").place.cpus)

    def tell(self) -> None:
        self.bench.say(a_node("n1", MACHINE, is_online=True))
        self.bench.say(an_allocatable("n1", [(CPUS * 1000, 64 * GIB)], at_ms=self.bench.now_ms))

    def claim(self, job: str, cpus: int) -> list[Placement]:
        self.number += 1
        placed = claim(
            self.bench,
            f"{job}/main/{self.number}",
            mcpu=cpus * 1000,
            memory_bytes=GIB,
            qos=QosClass.LSR,
            band=PriorityBand.PROD,
            constraints=Constraints(cpu_bind=self.bind),
        )
        self.held |= {placement.replica: placement for placement in placed}
        return placed

    def expected(self, cpus: int) -> CpuSet | NoCpus:
        """What the rule of reserved CPUs gives, from the messages alone."""
        by_name = {name: HeldCpus(cpus=CpuSet.parse(each.cpus)) for name, each in self.held.items()}
        owners = [held for name, held in by_name.items() if self.held[name].reservation == "r1"]
        others = [held for name, held in by_name.items() if self.held[name].reservation != "r1"]
        order = BindPolicy.SPREAD_BY_PCPUS if self.bind is CpuBind.SPREAD_BY_PCPUS else BindPolicy.FULL_PCPUS
        return choose_reserved_cpus(
            TOPOLOGY,
            Wish(bind=order, exclusive=ExclusivePolicy.NONE),
            held_by_others=others,
            reserved=HeldCpus(cpus=self.kept),
            owners=owners,
            need=cpus,
            policy=self.policy,
        )

    def step(self, what: str, number: int) -> None:
        if what == "owner":
            expected = self.expected(number)
            for placement in self.claim("web", number):
                if placement.reservation:
                    assert CpuSet.parse(placement.cpus) == expected
                else:
                    assert isinstance(expected, NoCpus)
        elif what == "other":
            self.claim("batch", number)
        elif what == "end" and self.held:
            names = sorted(self.held)
            # Who waited may get a place by it.
            placed = decided(self.bench.say(ended(self.held.pop(names[number % len(names)]))))
            self.held |= {placement.replica: placement for placement in placed}
        elif what == "restart":
            self.bench.restart()
            self.tell()

    def look(self) -> None:
        self.bench.core.check()
        taken = [cpu for placement in self.held.values() for cpu in CpuSet.parse(placement.cpus)]
        assert len(taken) == len(set(taken))
        left = CpuSet.parse(self.bench.find("r1").left.cpus)
        owned = CpuSet.from_iterable(
            cpu for each in self.held.values() if each.reservation == "r1" for cpu in CpuSet.parse(each.cpus)
        )
        assert left == self.kept - owned
        assert not left & CpuSet.from_iterable(taken)
        if self.policy is AllocatePolicy.RESTRICTED:
            assert owned <= self.kept


@examples(0.6)
@given(st.sampled_from(AllocatePolicy), st.sampled_from(CpuBind), steps)
def test_reserved_cpus_come_first_and_what_is_left_is_right(
    policy: AllocatePolicy, bind: CpuBind, delivered: list[tuple[str, int]]
) -> None:
    life = Life(policy, bind)
    for what, number in delivered:
        life.step(what, number)
        life.look()
    assert life.bench.find("r1").phase == "Available"
