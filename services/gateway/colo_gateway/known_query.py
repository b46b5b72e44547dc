"""Refuses query keys that a route does not have, so that a typing error never passes for an answer to everything."""

from collections.abc import Mapping
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from colo_common.model.nearest import hint
from colo_gateway.openapi import ROUTES
from colo_gateway.responses import problem_of

__all__ = ["refuse_unknown_query"]

_SHOWN_MOST: Final = 80
_KEYS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    (route.method.upper(), route.path): tuple(each.name for each in route.parameters if each.where == "query")
    for route in ROUTES
}


@web.middleware
async def refuse_unknown_query(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer 400 for a query key that the route's description does not list, and for one that is given twice.

    Routes outside the description, which are those of health, are left alone.
    """
    resource = request.match_info.route.resource
    known = _KEYS.get((request.method, resource.canonical)) if resource is not None else None
    if known is None:
        return await handler(request)
    for key in request.query:
        if key not in known:
            rule = f"is not a query key of this path; {hint(key, known, 'keys') or 'it has none'}"
            return problem_of(400, key[:_SHOWN_MOST], rule, request.query[key][:_SHOWN_MOST])
        if len(request.query.getall(key)) > 1:
            return problem_of(400, key, "is given twice; several values are separated by commas where a list is meant")
    return await handler(request)
