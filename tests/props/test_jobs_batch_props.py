"""However facts are cut into batches, the jobs core comes to the same states by the same moves and tells the same story."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from colo_common.events.effects import RequestReceived
from colo_common.events.job import JobStateChanged, ReplicasChanged
from colo_common.events.requests import CancelJob
from colo_common.model.freshness import Freshness
from colo_common.model.reasons import EndCause, Reason
from tests.support.jobs_world import JobsWorld, a_spec, a_task

REPLICAS = ("a/main/0", "a/main/1", "a/side/0", "b/main/0", "b/main/39")
NODES = ("n1", "n2")

_FACT = st.tuples(
    st.sampled_from(
        ["placed", "placed", "started", "started", "ended", "refused", "lost", "back", "recovered", "cancel"]
    ),
    st.sampled_from(REPLICAS),
    st.sampled_from(NODES),
    st.integers(1, 3),
    st.sampled_from([(EndCause.EXITED, 0), (EndCause.EXITED, 3), (EndCause.EVICTED, 143), (EndCause.OOM, 137)]),
)
_BATCHES = st.lists(st.lists(_FACT, min_size=1, max_size=12), max_size=5)


def fact_of(world: JobsWorld, kind: str, replica: str, node: str, attempt: int, end: tuple[EndCause, int]) -> Struct:
    match kind:
        case "placed":
            return world.placed(replica, node, attempt)
        case "started":
            return world.started(replica, node, attempt)
        case "ended":
            return world.ended(replica, node, attempt, *end)
        case "refused":
            return world.refused(replica, node, attempt, Reason.CGROUP_REFUSED)
        case "lost" | "back":
            return world.freshness(node, Freshness.LOST if kind == "lost" else Freshness.FRESH)
        case "recovered":
            return world.recovered(node, (replica, attempt))
        case _:
            return RequestReceived(request=f"{replica}-{attempt}", body=CancelJob(job=replica[0]))


def a_world() -> JobsWorld:
    world = JobsWorld()
    world.submit(a_spec(a_task("main", 2, max_retry=1), a_task("side", 1, max_failed=1)), "a")
    world.submit(a_spec(a_task("main", 40)), "b")
    return world


def moves(world: JobsWorld, job: str) -> list[tuple[str, ...]]:
    """What was said of a job and its replicas, in order."""
    reported: list[tuple[str, ...]] = []
    for publish in world.published:
        match publish.fact:
            case ReplicasChanged() as fact if fact.job == job:
                reported += [
                    (change.replica, change.previous, change.transition, change.node) for change in fact.changes
                ]
            case JobStateChanged() as fact if fact.job == job:
                reported.append((fact.previous, fact.transition))
    return reported


def memory(world: JobsWorld) -> dict[str, Any]:
    core = world.core
    queue = core.index.queues["default"]
    return {
        "jobs": {
            name: (job.record.state, job.record.ended_at_ms, job.record.tasks, job.records, job.story_lines())
            for name, job in core.index.jobs.items()
        },
        "queue": (queue.waiting, queue.running, queue.jobs),
        "waiting": set(core.index.waiting),
        "held": {node: set(keys) for node, keys in core.index.on_node.items()},
        "timer": core.index.timers.next_ms(),
        "counters": core.counters,
    }


@given(_BATCHES)
def test_a_batch_leads_where_its_facts_lead_one_by_one(batches: list[list[Any]]) -> None:
    one_by_one, together = a_world(), a_world()
    for batch in batches:
        for fact in batch:
            one_by_one.feed(fact_of(one_by_one, *fact))
        together.feed(*[fact_of(together, *fact) for fact in batch])
        assert memory(together) == memory(one_by_one)
    for job in ("a", "b"):
        assert moves(together, job) == moves(one_by_one, job)
    before = memory(together)
    together.restart()
    after = memory(together)
    assert (after["jobs"], after["queue"], after["held"]) == (before["jobs"], before["queue"], before["held"])
