"""Choosing CPUs: what is promised of every choice, and the same choice as the slow and literal twin of the rules."""

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from colo_common.model.cpu_topology import CpuRow, CpuTopology, cpus_of_mask
from colo_common.model.cpuset import CpuSet
from colo_common.model.placement import ZoneShare
from colo_scheduler.cpus.accumulate import Wish, take_preferred_cpus
from colo_scheduler.cpus.accumulator import full_cores, one_a_core
from colo_scheduler.cpus.binding import BindPolicy, ExclusivePolicy, NoCpus, NumaStrategy
from colo_scheduler.cpus.choose import CpuRequest, choose_cpus
from colo_scheduler.cpus.exclusive import HeldCpus, kept_away, sum_holders
from colo_scheduler.peers.kubelet.options import KubeletOptions
from colo_scheduler.peers.kubelet.static_policy import choose_static, take_distributed, take_packed
from tests.support import cpu_twin


class Shape(NamedTuple):
    """A regular machine; `is_linux` numbers the second threads after all first ones."""

    sockets: int
    zones_per_socket: int
    cores_per_zone: int
    threads: int
    is_linux: bool

    def rows(self) -> list[cpu_twin.Row]:
        cores = self.sockets * self.zones_per_socket * self.cores_per_zone
        rows = []
        for core in range(cores):
            zone = core // self.cores_per_zone
            for thread in range(self.threads):
                cpu = core + thread * cores if self.is_linux else core * self.threads + thread
                rows.append((cpu, core, zone, zone // self.zones_per_socket))
        return rows

    def topology(self) -> CpuTopology:
        return CpuTopology.from_rows(CpuRow(*row) for row in self.rows())


static_filters = st.builds(
    Shape,
    sockets=st.integers(1, 3),
    zones_per_socket=st.integers(1, 3),
    cores_per_zone=st.integers(1, 4),
    threads=st.sampled_from([1, 2, 2, 2, 4]),
    is_linux=st.booleans(),
)
many_zones = st.builds(
    Shape,
    sockets=st.integers(1, 2),
    zones_per_socket=st.integers(2, 4),
    cores_per_zone=st.integers(1, 4),
    threads=st.sampled_from([1, 2, 4]),
    is_linux=st.booleans(),
)
wishes = st.builds(
    Wish,
    st.sampled_from(BindPolicy),
    st.sampled_from(ExclusivePolicy),
    st.sampled_from(NumaStrategy),
)
kubelets = st.builds(
    KubeletOptions,
    is_full_pcpus_only=st.booleans(),
    is_across_numa=st.booleans(),
    is_by_socket=st.booleans(),
    is_by_l3=st.booleans(),
) | st.builds(KubeletOptions, is_across_cores=st.just(True), is_by_l3=st.booleans())


def subsets(shape: Shape) -> st.SearchStrategy[int]:
    """Any CPUs of the machine, as a mask."""
    return st.integers(0, (1 << len(shape.rows())) - 1)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Shape, list[HeldCpus], int]:
    """A machine, holders of any of its CPUs, and reserved ones."""
    shape = draw(static_filters)
    holder = st.builds(HeldCpus, cpus=subsets(shape).map(CpuSet), exclusive=st.sampled_from(ExclusivePolicy))
    sparse = st.tuples(subsets(shape), subsets(shape)).map(lambda pair: pair[0] & pair[1])
    return shape, draw(st.lists(holder, max_size=3)), draw(sparse)


def shown(found: int | NoCpus) -> list[int] | None:
    return None if isinstance(found, NoCpus) else cpus_of_mask(found)


@given(st.data(), situations(), wishes)
def test_the_accumulator_chooses_as_its_literal_twin(
    data: st.DataObject, situation: tuple[Shape, list[HeldCpus], int], wish: Wish
) -> None:
    shape, held, _ = situation
    held = [one for index, one in enumerate(held) if not any(one.cpus.mask & two.cpus.mask for two in held[:index])]
    free, preferred = data.draw(subsets(shape)), data.draw(subsets(shape))
    need = data.draw(st.integers(0, free.bit_count() + 1))
    twin_held = {cpu: cpu_twin.Held(1, one.exclusive.value) for one in held for cpu in one.cpus}
    found = take_preferred_cpus(shape.topology(), free, preferred, need, wish, sum_holders(held))
    twin_wish = (wish.bind.value, wish.exclusive.value, wish.strategy.value, 1)
    twin = cpu_twin.koordinator(shape.rows(), cpus_of_mask(free), cpus_of_mask(preferred), need, twin_held, twin_wish)
    assert shown(found) == twin


@given(st.data(), static_filters, st.booleans())
def test_packing_chooses_as_its_literal_twin(data: st.DataObject, shape: Shape, is_across_cores: bool) -> None:
    free = data.draw(subsets(shape))
    need = data.draw(st.integers(0, free.bit_count() + 1))
    found = take_packed(shape.topology(), free, need, is_across_cores=is_across_cores)
    assert shown(found) == cpu_twin.packed(shape.rows(), cpus_of_mask(free), need, is_across_cores=is_across_cores)


@given(st.data(), many_zones, st.sampled_from([1, 2, 4]))
def test_distribution_chooses_as_its_literal_twin(data: st.DataObject, shape: Shape, group: int) -> None:
    free = data.draw(subsets(shape))
    need = data.draw(st.integers(0, free.bit_count() + 1))
    found = take_distributed(shape.topology(), free, need, group)
    assert shown(found) == cpu_twin.distributed(shape.rows(), cpus_of_mask(free), need, group)


def ask(data: st.DataObject, free: int, wish: Wish, is_required: bool) -> CpuRequest:
    bind, exclusive, strategy = wish
    return CpuRequest(
        count=data.draw(st.integers(1, max(1, free))),
        bind=bind,
        is_bind_required=is_required,
        exclusive=exclusive,
        strategy=strategy,
    )


@given(st.data(), situations(), wishes, st.booleans())
def test_a_choice_is_free_as_large_as_asked_and_the_same_for_rows_in_any_order(
    data: st.DataObject,
    situation: tuple[Shape, list[HeldCpus], int],
    wish: Wish,
    is_required: bool,
) -> None:
    shape, held, reserved = situation
    topology = shape.topology()
    request = ask(data, topology.cpu_count, wish, is_required)
    counts = {cpu: sum(cpu in one.cpus for one in held) for cpu in cpus_of_mask(topology.all_mask)}
    free = {cpu for cpu, count in counts.items() if not count and not reserved >> cpu & 1}
    found = choose_cpus(topology, request, held, CpuSet(reserved))
    shuffled = CpuTopology.from_rows(CpuRow(*row) for row in data.draw(st.permutations(shape.rows())))
    assert choose_cpus(shuffled, request, data.draw(st.permutations(held)), CpuSet(reserved)) == found
    if isinstance(found, CpuSet):
        assert set(found) <= free
        assert len(found) == request.count
    elif not is_required:
        assert len(free) < request.count
        assert found.short_count == request.count - len(free)


@given(st.data(), situations(), kubelets)
def test_the_kubelets_choice_is_free_as_large_as_asked_and_the_same_for_rows_in_any_order(
    data: st.DataObject, situation: tuple[Shape, list[HeldCpus], int], options: KubeletOptions
) -> None:
    shape, held, reserved = situation
    topology = shape.topology()
    count = data.draw(st.integers(1, topology.cpu_count))
    taken = {cpu for one in held for cpu in one.cpus}
    free = {cpu for cpu in cpus_of_mask(topology.all_mask & ~reserved) if cpu not in taken}
    found = choose_static(topology, count, options, held, CpuSet(reserved))
    shuffled = CpuTopology.from_rows(CpuRow(*row) for row in data.draw(st.permutations(shape.rows())))
    assert choose_static(shuffled, count, options, data.draw(st.permutations(held)), CpuSet(reserved)) == found
    if isinstance(found, CpuSet):
        assert set(found) <= free
        assert len(found) == count
    elif not options.is_full_pcpus_only:
        assert len(free) < count
        assert found.short_count == count - len(free)


@given(st.data(), situations(), wishes)
def test_a_required_binding_is_met_or_refused(
    data: st.DataObject, situation: tuple[Shape, list[HeldCpus], int], wish: Wish
) -> None:
    shape, held, reserved = situation
    topology = shape.topology()
    found = choose_cpus(topology, ask(data, topology.cpu_count, wish, True), held, CpuSet(reserved))
    assume(isinstance(found, CpuSet))
    assert isinstance(found, CpuSet)
    on_cores = [(found.mask & mask).bit_count() for mask in topology.core_masks]
    allowed = (0, shape.threads) if wish.bind is BindPolicy.FULL_PCPUS else (0, 1)
    assert set(on_cores) <= set(allowed)


@given(st.data(), situations(), wishes)
def test_an_exclusive_policy_is_kept_where_one_zone_allows_it(
    data: st.DataObject, situation: tuple[Shape, list[HeldCpus], int], wish: Wish
) -> None:
    shape, held, reserved = situation
    topology, holders = shape.topology(), sum_holders(held)
    request = ask(data, topology.cpus_per_zone, wish, False)
    usable = topology.all_mask & ~reserved & ~holders.held_by(1)
    usable &= ~kept_away(topology, request.exclusive, holders)
    shape_it: Callable[[CpuTopology, int], int]
    shape_it = full_cores if request.bind is BindPolicy.FULL_PCPUS or shape.threads == 1 else one_a_core
    assume(request.count <= topology.cpus_per_zone)
    usable = shape_it(topology, usable)
    assume(any((usable & mask).bit_count() >= request.count for mask in topology.zone_masks))
    found = choose_cpus(topology, request, held, CpuSet(reserved))
    assert isinstance(found, CpuSet)
    assert not found.mask & kept_away(topology, request.exclusive, holders)


@given(st.data(), situations(), wishes)
def test_a_zone_decision_is_followed_exactly(
    data: st.DataObject, situation: tuple[Shape, list[HeldCpus], int], wish: Wish
) -> None:
    shape, held, reserved = situation
    topology = shape.topology()
    shares = data.draw(st.lists(st.integers(0, 4), min_size=len(topology.zone_ids), max_size=len(topology.zone_ids)))
    assume(sum(shares) > 0)
    zones = [ZoneShare(zone=zone, cpu_mcpu=count * 1000 + 999, memory_bytes=0) for zone, count in enumerate(shares)]
    request = ask(data, 1, wish, False)
    request = replace(request, count=sum(shares))
    found = choose_cpus(topology, request, held, CpuSet(reserved), zones)
    free = topology.all_mask & ~reserved & ~sum_holders(held).held_by(1)
    fits = all((free & mask).bit_count() >= share for share, mask in zip(shares, topology.zone_masks, strict=True))
    assert isinstance(found, CpuSet) == fits
    if isinstance(found, CpuSet):
        assert [len(found & topology.cpus_of_zone(zone)) for zone in topology.zone_ids] == shares
