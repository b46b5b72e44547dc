"""What the peers' filters and scores do at their edges, and where their known mistakes are not repeated."""

import pytest

from colo_common.model.invalid import InvalidInput
from colo_scheduler.numa.amounts import CPU, MEMORY, ZoneAmounts
from colo_scheduler.numa.awareness import (
    NO_TOPOLOGY,
    ZONES_SHORT,
    AwareNode,
    AwarePod,
    AwareVerdict,
    AwareZone,
    PodContainer,
    filter_aware,
)
from colo_scheduler.numa.least_zones import DistantZone, least_zones, score_least_zones, score_of_count
from colo_scheduler.numa.policies import TopologyPolicy
from colo_scheduler.numa.zone_filter import FilterScope, KubeQos, PodRequest, effective_request, refuse_pod
from colo_scheduler.numa.zone_scores import Strategy, score_node

GPU = "example.com/gpu"
NODE = {CPU: 12_000, MEMORY: 100, GPU: 4, "ephemeral-storage": 10}


def zone(number: int, **free: int) -> ZoneAmounts:
    return ZoneAmounts(number, 0, {GPU if name == "gpu" else name: amount for name, amount in free.items()})


def guaranteed(*containers: dict[str, int], init: tuple[dict[str, int], ...] = ()) -> PodRequest:
    return PodRequest(KubeQos.GUARANTEED, containers, init)


class TestZoneFilter:
    def refuse(self, pod: PodRequest, *machine: ZoneAmounts, scope: FilterScope = FilterScope.CONTAINER) -> str | None:
        return refuse_pod(TopologyPolicy.SINGLE, scope, pod, machine, NODE)

    def test_a_pod_needs_at_any_time_the_larger_of_containers_and_each_init_container(self) -> None:
        pod = guaranteed({CPU: 1000}, {CPU: 2000, GPU: 1}, init=({CPU: 2500, MEMORY: 5}, {CPU: 3500}))
        assert effective_request(pod) == {CPU: 3500, GPU: 1, MEMORY: 5}

    def test_containers_take_from_their_zone_and_init_containers_give_back(self) -> None:
        pod = guaranteed({CPU: 3000}, {CPU: 3000}, init=({CPU: 4000},))
        assert self.refuse(pod, zone(0, cpu=4000), zone(1, cpu=4000)) is None
        assert self.refuse(pod, zone(0, cpu=4000), zone(1, cpu=2000)) == "cannot align container"
        assert self.refuse(pod, zone(0, cpu=4000), zone(1, cpu=4000), scope=FilterScope.POD) == "cannot align pod"

    def test_a_resource_that_the_node_lacks_refuses_unless_nothing_of_it_is_asked(self) -> None:
        assert self.refuse(guaranteed({CPU: 1000, "example.com/nic": 0}), zone(0, cpu=4000)) is None
        assert self.refuse(guaranteed({CPU: 1000, "example.com/nic": 1}), zone(0, cpu=4000)) == "cannot align container"

    def test_what_no_zone_tells_is_fine_for_host_resources_only(self) -> None:
        assert self.refuse(guaranteed({CPU: 1000, "ephemeral-storage": 1, GPU: 1}), zone(0, cpu=4000)) is None
        assert self.refuse(guaranteed({CPU: 1000, MEMORY: 1}), zone(0, cpu=4000)) == "cannot align container"

    def test_cpu_memory_and_storage_count_as_named_by_every_node(self) -> None:
        pod = guaranteed({CPU: 1000, MEMORY: 1, "ephemeral-storage": 1})
        bare = {GPU: 1}
        assert (
            refuse_pod(TopologyPolicy.SINGLE, FilterScope.CONTAINER, pod, [zone(0, cpu=1000, memory=1)], bare) is None
        )
        assert refuse_pod(TopologyPolicy.SINGLE, FilterScope.POD, pod, [zone(0, cpu=1000)], bare) == "cannot align pod"
        pod = guaranteed({CPU: 1000, "hugepages-2Mi": 1})
        assert refuse_pod(TopologyPolicy.SINGLE, FilterScope.POD, pod, [zone(0, cpu=1000)], bare) == "cannot align pod"

    def test_a_zone_beyond_the_mask_is_never_chosen(self) -> None:
        assert self.refuse(guaranteed({CPU: 1000}), zone(64, cpu=4000)) == "cannot align container"
        assert self.refuse(guaranteed({CPU: 1000}), zone(63, cpu=4000)) is None

    def test_cpu_of_a_burstable_pod_is_not_taken_from_zones_but_devices_are(self) -> None:
        pod = PodRequest(KubeQos.BURSTABLE, ({CPU: 9000, GPU: 1}, {CPU: 9000, GPU: 1}))
        assert self.refuse(pod, zone(0, cpu=1000, gpu=2)) is None
        assert self.refuse(pod, zone(0, cpu=1000, gpu=1)) == "cannot align container"

    def test_a_node_that_tells_no_zones_passes(self) -> None:
        assert refuse_pod(TopologyPolicy.SINGLE, FilterScope.POD, guaranteed({CPU: 9000}), None, NODE) is None

    def test_other_policies_refuse_nothing(self) -> None:
        assert (
            refuse_pod(TopologyPolicy.RESTRICTED, FilterScope.POD, guaranteed({CPU: 9000}), [zone(0, cpu=1)], NODE)
            is None
        )


class TestZoneScores:
    def test_pods_that_are_not_guaranteed_and_other_policies_are_not_weighed(self) -> None:
        machine = [zone(0, cpu=4000)]
        burstable = PodRequest(KubeQos.BURSTABLE, ({CPU: 9000},))
        assert score_node(TopologyPolicy.SINGLE, FilterScope.POD, Strategy.LEAST, burstable, machine) == 100
        assert score_node(TopologyPolicy.NONE, FilterScope.POD, Strategy.LEAST, guaranteed({CPU: 1000}), machine) == 0

    @pytest.mark.parametrize(
        ("strategy", "weights", "score"),
        [
            (Strategy.LEAST, {}, (75 + 50) // 2),
            (Strategy.MOST, {}, (25 + 50) // 2),
            (Strategy.MOST, {CPU: 3}, (25 * 3 + 50) // 4),
            (Strategy.MOST, {CPU: 0}, (25 + 50) // 2),
            (Strategy.BALANCED, {}, 96),
        ],
    )
    def test_a_zone_is_scored_by_its_strategy(self, strategy: Strategy, weights: dict[str, int], score: int) -> None:
        pod = guaranteed({CPU: 1000, MEMORY: 10})
        machine = [zone(0, cpu=4000, memory=20)]
        assert score_node(TopologyPolicy.SINGLE, FilterScope.POD, strategy, pod, machine, weights) == score

    def test_a_zone_that_does_not_fit_is_left_out_of_the_lowest(self) -> None:
        machine = [zone(0, cpu=500), zone(1, cpu=2000), zone(2, cpu=4000)]
        assert (
            score_node(TopologyPolicy.SINGLE, FilterScope.POD, Strategy.LEAST, guaranteed({CPU: 1000}), machine) == 50
        )

    def test_in_container_scope_the_mean_counts_init_containers(self) -> None:
        pod = guaranteed({CPU: 1000}, init=({CPU: 2000},))
        machine = [zone(0, cpu=4000)]
        assert score_node(TopologyPolicy.SINGLE, FilterScope.CONTAINER, Strategy.LEAST, pod, machine) == (75 + 50) // 2

    def test_one_resource_is_balanced_by_itself_and_more_than_all_is_not(self) -> None:
        machine = [zone(0, cpu=4000)]
        assert (
            score_node(TopologyPolicy.SINGLE, FilterScope.POD, Strategy.BALANCED, guaranteed({CPU: 1000}), machine)
            == 100
        )
        assert (
            score_node(TopologyPolicy.SINGLE, FilterScope.POD, Strategy.BALANCED, guaranteed({CPU: 5000}), machine) == 0
        )
        assert score_node(TopologyPolicy.SINGLE, FilterScope.CONTAINER, Strategy.LEAST, guaranteed({}), machine) == 0


class TestLeastZones:
    def machine(self, *free: dict[str, int], far: int = 20) -> list[DistantZone]:
        ids = range(len(free))
        return [
            DistantZone(i, free[i], {j: 10 if i == j else 12 if i // 2 == j // 2 else far for j in ids}) for i in ids
        ]

    def test_the_closest_of_the_smallest_sets_is_taken_and_others_of_its_size_count_for_closeness(self) -> None:
        cpu, both = {CPU: 1000}, {CPU: 1000, GPU: 1}
        found = least_zones(KubeQos.GUARANTEED, {CPU: 2000, GPU: 2}, self.machine(both, cpu | {GPU: 0}, both, both))
        assert found is not None
        assert (found.zones, found.is_closest) == ((2, 3), True)
        found = least_zones(KubeQos.GUARANTEED, {CPU: 2000, GPU: 2}, self.machine(both, cpu, both, cpu))
        assert found is not None
        assert (found.zones, found.is_closest) == ((0, 2), False)

    def test_a_set_with_a_zone_that_does_not_tell_a_resource_does_not_count(self) -> None:
        assert (
            least_zones(KubeQos.GUARANTEED, {CPU: 2000, GPU: 1}, self.machine({CPU: 1000, GPU: 1}, {CPU: 1000})) is None
        )

    def test_containers_take_one_after_the_other(self) -> None:
        machine = self.machine({CPU: 3000}, {CPU: 1000})
        assert score_least_zones(FilterScope.CONTAINER, guaranteed({CPU: 3000}, {CPU: 1000}), machine) == 94
        assert score_least_zones(FilterScope.CONTAINER, guaranteed({CPU: 2000}, {CPU: 2000}), machine) == 82
        assert score_least_zones(FilterScope.CONTAINER, guaranteed({CPU: 3000}, {CPU: 2000}), machine) == 0
        assert score_least_zones(FilterScope.POD, guaranteed({"other": 1}), machine) == 100

    @pytest.mark.parametrize("qos", [KubeQos.BURSTABLE, KubeQos.BEST_EFFORT])
    def test_pods_that_are_not_guaranteed_are_not_weighed(self, qos: KubeQos) -> None:
        pod = PodRequest(qos, ({CPU: 9000, GPU: 2},))
        assert (
            score_least_zones(FilterScope.CONTAINER, pod, self.machine({CPU: 1000, GPU: 1}, {CPU: 1000, GPU: 1})) == 100
        )

    def test_limits_are_checked(self) -> None:
        with pytest.raises(InvalidInput, match="at most 16 zones"):
            least_zones(KubeQos.GUARANTEED, {CPU: 1}, self.machine(*[{CPU: 1}] * 17))
        with pytest.raises(InvalidInput, match="max_zones: must be at least 1"):
            score_of_count(1, False, 0)


class TestAwareness:
    zones = (AwareZone("node0", {CPU: 2500, MEMORY: 40}), AwareZone("node1", {CPU: 3900, MEMORY: 40}))
    node = AwareNode(True, False, zones)

    def pod(self, cpu: int, memory: int = 10, *, aware: bool | None = None) -> AwarePod:
        return AwarePod((PodContainer({CPU: cpu, MEMORY: memory}, {CPU: cpu}),), is_aware=aware)

    def test_the_pod_decides_before_the_node(self) -> None:
        assert filter_aware(self.pod(4000, aware=True), self.node).reason == ZONES_SHORT
        assert filter_aware(self.pod(4000), self.node).score == 50
        assert filter_aware(self.pod(4000), self.node._replace(is_one_zone=True)).reason == ZONES_SHORT
        assert filter_aware(self.pod(4000, aware=False), self.node._replace(is_one_zone=True)).score == 50

    def test_pouring_rounds_the_zone_down_to_whole_cpus_and_awareness_does_not(self) -> None:
        poured = filter_aware(self.pod(5000), self.node)
        assert poured.result == (("node0", {CPU: 2000}), ("node1", {CPU: 3000}))
        held = self.node._replace(holders=({"node1": {CPU: 3000}},), is_one_zone=True)
        assert filter_aware(self.pod(2000), held).result == (("node0", {CPU: 2000}),)

    def test_what_no_zone_takes_is_told(self) -> None:
        assert filter_aware(self.pod(7000), self.node).unassigned == {CPU: 2000}

    def test_memory_is_written_as_memory(self) -> None:
        aware = filter_aware(self.pod(2000, 30, aware=True), self.node, (CPU, MEMORY))
        assert aware.result == (("node1", {CPU: 2000, MEMORY: 30}),)

    def test_a_zone_with_more_held_than_there_is_takes_nothing(self) -> None:
        held = self.node._replace(holders=({"node1": {CPU: 5000}},))
        assert filter_aware(self.pod(2000), held) == AwareVerdict(result=(("node0", {CPU: 2000}),), unassigned={})

    def test_a_node_without_zones_scores_nothing(self) -> None:
        verdict = filter_aware(self.pod(2000), self.node._replace(zones=()))
        assert (verdict.result, verdict.score, verdict.unassigned) == ((), 0, {CPU: 2000})

    @pytest.mark.parametrize(
        "pod",
        [
            AwarePod((PodContainer({CPU: 2000}, {CPU: 4000}),)),
            AwarePod((PodContainer({CPU: 1500}, {CPU: 1500}),)),
            AwarePod((PodContainer({CPU: 0}, {CPU: 0}),)),
            AwarePod((PodContainer({CPU: 2000}, {CPU: 2000}),), cpu_policy="none"),
            AwarePod((PodContainer({CPU: 2000}, {CPU: 2000}),), is_daemon=True),
        ],
    )
    def test_other_pods_are_not_acted_on(self, pod: AwarePod) -> None:
        assert filter_aware(pod, None) == AwareVerdict()

    def test_a_node_without_a_topology_refuses_and_one_of_the_kubelet_passes(self) -> None:
        assert filter_aware(self.pod(1000), None).reason == NO_TOPOLOGY
        assert filter_aware(self.pod(1000), self.node._replace(is_static=False)) == AwareVerdict()

    def test_only_containers_with_whole_guaranteed_cpus_count(self) -> None:
        containers = (PodContainer({CPU: 1000}, {CPU: 1000}), PodContainer({CPU: 700}, {CPU: 700}))
        assert filter_aware(AwarePod(containers), self.node).result == (("node1", {CPU: 1000}),)
