"""Requests to the jobs service: what is accepted, what is refused and why, what is answered."""

import msgspec
import pytest
from msgspec import structs

from colo_common.events.fleet import ListNodeReplicas, ListTenants
from colo_common.events.job import MidPlacementsRequested, PlacementsRequested
from colo_common.events.registry import request_spec_of
from colo_common.events.requests import (
    KEY_TAKEN,
    CancelJob,
    GetJob,
    JobAccepted,
    ListJobs,
    ListNodes,
    ListQueues,
    PendingReplicas,
    QueueList,
    Refusal,
)
from colo_common.events.started import StartedReplicas, StartedReply
from colo_common.events.wire import decode_request, encode_request
from colo_common.model.invalid import InvalidInput
from colo_common.model.lifecycle import JOB
from colo_common.model.qos import PriorityBand
from colo_common.model.workload import ResourceRequest
from colo_jobs.admission import QueueLimits
from colo_jobs.policies import LifecyclePolicy, action_for
from colo_jobs.policy import JobsPolicy
from colo_jobs.requeue import RetryPolicy
from tests.parity.peers.task_policies import with_default
from tests.support.jobs_world import JobsWorld, a_spec, a_task
from tests.support.older_wire import OlderWire


@pytest.fixture
def world() -> JobsWorld:
    return JobsWorld()


def test_the_same_submission_again_is_answered_alike_and_changes_nothing(world: JobsWorld) -> None:
    first = world.submit()
    count = len(world.published)
    assert world.submit() == first
    assert len(world.published) == count


def test_another_job_under_a_known_id_is_refused(world: JobsWorld) -> None:
    world.submit()
    answer = world.submit(a_spec(a_task(replicas=2)))
    assert (answer.code, answer.field) == (409, "job")


def test_a_job_of_another_key_keeps_its_id_however_alike_the_two_are(world: JobsWorld) -> None:
    first = world.submit(key="aa")
    answer = world.submit(key="bb")
    assert (answer.code, answer.field) == (409, KEY_TAKEN)
    assert world.submit(key="aa") == world.submit() == first
    world.restart()
    assert world.submit(key="bb").field == KEY_TAKEN


@pytest.mark.parametrize("job", ["", "a/b", "A", "x" * 64])
def test_a_bad_id_is_refused(world: JobsWorld, job: str) -> None:
    answer = world.submit(job=job)
    assert (answer.code, answer.field) == (400, "job")


def test_a_bad_specification_is_refused_with_its_path(world: JobsWorld) -> None:
    answer = world.submit(a_spec(a_task(), a_task("other", request=ResourceRequest(cpu_mcpu=-1, memory_bytes=1 << 30))))
    assert (answer.code, answer.field) == (400, "tasks[1].cpu")
    assert world.rows == {}


def test_an_unknown_queue_is_refused_and_the_known_ones_named(world: JobsWorld) -> None:
    answer = world.submit(a_spec(queue="night"))
    assert (answer.code, answer.field) == (400, "queue")
    assert "queues: default" in answer.rule


def test_a_full_queue_refuses_with_429_and_names_the_numbers() -> None:
    world = JobsWorld(JobsPolicy(queues={"default": QueueLimits(max_waiting=5, max_jobs=100)}))
    assert isinstance(world.submit(a_spec(a_task(replicas=3)), job="a"), JobAccepted)
    answer = world.submit(a_spec(a_task(replicas=3)), job="b")
    assert (answer.code, answer.field, answer.got) == (429, "queue", "default")
    assert "3 wait, at most 5 may, the job brings 3" in answer.rule
    assert world.core.counters.queue_full == 1
    assert list(world.core.index.jobs) == ["a"]
    world.run("a/main/0")
    assert isinstance(world.submit(a_spec(a_task(replicas=3)), job="b"), JobAccepted)


def test_a_queue_takes_a_limited_number_of_jobs() -> None:
    world = JobsWorld(JobsPolicy(queues={"default": QueueLimits(max_waiting=100, max_jobs=1)}))
    world.submit(job="a")
    assert world.submit(job="b").code == 429
    world.cancel("a")
    assert isinstance(world.submit(job="b"), JobAccepted)


def test_a_returning_replica_is_never_refused() -> None:
    world = JobsWorld(JobsPolicy(queues={"default": QueueLimits(max_waiting=1, max_jobs=9)}))
    world.submit(job="a")
    world.run("a/main/0")
    world.submit(job="b")
    world.feed(world.refused("a/main/0"), world.freshness())
    world.at(100_000)
    assert world.core.index.queues["default"].waiting == 2


def test_an_unknown_job_is_not_found(world: JobsWorld) -> None:
    for body in (GetJob(job="nope"), CancelJob(job="nope")):
        assert world.ask(body).code == 404


def test_jobs_are_listed_newest_first_and_counted(world: JobsWorld) -> None:
    for number in range(4):
        world.now_ms += 10
        world.submit(job=f"j{number}")
    world.cancel("j3")
    answer = world.ask(ListJobs(limit=2))
    assert [job.job for job in answer.jobs] == ["j3", "j2"]
    assert answer.total == 4
    # A job that comes between two pages shifts nothing.
    world.now_ms += 10
    world.submit(job="j4")
    following = world.ask(ListJobs(limit=2, cursor=answer.next))
    assert ([job.job for job in following.jobs], following.next) == (["j1", "j0"], "")
    assert world.ask(ListJobs(cursor="j2")).field == "cursor"
    for given in ("Terminated", "terminated", "TERMINATED"):
        assert [job.job for job in world.ask(ListJobs(states=(given,))).jobs] == ["j3"]
    assert world.ask(ListJobs(queue="night")).rule.startswith("there is no such queue")


def test_jobs_are_listed_by_the_name_in_their_file_and_by_the_beginning_of_their_id(world: JobsWorld) -> None:
    for number, name in enumerate(("web", "web", "web-2")):
        world.now_ms += 10
        world.submit(structs.replace(a_spec(), name=name), job=f"{name}-{number}")
    assert [job.job for job in world.ask(ListJobs(name="web")).jobs] == ["web-1", "web-0"]
    assert [job.job for job in world.ask(ListJobs(prefix="web-2")).jobs] == ["web-2-2"]
    assert world.ask(ListJobs(prefix="web", limit=1)).total == 3
    assert world.ask(ListJobs(name="we")).total == 0


@pytest.mark.parametrize("asked", [ListJobs(limit=0), ListJobs(limit=1_001), ListJobs(states=("Lost",))])
def test_a_list_that_makes_no_sense_is_refused(world: JobsWorld, asked: ListJobs) -> None:
    assert world.ask(asked).code == 400


def test_a_state_that_there_is_not_is_refused_with_those_that_there_are(world: JobsWorld) -> None:
    refused = world.ask(ListJobs(states=("running", "lost")))
    assert (refused.field, refused.rule) == ("states", f"must be among {' '.join(JOB.state_names)}")
    assert refused.got == '"lost"'


def test_queues_tell_how_long_the_oldest_waits(world: JobsWorld) -> None:
    world.submit(job="a")
    world.now_ms += 500
    world.submit(job="b")
    world.run("b/main/0")
    queue = world.ask(ListQueues()).queues[0]
    assert (queue.queue, queue.waiting, queue.running, queue.oldest_wait_ms) == ("default", 1, 1, 500)


def test_pending_replicas_come_in_order_of_priority_and_waiting_time(world: JobsWorld) -> None:
    world.submit(a_spec(), job="b")
    world.now_ms += 1
    world.submit(a_spec(), job="a")
    world.submit(a_spec(priority=3), job="c")
    reply = world.ask(PendingReplicas())
    assert [placement_request.replica for placement_request in reply.placement_requests] == [
        "c/main/0",
        "b/main/0",
        "a/main/0",
    ]
    assert reply.total == 3


def test_a_scheduler_of_before_the_mid_tier_is_told_of_no_work_of_it(world: JobsWorld) -> None:
    world.submit(a_spec(band=PriorityBand.MID), job="mid")
    world.submit(a_spec(), job="batch")
    published = {
        type(fact): [request.replica for request in fact.placement_requests]
        for fact in (publish.fact for publish in world.published)
        if isinstance(fact, PlacementsRequested | MidPlacementsRequested)
    }
    assert published == {MidPlacementsRequested: ["mid/main/0"], PlacementsRequested: ["batch/main/0"]}
    # The events of its version, and the question that it asks: a later version's says more.
    subject = request_spec_of(PendingReplicas).subject.template
    asked = decode_request(subject, OlderWire().request(subject, encode_request(PendingReplicas(has_mid_tier=True))))
    older, newer = world.ask(asked), world.ask(PendingReplicas(has_mid_tier=True))
    assert [request.replica for request in older.placement_requests] == ["batch/main/0"]
    assert older.total == 1
    assert [request.replica for request in newer.placement_requests] == ["batch/main/0", "mid/main/0"]


def test_a_reader_that_pages_misses_nothing_while_others_find_a_place(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=25)))
    seen = []
    offset = 0
    for number in range(100):
        page = world.ask(PendingReplicas(offset=offset, limit=10))
        if not page.placement_requests:
            break
        seen += [placement_request.replica for placement_request in page.placement_requests]
        offset += len(page.placement_requests)
        world.run(f"j1/main/{number}")
        world.run(f"j1/main/{24 - number}")
    still = {job.name(index) for job, index in world.core.index.pending()}
    assert still <= set(seen)
    assert page.total <= offset


def test_pending_needs_sensible_numbers(world: JobsWorld) -> None:
    assert world.ask(PendingReplicas(offset=-1)).code == 400


def test_places_that_are_held_come_in_pages_that_miss_none_while_jobs_come_and_go(world: JobsWorld) -> None:
    for job in ("a", "b", "c"):
        world.submit(a_spec(a_task(replicas=4)), job=job)
    for job in ("a", "b", "c"):
        for number in range(3):
            world.feed(world.placed(f"{job}/main/{number}"))
    world.feed(world.started("a/main/0"))
    world.feed(world.started("a/main/1"))
    world.feed(world.ended("a/main/1"))
    first = world.ask(PendingReplicas(placed_after="", limit=3))
    assert [place.request.replica for place in first.placed] == ["a/main/0", "a/main/2", "b/main/0"]
    assert {(place.node, place.zones) for place in first.placed} == {("n1", (0,))}
    assert (first.placement_requests, first.total) == ((), 0)
    world.core.index.detach(world.core.index.jobs["b"])
    rest = world.ask(PendingReplicas(placed_after="b/main/0", limit=3))
    assert [place.request.replica for place in rest.placed] == ["c/main/0", "c/main/1", "c/main/2"]
    assert world.ask(PendingReplicas(placed_after="c/main/2", limit=3)).placed == ()
    # The pages of waiting replicas, of another reader, are what they were.
    assert world.ask(PendingReplicas()).placed is None


def test_a_page_of_places_after_what_is_no_replica_is_refused(world: JobsWorld) -> None:
    refused = world.ask(PendingReplicas(placed_after="j1"))
    assert (refused.code, refused.field) == (400, "placed_after")


def test_the_reply_names_each_attempt_that_has_started(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=7, max_retry=3)))
    for number in range(1, 7):
        world.feed(world.placed(f"j1/main/{number}"))
    for number in range(2, 7):
        world.feed(world.started(f"j1/main/{number}"))
    world.feed(world.ended("j1/main/3"))
    world.feed(world.ended("j1/main/4", code=1))
    world.feed(world.ended("j1/main/5", code=1))
    world.at(world.now_ms + 1_000)
    states = [replica.state for replica in world.job().replicas]
    assert states == ["Pending", "Assigned", "Running", "Succeeded", "Pending", "Pending", "Running"]
    asked = [*((f"j1/main/{number}", 1) for number in range(7)), ("j1/main/4", 2), ("j1/main/6", 2), ("j1/main/7", 1)]
    reply = world.ask(StartedReplicas(attempts=(*asked, ("k/main/0", 1), ("no replica", 1))))
    assert reply == StartedReply(
        started=(("j1/main/2", 1), ("j1/main/6", 1)),
        over=(("j1/main/3", 1), ("j1/main/4", 1), ("j1/main/5", 1)),
        waiting=(("j1/main/0", 1), ("j1/main/1", 1), ("j1/main/4", 2), ("j1/main/6", 2)),
    )


def test_an_attempt_that_has_failed_is_over_before_the_next_one_begins(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(max_retry=3)))
    world.run("j1/main/0")
    world.feed(world.ended("j1/main/0", code=1))
    assert world.job().replicas[0].state == "Backoff"
    asked = (("j1/main/0", 1),)
    assert world.ask(StartedReplicas(attempts=asked)) == StartedReply(started=(), over=asked, waiting=())


def test_an_attempt_that_a_node_was_ordered_to_stop_is_not_started_again(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=2)))
    world.feed(world.placed("j1/main/0"))
    world.run("j1/main/1")
    world.cancel()
    asked = (("j1/main/0", 1), ("j1/main/1", 1))
    assert {replica.replica: replica.state for replica in world.job().replicas} == {
        "j1/main/0": "Stopped",
        "j1/main/1": "Stopping",
    }
    assert world.ask(StartedReplicas(attempts=asked)) == StartedReply(started=asked[1:], over=asked[:1], waiting=())


@pytest.mark.parametrize("count", [0, 1_001])
def test_so_many_starts_are_asked_for_at_once(world: JobsWorld, count: int) -> None:
    refused = world.ask(StartedReplicas(attempts=(("j1/main/0", 1),) * count))
    assert (refused.code, refused.field, refused.rule) == (400, "attempts", "must be 1 to 1000 attempts")
    assert refused.got == str(count)


def test_a_large_job_is_shown_in_part_failed_and_placed_replicas_first(world: JobsWorld) -> None:
    world.submit(a_spec(a_task(replicas=3_000, max_failed=10)))
    world.run("j1/main/2999")
    world.feed(world.ended("j1/main/2999", code=1))
    shown = world.job().replicas
    assert (len(shown), shown[-1].replica, shown[-1].state) == (2_000, "j1/main/2999", "Failed")
    assert len(msgspec.json.encode(world.job())) < 900_000


def test_another_services_question_is_not_answered_here(world: JobsWorld) -> None:
    answer = world.ask(ListNodes())
    assert isinstance(answer, Refusal)
    assert answer.code == 404


def test_a_fact_that_names_no_replica_is_refused_and_changes_nothing(world: JobsWorld) -> None:
    world.submit()
    with pytest.raises(InvalidInput, match="job/task/index"):
        world.feed(world.started("not a replica"))


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (JobsPolicy(queues={}), "queues"),
        (JobsPolicy(queues={"A": QueueLimits()}), "queues"),
        (JobsPolicy(queues={"a": QueueLimits(max_waiting=0)}), "queues.a.max_waiting"),
        (JobsPolicy(retry=RetryPolicy(backoff_ms=0)), "backoff_ms"),
        (JobsPolicy(retry=RetryPolicy(backoff_ms=10, backoff_max_ms=5)), "backoff_max_ms"),
        (JobsPolicy(trace_ratio=2.0), "trace_ratio"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(policy: JobsPolicy, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        JobsWorld(policy)
    assert caught.value.field == field


def test_a_policy_of_the_task_goes_before_one_of_the_job_and_the_default_is_first_among_those() -> None:
    own = LifecyclePolicy(event="TaskFailed", task="helper", action="no_action")
    whole = LifecyclePolicy(event="MainTaskEvent", action="complete_job")
    assert action_for(with_default((own,)), "TaskFailed", "helper") == "no_action"
    assert action_for(with_default((own,)), "TaskFailed", "other") == "fail_job"
    assert action_for(with_default((whole,)), "MainTaskEvent", "any") == "complete_job"
    assert (
        action_for(with_default((LifecyclePolicy(event="TaskCompleted", action="no_action"),)), "TaskFailed", "x")
        is None
    )
    with pytest.raises(InvalidInput, match="action"):
        with_default((LifecyclePolicy(event="TaskFailed", action="explode"),))  # type: ignore[arg-type]


def test_queues_and_tenants_come_in_pages_that_miss_none() -> None:
    names = [f"q{number:03d}" for number in range(250)]
    world = JobsWorld(JobsPolicy(queues={name: QueueLimits() for name in names}))
    for number in range(30):
        world.submit(structs.replace(a_spec(queue=names[number]), tenant=f"t{number % 25}"), job=f"j{number}")

    def all_of(asked: ListQueues | ListTenants) -> list[str]:
        found: list[str] = []
        while True:
            page = world.ask(asked)
            found += (
                [each.queue for each in page.queues]
                if isinstance(page, QueueList)
                else [each.tenant for each in page.tenants]
            )
            if not page.next:
                assert page.total == len(found)
                return found
            asked = structs.replace(asked, cursor=page.next)

    assert all_of(ListQueues(limit=100)) == names
    assert all_of(ListQueues()) == names
    assert sorted(all_of(ListTenants(limit=7))) == sorted(f"t{number}" for number in range(25))
    assert (world.ask(ListTenants(cursor="x")).code, world.ask(ListQueues(cursor="x")).field) == (400, "cursor")


def test_the_replicas_of_a_node_come_in_pages_and_an_older_question_gets_the_first() -> None:
    world = JobsWorld()
    world.submit(a_spec(a_task(replicas=1_300)), job="big")
    world.submit(a_spec(a_task(replicas=2)), job="small")
    world.feed(*(world.placed(f"big/main/{number}") for number in range(1_300)), world.placed("small/main/1"))
    node = world.job("small").replicas[1].node
    names = [*(f"big/main/{number}" for number in range(1_300)), "small/main/1"]
    for limit, pages in ((0, 2), (400, 4)):
        found: list[str] = []
        cursor = ""
        for _ in range(pages):
            page = world.ask(ListNodeReplicas(node=node, limit=limit, cursor=cursor))
            assert page.total == 1_301
            found += [each.replica for each in page.replicas]
            cursor = page.next
        assert (found, cursor) == (names, "")
    first = world.ask(msgspec.json.decode(msgspec.json.encode({"node": node}), type=ListNodeReplicas))
    assert [each.replica for each in first.replicas] == names[:1_000]
    refused = world.ask(ListNodeReplicas(node=node, cursor="x"))
    assert (refused.code, refused.field) == (400, "cursor")
    none = world.ask(ListNodeReplicas(node="nobody"))
    assert (none.replicas, none.total, none.next) == ((), 0, "")
