"""The query parameters that choose facts: types, kinds, node and job."""

from aiohttp import web

from colo_common.model.plain_values import name_among
from colo_gateway.concern import KINDS, TYPES
from colo_gateway.event_filter import EventFilter
from colo_gateway.responses import names_of

__all__ = ["filter_of"]

# Longer than any valid name, so cutting a query value here cannot make it match.
_NAME_MAX = 256


def filter_of(request: web.Request) -> EventFilter:
    """The filter of a request. Raises InvalidInput for an unknown type or kind."""
    return EventFilter(
        types=tuple(name_among(name, TYPES, "types") for name in names_of(request.query, "types")),
        kinds=tuple(name_among(name, KINDS, "kind") for name in names_of(request.query, "kind")),
        node=request.query.get("node", "")[:_NAME_MAX],
        job=request.query.get("job", "")[:_NAME_MAX],
    )
