"""GET /v1/audit: who changed something through the gateway, newest first, from the stream that keeps it for 90 days."""

from typing import Final

import msgspec
from aiohttp import web

from colo_common.model.invalid import InvalidInput
from colo_common.ports import AuditLog, PortError
from colo_gateway.audit_replies import AuditEntry, AuditReply
from colo_gateway.responses import integer_of, invalid_of, json_of, problem_of

__all__ = ["AuditRoutes"]

_SEQ_MOST: Final = (1 << 63) - 1
_LIMIT_MOST: Final = 500
_READ_MOST: Final = 2_000
_NAME_MOST: Final = 64


class AuditRoutes:
    """The handler of the audit."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def routes(self) -> list[web.RouteDef]:
        """The route, for the aiohttp application."""
        return [web.get("/v1/audit", self.newest)]

    async def newest(self, request: web.Request) -> web.Response:
        """GET /v1/audit."""
        query = request.query
        try:
            limit = integer_of(query, "limit", 50, 1, _LIMIT_MOST)
            before = integer_of(query, "before", 0, 0, _SEQ_MOST)
            who, failed = query.get("who", "")[:_NAME_MOST], query.get("refused", "false")
            if failed not in ("true", "false"):
                raise InvalidInput("refused", "must be true or false", failed)
            read = limit if not who and failed == "false" else _READ_MOST
            found = await self._log.newest(before, read)
        except InvalidInput as error:
            return invalid_of(error)
        except PortError as error:
            return problem_of(503, "nats", str(error))
        chosen = [
            (seq, fact)
            for seq, fact in found
            if (not who or fact.who == who) and (failed == "false" or fact.status >= 400)
        ]
        shown = chosen[:limit]
        last = shown[-1][0] if len(chosen) > limit else found[-1][0] if len(found) == read else None
        entries = tuple(
            msgspec.convert({"seq": seq, **msgspec.structs.asdict(fact)}, AuditEntry, strict=False)
            for seq, fact in shown
        )
        return json_of(AuditReply(entries=entries, before=last))
