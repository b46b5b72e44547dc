"""Replicas that nobody has named for long are said to run once more, at a pace, and others are not."""

import pytest

from colo_common.events.effects import Effect, Publish, Wake
from colo_common.events.enforcement import ReplicaStarted
from colo_common.events.job import ReplicaStop, StopReplicas
from colo_common.events.node import NodeFactsWanted
from colo_common.events.placement import ApplyPlacements
from colo_common.model.invalid import InvalidInput
from colo_common.model.reasons import Reason
from colo_executor.core import Executor, ExecutorPolicy
from colo_executor.local import Adopted, AdoptedReplica, ReplicaExited, ReplicaLaunched
from colo_executor.settings import ExecutorSettings
from tests.support.builders import a_placement

NODE = "n1"
MINUTE_MS = 60_000


def executor(**policy: int) -> Executor:
    return Executor(NODE, ExecutorPolicy(**policy))


def order(core: Executor, now_ms: int, *replicas: str) -> None:
    placements = tuple(a_placement(replica, node=NODE) for replica in replicas)
    core.handle(ApplyPlacements(at_ms=now_ms, node=NODE, generation=1, placements=placements), now_ms)


def run(core: Executor, now_ms: int, *replicas: str) -> None:
    order(core, now_ms, *replicas)
    for replica in replicas:
        core.handle(ReplicaLaunched(replica=replica, attempt=1, pid=7), now_ms)


def started(effects: list[Effect]) -> list[str]:
    facts = [effect.fact for effect in effects if isinstance(effect, Publish)]
    return [fact.replica for fact in facts if isinstance(fact, ReplicaStarted)]


def published_until(core: Executor, until_ms: int) -> list[tuple[int, str]]:
    published = []
    while (due_ms := core.deadline_ms()) is not None and due_ms <= until_ms:
        published += [(due_ms, replica) for replica in started(core.handle(Wake(), due_ms))]
        core.check()
        later_ms = core.deadline_ms()
        assert later_ms is None or later_ms > due_ms
    return published


def test_a_replica_that_no_order_names_for_25_minutes_is_said_to_run_and_again_after_as_long() -> None:
    core = executor()
    run(core, 0, "job/main/0", "job/main/1")
    # The scheduler knows this one.
    order(core, 20 * MINUTE_MS, "job/main/1")
    assert published_until(core, 44 * MINUTE_MS) == [(25 * MINUTE_MS, "job/main/0")]
    assert published_until(core, 50 * MINUTE_MS) == [(45 * MINUTE_MS, "job/main/1"), (50 * MINUTE_MS, "job/main/0")]


def test_no_more_than_ten_are_told_in_a_second() -> None:
    core = executor()
    names = [f"job/main/{number}" for number in range(25)]
    run(core, 0, *names)
    due_ms = 25 * MINUTE_MS
    published = published_until(core, due_ms + MINUTE_MS)
    assert published == [(due_ms + 1_000 * (number // 10), name) for number, name in enumerate(names)]


def test_what_ends_or_has_ended_is_not_said_to_run() -> None:
    core = executor()
    run(core, 0, "job/main/0", "job/main/1")
    stop = ReplicaStop(replica="job/main/0", attempt=1, grace_ms=50 * MINUTE_MS, reason=Reason.CANCELLED)
    core.handle(StopReplicas(node=NODE, stops=(stop,)), 1_000)
    core.handle(ReplicaExited(replica="job/main/1", attempt=1, exit_code=0), 1_000)
    assert published_until(core, 40 * MINUTE_MS) == []


def test_what_an_earlier_executor_started_is_said_to_run_as_well() -> None:
    core = executor(unconfirmed_ms=MINUTE_MS)
    found = AdoptedReplica(placement=a_placement("job/main/0", node=NODE), pid=7, launched_at_ms=5)
    assert started(core.handle(Adopted(replicas=(found,)), 10_000)) == ["job/main/0"]
    assert published_until(core, 2 * MINUTE_MS) == [(10_000 + MINUTE_MS, "job/main/0")]


def test_with_0_nothing_is_told_twice() -> None:
    core = executor(unconfirmed_ms=0)
    run(core, 0, "job/main/0")
    assert core.deadline_ms() is None


@pytest.mark.parametrize("unconfirmed_ms", [-1, 59_999, 86_400_001])
def test_a_time_that_would_flood_the_bus_or_that_nobody_lives_to_see_is_refused(unconfirmed_ms: int) -> None:
    with pytest.raises(InvalidInput, match="orders_unconfirmed_ms: must be 0, or from 60000 to 86400000"):
        ExecutorSettings(orders=ExecutorPolicy(unconfirmed_ms=unconfirmed_ms)).validate()


def test_when_the_bus_has_lost_what_only_the_node_knows_all_are_told_at_the_same_pace() -> None:
    core = executor()
    names = [f"job/main/{n}" for n in range(12)]
    run(core, 0, *names)
    core.handle(NodeFactsWanted(at_ms=5, node="n2"), 5)
    assert published_until(core, 5_000) == []
    core.handle(NodeFactsWanted(at_ms=6_000, node=NODE), 6_000)
    found = published_until(core, 10_000)
    assert sorted(replica for _, replica in found) == sorted(names)
    assert [at_ms - found[0][0] for at_ms, _ in found] == [0] * 10 + [1_000] * 2
