"""Adds "did you mean" to the refusal of a job, node or reservation that does not exist."""

from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from msgspec import Struct

from colo_common.events import requests as rq
from colo_common.model.nearest import nearest
from colo_gateway.ask import Asker
from colo_gateway.door.door import principal_of
from colo_gateway.replies import Problem
from colo_gateway.responses import problem_of

__all__ = ["suggest_nearest"]

_LISTED_MOST: Final = 1_000


def _job_names(answer: Struct, given: str) -> list[str]:
    """Ids and names of the newest jobs. A path wants an id, so for the name of a job only the newest id of that name."""
    jobs = answer.jobs if isinstance(answer, rq.JobList) else ()
    same = [job.job for job in jobs if job.name == given]
    return same[:1] or [*(job.job for job in jobs), *sorted({job.name for job in jobs})]


def _node_names(answer: Struct, given: str) -> list[str]:
    del given
    return [node.node for node in answer.nodes] if isinstance(answer, rq.NodeList) else []


def _reservation_names(answer: Struct, given: str) -> list[str]:
    del given
    found = answer.reservations if isinstance(answer, rq.ReservationList) else ()
    return [each.spec.name for each in found]


# By the name of the path's parameter: the field of its refusal, the question and the names in the answer.
_LISTS: Final[dict[str, tuple[str, Struct, Callable[[Struct, str], list[str]]]]] = {
    "job": ("job", rq.ListJobs(limit=_LISTED_MOST), _job_names),
    "node": ("node", rq.ListNodes(), _node_names),
    "name": ("reservation", rq.ListReservations(limit=_LISTED_MOST), _reservation_names),
}


def suggest_nearest(asker: Asker) -> Middleware:
    """The middleware. Only a refusal with 404 costs a question more; without an answer to that the refusal stays as it is."""

    @web.middleware
    async def suggest(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if not principal_of(request).is_for_all:
            # The names of others are not told.
            return response
        if response.status != 404 or not isinstance(response, web.Response) or not isinstance(response.body, bytes):
            return response
        for key, (field, question, names_in) in _LISTS.items():
            given = request.match_info.get(key, "")
            if not given:
                continue
            problem = msgspec.json.decode(response.body, type=Problem)
            # A service that knows the names has said it already.
            if problem.field != field or "did you mean" in problem.rule:
                continue
            near = nearest(given, names_in(await asker.ask(question), given))
            if near:
                return problem_of(404, problem.field, f"{problem.rule}; did you mean `{near}`?", problem.got)
        return response

    return suggest
