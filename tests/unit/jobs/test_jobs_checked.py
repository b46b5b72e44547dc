"""What is looked up across jobs is compared with them: of few replicas in one call, of many after enough calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from colo_common.events.effects import RequestReceived
from colo_common.events.requests import SubmitJob
from colo_common.model.invalid import InvariantBroken
from colo_jobs.core import JobsCore
from colo_jobs.effects import JobRowsLoaded
from colo_jobs.index import Index
from colo_jobs.policy import JobsPolicy
from tests.support.jobs_world import a_spec, a_task

SMALL, LARGE = 2, 300
CALLS_MOST = 20


def an_index(jobs: int) -> Index:
    """Jobs of 50 replicas, the first of which hold places."""
    core = JobsCore(JobsPolicy())
    core.handle(JobRowsLoaded(specs=(), jobs=(), pages=()), 1)
    for number in range(jobs):
        spec = a_spec(a_task(replicas=50))
        core.handle(
            RequestReceived(request=f"r{number}", body=SubmitJob(job=f"j{number:04}", spec=spec)), 1_000 + number
        )
    index = core.index
    assert len(index.jobs) == jobs
    for job in index.jobs.values():
        queue, replica = index.queue(job), job.replica(0)
        index._leave(job.id, 0, replica.state, replica.node, queue)
        job.move(0, "Running")
        replica.node = f"n{job.id}"
        index._enter(job.id, 0, replica.state, replica.node, queue)
    return index


def last(index: Index) -> str:
    return list(index.jobs)[-1]


def a_replica_waits_no_more(index: Index) -> None:
    del index.waiting[last(index), 49]


def a_replica_waits_for_another(index: Index) -> None:
    del index.waiting[last(index), 49]
    index.waiting["ghost", 0] = None


def a_held_place_waits_for_another(index: Index) -> None:
    del index.waiting[last(index), 49]
    index.waiting[last(index), 0] = None


def a_replica_is_on_another_node(index: Index) -> None:
    index.on_node["elsewhere"] = index.on_node.pop(f"n{last(index)}")


def a_replica_is_on_two_nodes(index: Index) -> None:
    index.on_node["elsewhere"] = {(last(index), 0): None}


def a_queue_counts_one_more(index: Index) -> None:
    index.queue(index.jobs[last(index)]).waiting += 1


def a_job_counts_one_more(index: Index) -> None:
    index.jobs[last(index)].counts[0]["Pending"] += 1


def a_place_is_on_no_node(index: Index) -> None:
    index.jobs[last(index)].replica(0).node = ""


@pytest.mark.parametrize(("jobs", "calls"), [(SMALL, 1), (LARGE, CALLS_MOST)])
@pytest.mark.parametrize(
    "breaks",
    [
        a_replica_waits_no_more,
        a_replica_waits_for_another,
        a_held_place_waits_for_another,
        a_replica_is_on_another_node,
        a_replica_is_on_two_nodes,
        a_queue_counts_one_more,
        a_job_counts_one_more,
        a_place_is_on_no_node,
    ],
)
def test_what_is_broken_in_the_last_job_is_found(jobs: int, calls: int, breaks: Callable[[Index], None]) -> None:
    index = an_index(jobs)
    check_all(index, calls)
    breaks(index)
    with pytest.raises(InvariantBroken):
        check_all(index, calls)


def check_all(index: Index, calls: int) -> None:
    for _ in range(calls):
        index.check()


def test_of_many_replicas_one_call_checks_a_part() -> None:
    index = an_index(LARGE)
    a_place_is_on_no_node(index)
    index.check()
