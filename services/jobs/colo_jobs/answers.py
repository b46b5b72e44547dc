"""Answers the requests of the jobs service. Only submissions and cancellations change jobs."""

from collections import deque
from typing import Final, NamedTuple

from msgspec import Struct, structs

from colo_common.events.effects import Publish, RequestReceived
from colo_common.events.fleet import ListNodeReplicas, ListTenants
from colo_common.events.job import JobSubmitted
from colo_common.events.requests import (
    KEY_TAKEN,
    CancelJob,
    GetJob,
    JobAccepted,
    ListJobs,
    ListQueues,
    PendingReplicas,
    Refusal,
    SubmitJob,
)
from colo_common.events.started import StartedReplicas
from colo_common.events.trace import trace_of
from colo_common.events.waiting import ExplainWait
from colo_common.model.invalid import InvalidInput
from colo_common.model.job_rules import check_job_id, check_name, validate_spec
from colo_common.model.nearest import hint
from colo_common.model.submission import jobs_index
from colo_common.model.workload import JobSpec
from colo_jobs.admission import quota_refusal
from colo_jobs.completion import cancel
from colo_jobs.index import Index
from colo_jobs.job import Job
from colo_jobs.placement_requests import Snapshot
from colo_jobs.places import placed_of
from colo_jobs.policy import JobsPolicy
from colo_jobs.queries import get_job, list_jobs, list_queues, no_such_job, started_of
from colo_jobs.queues_elsewhere import QueuesElsewhere
from colo_jobs.records import encode
from colo_jobs.transaction import Counters, JobTransaction
from colo_jobs.use import list_tenants, on_node
from colo_jobs.wait_position import explain_wait
from colo_jobs.waits import Waits

__all__ = ["AcceptedRequest", "Answers", "accepted"]

# A job's specification travels in one message, which may be 1 MiB with its envelope.
_SPEC_MAX_BYTES: Final = 768 << 10
#: The number of valid specifications that are remembered, and the most tasks of one.
_KINDS: Final = 16
_KIND_TASKS: Final = 4


class _Rules:
    """Checks specifications. Of one that differs from a remembered valid one by its name alone, only the name is checked."""

    def __init__(self) -> None:
        self._good: deque[JobSpec] = deque(maxlen=_KINDS)

    def check(self, spec: JobSpec) -> None:
        """Raise InvalidInput as `validate_spec` does."""
        kind = structs.replace(spec, name="")
        if kind in self._good:
            check_name(spec.name, "name")
            return
        validate_spec(spec)
        if len(spec.tasks) <= _KIND_TASKS:
            self._good.append(kind)


class AcceptedRequest(NamedTuple):
    """A request that changes a job: the txn to record, and the messages about the request itself."""

    txn: JobTransaction
    messages: list[Publish]


class Answers:
    """Answers requests from the index. A submission adds its job to the index."""

    def __init__(
        self, policy: JobsPolicy, index: Index, counters: Counters, waits: Waits, elsewhere: QueuesElsewhere
    ) -> None:
        self._policy = policy
        self._index = index
        self._counters = counters
        self._waits = waits
        self._elsewhere = elsewhere
        self._snapshot = Snapshot()
        self._rules = _Rules()

    def answer(self, request: RequestReceived, now_ms: int) -> AcceptedRequest | Struct:
        """What a request that changes a job leads to, whose reply is `accepted` once it is recorded; else the body of the reply."""
        match request.body:
            case SubmitJob() as body:
                return self._submit(request, body, now_ms)
            case CancelJob(job=job):
                return self._cancel(job, now_ms)
            case _:
                return self._of_part(self._read(request.body, now_ms))

    def _of_part(self, reply: Struct) -> Struct:
        """The reply, which says that it is of one partition of so many."""
        partitions = self._elsewhere.partitions
        is_part = partitions > 1 and "partitions" in reply.__struct_fields__
        return structs.replace(reply, partitions=partitions) if is_part else reply

    def _read(self, body: Struct, now_ms: int) -> Struct:
        match body:
            case GetJob():
                return get_job(self._index, body)
            case ListJobs():
                return list_jobs(self._index, body)
            case ListQueues() as asked:
                return list_queues(self._index, asked, now_ms)
            case ListTenants() as asked_tenants:
                return list_tenants(self._index, asked_tenants)
            case ListNodeReplicas():
                return on_node(self._index, body, now_ms)
            case PendingReplicas(offset=offset, limit=limit):
                if offset < 0 or limit < 1:
                    return Refusal(code=400, field="offset", rule="offset is at least 0 and limit at least 1")
                if body.placed_after is not None:
                    return placed_of(self._index, body, body.placed_after, self._policy.trace_ratio, now_ms)
                waiting = tuple(self._index.pending()) if offset == 0 else ()
                return self._snapshot.page(body, waiting, self._policy.trace_ratio, now_ms)
            case ExplainWait():
                return explain_wait(self._index, self._waits, body, now_ms)
            case StartedReplicas():
                return started_of(self._index, body)
            case _:
                return Refusal(code=404, field="request", rule="is not answered here", got=type(body).__name__)

    def _submit(self, request: RequestReceived, body: SubmitJob, now_ms: int) -> AcceptedRequest | Struct:
        known = self._index.jobs.get(body.job)
        if body.job in self._index.unreadable:
            return no_such_job(self._index, body.job)
        if known is not None and body.key and known.record.key and body.key != known.record.key:
            return Refusal(code=409, field=KEY_TAKEN, rule="a job of another key has this id", got=body.job)
        if known is not None and known.spec == body.spec:
            return accepted(known)
        if body.jobs_index is not None and (moved := self._moved(body.spec, body.jobs_index)) is not None:
            return moved
        checked = self._checked(body.job, body.spec)
        if isinstance(checked, Refusal):
            self._counters.queue_full += checked.code == 429
            return checked
        job = Job.new(body.job, body.spec, now_ms, trace_of(request.traceparent), body.key)
        txn = JobTransaction(job, now_ms, self._counters, self._policy.retry)
        txn.spec_value = checked
        txn.add_story_line(f"submitted: {_counted(job.size, 'replica')} in {_counted(len(job.spec.tasks), 'task')}")
        txn.fire_job("admit")
        txn.requested.extend(range(job.size))
        self._index.attach(job)
        self._counters.submitted += 1
        submitted = JobSubmitted(at_ms=now_ms, job=job.id, spec=job.spec)
        return AcceptedRequest(
            txn, [Publish(fact=submitted, id=f"jobs:submitted:{job.id}", traceparent=request.traceparent)]
        )

    def _moved(self, spec: JobSpec, seen: str) -> Refusal | None:
        """The refusal of a submission whose sender saw other unfinished jobs of the name. A name is its tenant's."""
        named = [
            job
            for job in self._index.jobs.values()
            if job.spec.name == spec.name and job.spec.tenant == spec.tenant and not job.is_ended
        ]
        newest = max(named, key=lambda job: (job.record.submitted_at_ms, job.id), default=None)
        if jobs_index(len(named), newest.id if newest is not None else "") == seen:
            return None
        now = f"now {newest.id} is {newest.record.state}" if newest is not None else "now none is unfinished"
        rule = f"a job of this name came or ended since the plan, {now}; nothing was submitted, plan it again"
        return Refusal(code=409, field="check index", rule=rule, got=seen)

    def _checked(self, job: str, spec: JobSpec) -> Refusal | bytes:
        """The refusal of the job, or its encoded specification for the store."""
        try:
            check_job_id(job)
            self._rules.check(spec)
        except InvalidInput as error:
            return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
        size_bytes = len(value := encode(spec))
        if size_bytes > _SPEC_MAX_BYTES:
            rule = f"must be at most {_SPEC_MAX_BYTES >> 10} KiB as JSON"
            return Refusal(code=400, field="spec", rule=rule, got=str(size_bytes))
        if job in self._index.jobs:
            return Refusal(code=409, field="job", rule="another job has this id", got=job)
        queue = self._index.queues.get(spec.queue)
        if queue is None or spec.queue not in self._policy.queues:
            rule = f"there is no such queue; {hint(spec.queue, sorted(self._policy.queues), 'queues')}"
            return Refusal(code=400, field="queue", rule=rule, got=spec.queue)
        return quota_refusal(queue, spec.replica_count, *self._elsewhere.of(spec.queue)) or value

    def _cancel(self, id_: str, now_ms: int) -> AcceptedRequest | Refusal:
        job = self._index.jobs.get(id_)
        if job is None:
            return no_such_job(self._index, id_)
        if job.is_ended:
            rule = f"the job has ended already: {job.record.state}"
            return Refusal(code=409, field="job", rule=rule, got=id_)
        txn = JobTransaction(job, now_ms, self._counters, self._policy.retry)
        cancel(txn)
        return AcceptedRequest(txn, [])


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def accepted(job: Job) -> JobAccepted:
    """The body of the reply to a request that was taken: the job's state and version as they are now."""
    return JobAccepted(job=job.id, state=job.record.state, version=job.version)
