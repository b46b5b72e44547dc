"""Orders of places that were rebuilt after a total loss: they do not know when they were decided, and perhaps not which CPUs."""

from typing import Any

from msgspec.structs import replace

from colo_common.events.effects import Effect, Publish
from colo_common.events.enforcement import PlacementRefused, ReplicaEnded, ReplicaStarted
from colo_common.events.placement import ApplyPlacements
from colo_common.model.placement import UNKNOWN_CPUS, Placement
from colo_common.model.reasons import Reason
from colo_executor.core import Executor, ExecutorPolicy
from colo_executor.local import LaunchReplica, ReplicaExited, ReplicaLaunched
from tests.support.builders import a_placement

NODE = "n1"
PLACED = replace(a_placement("job/main/0", node=NODE), decided_at_ms=500)
REBUILT = replace(PLACED, decided_at_ms=0)


def order(core: Executor, placement: Placement, now_ms: int) -> list[Effect]:
    return core.handle(ApplyPlacements(at_ms=now_ms, node=NODE, generation=1, placements=(placement,)), now_ms)


def facts(effects: list[Effect]) -> list[Any]:
    return [effect.fact for effect in effects if isinstance(effect, Publish)]


def test_what_has_ended_is_told_as_it_ended_and_not_as_a_number_that_was_used_before() -> None:
    core = Executor(NODE, ExecutorPolicy())
    order(core, PLACED, 1_000)
    core.handle(ReplicaLaunched(replica=PLACED.replica, attempt=1, pid=7), 1_100)
    (ended,) = facts(core.handle(ReplicaExited(replica=PLACED.replica, attempt=1, exit_code=0), 2_000))
    assert facts(order(core, REBUILT, 3_000)) == [ended]
    assert isinstance(ended, ReplicaEnded)
    # Another decision is another work.
    (refused,) = facts(order(core, replace(PLACED, decided_at_ms=900), 4_000))
    assert isinstance(refused, PlacementRefused)


def test_what_runs_stays_as_it_was_placed_and_says_so() -> None:
    core = Executor(NODE, ExecutorPolicy())
    order(core, PLACED, 1_000)
    core.handle(ReplicaLaunched(replica=PLACED.replica, attempt=1, pid=7), 1_100)
    (started,) = facts(order(core, replace(REBUILT, cpus=UNKNOWN_CPUS), 3_000))
    assert isinstance(started, ReplicaStarted)
    assert core.active[PLACED.replica].placement == PLACED


def test_what_does_not_run_here_is_refused_where_its_cpus_are_not_known_and_started_otherwise() -> None:
    core = Executor(NODE, ExecutorPolicy())
    (refused,) = facts(order(core, replace(REBUILT, cpus=UNKNOWN_CPUS), 1_000))
    assert isinstance(refused, PlacementRefused)
    assert refused.reason is Reason.LEDGER_DISAGREES
    assert refused.detail.startswith("cpus:")
    other = replace(REBUILT, replica="job/main/1")
    assert [effect for effect in order(core, other, 2_000) if isinstance(effect, LaunchReplica)]
