"""scheduler-plugins' filter and scores of pods with several containers, at their edges."""

from __future__ import annotations

import pytest

from colo_common.model.invalid import InvalidInput
from colo_common.model.resource_list import CPU, MEMORY
from colo_scheduler.numa.amounts import ZoneAmounts
from colo_scheduler.numa.least_zones import DistantZone, KubeQos
from colo_scheduler.numa.policies import TopologyPolicy
from tests.parity.peers.least_zones import score_least_zones, score_of_count
from tests.parity.peers.zone_filter import PodRequest, Scope, effective_request, refuse_pod
from tests.parity.peers.zone_scores import Strategy, score_node

GPU = "example.com/gpu"
NODE = {CPU: 12_000, MEMORY: 100, GPU: 4, "ephemeral-storage": 10}


def zone(number: int, **free: int) -> ZoneAmounts:
    return ZoneAmounts(number, 0, {GPU if name == "gpu" else name: amount for name, amount in free.items()})


def guaranteed(*containers: dict[str, int], init: tuple[dict[str, int], ...] = ()) -> PodRequest:
    return PodRequest(KubeQos.GUARANTEED, containers, init)


class TestZoneFilter:
    def refuse(self, pod: PodRequest, *machine: ZoneAmounts, scope: Scope = Scope.CONTAINER) -> str | None:
        return refuse_pod(TopologyPolicy.SINGLE, scope, pod, machine, NODE)

    def test_a_pod_needs_at_any_time_the_larger_of_containers_and_each_init_container(self) -> None:
        pod = guaranteed({CPU: 1000}, {CPU: 2000, GPU: 1}, init=({CPU: 2500, MEMORY: 5}, {CPU: 3500}))
        assert effective_request(pod) == {CPU: 3500, GPU: 1, MEMORY: 5}

    def test_containers_take_from_their_zone_and_init_containers_give_back(self) -> None:
        pod = guaranteed({CPU: 3000}, {CPU: 3000}, init=({CPU: 4000},))
        assert self.refuse(pod, zone(0, cpu=4000), zone(1, cpu=4000)) is None
        assert self.refuse(pod, zone(0, cpu=4000), zone(1, cpu=2000)) == "cannot align container"
        assert self.refuse(pod, zone(0, cpu=4000), zone(1, cpu=4000), scope=Scope.POD) == "cannot align pod"

    def test_a_resource_that_the_node_lacks_refuses_unless_nothing_of_it_is_asked(self) -> None:
        assert self.refuse(guaranteed({CPU: 1000, "example.com/nic": 0}), zone(0, cpu=4000)) is None
        assert self.refuse(guaranteed({CPU: 1000, "example.com/nic": 1}), zone(0, cpu=4000)) == "cannot align container"

    def test_what_no_zone_tells_is_fine_for_host_resources_only(self) -> None:
        assert self.refuse(guaranteed({CPU: 1000, "ephemeral-storage": 1, GPU: 1}), zone(0, cpu=4000)) is None
        assert self.refuse(guaranteed({CPU: 1000, MEMORY: 1}), zone(0, cpu=4000)) == "cannot align container"

    def test_cpu_memory_and_storage_count_as_named_by_every_node(self) -> None:
        pod = guaranteed({CPU: 1000, MEMORY: 1, "ephemeral-storage": 1})
        bare = {GPU: 1}
        assert refuse_pod(TopologyPolicy.SINGLE, Scope.CONTAINER, pod, [zone(0, cpu=1000, memory=1)], bare) is None
        assert refuse_pod(TopologyPolicy.SINGLE, Scope.POD, pod, [zone(0, cpu=1000)], bare) == "cannot align pod"
        pod = guaranteed({CPU: 1000, "hugepages-2Mi": 1})
        assert refuse_pod(TopologyPolicy.SINGLE, Scope.POD, pod, [zone(0, cpu=1000)], bare) == "cannot align pod"

    def test_a_zone_beyond_the_mask_is_never_chosen(self) -> None:
        assert self.refuse(guaranteed({CPU: 1000}), zone(64, cpu=4000)) == "cannot align container"
        assert self.refuse(guaranteed({CPU: 1000}), zone(63, cpu=4000)) is None

    def test_cpu_of_a_burstable_pod_is_not_taken_from_zones_but_devices_are(self) -> None:
        pod = PodRequest(KubeQos.BURSTABLE, ({CPU: 9000, GPU: 1}, {CPU: 9000, GPU: 1}))
        assert self.refuse(pod, zone(0, cpu=1000, gpu=2)) is None
        assert self.refuse(pod, zone(0, cpu=1000, gpu=1)) == "cannot align container"

    def test_a_node_that_tells_no_zones_passes(self) -> None:
        assert refuse_pod(TopologyPolicy.SINGLE, Scope.POD, guaranteed({CPU: 9000}), None, NODE) is None

    def test_other_policies_refuse_nothing(self) -> None:
        assert refuse_pod(TopologyPolicy.RESTRICTED, Scope.POD, guaranteed({CPU: 9000}), [zone(0, cpu=1)], NODE) is None


class TestZoneScores:
    def test_pods_that_are_not_guaranteed_and_other_policies_are_not_weighed(self) -> None:
        machine = [zone(0, cpu=4000)]
        burstable = PodRequest(KubeQos.BURSTABLE, ({CPU: 9000},))
        assert score_node(TopologyPolicy.SINGLE, Scope.POD, Strategy.LEAST, burstable, machine) == 100
        assert score_node(TopologyPolicy.NONE, Scope.POD, Strategy.LEAST, guaranteed({CPU: 1000}), machine) == 0

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
        assert score_node(TopologyPolicy.SINGLE, Scope.POD, strategy, pod, machine, weights) == score

    def test_a_zone_that_does_not_fit_is_left_out_of_the_lowest(self) -> None:
        machine = [zone(0, cpu=500), zone(1, cpu=2000), zone(2, cpu=4000)]
        assert score_node(TopologyPolicy.SINGLE, Scope.POD, Strategy.LEAST, guaranteed({CPU: 1000}), machine) == 50

    def test_in_container_scope_the_mean_counts_init_containers(self) -> None:
        pod = guaranteed({CPU: 1000}, init=({CPU: 2000},))
        machine = [zone(0, cpu=4000)]
        assert score_node(TopologyPolicy.SINGLE, Scope.CONTAINER, Strategy.LEAST, pod, machine) == (75 + 50) // 2

    def test_one_resource_is_balanced_by_itself_and_more_than_all_is_not(self) -> None:
        machine = [zone(0, cpu=4000)]
        assert score_node(TopologyPolicy.SINGLE, Scope.POD, Strategy.BALANCED, guaranteed({CPU: 1000}), machine) == 100
        assert score_node(TopologyPolicy.SINGLE, Scope.POD, Strategy.BALANCED, guaranteed({CPU: 5000}), machine) == 0
        assert score_node(TopologyPolicy.SINGLE, Scope.CONTAINER, Strategy.LEAST, guaranteed({}), machine) == 0


class TestLeastZones:
    def machine(self, *free: dict[str, int], far: int = 20) -> list[DistantZone]:
        ids = range(len(free))
        return [
            DistantZone(i, free[i], {j: 10 if i == j else 12 if i // 2 == j // 2 else far for j in ids}) for i in ids
        ]

    def test_containers_take_one_after_the_other(self) -> None:
        machine = self.machine({CPU: 3000}, {CPU: 1000})
        assert score_least_zones(Scope.CONTAINER, guaranteed({CPU: 3000}, {CPU: 1000}), machine) == 94
        assert score_least_zones(Scope.CONTAINER, guaranteed({CPU: 2000}, {CPU: 2000}), machine) == 82
        assert score_least_zones(Scope.CONTAINER, guaranteed({CPU: 3000}, {CPU: 2000}), machine) == 0
        assert score_least_zones(Scope.POD, guaranteed({"other": 1}), machine) == 100

    @pytest.mark.parametrize("qos", [KubeQos.BURSTABLE, KubeQos.BEST_EFFORT])
    def test_pods_that_are_not_guaranteed_are_not_weighed(self, qos: KubeQos) -> None:
        pod = PodRequest(qos, ({CPU: 9000, GPU: 2},))
        assert score_least_zones(Scope.CONTAINER, pod, self.machine({CPU: 1000, GPU: 1}, {CPU: 1000, GPU: 1})) == 100

    def test_limits_are_checked(self) -> None:
        with pytest.raises(InvalidInput, match="max_zones: must be at least 1"):
            score_of_count(1, False, 0)
