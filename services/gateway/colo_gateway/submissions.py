"""The HTTP routes that take a job file: submit it, or plan it."""

import secrets
import time
from typing import Any

from aiohttp import web
from msgspec import Struct, structs

from colo_common.events import requests as rq
from colo_common.events.trace import placement_trace, trace_of
from colo_common.model.invalid import InvalidInput
from colo_common.model.job_file import JobRead, read_job
from colo_common.model.nearest import hint
from colo_common.model.partition import partition_of
from colo_common.model.submission import (
    KEY_MOST,
    UNFINISHED,
    CheckIndex,
    job_ids,
    jobs_index,
    key_digest,
    parse_check_index,
    spec_index,
)
from colo_common.model.workload import JobSpec
from colo_common.runtime.telemetry import Telemetry
from colo_gateway.ask import Asker
from colo_gateway.body import BODY_BYTES_MAX, TooLarge, read_mapping
from colo_gateway.door.door import note_tenant, principal_of
from colo_gateway.job_diff import compare
from colo_gateway.queue_list import all_queues
from colo_gateway.replies import PlanReply, Submitted
from colo_gateway.responses import answer_of, integer_of, invalid_of, json_of, problem_of

__all__ = ["SubmissionRoutes"]

_CHECK_INDEX = "Check-Index"


class SubmissionRoutes:
    """The handlers of POST /v1/jobs and POST /v1/plan."""

    def __init__(self, asker: Asker, telemetry: Telemetry, trace_ratio: float) -> None:
        self._asker = asker
        self._telemetry = telemetry
        self._trace_ratio = trace_ratio

    def routes(self) -> list[web.RouteDef]:
        """Both routes, for the aiohttp application."""
        return [web.post("/v1/jobs", self.submit), web.post("/v1/plan", self.plan)]

    async def submit(self, request: web.Request) -> web.Response:
        """POST /v1/jobs."""
        start_us = time.time_ns() // 1000
        try:
            read = _read(await read_mapping(request), principal_of(request).only_tenant)
            key = request.headers.get("Idempotency-Key", "")
            if len(key) > KEY_MOST:
                raise InvalidInput("Idempotency-Key", f"must have at most {KEY_MOST} characters", key)
            given = request.headers.get(_CHECK_INDEX)
            check = None if given is None else parse_check_index(given, _CHECK_INDEX)
        except InvalidInput as error:
            return invalid_of(error)
        except TooLarge:
            return problem_of(413, "body", f"must have at most {BODY_BYTES_MAX} bytes")
        spec = read.spec
        note_tenant(request, spec.tenant)
        refused_here = principal_of(request).refusal_of_job(spec.tenant, spec.queue)
        if refused_here is not None:
            return answer_of(refused_here)
        key = key or secrets.token_hex(16)
        digest = key_digest(key, spec.tenant)
        for job in job_ids(spec.name, key, spec.tenant):
            refusal = None if check is None else await self._moved(job, spec, check)
            if refusal is not None:
                return answer_of(refusal)
            jobs = None if check is None else await self._index_of_part(job, spec, check.jobs)
            if isinstance(jobs, Struct):
                return answer_of(jobs)
            # The submission has its own trace. The trace of each later placement is another one and carries this one's id.
            own = placement_trace(job, 0, self._trace_ratio)
            answer = await self._asker.ask(rq.SubmitJob(job=job, spec=spec, jobs_index=jobs, key=digest), own)
            if not (isinstance(answer, rq.Refusal) and answer.field == rq.KEY_TAKEN):
                break
        refused = str(answer) if isinstance(answer, rq.Refusal) else ""
        end_us = time.time_ns() // 1000
        attributes = {"colo.job": job, "colo.queue": spec.queue, "colo.replicas": str(spec.replica_count)}
        caller = trace_of(request.headers.get("traceparent", ""))
        if caller:
            attributes["colo.caller_trace"] = caller
        self._telemetry.root(
            "submit", traceparent=own, start_us=start_us, end_us=end_us, attributes=attributes, error=refused
        )
        if isinstance(answer, rq.JobAccepted):
            accepted = Submitted(job=answer.job, state=answer.state, version=answer.version, notes=read.notes)
            return json_of(accepted, 201)
        return answer_of(answer)

    async def _moved(self, job: str, spec: JobSpec, check: CheckIndex) -> Struct | None:
        """Why the plan no longer holds, None when it does. A submission that was accepted before is not checked again."""
        known = await self._asker.ask(rq.GetJob(job=job))
        if isinstance(known, rq.JobDetail) or not check.spec:
            return None
        if spec_index(spec) != check.spec:
            return _stale("the job file is not the one that was planned", str(check))
        planned = await self._asker.ask(rq.PlanJob(spec=spec, most=0))
        if not isinstance(planned, rq.JobPlanned):
            return planned
        if planned.placed < check.placed:
            now = f"{planned.placed} of {planned.replicas} replicas fit now, {check.placed} did when it was planned"
            return _stale(now, str(check))
        return None

    async def _index_of_part(self, job: str, spec: JobSpec, seen: str) -> str | Struct:
        """The index of the unfinished jobs of the name that the job's partition can check, or why the plan no longer holds.

        It is the one that was `seen` where the jobs are not divided. Else that is compared here, and only what comes within the
        partition afterwards is noticed at the moment of the submission.
        """
        named = rq.ListJobs(name=spec.name, tenants=(spec.tenant,), states=UNFINISHED, limit=1)
        all_named = await self._asker.ask(named)
        if not isinstance(all_named, rq.JobList):
            return all_named
        if all_named.partitions == 1:
            return seen
        if _index_of(all_named) != seen:
            return _stale("a job of this name came or ended since the plan", seen)
        part = await self._asker.ask_part(structs.replace(named, partition=partition_of(job, all_named.partitions)))
        return _index_of(part) if isinstance(part, rq.JobList) else part

    async def plan(self, request: web.Request) -> web.Response:
        """POST /v1/plan. An unknown queue is refused with the same rule as in a submission."""
        try:
            read = _read(await read_mapping(request), principal_of(request).only_tenant)
            most = integer_of(request.query, "places", 100, 0, 1000)
        except InvalidInput as error:
            return invalid_of(error)
        except TooLarge:
            return problem_of(413, "body", f"must have at most {BODY_BYTES_MAX} bytes")
        refused_here = principal_of(request).refusal_of_job(read.spec.tenant, read.spec.queue)
        if refused_here is not None:
            return answer_of(refused_here)
        queues = await all_queues(self._asker)
        if not isinstance(queues, rq.QueueList):
            return answer_of(queues)
        names = sorted(queue.queue for queue in queues.queues)
        if read.spec.queue not in names:
            rule = f"there is no such queue; {hint(read.spec.queue, names, 'queues')}"
            return problem_of(400, "queue", rule, read.spec.queue)
        # The jobs are read before the nodes: what comes in between makes the index too old, never too new.
        named = await self._asker.ask(
            rq.ListJobs(name=read.spec.name, tenants=(read.spec.tenant,), states=UNFINISHED, limit=1)
        )
        if not isinstance(named, rq.JobList):
            return answer_of(named)
        planned = await self._asker.ask(rq.PlanJob(spec=read.spec, most=most))
        if not isinstance(planned, rq.JobPlanned):
            return answer_of(planned)
        return await self._planned(read, planned, named)

    async def _planned(self, read: JobRead, planned: rq.JobPlanned, named: rq.JobList) -> web.Response:
        newest = named.jobs[0].job if named.jobs else ""
        index = CheckIndex(spec_index(read.spec), _index_of(named), planned.placed)
        detail = await self._asker.ask(rq.GetJob(job=newest)) if newest else None
        running = compare(detail, read.spec, named.total - 1) if isinstance(detail, rq.JobDetail) else None
        fields = {name: getattr(planned, name) for name in structs.asdict(planned)}
        return json_of(PlanReply(**fields, check_index=str(index), running=running, notes=read.notes))


def _read(mapping: dict[str, Any], tenant: str) -> JobRead:
    """The job of a sender who is for one `tenant` ("": for none or several): a file that names no tenant means that one."""
    read = read_job(mapping)
    return read._replace(spec=structs.replace(read.spec, tenant=tenant)) if tenant and "tenant" not in mapping else read


def _index_of(named: rq.JobList) -> str:
    return jobs_index(named.total, named.jobs[0].job if named.jobs else "")


def _stale(why: str, got: str) -> rq.Refusal:
    return rq.Refusal(code=409, field="check index", rule=f"{why}; nothing was submitted, plan it again", got=got)
