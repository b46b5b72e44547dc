"""The HTTP routes of external capacity: a system outside bounds what a node promises to batch work, for a time."""

from typing import Final

from aiohttp import web
from msgspec import structs

from colo_common.events.external import TTL_MOST_MS, ClearExternalCapacity, SetExternalCapacity
from colo_common.events.subjects import encode_node
from colo_common.model.duration import parse_duration_ms
from colo_common.model.invalid import InvalidInput
from colo_common.model.plain_values import mapping_of, text_of
from colo_common.model.quantity import parse_bytes, parse_mcpu
from colo_gateway.ask import Asker
from colo_gateway.body import BODY_BYTES_MAX, TooLarge, read_mapping
from colo_gateway.door.door import principal_of
from colo_gateway.responses import answer_of, invalid_of, problem_of

__all__ = ["ExternalRoutes"]

_FIELDS: Final = ("source", "cpu", "memory", "for", "by")


class ExternalRoutes:
    """The handlers of /v1/nodes/{node}/external; what counts now is in the node's own description."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    def routes(self) -> list[web.RouteDef]:
        """All routes, for the aiohttp application."""
        return [
            web.put("/v1/nodes/{node}/external", self.set),
            web.delete("/v1/nodes/{node}/external", self.clear),
        ]

    async def set(self, request: web.Request) -> web.Response:
        """PUT /v1/nodes/{node}/external."""
        node = request.match_info["node"]
        try:
            encode_node(node)
            given = mapping_of(await read_mapping(request), "body", _FIELDS, within="")
            asked = SetExternalCapacity(
                node=node,
                source=text_of(given.get("source", ""), "source"),
                ttl_ms=parse_duration_ms(given.get("for", 0), "for", max_ms=TTL_MOST_MS),
                cpu_mcpu=parse_mcpu(given["cpu"], "cpu") if "cpu" in given else None,
                memory_bytes=parse_bytes(given["memory"], "memory") if "memory" in given else None,
                by=text_of(given.get("by", ""), "by"),
            )
        except InvalidInput as error:
            return invalid_of(error)
        except TooLarge:
            return problem_of(413, "body", f"must have at most {BODY_BYTES_MAX} bytes")
        who = principal_of(request)
        return answer_of(await self._asker.ask(structs.replace(asked, by=who.name) if who.is_authenticated else asked))

    async def clear(self, request: web.Request) -> web.Response:
        """DELETE /v1/nodes/{node}/external."""
        node = request.match_info["node"]
        try:
            encode_node(node)
            given = mapping_of(dict(request.query), "query", ("source",), within="")
        except InvalidInput as error:
            return invalid_of(error)
        return answer_of(await self._asker.ask(ClearExternalCapacity(node=node, source=given.get("source", ""))))
