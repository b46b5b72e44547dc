"""Long answers about a job come in pages that an ordinary NATS carries."""

from __future__ import annotations

from typing import Final

import pytest

from colo_common.events.effects import Reply, RequestReceived
from colo_common.events.job import PlacementsRequested
from colo_common.events.requests import (
    ExplainPlacement,
    GetJob,
    JobAccepted,
    JobDetail,
    PlacementsExplained,
    Refusal,
    SubmitJob,
)
from colo_common.events.wire import encode_reply
from colo_common.model.workload import JobSpec, RunSpec
from tests.support.builders import a_node, a_topology
from tests.support.jobs_world import JobsWorld, a_spec, a_task
from tests.support.run_lengths import LONG, LONGEST, MESSAGE_BYTES, SHORT
from tests.support.scheduler_story import Bench, a_placement_request, an_allocatable


def test_the_decisions_about_a_job_come_in_pages_without_what_it_runs() -> None:
    bench = Bench()
    names = [f"{number}.{'n' * 200}" for number in range(20)]
    for name in names:
        bench.say(a_node(name, a_topology(zones_per_socket=1, cpus=128)))
        bench.say(an_allocatable(name, [(100_000, 1 << 40)]))
    requests = [a_placement_request(f"j/t/{number}", mcpu=100, run=LONG) for number in range(1_000)]
    for begin in range(0, len(requests), 50):
        bench.say(PlacementsRequested(placement_requests=tuple(requests[begin : begin + 50])))
    read: list[str] = []
    cursor, pages = "", 0
    while not pages or cursor:
        (reply,) = bench.tell(RequestReceived(request="r1", body=ExplainPlacement(job="j", cursor=cursor)))
        assert isinstance(reply, Reply)
        assert isinstance(reply.body, PlacementsExplained)
        assert len(encode_reply(reply.body)) < MESSAGE_BYTES
        assert all(each.placement is not None and each.placement.run == RunSpec() for each in reply.body.decisions)
        read += [each.replica for each in reply.body.decisions]
        cursor, pages = reply.body.next, pages + 1
    assert sorted(read) == sorted(each.replica for each in requests)
    assert pages > 1


JOB: Final = "a" * 54 + "-12345678"
SHOWN: Final = {
    "two thousand replicas": (a_spec(a_task("b" * 63, replicas=2_000, run=SHORT)), 1),
    "ten thousand replicas": (a_spec(a_task("b" * 63, replicas=10_000, run=SHORT)), 5),
    "a specification near its limit": (a_spec(a_task("b" * 63, replicas=2_000, run=LONGEST)), 4),
    "both": (a_spec(a_task("b" * 63, replicas=10_000, run=LONGEST)), 17),
}


@pytest.mark.parametrize(("spec", "pages"), SHOWN.values(), ids=SHOWN.keys())
def test_a_job_is_read_in_pages_that_fit(spec: JobSpec, pages: int) -> None:
    world = JobsWorld()
    assert isinstance(world.ask(SubmitJob(job=JOB, spec=spec)), JobAccepted)
    read: list[str] = []
    cursor, count = "", 0
    while not count or cursor:
        detail = world.ask(GetJob(job=JOB, cursor=cursor))
        assert isinstance(detail, JobDetail)
        assert len(encode_reply(detail)) < MESSAGE_BYTES
        assert detail.spec == spec
        read += [each.replica for each in detail.replicas]
        cursor, count = detail.next, count + 1
    assert read == [f"{JOB}/{spec.tasks[0].name}/{number}" for number in range(spec.replica_count)]
    assert pages <= count <= 2 * pages


def test_a_job_shows_first_what_runs_and_one_replica_by_its_name() -> None:
    world = JobsWorld()
    world.submit(a_spec(a_task("first", replicas=2, run=SHORT), a_task("then", replicas=2, run=SHORT)))
    world.run("j1/then/1")

    def shown(*, limit: int = 0, cursor: str = "", replica: str = "") -> tuple[list[str], str]:
        detail = world.ask(GetJob(job="j1", limit=limit, cursor=cursor, replica=replica))
        assert isinstance(detail, JobDetail)
        return [each.replica for each in detail.replicas], detail.next

    assert shown() == (["j1/first/0", "j1/first/1", "j1/then/0", "j1/then/1"], "")
    assert shown(limit=2) == (["j1/first/0", "j1/then/1"], "2:j1/first/0")
    assert shown(limit=2, cursor="2:j1/first/0") == (["j1/first/1", "j1/then/0"], "")
    assert shown(replica="j1/then/0") == (["j1/then/0"], "")
    assert shown(replica="j1/then/7") == ([], "")
    refused = world.ask(GetJob(job="j1", cursor="x"))
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.field) == (400, "cursor")
