"""The core of one partition of the jobs: facts about the others' jobs are no facts here, and limits are those of all together."""

from colo_common.events.enforcement import NodeRecovered, PlacementRefused, ReplicaStarted
from colo_common.events.job import QueueChanged
from colo_common.events.placement import PlacementRejected
from colo_common.events.requests import (
    GetJob,
    HoldEntry,
    HoldsListed,
    JobAccepted,
    JobList,
    ListJobs,
    ListQueues,
    PendingReplicas,
    Refusal,
    SubmitJob,
)
from colo_common.events.started import StartedReplicas
from colo_common.events.waiting import ExplainWait
from colo_common.model.partition import Share, partition_of
from colo_common.model.placement import ZoneShare
from colo_common.model.reasons import Reason
from colo_jobs.admission import QueueLimits
from colo_jobs.policy import JobsPolicy
from colo_jobs.retention import RetentionPolicy
from tests.support.jobs_world import JobsWorld, a_spec, a_task, stops_of

SHARE = Share(1, 4)


def a_job_of(partition: int, number: int = 0) -> str:
    """A job's id of this partition of four."""
    return [f"j{one}" for one in range(200) if partition_of(f"j{one}", 4) == partition][number]


OWN, OTHERS = a_job_of(1), a_job_of(2)


def a_world(policy: JobsPolicy | None = None) -> JobsWorld:
    return JobsWorld(policy, SHARE)


def reported(partition: int, **counts: int) -> QueueChanged:
    fields = {"waiting": 0, "running": 0, "capacity": 100, "partitions": 4, **counts}
    return QueueChanged(queue="default", partition=partition, **fields)


def a_start(job: str, **change: object) -> ReplicaStarted:
    return ReplicaStarted(node="n1", replica=f"{job}/main/0", job=job, attempt=1, pid=1, knobs=(), boot_id="b", seq=3)


def test_what_runs_of_another_partition_is_no_orphan_and_what_nobody_stored_of_its_own_is() -> None:
    world = a_world()
    assert world.feed(a_start(OTHERS)) == []
    assert stops_of(world.feed(a_start(OWN))) == [("n1", f"{OWN}/main/0", 1)]
    running = ((f"{OTHERS}/main/0", 1), (f"{OWN}/main/1", 1))
    found = world.feed(NodeRecovered(node="n1", running=running, boot_id="b", seq=4))
    assert stops_of(found) == [("n1", f"{OWN}/main/1", 1)]
    assert world.core.counters.unknown_replica == 2


def test_facts_about_jobs_of_others_are_not_counted_as_unknown() -> None:
    world = a_world()
    world.feed(
        PlacementRejected(replica=f"{OTHERS}/main/0", job=OTHERS, attempt=1, nodes=0, counts=()),
        PlacementRefused(node="n1", replica=f"{OTHERS}/main/0", job=OTHERS, attempt=1, reason=Reason.START_FAILED),
    )
    hold = HoldEntry(
        node="n1",
        replica=f"{OTHERS}/main/0",
        attempt=1,
        zones=(ZoneShare(zone=0, cpu_mcpu=1_000, memory_bytes=1),),
    )
    assert world.feed(HoldsListed(holds=(hold,), asked_at_ms=5)) == []
    assert world.core.counters.unknown_replica == 0


def test_every_reply_says_of_how_many_partitions_it_is_one() -> None:
    world = a_world()
    world.submit(a_spec(a_task(replicas=2)), job=OWN)
    started = StartedReplicas(attempts=((f"{OWN}/main/0", 1), (f"{OTHERS}/main/0", 1)))
    for question in (ListJobs(), ListQueues(), PendingReplicas(), started, ExplainWait(job=OWN), GetJob(job=OTHERS)):
        assert world.ask(question).partitions == 4
    assert world.ask(started).waiting == ((f"{OWN}/main/0", 1),)
    listed = world.ask(ListJobs())
    assert isinstance(listed, JobList)
    assert [job.job for job in listed.jobs] == [OWN]


def test_a_queue_takes_what_it_may_of_all_partitions_together() -> None:
    limits = {"default": QueueLimits(max_waiting=10, max_jobs=4)}
    world = a_world(JobsPolicy(queues=limits))
    world.feed(reported(0, waiting=3, jobs=1), reported(2, waiting=4, jobs=1))
    full = world.ask(SubmitJob(job=OWN, spec=a_spec(a_task(replicas=4))))
    assert isinstance(full, Refusal)
    assert (full.code, full.field) == (429, "queue")
    assert "7 wait, at most 10 may, the job brings 4" in full.rule
    assert isinstance(world.ask(SubmitJob(job=OWN, spec=a_spec(a_task(replicas=3)))), JobAccepted)
    # The newest word counts, and that of another number of partitions, or its own, does not.
    world.feed(reported(0, waiting=0, jobs=3), reported(1, waiting=9))
    world.feed(reported(3, waiting=9, partitions=5), reported(3, waiting=9, partitions=1))
    second = a_job_of(1, 1)
    full = world.ask(SubmitJob(job=second, spec=a_spec(a_task(replicas=1))))
    assert isinstance(full, Refusal)
    assert full.rule.endswith("as many jobs as it may: 4")
    world.feed(reported(0, waiting=0, jobs=1))
    assert isinstance(world.ask(SubmitJob(job=second, spec=a_spec(a_task(replicas=1)))), JobAccepted)


def test_counts_that_others_add_are_said_again_each_minute_while_there_are_any() -> None:
    world = a_world()
    world.submit(a_spec(a_task(replicas=2)), job=OWN)
    first = [fact for fact in world.at(world.now_ms + 1_000) if isinstance(fact, QueueChanged)]
    published = first or [publish.fact for publish in world.published if isinstance(publish.fact, QueueChanged)]
    assert [(fact.waiting, fact.jobs, fact.partition, fact.partitions) for fact in published] == [(2, 1, 1, 4)]
    again = [fact for fact in world.at(world.now_ms + 130_000) if isinstance(fact, QueueChanged)]
    assert [fact.waiting for fact in again] == [2, 2]
    alone = JobsWorld()
    alone.submit(a_spec(a_task(replicas=2)))
    alone.at(alone.now_ms + 1_000)
    assert not [fact for fact in alone.at(alone.now_ms + 130_000) if isinstance(fact, QueueChanged)]


def test_how_many_of_another_partition_come_before_a_turn() -> None:
    here, there = a_world(), JobsWorld(share=Share(2, 4))
    here.submit(a_spec(a_task(replicas=2), priority=5), job=OWN)
    here.submit(a_spec(a_task(replicas=1)), job=a_job_of(1, 1))
    there.now_ms += 500
    there.submit(a_spec(a_task(replicas=1)), job=OTHERS)
    wait = there.ask(ExplainWait(job=OTHERS))
    assert (wait.ahead, wait.turn) == (0, (0, there.now_ms, OTHERS, 0))
    others = here.ask(ExplainWait(job=OTHERS, partition=1, turn=wait.turn, queue=wait.queue))
    assert (others.ahead, others.ahead_in_queue) == (3, 3)
    assert here.ask(ExplainWait(job=OTHERS, partition=1, turn=wait.turn, queue="night")).ahead_in_queue == 0


def test_each_partition_keeps_its_part_of_the_ended_jobs() -> None:
    policy = JobsPolicy(retention=RetentionPolicy(max_ended_jobs=10, max_ended_replicas=3, ended_ms=77))
    part = RetentionPolicy(max_ended_jobs=2, max_ended_replicas=1, ended_ms=77)
    assert a_world(policy).core.policy.retention == part
    assert JobsWorld(policy).core.policy.retention == policy.retention


def test_each_partition_forgets_its_own_ended_jobs_after_the_same_time() -> None:
    policy = JobsPolicy(retention=RetentionPolicy(ended_ms=60_000))
    for partition in (0, 1):
        world = JobsWorld(policy, Share(partition=partition, partitions=4))
        job = a_job_of(partition)
        world.submit(job=job)
        world.cancel(job)
        world.now_ms += 59_999
        world.restart()
        assert list(world.core.index.jobs) == [job]
        world.at(world.now_ms + 1)
        assert (world.core.index.jobs, world.rows) == ({}, {})
