"""The replies to requests that read jobs, queues and attempts."""

from heapq import nlargest
from typing import Final

from msgspec import structs

from colo_common.events.requests import (
    GetJob,
    JobDetail,
    JobList,
    JobSummary,
    ListJobs,
    ListQueues,
    QueueList,
    QueueSummary,
    Refusal,
    ReplicaDetail,
)
from colo_common.events.started import StartedReplicas, StartedReply
from colo_common.events.trace import placement_trace, trace_of
from colo_common.model.invalid import InvalidInput
from colo_common.model.lifecycle import JOB, REPLICA
from colo_common.model.nearest import hint
from colo_common.model.paging import cut_to_page, json_bytes, limit_of, page_of
from colo_common.model.plain_values import name_among
from colo_jobs.index import Index
from colo_jobs.job import HOLDING, WAITING, Job
from colo_jobs.use import Use, use_by_queue

__all__ = ["get_job", "list_jobs", "list_queues", "started_of", "summary_of"]

LIST_MAX: Final = 1_000
_CURSOR_MOST: Final = 128
# Live and failed ones are shown first.
REPLICAS_SHOWN_MAX: Final = 2_000
# What a page of replicas and the job itself have together: a message carries 1 MiB, and a specification has up to 768 KiB.
_DETAIL_BYTES: Final = 900 << 10
STARTED_MAX: Final = 1_000
_NO_USE: Final = Use()
# States of an attempt that has ended, and of one that no node has started.
_OVER: Final = frozenset(REPLICA.terminal) | {"Backoff"}
_BEFORE_START: Final = frozenset({"Pending", "Assigned", "Starting"})


def get_job(index: Index, request: GetJob) -> JobDetail | Refusal:
    """One job with its story and a page of its replicas.

    A Refusal for an unknown job (404), one whose rows cannot be read here (409), and for what is no cursor (400).
    """
    job = index.jobs.get(request.job)
    if job is None:
        return no_such_job(index, request.job)
    detail = JobDetail(
        summary=summary_of(job), spec=job.spec, version=job.version, replicas=(), story=job.story_lines()
    )
    if request.replica:
        only = [index for index in range(job.size) if job.name(index) == request.replica]
        return structs.replace(detail, replicas=tuple(_replica(job, index) for index in only))
    most = min(request.limit, REPLICAS_SHOWN_MAX) if request.limit > 0 else REPLICAS_SHOWN_MAX
    indices: dict[str, int] = {}

    def replica(index: int) -> ReplicaDetail:
        shown = _replica(job, index)
        indices[shown.replica] = index
        return shown

    try:
        page, following = page_of(
            _ranked(job), job.name, replica, request.cursor, most, _DETAIL_BYTES - json_bytes(detail)
        )
    except InvalidInput as error:
        return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
    return structs.replace(detail, replicas=tuple(sorted(page, key=lambda each: indices[each.replica])), next=following)


def list_jobs(index: Index, request: ListJobs) -> JobList | Refusal:
    """A page of the jobs that match the request, newest first; `total` counts all that match.

    Its cursor is "<moment of submission>:<id>" of its last job, so that jobs submitted meanwhile shift nothing.
    """
    if not 1 <= request.limit <= LIST_MAX:
        return Refusal(code=400, field="limit", rule=f"must be from 1 to {LIST_MAX}", got=str(request.limit))
    try:
        states = {name_among(state, JOB.state_names, "states") for state in request.states}
        before = _before(request.cursor)
    except InvalidInput as error:
        return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
    jobs = index.jobs.values()
    tenants = {job.spec.tenant for job in jobs} if request.tenant else set()
    if request.tenants:
        tenants &= set(request.tenants)
    for field, given, known in (("queue", request.queue, index.queues), ("tenant", request.tenant, tenants)):
        if given and given not in known:
            rule = f"there is no such {field}; {hint(given, sorted(known), f'{field}s')}".rstrip("; ")
            return Refusal(code=404, field=field, rule=rule, got=given[:80])
    found = [
        job
        for job in jobs
        if (not states or job.record.state in states)
        and (not request.queue or job.spec.queue == request.queue)
        and (not request.tenant or job.spec.tenant == request.tenant)
        and (not request.tenants or job.spec.tenant in request.tenants)
        and (not request.queues or job.spec.queue in request.queues)
        and (not request.name or job.spec.name == request.name)
        and job.id.startswith(request.prefix)
    ]
    rest = found if before is None else [job for job in found if _age_key(job) < before]
    page = cut_to_page(nlargest(request.limit, rest, key=_age_key), summary_of, request.limit)
    last = index.jobs[page[-1].job] if page and len(page) < len(rest) else None
    following = "" if last is None else f"{last.record.submitted_at_ms}:{last.id}"
    return JobList(jobs=page, total=len(found), next=following)


def _age_key(job: Job) -> tuple[int, str]:
    return job.record.submitted_at_ms, job.id


def _before(cursor: str) -> tuple[int, str] | None:
    """The job that the page follows; None for the first page. Raises InvalidInput for what is no cursor."""
    if not cursor:
        return None
    moment, colon, job = cursor.partition(":")
    if not (colon and job and moment.isdigit()) or len(cursor) > _CURSOR_MOST:
        raise InvalidInput("cursor", "must be the `next` of the page before", cursor[:80])
    return int(moment), job


def list_queues(index: Index, request: ListQueues, now_ms: int) -> QueueList | Refusal:
    """A page of the queues by name, each with the wait of its oldest waiting replica."""
    oldest: dict[str, int] = {}
    not_found = {name for name, queue in index.queues.items() if queue.waiting}
    for job, number in index.pending():
        if not not_found:
            break
        if job.spec.queue in not_found:
            oldest[job.spec.queue] = job.waits_since_ms(number)
            not_found.discard(job.spec.queue)
    used = use_by_queue(index.jobs.values())

    def summary(name: str) -> QueueSummary:
        queue, use = index.queues[name], used.get(name, _NO_USE)
        return QueueSummary(
            queue=name,
            waiting=queue.waiting,
            running=queue.running,
            capacity=queue.limits.max_waiting,
            oldest_wait_ms=max(now_ms - oldest.get(name, now_ms), 0),
            jobs=queue.jobs,
            held_cpu_mcpu=use.held_cpu_mcpu,
            held_memory_bytes=use.held_memory_bytes,
            waiting_cpu_mcpu=use.waiting_cpu_mcpu,
            waiting_memory_bytes=use.waiting_memory_bytes,
            online_cpu_mcpu=use.online_cpu_mcpu,
            online_memory_bytes=use.online_memory_bytes,
            mid_cpu_mcpu=use.mid_cpu_mcpu,
            mid_memory_bytes=use.mid_memory_bytes,
        )

    names = sorted(index.queues)
    try:
        page, following = page_of(names, str, summary, request.cursor, limit_of(request.limit))
    except InvalidInput as error:
        return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
    return QueueList(queues=page, total=len(names), next=following)


def started_of(index: Index, request: StartedReplicas) -> StartedReply | Refusal:
    """The state of the requested attempts. An unknown or malformed replica id is in none of the reply's lists."""
    if not 1 <= len(request.attempts) <= STARTED_MAX:
        rule = f"must be 1 to {STARTED_MAX} attempts"
        return Refusal(code=400, field="attempts", rule=rule, got=str(len(request.attempts)))
    started: list[tuple[str, int]] = []
    over: list[tuple[str, int]] = []
    waiting: list[tuple[str, int]] = []
    for each in request.attempts:
        replica, attempt = each
        try:
            found = index.find(replica)
        except InvalidInput:
            # One malformed id in a scheduler's ledger must not hide the state of the others.
            continue
        if found is None:
            continue
        record = found[0].replica(found[1])
        if record.attempt > attempt or (record.attempt == attempt and record.state in _OVER):
            over.append(each)
        elif record.attempt == attempt and record.state not in _BEFORE_START:
            started.append(each)
        else:
            waiting.append(each)
    return StartedReply(started=tuple(started), over=tuple(over), waiting=tuple(waiting))


def summary_of(job: Job) -> JobSummary:
    """The job's counts. `running` replicas hold a place, `waiting` ones need a place now or after their retry wait."""
    return JobSummary(
        job=job.id,
        name=job.spec.name,
        queue=job.spec.queue,
        state=job.record.state,
        replicas=job.size,
        waiting=job.count(*WAITING),
        running=job.count(*HOLDING),
        succeeded=job.count("Succeeded"),
        failed=job.count("Failed"),
        stopped=job.count("Stopped"),
        submitted_at_ms=job.record.submitted_at_ms,
        ended_at_ms=job.record.ended_at_ms,
        tenant=job.spec.tenant,
    )


def no_such_job(index: Index, job: str) -> Refusal:
    """The refusal of a request about a job that is not among the index's: 404, or 409 where its rows cannot be read here."""
    if why := index.unreadable.get(job):
        return Refusal(code=409, field="job", rule=f"is stored in rows that cannot be read here: {why}", got=job)
    return Refusal(
        code=404, field="job", rule="there is no such job; ended ones are forgotten after a while", got=job[:80]
    )


def _ranked(job: Job) -> list[int]:
    """The numbers of the replicas, those first that are to be on the first page."""
    return sorted(range(job.size), key=lambda index: (_rank(job.replica(index).state), index))


def _rank(state: str) -> int:
    """The rank of a state among the pages of a job: failed, then placed, then waiting, then the rest."""
    if state == "Failed":
        return 0
    if state not in REPLICA.terminal:
        return 1 if state in HOLDING else 2
    return 3


def _replica(job: Job, index: int) -> ReplicaDetail:
    replica = job.replica(index)
    name = job.name(index)
    return ReplicaDetail(
        replica=name,
        attempt=replica.attempt,
        state=replica.state,
        node=replica.node,
        zones=replica.zones,
        retries=replica.retries,
        evictions=replica.evictions,
        exit_code=replica.exit_code,
        reason=job.notes.get(job.task_of(index), replica.reason) if replica.state == "Pending" else replica.reason,
        trace_id=trace_of(placement_trace(name, replica.attempt)),
    )
