"""What the partitions of the jobs answer is put together, so that a reader sees one list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec import Struct, structs

from colo_common.events.fleet import (
    ListNodeReplicas,
    ListTenants,
    NodeReplicas,
    PlacedReplica,
    TenantList,
    TenantSummary,
)
from colo_common.events.requests import (
    GetJob,
    JobList,
    JobSummary,
    ListJobs,
    ListQueues,
    QueueList,
    QueueSummary,
    Refusal,
)
from colo_common.events.waiting import ExplainWait, JobWait
from colo_common.model.partition import partition_of
from colo_common.model.qos import PriorityBand, QosClass
from colo_gateway.whole import whole

PARTS = 3
AWAY = Refusal(code=503, field="jobs", rule="does not answer now")


def asked(question: Any, answers: Mapping[int, Struct] | Callable[[Any], Struct]) -> tuple[Any, list[Any]]:
    """The whole answer, and what was asked beyond the first question."""
    asked_for: list[Any] = []

    def of(one: Any) -> Struct:
        answer = answers(one) if callable(answers) else answers[one.partition]
        return structs.replace(answer, partitions=PARTS)

    async def ask(one: Any) -> Struct:
        asked_for.append(one)
        return of(one)

    return asyncio.run(whole(ask, question, of(question))), asked_for


def a_job(id_: str, submitted_at_ms: int) -> JobSummary:
    return JobSummary(
        job=id_,
        name=id_,
        queue="default",
        state="Running",
        replicas=1,
        waiting=0,
        running=1,
        succeeded=0,
        failed=0,
        stopped=0,
        submitted_at_ms=submitted_at_ms,
    )


def jobs_of(stored: Mapping[int, list[JobSummary]], page: int) -> Callable[[ListJobs], Struct]:
    """Partitions that answer as the jobs service does, at most `page` jobs at a time."""

    def answer(question: ListJobs) -> Struct:
        own = sorted(stored[question.partition], key=lambda job: (job.submitted_at_ms, job.job), reverse=True)
        rest = own
        if question.cursor:
            moment, _, name = question.cursor.partition(":")
            rest = [job for job in own if (job.submitted_at_ms, job.job) < (int(moment), name)]
        shown = tuple(rest[: min(page, question.limit)])
        following = f"{shown[-1].submitted_at_ms}:{shown[-1].job}" if len(shown) < len(rest) else ""
        return JobList(jobs=shown, total=len(own), next=following)

    return answer


@pytest.mark.parametrize("page", [1, 2, 100])
@pytest.mark.parametrize("limit", [1, 4, 100])
def test_pages_of_jobs_are_newest_first_and_leave_nothing_out(page: int, limit: int) -> None:
    stored = {
        0: [a_job("a", 10), a_job("d", 40), a_job("g", 70)],
        1: [],
        2: [a_job("b", 10), a_job("c", 35), a_job("e", 41), a_job("f", 42)],
    }
    found: list[str] = []
    cursor = ""
    for _ in range(20):
        answer, _ = asked(ListJobs(limit=limit, cursor=cursor), jobs_of(stored, page))
        assert isinstance(answer, JobList)
        assert (answer.total, answer.partitions) == (7, PARTS)
        assert 1 <= len(answer.jobs) <= limit
        found += [job.job for job in answer.jobs]
        cursor = answer.next
        if not cursor:
            break
    assert found == ["g", "f", "e", "d", "c", "b", "a"]


def test_what_one_partition_lacks_another_may_have() -> None:
    lacks = Refusal(code=404, field="tenant", rule="there is no such tenant")
    found, _ = asked(ListJobs(tenant="ml"), {0: lacks, 1: JobList(jobs=(a_job("a", 1),), total=1), 2: lacks})
    assert [job.job for job in found.jobs] == ["a"]
    found, _ = asked(ListJobs(tenant="ml"), dict.fromkeys(range(PARTS), lacks))
    assert isinstance(found, Refusal)
    assert found.code == 404
    found, _ = asked(ListJobs(), {0: JobList(jobs=(), total=0), 1: AWAY, 2: lacks})
    assert isinstance(found, Refusal)
    assert found.code == 503


def a_queue(name: str, **counts: int) -> QueueSummary:
    return QueueSummary(queue=name, **{"waiting": 0, "running": 0, "capacity": 100, **counts})


def test_the_counts_of_a_queue_are_summed_and_its_limit_is_not() -> None:
    answers = {
        0: QueueList(queues=(a_queue("default", waiting=3, jobs=1, oldest_wait_ms=5_000), a_queue("night")), total=2),
        1: QueueList(queues=(a_queue("default", waiting=4, running=2, jobs=2, oldest_wait_ms=9_000),), total=1),
        2: QueueList(queues=(a_queue("default", held_cpu_mcpu=700), a_queue("night", running=1)), total=2),
    }
    found, _ = asked(ListQueues(), answers)
    assert found.queues == (
        a_queue("default", waiting=7, running=2, jobs=3, oldest_wait_ms=9_000, held_cpu_mcpu=700),
        a_queue("night", running=1),
    )
    assert (found.total, found.next, found.partitions) == (2, "", PARTS)
    first, _ = asked(ListQueues(limit=1), answers)
    assert [queue.queue for queue in first.queues] == ["default"]
    second, _ = asked(ListQueues(limit=1, cursor=first.next), answers)
    assert ([queue.queue for queue in second.queues], second.next) == (["night"], "")
    refused, _ = asked(ListQueues(cursor="nonsense"), answers)
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.field) == (400, "cursor")


def a_tenant(name: str, held_cpu_mcpu: int, *queues: str) -> TenantSummary:
    return TenantSummary(
        tenant=name,
        jobs=1,
        waiting=0,
        running=0,
        held_cpu_mcpu=held_cpu_mcpu,
        held_memory_bytes=1,
        waiting_cpu_mcpu=0,
        waiting_memory_bytes=0,
        queues=queues,
    )


def test_tenants_are_ordered_by_what_they_hold_in_all_partitions_and_every_page_of_each_is_read() -> None:
    pages = {
        (0, ""): TenantList(tenants=(a_tenant("a", 500, "default"),), total=2, next="1:a"),
        (0, "1:a"): TenantList(tenants=(a_tenant("b", 400, "default"),), total=2),
        (1, ""): TenantList(tenants=(a_tenant("b", 300, "night"),), total=1),
        (2, ""): TenantList(tenants=(), total=0),
    }
    found, questions = asked(ListTenants(), lambda question: pages[question.partition, question.cursor])
    assert [(each.tenant, each.held_cpu_mcpu, each.jobs, each.queues) for each in found.tenants] == [
        ("b", 700, 2, ("default", "night")),
        ("a", 500, 1, ("default",)),
    ]
    assert len(questions) == 4


def a_replica(name: str) -> PlacedReplica:
    return PlacedReplica(
        replica=name,
        attempt=1,
        state="Running",
        queue="default",
        tenant="default",
        qos=QosClass.BE,
        band=PriorityBand.BATCH,
        cpu_mcpu=1,
        memory_bytes=1,
    )


def test_the_replicas_of_a_node_are_those_of_all_jobs_by_name() -> None:
    answers = {
        # An instance of an earlier version, which knows no pages.
        0: NodeReplicas(replicas=(a_replica("b/t/0"),), total=1_500, now_ms=7),
        1: NodeReplicas(replicas=(), total=0, now_ms=9),
        2: NodeReplicas(replicas=(a_replica("a/t/0"), a_replica("c/t/0")), total=2, now_ms=8),
    }
    found, _ = asked(ListNodeReplicas(node="n1"), answers)
    assert [each.replica for each in found.replicas] == ["a/t/0", "b/t/0", "c/t/0"]
    assert (found.total, found.now_ms, found.next) == (1_502, 9, "")


def test_the_replicas_of_a_node_come_in_pages_of_all_partitions() -> None:
    pages = {
        (0, ""): NodeReplicas(replicas=(a_replica("b/t/0"),), total=2, next="1:b/t/0"),
        (0, "1:b/t/0"): NodeReplicas(replicas=(a_replica("d/t/0"),), total=2),
        (1, ""): NodeReplicas(replicas=(a_replica("c/t/0"),), total=1),
        (2, ""): NodeReplicas(replicas=(a_replica("a/t/0"),), total=1),
    }
    shown: list[str] = []
    cursor = ""
    for _ in range(2):
        question = ListNodeReplicas(node="n1", limit=3, cursor=cursor)
        found, _ = asked(question, lambda one: pages[one.partition, one.cursor if one.limit == 0 else ""])
        assert found.total == 4
        shown += [each.replica for each in found.replicas]
        cursor = found.next
    assert (shown, cursor) == (["a/t/0", "b/t/0", "c/t/0", "d/t/0"], "")
    refused, _ = asked(ListNodeReplicas(node="n1", cursor="x"), lambda one: pages[one.partition, one.cursor.strip("x")])
    assert (refused.code, refused.field) == (400, "cursor")


def test_who_waits_is_behind_the_jobs_of_all_partitions() -> None:
    turn = (0, 5, "j", 0)
    own = JobWait(job="j", replica="j/t/0", waiting=1, queue="night", ahead=2, ahead_in_queue=1, turn=turn)

    def answer(question: ExplainWait) -> Struct:
        if question.turn is None:
            return own
        assert (question.turn, question.queue) == (turn, "night")
        return JobWait(job="j", ahead=10, ahead_in_queue=3)

    found, questions = asked(ExplainWait(job="j"), answer)
    assert (found.ahead, found.ahead_in_queue) == (22, 7)
    assert sorted(question.partition for question in questions) == [
        each for each in range(PARTS) if each != partition_of("j", PARTS)
    ]
    # Nothing waits, so nothing is ahead of it.
    done, questions = asked(ExplainWait(job="j"), lambda _: JobWait(job="j"))
    assert (done.ahead, questions) == (0, [])


def test_where_the_jobs_are_not_divided_nobody_else_is_asked() -> None:
    async def ask(question: Struct) -> Struct:
        raise AssertionError(question)

    for question, first in (
        (ListJobs(), JobList(jobs=(), total=0)),
        (ListQueues(), QueueList(queues=())),
        (GetJob(job="j"), AWAY),
    ):
        assert asyncio.run(whole(ask, question, first)) is first
