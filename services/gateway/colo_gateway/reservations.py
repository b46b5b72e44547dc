"""The HTTP routes of reservations."""

from typing import Final

from aiohttp import web

from colo_common.events import requests as rq
from colo_common.model.invalid import InvalidInput
from colo_common.model.reservation_file import reservation_from_mapping
from colo_gateway.ask import Asker
from colo_gateway.body import BODY_BYTES_MAX, TooLarge, read_mapping
from colo_gateway.responses import answer_of, integer_of, invalid_of, json_of, names_of, problem_of

__all__ = ["ReservationRoutes"]

_NAME_MAX: Final = 80


class ReservationRoutes:
    """The handlers of the reservation routes. Each sends one request to the scheduler, which keeps the reservations."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    def routes(self) -> list[web.RouteDef]:
        """All reservation routes, for the aiohttp application."""
        return [
            web.post("/v1/reservations", self.create),
            web.get("/v1/reservations", self.list_all),
            web.get("/v1/reservations/{name}", self.get_one),
            web.delete("/v1/reservations/{name}", self.delete),
        ]

    async def create(self, request: web.Request) -> web.Response:
        """POST /v1/reservations."""
        try:
            spec = reservation_from_mapping(await read_mapping(request))
        except InvalidInput as error:
            return invalid_of(error)
        except TooLarge:
            return problem_of(413, "body", f"must have at most {BODY_BYTES_MAX} bytes")
        answer = await self._asker.ask(rq.CreateReservation(spec=spec))
        return json_of(answer, 201) if isinstance(answer, rq.ReservationDetail) else answer_of(answer)

    async def list_all(self, request: web.Request) -> web.Response:
        """GET /v1/reservations."""
        try:
            offset = integer_of(request.query, "offset", 0, 0, 1_000_000)
            limit = integer_of(request.query, "limit", 100, 1, 1000)
        except InvalidInput as error:
            return invalid_of(error)
        phases, cursor = names_of(request.query, "phase"), request.query.get("cursor", "")
        asked = rq.ListReservations(phases=phases, offset=offset, limit=limit, cursor=cursor)
        return answer_of(await self._asker.ask(asked))

    async def get_one(self, request: web.Request) -> web.Response:
        """GET /v1/reservations/{name}."""
        return answer_of(await self._asker.ask(rq.GetReservation(name=request.match_info["name"][:_NAME_MAX])))

    async def delete(self, request: web.Request) -> web.Response:
        """DELETE /v1/reservations/{name}."""
        return answer_of(await self._asker.ask(rq.DeleteReservation(name=request.match_info["name"][:_NAME_MAX])))
