"""The HTTP routes that look back: history, evictions, online harm. The gateway answers them from what it has heard."""

from typing import Final

from aiohttp import web

from colo_common.model.invalid import InvalidInput
from colo_common.ports import Clock
from colo_gateway.core import GatewayCore
from colo_gateway.event_query import filter_of
from colo_gateway.eviction_account import EvictionList, account_of
from colo_gateway.harm_reply import harm_reply
from colo_gateway.history import history_of
from colo_gateway.responses import integer_of, invalid_of, json_of, problem_of
from colo_gateway.since import since_of

__all__ = ["StoryRoutes"]

_NAME_MAX: Final = 256
_SAME_MAX: Final = 5


class StoryRoutes:
    """The handlers of the routes that look back. `speed` above 1: the clock is simulated and runs so many times as fast."""

    def __init__(self, core: GatewayCore, clock: Clock, speed: float) -> None:
        self._core = core
        self._clock = clock
        self._speed = speed

    def routes(self) -> list[web.RouteDef]:
        """All these routes, for the aiohttp application."""
        return [
            web.get("/v1/history", self.history),
            web.get("/v1/harm", self.harm),
            web.get("/v1/evictions", self.list_evictions),
            web.get("/v1/evictions/{eviction}", self.get_eviction),
        ]

    async def history(self, request: web.Request) -> web.Response:
        """GET /v1/history."""
        try:
            filter_ = filter_of(request)
            since = since_of(request.query.get("since", "1m"))
            limit = integer_of(request.query, "limit", 100, 1, 1000)
        except InvalidInput as error:
            return invalid_of(error)
        now_ms = self._clock.now_ms()
        return json_of(
            history_of(
                self._core.event_log,
                filter_,
                from_ms=None if since.ago_ms is None else now_ms - since.ago_ms,
                position=since.position or 0,
                limit=limit,
                now_ms=now_ms,
                speed=self._speed,
            )
        )

    async def harm(self, request: web.Request) -> web.Response:
        """GET /v1/harm."""
        try:
            limit = integer_of(request.query, "limit", 10, 1, 1000)
        except InvalidInput as error:
            return invalid_of(error)
        node = request.query.get("node", "")[:_NAME_MAX]
        return json_of(
            harm_reply(self._core.harm, node=node, limit=limit, now_ms=self._clock.now_ms(), speed=self._speed)
        )

    async def list_evictions(self, request: web.Request) -> web.Response:
        """GET /v1/evictions."""
        query = request.query
        try:
            ago_ms = since_of(query["since"]).ago_ms if "since" in query else None
            if ago_ms is None and "since" in query:
                raise InvalidInput("since", 'must be a time such as "10m"', query["since"])
            limit = integer_of(query, "limit", 100, 1, 1000)
        except InvalidInput as error:
            return invalid_of(error)
        now_ms = self._clock.now_ms()
        found = self._core.evictions.newest(
            node=query.get("node", "")[:_NAME_MAX],
            job=query.get("job", "")[:_NAME_MAX],
            since_ms=0 if ago_ms is None else now_ms - ago_ms,
        )
        return json_of(
            EvictionList(
                evictions=tuple(map(account_of, found[:limit])),
                total=len(found),
                now_ms=now_ms,
                known_since_ms=self._core.event_log.known_since_ms(),
                clock_speed=self._speed,
            )
        )

    async def get_eviction(self, request: web.Request) -> web.Response:
        """GET /v1/evictions/{eviction}: by its id, the beginning of it, or the replica that was evicted last under this name."""
        name = request.match_info["eviction"][:_NAME_MAX]
        found = self._core.evictions.find(name)
        if not found:
            rule = "there is no such eviction; the gateway knows the newest 2,000 since its start"
            return problem_of(404, "eviction", rule, name)
        if len(found) > 1:
            ids = " ".join(each.requested.eviction for each in found[:_SAME_MAX])
            return problem_of(409, "eviction", f"{len(found)} evictions begin so; say more of the id: {ids}", name)
        return json_of(account_of(found[0]))
