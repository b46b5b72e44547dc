"""A control plane whose clock is not the node's: its commands renew no lease, and its leases are cut."""

import pytest

from colo_common.events.eviction import EvictReplica
from colo_common.events.job import StopReplicas
from colo_common.events.node import LeaseRenewed
from colo_common.model.invalid import InvalidInput
from colo_common.model.reasons import EndCause, Reason
from colo_executor.core import Executor, ExecutorPolicy
from colo_executor.lease import Lease, LeasePhase, LeasePolicy, expired_at, renewed
from colo_executor.local import Adopted, AdoptedReplica, RenewLease, StopIntent
from colo_executor.process.boot_time import by_this_clock, with_boot_time
from colo_executor.reflex import Reflex
from colo_executor.reflex_policy import ReflexPolicy
from tests.support.builders import a_placement

NOW_MS = 1_000_000_000
DAY_MS = 86_400_000
POLICY = ExecutorPolicy(command_lease_ms=15_000)


@pytest.mark.parametrize(
    ("at_ms", "renews"),
    [
        (NOW_MS, True),
        (NOW_MS - 14_999, True),
        (NOW_MS - 15_000, False),
        (NOW_MS + 14_999, True),
        (NOW_MS + 15_000, False),
        (NOW_MS * 60, False),
        (0, False),
    ],
)
def test_only_an_order_of_now_renews_the_lease(at_ms: int, renews: bool) -> None:
    order = StopReplicas(at_ms=at_ms, node="n1", generation=0, stops=())
    assert Executor("n1", POLICY).handle(order, NOW_MS) == ([RenewLease()] if renews else [])


def test_a_lease_of_an_instance_that_was_replaced_is_none() -> None:
    executor = Executor("n1", POLICY)

    def renewed_by(fence: int, node: str = "n1") -> bool:
        lease = LeaseRenewed(node=node, sample_seq=1, batch_cpu_mcpu=1_000, lease_ms=15_000, fence=fence)
        return executor.handle(lease, NOW_MS) == [RenewLease(lease_ms=15_000)]

    assert [renewed_by(fence) for fence in (5, 8, 5, 8, 0)] == [True, True, False, True, True]
    # Of another node nothing is learned.
    assert not renewed_by(9, "n2")
    assert renewed_by(8)


def an_order(generation: int, kind: type = StopReplicas) -> StopReplicas | EvictReplica:
    if kind is StopReplicas:
        return StopReplicas(node="n1", generation=generation, stops=())
    return EvictReplica(
        node="n1",
        generation=generation,
        eviction="e1",
        replica="job/main/0",
        attempt=1,
        grace_ms=0,
        reason=Reason.MEMORY_WATERMARK,
    )


@pytest.mark.parametrize("kind", [StopReplicas, EvictReplica])
def test_a_term_of_the_future_is_refused_and_the_orders_of_today_are_carried_out(kind: type) -> None:
    executor = Executor("n1", POLICY)
    for forged in (NOW_MS + DAY_MS + 1, 10**15):
        sentence = rf"generation: must be at most {NOW_MS + DAY_MS}, a day from now \(got {forged}\)"
        with pytest.raises(InvalidInput, match=sentence):
            executor.handle(an_order(forged, kind), NOW_MS)
    executor.handle(an_order(NOW_MS, kind), NOW_MS)
    # The clock of the store is a little ahead.
    executor.handle(an_order(NOW_MS + DAY_MS, kind), NOW_MS)
    with pytest.raises(InvalidInput, match="generation: must be at least"):
        executor.handle(an_order(NOW_MS + DAY_MS - 1, kind), NOW_MS)


@pytest.mark.parametrize(("at_ms", "fence"), [(50_000 * NOW_MS, 0), (1, 50_000 * NOW_MS)])
def test_a_node_whose_clock_is_years_behind_learns_from_its_lease_what_time_it_is(at_ms: int, fence: int) -> None:
    executor = Executor("n1", POLICY)
    genuine = an_order(50_000 * NOW_MS)
    with pytest.raises(InvalidInput, match="a day from now"):
        executor.handle(genuine, NOW_MS)
    lease = LeaseRenewed(at_ms=at_ms, node="n1", sample_seq=1, batch_cpu_mcpu=1_000, lease_ms=15_000, fence=fence)
    executor.handle(lease, NOW_MS)
    executor.handle(genuine, NOW_MS)


@pytest.mark.parametrize(("asked_ms", "length_ms"), [(0, 1_000), (1_500, 1_500), (2_000, 2_000), (90_000, 2_000)])
def test_a_lease_is_never_longer_than_the_node_allows(asked_ms: int, length_ms: int) -> None:
    policy = LeasePolicy(default_ms=1_000, most_ms=2_000)
    lease = renewed(Lease(renewed_at_ms=0, lease_ms=1_000), policy, asked_ms, NOW_MS)
    assert expired_at(lease) == NOW_MS + length_ms


def test_the_reflex_obeys_the_longest_lease_from_its_start() -> None:
    reflex = Reflex(
        ReflexPolicy(lease=LeasePolicy(default_ms=15_000, most_ms=2_000)), capacity_mcpu=4_000, now_ms=NOW_MS
    )
    assert expired_at(reflex.lease) == NOW_MS + 2_000
    reflex.handle(RenewLease(lease_ms=90_000), NOW_MS + 500)
    assert expired_at(reflex.lease) == NOW_MS + 2_500


def test_what_was_heard_before_a_standstill_renews_from_then() -> None:
    reflex = Reflex(ReflexPolicy(lease=LeasePolicy(default_ms=15_000)), capacity_mcpu=4_000, now_ms=NOW_MS)
    # The process stood still between the message and the turn of its reflex.
    reflex.handle(RenewLease(lease_ms=10_000, received_at_ms=NOW_MS + 1_000), NOW_MS + 120_000)
    assert expired_at(reflex.lease) == NOW_MS + 11_000
    assert reflex.phase(NOW_MS + 120_000) is LeasePhase.STEPPING
    # A clock that was set back since gives no longer lease.
    reflex.handle(RenewLease(lease_ms=10_000, received_at_ms=NOW_MS + 900_000), NOW_MS + 130_000)
    assert expired_at(reflex.lease) == NOW_MS + 140_000


@pytest.mark.parametrize("step_ms", [0, 3_600_000, -3_600_000], ids=["not set", "set forward", "set back"])
def test_the_grace_of_a_stop_is_the_same_for_the_next_executor_however_the_wall_clock_was_set(step_ms: int) -> None:
    begun = StopIntent(cause=EndCause.STOPPED, reason=Reason.CANCELLED, kill_at_ms=NOW_MS + 60_000, grace_ms=60_000)
    adopted = by_this_clock(with_boot_time(begun), NOW_MS + step_ms)
    assert adopted is not None
    # Not longer than the grace, and shorter only by what this test has taken.
    assert 0 <= NOW_MS + step_ms + 60_000 - adopted.kill_at_ms < 60_000
    assert by_this_clock(None, NOW_MS) is None


def test_a_stop_of_a_journal_without_the_machine_s_time_ends_after_its_grace_at_the_latest() -> None:
    placement = a_placement("j/t/0", node="n1")
    intent = StopIntent(cause=EndCause.STOPPED, reason=Reason.CANCELLED, kill_at_ms=NOW_MS + 3_600_000, grace_ms=60_000)
    executor = Executor("n1", POLICY)
    found = AdoptedReplica(placement=placement, pid=1, launched_at_ms=NOW_MS, alive=True, stop=intent)
    executor.handle(Adopted(replicas=(found,)), NOW_MS)
    assert executor.deadline_ms() == NOW_MS + 60_000
