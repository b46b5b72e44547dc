"""The figures of the lab follow from the messages."""

from msgspec.structs import replace

from colo_cli.lab_observe import LabObserver
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.placement import PlacementRejected
from colo_common.model.reasons import EndCause
from tests.support.builders import a_batch_workload, a_node, a_placement, a_sample, decided


def test_utilisation_is_integrated_sample_by_sample() -> None:
    seen = LabObserver()
    seen.see(a_node())
    seen.see(a_sample(zones=((6000, 1), (4000, 1)), workloads=(a_batch_workload(mcpu=2500),)))
    seen.see(a_sample(seq=2, zones=((2000, 1), (0, 1))))
    assert (seen.capacity_mcpu_ms, seen.used_mcpu_ms, seen.batch_mcpu_ms) == (64_000_000, 12_000_000, 2_500_000)
    assert seen.messages == 3


def test_a_rejection_answers_for_all_replicas_and_only_the_first_decision_counts() -> None:
    seen = LabObserver()
    seen.submitted("job", 1_000, 3)
    rejected = PlacementRejected(replica="job/main/0", job="job", attempt=1, nodes=1, counts=(), sent_us=6_000)
    seen.see(rejected)
    seen.see(replace(decided(a_placement("job/main/0")), sent_us=90_000))
    seen.see(replace(decided(a_placement("job/main/1")), sent_us=9_000))
    seen.see(replace(decided(a_placement("job/main/2", attempt=2)), sent_us=9_000))
    assert seen.latencies_ms() == [5.0, 5.0, 5.0]
    assert seen.placements == 3


def test_one_attempt_in_two_places_is_reported_and_the_same_place_again_is_only_counted() -> None:
    seen = LabObserver()
    seen.see(decided(a_placement("job/main/0")))
    seen.see(decided(a_placement("job/main/0")))
    assert (seen.placements, seen.placed_twice, seen.redelivered) == (1, [], 1)
    seen.see(decided(a_placement("job/main/0", node="n2")))
    seen.see(decided(a_placement("job/main/0", zone=1)))
    assert (seen.placements, seen.placed_twice, seen.redelivered) == (1, ["job/main/0#1"] * 2, 1)


def test_ends_are_counted_by_cause() -> None:
    seen = LabObserver()
    for cause, code in ((EndCause.EXITED, 0), (EndCause.EXITED, 1), (EndCause.EVICTED, 143)):
        seen.see(ReplicaEnded(node="n1", replica="job/main/0", job="job", attempt=1, cause=cause, exit_code=code))
    assert seen.ends == {"succeeded": 1, "exited": 1, "evicted": 1}
