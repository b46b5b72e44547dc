"""Fitting one node: which zones are taken, how amounts are split, and what a refusal says."""

import pytest

from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules
from colo_common.model.reasons import Reason
from colo_common.model.resource_list import CPU, MEMORY
from colo_scheduler.numa.amounts import ZoneAmounts, ZonePart
from colo_scheduler.numa.exclusive import ZoneExclusive, ZoneStatus
from colo_scheduler.numa.policies import Hint, TopologyPolicy
from colo_scheduler.numa.refusal import Miss, ZoneRefusal
from colo_scheduler.numa.rule import FitContext, ZoneAssignment, fit_zones
from colo_scheduler.peers.koordinator.even_split import spread_evenly
from colo_scheduler.peers.registry import NUMA_MANAGERS
from tests.support.builders import GIB

GPU = "example.com/gpu"
PAGES = "hugepages-2Mi"


def zones(*free: tuple[int, int, int], gpus: tuple[int, ...] = ()) -> list[ZoneAmounts]:
    """Socket, mcpu, GiB of each zone, and its devices."""
    found = []
    for number, (socket, cpu, gib) in enumerate(free):
        amounts = {CPU: cpu, MEMORY: gib * GIB} | ({GPU: gpus[number]} if gpus else {})
        found.append(ZoneAmounts(number, socket, amounts))
    return found


def taken(answer: ZoneAssignment | ZoneRefusal) -> list[tuple[int, int, int]]:
    """Zone, mcpu and GiB of each part."""
    assert isinstance(answer, ZoneAssignment), answer
    return [(part.zone, part.amounts.get(CPU, 0), part.amounts.get(MEMORY, 0) // GIB) for part in answer.parts]


def fit_by(
    rule: str,
    policy: TopologyPolicy,
    machine: list[ZoneAmounts],
    request: dict[str, int],
    fit_context: FitContext | None = None,
) -> ZoneAssignment | ZoneRefusal:
    return NUMA_MANAGERS[rule].fit_zones(policy, machine, request, fit_context or FitContext(), NodeRules())


TABLE = {
    "one zone is enough, the freer wins": ({CPU: 1000}, zones((0, 2000, 8), (0, 3000, 2)), [(1, 1000, 0)]),
    "memory alone": ({MEMORY: 12 * GIB}, zones((0, 2000, 8), (0, 3000, 8)), [(0, 0, 4), (1, 0, 8)]),
    "fewest zones of one socket": (
        {CPU: 6000, MEMORY: 6 * GIB},
        zones((0, 5000, 8), (1, 3000, 8), (1, 3000, 8)),
        [(1, 3000, 3), (2, 3000, 3)],
    ),
    "sockets are crossed when one is not enough": (
        {CPU: 7000, MEMORY: 7 * GIB},
        zones((0, 5000, 8), (1, 3000, 8), (1, 3000, 8)),
        [(0, 5000, 5), (1, 2000, 2)],
    ),
    "the zone with the device, though another is freer": (
        {CPU: 1000, GPU: 1},
        zones((0, 8000, 8), (0, 2000, 8), gpus=(0, 1)),
        [(1, 1000, 0)],
    ),
    "the set with the devices, though another has more CPU": (
        {CPU: 6000, GPU: 3},
        zones((0, 5000, 8), (0, 5000, 8), (0, 3000, 8), gpus=(0, 1, 2)),
        [(1, 5000, 0), (2, 1000, 0)],
    ),
}


@pytest.mark.parametrize(("request_", "machine", "expected"), TABLE.values(), ids=TABLE)
def test_colo_takes_the_zones(
    request_: dict[str, int], machine: list[ZoneAmounts], expected: list[tuple[int, int, int]]
) -> None:
    assert taken(fit_zones(TopologyPolicy.BEST_EFFORT, machine, request_)) == expected


def test_devices_are_taken_where_the_cpu_goes_first() -> None:
    machine = zones((0, 4000, 8), (0, 3000, 8), gpus=(1, 2))
    answer = fit_zones(TopologyPolicy.NONE, machine, {CPU: 6000, GPU: 2})
    assert answer == ZoneAssignment((ZonePart(0, {CPU: 4000, GPU: 1}), ZonePart(1, {CPU: 2000, GPU: 1})))


def test_nine_zones_are_more_than_every_set_and_still_fit() -> None:
    machine = zones(*[(number % 2, 1000, 4) for number in range(9)], gpus=(0, 0, 0, 0, 1, 0, 0, 0, 1))
    answer = fit_zones(TopologyPolicy.RESTRICTED, machine, {CPU: 2000, GPU: 2})
    assert taken(answer) == [(4, 1000, 0), (8, 1000, 0)]


class TestRefusals:
    def test_a_node_that_has_too_little_says_of_what(self) -> None:
        answer = fit_zones(TopologyPolicy.NONE, zones((0, 2000, 8), (1, 3000, 8)), {CPU: 6000, MEMORY: 17 * GIB})
        assert answer == ZoneRefusal(
            Reason.CPU_SHORT, (Miss((0, 1), CPU, 6000, 5000), Miss((0, 1), MEMORY, 17 * GIB, 16 * GIB))
        )

    def test_single_names_the_zone_that_comes_closest(self) -> None:
        answer = fit_zones(
            TopologyPolicy.SINGLE, zones((0, 800, 8), (1, 1800, 8), (1, 900, 8)), {CPU: 3000, MEMORY: GIB}
        )
        assert answer == ZoneRefusal(Reason.ZONE_FIT_SHORT, (Miss((1,), CPU, 3000, 1800),))
        assert isinstance(answer, ZoneRefusal)
        assert answer.misses[0].sentence() == "1200 cpu short in zone 1: 1800 of 3000"

    def test_memory_that_cannot_follow_its_cpu_says_how_much_cpu_could(self) -> None:
        answer = fit_zones(TopologyPolicy.BEST_EFFORT, zones((0, 4000, 0), (0, 1000, 8)), {CPU: 4000, MEMORY: 4 * GIB})
        assert answer == ZoneRefusal(Reason.ZONE_FIT_SHORT, (Miss((0, 1), CPU, 4000, 1000),))

    def test_restricted_refuses_more_zones_than_the_empty_node_would_need(self) -> None:
        machine = [zone._replace(capacity={CPU: 8000}) for zone in zones((0, 2000, 8), (0, 2000, 8))]
        assert taken(fit_zones(TopologyPolicy.BEST_EFFORT, machine, {CPU: 3000})) == [(0, 2000, 0), (1, 1000, 0)]
        answer = fit_zones(TopologyPolicy.RESTRICTED, machine, {CPU: 3000})
        assert answer == ZoneRefusal(Reason.ZONE_FIT_SHORT, (Miss((0,), CPU, 3000, 2000),))

    def test_a_device_that_nobody_has_heard_of_is_unknown(self) -> None:
        answer = fit_zones(TopologyPolicy.NONE, zones((0, 2000, 8)), {GPU: 1})
        assert answer == ZoneRefusal(Reason.DEVICE_UNKNOWN, (Miss((), GPU, 1, 0),))

    def test_huge_pages_have_a_reason_of_their_own(self) -> None:
        machine = [ZoneAmounts(0, 0, {CPU: 1000, PAGES: 2 << 20})]
        answer = fit_zones(TopologyPolicy.NONE, machine, {PAGES: 4 << 20})
        assert isinstance(answer, ZoneRefusal)
        assert answer.reason is Reason.HUGE_PAGES_SHORT

    @pytest.mark.parametrize(
        ("machine", "request_", "sentence"),
        [
            ([], {CPU: 1}, "zones: at least one zone is needed"),
            (zones((0, 1, 1)) * 2, {CPU: 1}, "zones: an id may be given only once"),
            ([ZoneAmounts(-1, 0, {})], {CPU: 1}, "zones: an id must be at least 0"),
            (zones((0, 1, 1)), {CPU: -1}, "request.cpu: must be at least 0"),
            (zones((0, 1, 1)), {CPU: 1.5}, "request.cpu: must be an integer"),
            (zones((0, 1, 1)), {CPU: True}, "request.cpu: must be an integer"),
        ],
    )
    def test_bad_input_names_the_field_and_the_rule(
        self, machine: list[ZoneAmounts], request_: dict[str, int], sentence: str
    ) -> None:
        with pytest.raises(InvalidInput, match=sentence):
            fit_zones(TopologyPolicy.NONE, machine, request_)


class TestProviders:
    machine = zones((0, 4000, 8), (0, 3000, 8))
    on_one = FitContext(providers=({GPU: (Hint(0b10, True, 500),)},))
    nowhere = FitContext(providers=({GPU: ()},))

    @pytest.mark.parametrize("policy", [TopologyPolicy.BEST_EFFORT, TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE])
    def test_a_device_pulls_the_request_to_its_zone(self, policy: TopologyPolicy) -> None:
        assert taken(fit_zones(policy, self.machine, {CPU: 2000}, self.on_one)) == [(1, 2000, 0)]

    def test_without_a_policy_nobody_is_asked(self) -> None:
        assert taken(fit_zones(TopologyPolicy.NONE, self.machine, {CPU: 2000}, self.on_one)) == [(0, 2000, 0)]

    def test_best_effort_does_without_what_cannot_be_had(self) -> None:
        answer = fit_zones(TopologyPolicy.BEST_EFFORT, self.machine, {CPU: 2000}, self.nowhere)
        assert taken(answer) == [(0, 2000, 0)]
        assert isinstance(answer, ZoneAssignment)
        assert not answer.is_preferred

    @pytest.mark.parametrize("rule", ["colo", "koordinator", "kubelet"])
    def test_restricted_refuses_and_names_the_resource(self, rule: str) -> None:
        answer = fit_by(rule, TopologyPolicy.RESTRICTED, self.machine, {CPU: 2000}, self.nowhere)
        assert isinstance(answer, ZoneRefusal)
        assert answer.reason is Reason.NUMA_NOT_ALIGNED
        assert rule == "kubelet" or answer.details == (f"Unsatisfied NUMA {GPU}",)

    def test_a_shared_zone_is_passed_over_and_two_are_refused(self) -> None:
        shared = {0: ZoneStatus.SHARED, 1: ZoneStatus.IDLE}
        fit_context = FitContext(exclusive=ZoneExclusive.REQUIRED, status=shared)
        assert taken(fit_zones(TopologyPolicy.SINGLE, self.machine, {CPU: 2000}, fit_context)) == [(1, 2000, 0)]
        fit_context = fit_context._replace(status=shared | {1: ZoneStatus.SHARED})
        for rule in ("colo", "koordinator"):
            answer = fit_by(rule, TopologyPolicy.SINGLE, self.machine, {CPU: 2000}, fit_context)
            assert isinstance(answer, ZoneRefusal)
            assert answer.reason is Reason.NUMA_EXCLUSIVE


class TestOtherRules:
    machine = zones((0, 4000, 8), (0, 3000, 8))

    def test_koordinator_spreads_evenly_over_the_affinity(self) -> None:
        answer = fit_by("koordinator", TopologyPolicy.RESTRICTED, self.machine, {CPU: 5000})
        assert taken(answer) == [(0, 2500, 0), (1, 2500, 0)]

    def test_the_kubelet_fills_the_freer_zone_first(self) -> None:
        answer = fit_by("kubelet", TopologyPolicy.RESTRICTED, self.machine, {CPU: 5000})
        assert taken(answer) == [(0, 4000, 0), (1, 1000, 0)]

    @pytest.mark.parametrize("rule", ["koordinator", "kubelet"])
    def test_best_effort_separates_memory_from_its_cpu_where_colo_refuses(self, rule: str) -> None:
        machine = zones((0, 4000, 0), (0, 0, 8))
        request = {CPU: 4000, MEMORY: 4 * GIB}
        assert taken(fit_by(rule, TopologyPolicy.BEST_EFFORT, machine, request)) == [(0, 4000, 0), (1, 0, 4)]
        assert isinstance(fit_zones(TopologyPolicy.BEST_EFFORT, machine, request), ZoneRefusal)

    def test_bound_cpus_that_no_zone_can_take_whole_are_refused(self) -> None:
        machine = zones((0, 1500, 8), (0, 1500, 8))
        fit_context = FitContext(cpu_unit_mcpu=1000)
        answer = fit_by("koordinator", TopologyPolicy.RESTRICTED, machine, {CPU: 3000}, fit_context)
        assert isinstance(answer, ZoneRefusal)

    def test_single_names_the_nearest_zone_under_every_rule(self) -> None:
        for rule in NUMA_MANAGERS:
            answer = fit_by(rule, TopologyPolicy.SINGLE, self.machine, {CPU: 5000})
            assert isinstance(answer, ZoneRefusal)
            assert answer.misses == (Miss((0,), CPU, 5000, 4000),)


class TestEvenSplit:
    def test_the_scarce_zone_gives_what_it_has_and_the_others_share_the_rest(self) -> None:
        split = spread_evenly({CPU: 9000}, zones((0, 1000, 0), (0, 8000, 0), (0, 6000, 0)))
        assert [(part.zone, part.amounts[CPU]) for part in split.parts] == [(0, 1000), (1, 4000), (2, 4000)]
        assert split.rest == {}

    def test_bound_cpus_are_split_into_whole_ones(self) -> None:
        split = spread_evenly({CPU: 5000}, zones((0, 4000, 0), (0, 4000, 0)), 1000)
        assert [(part.zone, part.amounts[CPU]) for part in split.parts] == [(0, 2000), (1, 3000)]

    def test_a_unit_of_nothing_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="cpu_unit_mcpu: must be at least 1"):
            spread_evenly({CPU: 1}, zones((0, 1, 0)), 0)

    def test_whole_cores_leave_a_rest_when_the_request_is_odd(self) -> None:
        assert spread_evenly({CPU: 5000}, zones((0, 4000, 0), (0, 4000, 0)), 2000).rest == {CPU: 1000}
