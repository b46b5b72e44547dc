"""How messages and requests come to the inbox: decoded by subject, refused with a sentence when they do not fit."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from colo_common.events.registry import request_spec_of
from colo_common.events.requests import Refusal
from colo_common.events.wire import decode_request, encode_reply, event_at
from colo_common.model.invalid import InvalidInput
from colo_common.ports import Answerer, Delivery, PortError, Sink, Source
from colo_common.runtime.inbox import Inbox, Request
from colo_common.runtime.metrics import ServiceMetrics
from colo_common.runtime.sources import is_whole

__all__ = ["Intake", "refusal_of"]

# Longer than any caller waits; after it the answer is forgotten.
_ANSWER_LIMIT_S: Final = 30.0


def refusal_of(error: InvalidInput) -> Refusal:
    """The answer to a request that breaks a rule."""
    return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)


class Intake:
    """Brings deliveries and requests into one inbox and takes the answers back to those who wait for them."""

    def __init__(self, inbox: Inbox, boot_id: str, metrics: ServiceMetrics) -> None:
        self._inbox = inbox
        self._boot_id = boot_id
        self._metrics = metrics
        self._asked = 0
        self._closed = ""
        self._waiting: dict[str, asyncio.Future[bytes]] = {}

    def sink(self, source: Source, may_wait_s: float = 0.0) -> Sink:
        """Where a listener brings its messages; a full inbox makes it wait. `may_wait_s`: they may lie there so long."""

        async def put(delivery: Delivery) -> None:
            if is_whole(source) and not _is_registered(delivery.subject):
                # Of a later version of colo; nobody here asked for it.
                with suppress(PortError):
                    await delivery.ack()
                return
            await self._inbox.put(delivery, may_wait_s)

        return put

    def answerers(self, request_types: Sequence[type[Struct]]) -> dict[str, Answerer]:
        """An answerer for the subject of each request type. Raises KeyError for a type that is not registered."""
        return {
            subject: self._answerer(subject)
            for subject in (request_spec_of(body).subject.of() for body in request_types)
        }

    def reply(self, request: str, body: bytes) -> None:
        """Answer a request that still waits."""
        future = self._waiting.get(request)
        if future is not None and not future.done():
            future.set_result(body)

    def refuse(self, request: str, refusal: Refusal) -> None:
        """Answer with a refusal."""
        self._metrics.refusals.inc()
        self.reply(request, encode_reply(refusal))

    def close(self, rule: str) -> None:
        """Refuse what comes from now on."""
        self._closed = rule

    def refuse_waiting(self) -> None:
        """Refuse what still waits for its answer, now that none will come."""
        for request in tuple(self._waiting):
            self.reply(request, encode_reply(_unavailable(self._closed)))

    def _answerer(self, subject: str) -> Answerer:
        async def answer(data: bytes, headers: Mapping[str, str]) -> bytes:
            try:
                body = decode_request(subject, data)
            except InvalidInput as error:
                self._metrics.refusals.inc()
                return encode_reply(refusal_of(error))
            if self._closed or self._inbox.full:
                self._metrics.refusals.inc()
                return encode_reply(_unavailable(self._closed or "has too much to do, ask again in a moment"))
            return await self._wait(body, headers.get("traceparent", ""))

        return answer

    async def _wait(self, body: Struct, traceparent: str) -> bytes:
        self._asked += 1
        request = f"{self._boot_id}-q{self._asked}"
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[request] = future
        try:
            async with asyncio.timeout(_ANSWER_LIMIT_S):
                await self._inbox.put(Request(request, body, traceparent))
                return await future
        except TimeoutError:
            return encode_reply(_unavailable("did not come to an answer in time"))
        finally:
            del self._waiting[request]


def _is_registered(subject: str) -> bool:
    try:
        event_at(subject)
    except InvalidInput:
        return False
    return True


def _unavailable(rule: str) -> Refusal:
    return Refusal(code=503, field="service", rule=rule)
