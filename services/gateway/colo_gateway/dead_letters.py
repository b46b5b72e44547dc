"""The HTTP routes of dead letters: messages that a service could not handle, kept until an operator replays or drops them."""

from collections.abc import Callable
from typing import Final

from aiohttp import web

from colo_common.events.service import DeadLettered
from colo_common.model.invalid import InvalidInput
from colo_common.ports import Bus, DeadLetter, DeadLetters, NotKept, PortError, Refused
from colo_gateway.dead_letter_replies import DeadLetterDetail, DeadLetterDone, DeadLetterEntry, DeadLetterList
from colo_gateway.responses import integer_of, invalid_of, json_of, problem_of

__all__ = ["DeadLetterRoutes"]

_SEQ_MOST: Final = (1 << 63) - 1
_PAGE_MOST: Final = 200
_PAGE: Final = 50
_SERVICE_MOST: Final = 64


class DeadLetterRoutes:
    """The handlers of /v1/dead-letters."""

    def __init__(self, bus: Bus, dead_letters: DeadLetters, now_ms: Callable[[], int]) -> None:
        self._bus = bus
        self._now_ms = now_ms
        self._dead_letters = dead_letters

    def routes(self) -> list[web.RouteDef]:
        """All routes, for the aiohttp application."""
        return [
            web.get("/v1/dead-letters", self.list_dead_letters),
            web.get("/v1/dead-letters/{seq}", self.show),
            web.post("/v1/dead-letters/{seq}/replay", self.replay),
            web.delete("/v1/dead-letters/{seq}", self.drop),
        ]

    async def list_dead_letters(self, request: web.Request) -> web.Response:
        """GET /v1/dead-letters."""
        try:
            after = integer_of(request.query, "after", 0, 0, _SEQ_MOST)
            limit = integer_of(request.query, "limit", _PAGE, 1, _PAGE_MOST)
            service = request.query.get("service", "")
            if len(service) > _SERVICE_MOST or not (service.replace("-", "").isalnum() or not service):
                raise InvalidInput("service", "must be the name of a service", service[:_SERVICE_MOST])
            # One more than asked for tells whether there are more.
            found = await self._dead_letters.page(after, limit + 1, service)
        except InvalidInput as error:
            return invalid_of(error)
        except PortError as error:
            return _away(error)
        shown = found[:limit]
        after_last = shown[-1].seq if len(found) > limit else None
        entries = tuple(_entry(each) for each in shown)
        return json_of(DeadLetterList(now_ms=self._now_ms(), dead_letters=entries, after=after_last))

    async def show(self, request: web.Request) -> web.Response:
        """GET /v1/dead-letters/{seq}."""
        try:
            letter = await self._letter(request)
            if letter is None:
                return _unknown(request)
            message = await self._dead_letters.message_of(letter)
        except InvalidInput as error:
            return invalid_of(error)
        except PortError as error:
            return _away(error)
        fact = letter.letter
        text, is_text = _text_of(fact)
        lost = message.why if isinstance(message, NotKept) else ""
        return json_of(
            DeadLetterDetail(entry=_entry(letter), headers=fact.headers, text=text, is_text=is_text, lost=lost)
        )

    async def replay(self, request: web.Request) -> web.Response:
        """POST /v1/dead-letters/{seq}/replay."""
        try:
            letter = await self._letter(request)
            if letter is None:
                return _unknown(request)
            message = await self._dead_letters.message_of(letter)
            if isinstance(message, NotKept):
                return problem_of(409, "dead letter", f"{message.why}; drop it instead", str(letter.seq))
            await self._bus.publish((message,))
            await self._dead_letters.drop(letter.seq)
        except InvalidInput as error:
            return invalid_of(error)
        except Refused as error:
            return problem_of(409, "dead letter", f"cannot be published again: {error}")
        except PortError as error:
            return _away(error)
        return json_of(DeadLetterDone(seq=letter.seq, subject=message.subject, done="replayed"))

    async def drop(self, request: web.Request) -> web.Response:
        """DELETE /v1/dead-letters/{seq}."""
        try:
            letter = await self._letter(request)
            if letter is None or not await self._dead_letters.drop(letter.seq):
                return _unknown(request)
        except InvalidInput as error:
            return invalid_of(error)
        except PortError as error:
            return _away(error)
        return json_of(DeadLetterDone(seq=letter.seq, subject=letter.letter.subject, done="dropped"))

    async def _letter(self, request: web.Request) -> DeadLetter | None:
        seq = integer_of(request.match_info, "seq", 0, 1, _SEQ_MOST)
        return await self._dead_letters.get(seq)


def _entry(letter: DeadLetter) -> DeadLetterEntry:
    fact = letter.letter
    return DeadLetterEntry(
        seq=letter.seq,
        at_ms=fact.at_ms,
        service=fact.service,
        subject=fact.subject,
        reason=fact.reason,
        size_bytes=fact.size_bytes,
        stream=fact.stream,
        stream_seq=fact.stream_seq,
    )


def _text_of(fact: DeadLettered) -> tuple[str, bool]:
    """The message as text, or as hex where it is not UTF-8, and whether it is text."""
    if not fact.data:
        return fact.payload, True
    try:
        return fact.data.decode(), True
    except UnicodeDecodeError:
        return fact.data.hex(), False


def _unknown(request: web.Request) -> web.Response:
    return problem_of(404, "dead letter", "there is none of this number", request.match_info["seq"][:20])


def _away(error: PortError) -> web.Response:
    return problem_of(503, "nats", str(error))
