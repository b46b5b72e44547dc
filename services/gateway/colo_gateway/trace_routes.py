"""The HTTP route of a placement's trace. The gateway answers it from the spans that it has heard."""

import asyncio
from typing import Final

from aiohttp import web

from colo_common.events import requests as rq
from colo_common.events.service import SpanData
from colo_common.events.trace import placement_trace, trace_is_sampled, trace_of
from colo_gateway.ask import Asker
from colo_gateway.job_detail import ask_job
from colo_gateway.replies import JobTrace
from colo_gateway.responses import answer_of, json_of, problem_of
from colo_gateway.traces import Traces, newest_placement, span_tree

__all__ = ["TraceRoutes"]

_JOB_ID_MAX: Final = 80
#: What each service publishes last of a placement: jobs, the scheduler, the executor. Nobody waits for another's spans.
_STAGES: Final = frozenset(("submit", "commit", "apply"))
_SUBMITTED_AGAIN: Final = "requeue"
#: Services publish their spans twice a second, and a busy machine takes its time: three seconds.
_LOOKS: Final = 30
_LOOK_EVERY_S: Final = 0.1


class TraceRoutes:
    """The handler of the route; `ratio` is the share of placements whose spans are kept."""

    def __init__(self, asker: Asker, traces: Traces, ratio: float) -> None:
        self._asker = asker
        self._traces = traces
        self._ratio = ratio

    def routes(self) -> list[web.RouteDef]:
        """The route, for the aiohttp application."""
        return [web.get("/v1/jobs/{job}/trace", self.trace_job)]

    async def trace_job(self, request: web.Request) -> web.Response:
        """GET /v1/jobs/{job}/trace: the newest placement of which spans are kept.

        The spans of a placement that was just made are waited for, up to three seconds; then the answer has those that came.
        """
        asked = request.query.get("replica", "")
        detail = await ask_job(self._asker, request.match_info["job"][:_JOB_ID_MAX], asked)
        if not isinstance(detail, rq.JobDetail):
            return answer_of(detail)
        replica = asked or (detail.replicas[0].replica if detail.replicas else "")
        found = next((item for item in detail.replicas if item.replica == replica), None)
        if found is None:
            return problem_of(404, "replica", "is not one of the job's", replica)
        newest = placement_trace(replica, found.attempt, self._ratio)
        # What waits for a place has the span of its submission and gets no other before it has one.
        if trace_is_sampled(newest) and (found.node or not self._traces.spans(trace_of(newest))):
            await self._wait_for(trace_of(newest))
        attempt, spans = newest_placement(self._traces, replica, found.attempt, is_placed=bool(found.node))
        if spans:
            trace_id = trace_of(placement_trace(replica, attempt))
            return json_of(JobTrace(replica=replica, attempt=attempt, trace_id=trace_id, spans=span_tree(spans)))
        return problem_of(404, "trace", self._why_none(found))

    async def _wait_for(self, trace_id: str) -> None:
        """Return when the trace has every service's last stage, or the time for it is over."""
        for _ in range(_LOOKS):
            if _is_whole(self._traces.spans(trace_id)):
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    def _why_none(self, replica: rq.ReplicaDetail) -> str:
        if not replica.node:
            return "is not there yet: the replica has no place"
        if not trace_is_sampled(placement_trace(replica.replica, replica.attempt, self._ratio)):
            return f"was not kept: trace_ratio is {self._ratio:g}, and this placement is not of that share"
        return "is not kept any more: newer traces have taken its place, or the gateway has started since"


def _is_whole(spans: tuple[SpanData, ...]) -> bool:
    return {"submit" if span.name == _SUBMITTED_AGAIN else span.name for span in spans} >= _STAGES
