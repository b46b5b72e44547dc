"""The HTTP API: every route sends a request to the owning service and returns its reply, or its Refusal as a Problem."""

import asyncio
import functools
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from colo_common.events import requests as rq
from colo_common.events.subjects import encode_node
from colo_common.events.waiting import ExplainWait, JobWait
from colo_common.model.invalid import InvalidInput
from colo_common.ports import Clock
from colo_common.runtime.telemetry import Telemetry
from colo_gateway.ask import Asker
from colo_gateway.audit_routes import AuditRoutes
from colo_gateway.core import GatewayCore
from colo_gateway.dead_letters import DeadLetterRoutes
from colo_gateway.door.door import principal_of, why_ended
from colo_gateway.eviction_account import account_of
from colo_gateway.explain import explain_replicas
from colo_gateway.external import ExternalRoutes
from colo_gateway.job_detail import ask_decisions, ask_job
from colo_gateway.openapi import openapi
from colo_gateway.policy.routes import PolicyRoutes
from colo_gateway.replies import JobExplained, VersionReply
from colo_gateway.reservations import ReservationRoutes
from colo_gateway.responses import answer_of, integer_of, invalid_of, json_of, names_of, problem_of
from colo_gateway.restrictions.routes import RestrictionRoutes
from colo_gateway.since import since_of
from colo_gateway.sse import stream_events
from colo_gateway.state import StateRoutes
from colo_gateway.story_routes import StoryRoutes
from colo_gateway.streams import Streams
from colo_gateway.submissions import SubmissionRoutes
from colo_gateway.trace_routes import TraceRoutes
from colo_gateway.wait import wait_of, wait_sentence

__all__ = ["Api", "refuse_as_problem"]

_JOB_ID_MAX: Final = 80
_REPLICAS_MAX: Final = 2_000
# Longer than any valid name, so cutting a query value here cannot make it match.
_NAME_MAX: Final = 256


class Api:
    """The handlers of all routes except those of submissions, reservations, restrictions and of the present state."""

    def __init__(
        self,
        *,
        asker: Asker,
        core: GatewayCore,
        streams: Streams,
        state: StateRoutes,
        dead_letters: DeadLetterRoutes,
        audit: AuditRoutes,
        telemetry: Telemetry,
        clock: Clock,
        clock_speed: float,
        version: str,
        trace_ratio: float,
    ) -> None:
        self._asker = asker
        self._core = core
        self._streams = streams
        self._state = state
        self._dead_letters = dead_letters
        self._audit = audit
        self._clock = clock
        self._clock_speed = clock_speed
        self._version = version
        self._submissions = SubmissionRoutes(asker, telemetry, trace_ratio)
        self._traces = TraceRoutes(asker, core.traces, trace_ratio)
        self._openapi = openapi(version)

    def routes(self) -> list[web.RouteDef]:
        """All routes of the API, for the aiohttp application."""
        return [
            *self._submissions.routes(),
            web.get("/v1/jobs", self.list_jobs),
            web.get("/v1/jobs/{job}", self.get_job),
            web.delete("/v1/jobs/{job}", self.cancel),
            web.get("/v1/jobs/{job}/explain", self.explain_job),
            *self._traces.routes(),
            *ReservationRoutes(self._asker).routes(),
            *RestrictionRoutes(self._asker).routes(),
            *ExternalRoutes(self._asker).routes(),
            *PolicyRoutes(self._asker).routes(),
            *self._state.routes(),
            *self._dead_letters.routes(),
            *self._audit.routes(),
            web.get("/v1/nodes/{node}/explain", self.explain_node),
            *StoryRoutes(self._core, self._clock, self._clock_speed).routes(),
            web.get("/v1/stream", self.stream),
            web.get("/v1/version", self.get_version),
            web.get("/v1/openapi.json", self.get_openapi),
        ]

    async def list_jobs(self, request: web.Request) -> web.Response:
        """GET /v1/jobs."""
        try:
            limit = integer_of(request.query, "limit", 100, 1, 1000)
        except InvalidInput as error:
            return invalid_of(error)
        states = names_of(request.query, "state")
        queue, name, prefix, tenant = (
            request.query.get(key, "")[:_NAME_MAX] for key in ("queue", "name", "prefix", "tenant")
        )
        who = principal_of(request)
        refusal = who.refusal_of_job(tenant, queue)
        if refusal is not None:
            return answer_of(refusal)
        question = rq.ListJobs(
            states=states,
            limit=limit,
            cursor=request.query.get("cursor", ""),
            queue=queue,
            name=name,
            prefix=prefix,
            tenant=tenant,
            tenants=who.seen_tenants,
            queues=who.seen_queues,
        )
        return answer_of(await self._asker.ask(question))

    async def get_job(self, request: web.Request) -> web.Response:
        """GET /v1/jobs/{job}."""
        try:
            limit = integer_of(request.query, "limit", _REPLICAS_MAX, 1, _REPLICAS_MAX)
        except InvalidInput as error:
            return invalid_of(error)
        job, cursor = request.match_info["job"][:_JOB_ID_MAX], request.query.get("cursor", "")
        return answer_of(await self._asker.ask(rq.GetJob(job=job, limit=limit, cursor=cursor)))

    async def cancel(self, request: web.Request) -> web.Response:
        """DELETE /v1/jobs/{job}."""
        return answer_of(await self._asker.ask(rq.CancelJob(job=request.match_info["job"][:_JOB_ID_MAX])))

    async def explain_job(self, request: web.Request) -> web.Response:
        """GET /v1/jobs/{job}/explain: the job from the jobs service, with the scheduler's decisions if the scheduler answers."""
        job = request.match_info["job"][:_JOB_ID_MAX]
        replica = request.query.get("replica", "")
        detail = await ask_job(self._asker, job, replica)
        if not isinstance(detail, rq.JobDetail):
            return answer_of(detail)
        if replica and all(item.replica != replica for item in detail.replicas):
            return problem_of(404, "replica", "is not one of the job's", replica)
        (decisions, partial), waited = await asyncio.gather(
            ask_decisions(self._asker, job, replica), self._asker.ask(ExplainWait(job=job))
        )
        wait = wait_of(waited, detail, decisions, self._core.restrictions) if isinstance(waited, JobWait) else None
        return json_of(
            JobExplained(
                job=detail,
                replicas=explain_replicas(detail, decisions, replica, self._core.restrictions),
                partial=partial,
                wait=wait,
                wait_sentence=wait_sentence(wait) if wait is not None else "",
                evictions=tuple(map(account_of, reversed(self._core.evictions.newest(job=job)))),
                now_ms=self._clock.now_ms(),
                clock_speed=self._clock_speed,
            )
        )

    async def explain_node(self, request: web.Request) -> web.Response:
        """GET /v1/nodes/{node}/explain."""
        node = request.match_info["node"]
        try:
            encode_node(node)
        except InvalidInput as error:
            return invalid_of(error)
        return answer_of(await self._asker.ask(rq.ExplainAllocatable(node=node)))

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/stream."""
        try:
            text = request.headers.get("Last-Event-ID") or request.query.get("since")
            since = None if text is None else since_of(text)
            stream = await stream_events(
                request,
                self._core.event_log,
                self._streams,
                since,
                now_ms=self._clock.now_ms(),
                speed=self._clock_speed,
                why_ended=functools.partial(why_ended, request),
            )
        except InvalidInput as error:
            return invalid_of(error)
        return stream if stream is not None else problem_of(503, "stream", "as many streams are open as there may be")

    async def get_version(self, request: web.Request) -> web.Response:
        """GET /v1/version."""
        del request
        return json_of(VersionReply(version=self._version, schema="v1"))

    async def get_openapi(self, request: web.Request) -> web.Response:
        """GET /v1/openapi.json."""
        del request
        return web.Response(body=msgspec.json.encode(self._openapi), content_type="application/json")


@web.middleware
async def refuse_as_problem(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn aiohttp's 404 (unknown path) and 405 (wrong method) into a Problem, as every other refusal."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return problem_of(404, "path", "is not served; /v1/openapi.json lists what is", request.path[:80])
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        refused = problem_of(405, "method", f"must be one of {allowed} here", request.method[:20])
        refused.headers["Allow"] = allowed
        return refused
