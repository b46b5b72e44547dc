"""What the peers' filters and scores do at their edges, and where their known mistakes are not repeated."""

import pytest

from colo_common.model.invalid import InvalidInput
from colo_common.model.resource_list import CPU, MEMORY
from colo_scheduler.numa.least_zones import DistantZone, KubeQos, least_zones
from colo_scheduler.numa.zone_scores import balanced_score
from colo_scheduler.peers.crane.awareness import (
    NO_TOPOLOGY,
    ZONES_SHORT,
    AwareNode,
    AwarePod,
    AwareVerdict,
    AwareZone,
    PodContainer,
    filter_aware,
)

GPU = "example.com/gpu"


@pytest.mark.parametrize(
    ("request_", "score"),
    [({CPU: 1000, MEMORY: 10}, 96), ({CPU: 1000}, 100), ({CPU: 5000}, 0), ({CPU: 1000, GPU: 1}, 71), ({}, 0)],
)
def test_a_zone_is_scored_by_how_evenly_it_is_used(request_: dict[str, int], score: int) -> None:
    assert balanced_score(request_, {CPU: 4000, MEMORY: 20}) == score


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

    def test_limits_are_checked(self) -> None:
        with pytest.raises(InvalidInput, match="at most 16 zones"):
            least_zones(KubeQos.GUARANTEED, {CPU: 1}, self.machine(*[{CPU: 1}] * 17))


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
