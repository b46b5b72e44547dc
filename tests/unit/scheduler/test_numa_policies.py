"""Hints and policies table by table; a row's name is its class of input."""

import pytest

from colo_common.model.invalid import InvalidInput
from colo_common.model.resource_list import CPU, MEMORY
from colo_scheduler.numa.amounts import ZoneAmounts
from colo_scheduler.numa.exclusive import ZoneExclusive, ZoneStatus, allows, status_of_zones
from colo_scheduler.numa.policies import Hint, ProviderHints, TopologyPolicy, decide_scored, exclusive_of, policy_of
from colo_scheduler.peers.koordinator.hints import least_allocated, most_allocated, scored_hints
from colo_scheduler.peers.kubelet.hints import kubelet_hints
from colo_scheduler.peers.kubelet.policies import decide_kubelet
from tests.support.builders import GIB

GPU = "example.com/gpu"
IDLE = {0: ZoneStatus.IDLE, 1: ZoneStatus.IDLE}


def zone(number: int, cpu: int, gib: int, of_cpu: int = 8000, of_gib: int = 16, **devices: int) -> ZoneAmounts:
    free = {CPU: cpu, MEMORY: gib * GIB}
    capacity = {CPU: of_cpu, MEMORY: of_gib * GIB}
    for name, amount in devices.items():
        free[f"example.com/{name}"] = capacity[f"example.com/{name}"] = amount
    return ZoneAmounts(number, 0, free, capacity)


class TestExclusive:
    def test_a_zone_is_shared_as_soon_as_one_holder_spans_zones(self) -> None:
        assert status_of_zones([0, 1, 2, 3], [0b0001, 0b0001, 0b0110, 0b0010]) == {
            0: ZoneStatus.SINGLE,
            1: ZoneStatus.SHARED,
            2: ZoneStatus.SHARED,
            3: ZoneStatus.IDLE,
        }

    def test_a_holder_on_a_zone_that_the_node_lacks_is_left_out(self) -> None:
        assert status_of_zones([0], [0b10]) == {0: ZoneStatus.IDLE}

    @pytest.mark.parametrize(
        ("mask", "exclusive", "status", "allowed"),
        [
            (0b01, ZoneExclusive.REQUIRED, ZoneStatus.SHARED, False),
            (0b01, ZoneExclusive.REQUIRED, ZoneStatus.SINGLE, True),
            (0b11, ZoneExclusive.REQUIRED, ZoneStatus.SINGLE, False),
            (0b11, ZoneExclusive.REQUIRED, ZoneStatus.SHARED, True),
            (0b01, ZoneExclusive.PREFERRED, ZoneStatus.SHARED, True),
            (0b11, ZoneExclusive.NONE, ZoneStatus.SINGLE, True),
            (None, ZoneExclusive.NONE, ZoneStatus.IDLE, False),
        ],
    )
    def test_required_keeps_one_zone_and_several_zone_holders_apart(
        self, mask: int | None, exclusive: ZoneExclusive, status: ZoneStatus, allowed: bool
    ) -> None:
        assert allows(mask, exclusive, {0: status, 1: ZoneStatus.IDLE}) is allowed

    def test_a_request_with_a_policy_of_its_own_asks_for_required_unless_it_says(self) -> None:
        assert exclusive_of(TopologyPolicy.RESTRICTED, ZoneExclusive.NONE) is ZoneExclusive.REQUIRED
        assert exclusive_of(TopologyPolicy.RESTRICTED, ZoneExclusive.PREFERRED) is ZoneExclusive.PREFERRED
        assert exclusive_of(TopologyPolicy.NONE, ZoneExclusive.NONE) is ZoneExclusive.NONE


class TestPolicyInForce:
    @pytest.mark.parametrize(
        ("node", "request_policy", "effective"),
        [
            (TopologyPolicy.NONE, TopologyPolicy.SINGLE, TopologyPolicy.SINGLE),
            (TopologyPolicy.SINGLE, TopologyPolicy.NONE, TopologyPolicy.SINGLE),
            (TopologyPolicy.SINGLE, TopologyPolicy.SINGLE, TopologyPolicy.SINGLE),
            (TopologyPolicy.SINGLE, TopologyPolicy.RESTRICTED, None),
            (TopologyPolicy.NONE, TopologyPolicy.NONE, TopologyPolicy.NONE),
        ],
    )
    def test_a_request_may_fill_an_empty_policy_but_not_change_one(
        self, node: TopologyPolicy, request_policy: TopologyPolicy, effective: TopologyPolicy | None
    ) -> None:
        assert policy_of(node, request_policy) is effective


class TestScoredHints:
    def test_the_smallest_sets_that_hold_the_whole_request_are_preferred(self) -> None:
        hints = scored_hints([zone(0, 4000, 8), zone(1, 2000, 8)], {CPU: 3000, MEMORY: GIB}, TopologyPolicy.BEST_EFFORT)
        # Zone 0: CPU (8000 - (4000 + 3000)) * 100 // 8000 = 12, memory (16 - 9) * 100 // 16 = 43; both zones: 18 and 46.
        assert hints == {
            CPU: [Hint(0b01, True, 27), Hint(0b11, False, 32)],
            MEMORY: [Hint(0b01, True, 27), Hint(0b11, False, 32)],
        }

    def test_under_restricted_every_hint_is_preferred(self) -> None:
        hints = scored_hints([zone(0, 4000, 8), zone(1, 2000, 8)], {CPU: 3000}, TopologyPolicy.RESTRICTED)
        assert [hint.preferred for hint in hints[CPU]] == [True, True]

    def test_a_set_with_a_zone_that_has_nothing_of_a_resource_is_no_hint_for_it(self) -> None:
        zones = [zone(0, 4000, 8, gpu=2), zone(1, 4000, 8, gpu=0)]
        hints = scored_hints(zones, {CPU: 1000, GPU: 1}, TopologyPolicy.BEST_EFFORT)
        assert [hint.mask for hint in hints[GPU]] == [0b01]
        assert [hint.mask for hint in hints[CPU]] == [0b01, 0b11]

    def test_a_resource_without_any_set_has_an_empty_list_and_one_nobody_has_is_left_out(self) -> None:
        hints = scored_hints([zone(0, 4000, 8)], {CPU: 9000, "other": 1}, TopologyPolicy.BEST_EFFORT)
        assert hints == {CPU: []}

    def test_more_zones_than_can_be_listed_are_refused(self) -> None:
        with pytest.raises(InvalidInput, match="at most 8 zones"):
            scored_hints([zone(number, 1000, 1) for number in range(9)], {CPU: 1}, TopologyPolicy.BEST_EFFORT)

    def test_least_and_most_allocated_mirror_each_other_and_leave_out_what_has_no_capacity(self) -> None:
        assert least_allocated({CPU: 3000, MEMORY: 1}, {CPU: 8000, MEMORY: 0}) == 62
        assert most_allocated({CPU: 3000, MEMORY: 1}, {CPU: 8000, MEMORY: 0}) == 37
        assert least_allocated({CPU: 9000}, {CPU: 8000}) == 0
        assert most_allocated({CPU: 9000}, {CPU: 8000}) == 100
        assert least_allocated({}, {}) == 0


class TestKubeletHints:
    def test_preferred_is_what_the_empty_machine_would_do_with(self) -> None:
        hints = kubelet_hints([zone(0, 1000, 8), zone(1, 1000, 8)], {CPU: 2000})
        assert hints == {CPU: [Hint(0b11, False)]}

    def test_each_resource_is_looked_at_alone(self) -> None:
        hints = kubelet_hints([zone(0, 4000, 1), zone(1, 1000, 8)], {CPU: 2000, MEMORY: 4 * GIB})
        assert [hint.mask for hint in hints[CPU]] == [0b01, 0b11]
        assert [hint.mask for hint in hints[MEMORY]] == [0b10, 0b11]


class TestVerdicts:
    providers: tuple[ProviderHints, ...] = ({CPU: [Hint(0b01, True)]}, {GPU: []})

    def test_none_admits_without_an_affinity(self) -> None:
        for verdict in (
            decide_scored(TopologyPolicy.NONE, [0, 1], self.providers),
            decide_kubelet(TopologyPolicy.NONE, [0, 1], self.providers),
        ):
            assert verdict.is_admitted
            assert verdict.mask is None

    def test_a_resource_that_nobody_can_serve_is_named_when_restricted_refuses(self) -> None:
        verdict = decide_scored(TopologyPolicy.RESTRICTED, [0, 1], self.providers)
        assert not verdict.is_admitted
        assert verdict.reasons == (f"Unsatisfied NUMA {GPU}",)

    def test_nothing_is_merged_when_a_resource_is_nowhere_and_the_policy_would_refuse(self) -> None:
        cpu = [Hint(0b01, True, 40), Hint(0b10, False, 60)]
        for zones in ([0, 1], [0]):
            verdict = decide_scored(TopologyPolicy.RESTRICTED, zones, [{CPU: cpu, GPU: []}])
            assert verdict[:5] == (sum(1 << zone for zone in zones), False, False, False, 0)
        verdict = decide_scored(TopologyPolicy.SINGLE, [0, 1], [{CPU: cpu, GPU: []}])
        assert verdict[:5] == (None, False, False, False, 0)

    def test_a_clash_tells_what_each_resource_prefers(self) -> None:
        verdict = decide_scored(TopologyPolicy.SINGLE, [0, 1], [{CPU: [Hint(0b01, True)]}, {GPU: [Hint(0b10, True)]}])
        assert not verdict.is_admitted
        assert verdict.reasons == (f"Unaligned NUMA hints: cpu prefers [0] among [0]; {GPU} prefers [1] among [1]",)

    def test_a_long_list_of_sets_is_cut_in_what_is_told(self) -> None:
        many = [Hint(mask, False) for mask in range(1, 16)]
        (reason,) = decide_kubelet(TopologyPolicy.RESTRICTED, [0, 1, 2, 3], [{CPU: many}]).reasons
        assert reason.startswith("Unaligned NUMA hints: cpu prefers none among [0] [1] [0, 1] ")
        assert reason.endswith(" and 7 more")

    def test_the_score_decides_between_sets_of_equal_size(self) -> None:
        cpu = [Hint(0b01, True, 40), Hint(0b10, True, 60)]
        device = [Hint(0b01, True, 500), Hint(0b10, True, 0)]
        assert decide_scored(TopologyPolicy.BEST_EFFORT, [0, 1], [{CPU: cpu}]).mask == 0b10
        assert decide_scored(TopologyPolicy.BEST_EFFORT, [0, 1], [{CPU: cpu}, {GPU: device}]).mask == 0b01

    def test_zones_that_required_exclusiveness_refuses_are_passed_over(self) -> None:
        cpu = [Hint(0b01, True, 40), Hint(0b10, True, 60)]
        status = {0: ZoneStatus.IDLE, 1: ZoneStatus.SHARED}
        verdict = decide_scored(TopologyPolicy.SINGLE, [0, 1], [{CPU: cpu}], ZoneExclusive.REQUIRED, status)
        assert (verdict.mask, verdict.is_admitted) == (0b01, True)

    def test_eight_zones_and_four_full_lists_are_merged_without_trying_every_combination(self) -> None:
        # 255 ** 4 combinations; nothing agrees, so every merged set has to be weighed.
        full = [Hint(mask, False) for mask in range(1, 256)]
        verdict = decide_kubelet(TopologyPolicy.BEST_EFFORT, list(range(8)), [{name: full} for name in "abcd"])
        assert verdict.mask == 0b1
        assert not verdict.preferred

    def test_hints_for_zones_that_the_node_lacks_are_cut_to_the_node(self) -> None:
        assert decide_scored(TopologyPolicy.BEST_EFFORT, [0, 1], [{CPU: [Hint(0b110, True)]}]).mask == 0b10
