"""Puts messages and requests into the inbox. A request that cannot be decoded is refused with a sentence."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from colo_common.events.registry import RequestSpec, request_spec_of
from colo_common.events.requests import Refusal
from colo_common.events.wire import decode_request, encode_reply, event_at
from colo_common.model.invalid import InvalidInput
from colo_common.ports import Answerer, Delivery, PortError, Sink, Source
from colo_common.runtime.inbox import Inbox, Request
from colo_common.runtime.metrics import ServiceMetrics
from colo_common.runtime.sources import is_catch_all

__all__ = ["Intake", "refusal_of"]

# Longer than any caller waits; after this time the answer is dropped.
_ANSWER_LIMIT_S: Final = 30.0
_TOO_MUCH: Final = "has too much to do, ask again in a moment"


def refusal_of(error: InvalidInput) -> Refusal:
    """The refusal of a request that breaks a rule, code 400."""
    return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)


class Intake:
    """Puts deliveries and requests into one inbox and returns the core's replies to the waiting requests."""

    def __init__(
        self, inbox: Inbox, boot_id: str, metrics: ServiceMetrics, full: Callable[[bool], str] = lambda _changes: ""
    ) -> None:
        """`full` says why a request that changes something (True), or only asks (False), is refused for now, or ""."""
        self._full = full
        self._inbox = inbox
        self._boot_id = boot_id
        self._metrics = metrics
        self._request_count = 0
        self._closed = ""
        self._waiting: dict[str, asyncio.Future[bytes]] = {}

    def sink(self, source: Source, may_wait_s: float = 0.0) -> Sink:
        """The sink of a listener; it waits while the inbox is full. `may_wait_s`: how long the inbox may hold its messages back."""

        async def put(delivery: Delivery) -> None:
            if is_catch_all(source) and not _is_registered(delivery.subject):
                # An event of a later version of colo, which this service did not subscribe to.
                with suppress(PortError):
                    await delivery.ack()
                return
            await self._inbox.put(delivery, may_wait_s)

        return put

    def answerers(
        self, request_types: Sequence[type[Struct]], parameters: Mapping[str, str] | None = None
    ) -> dict[str, Answerer]:
        """An answerer for the subject of each request type; `parameters` fill the subjects that have some.

        Raises KeyError for a type that is not registered, and InvalidInput when a parameter of a subject is not given.
        """
        found = {}
        for spec in map(request_spec_of, request_types):
            given = {name: value for name, value in (parameters or {}).items() if name in spec.subject.parameters}
            found[spec.subject.of(**given)] = self._answerer(spec.subject.of(**given), spec)
        return found

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
        """Refuse every request from now on, with this sentence."""
        self._closed = rule

    def refuse_waiting(self) -> None:
        """Refuse every request that still waits; the core will not answer it any more."""
        for request in tuple(self._waiting):
            self.reply(request, encode_reply(_unavailable(self._closed)))

    def _answerer(self, subject: str, spec: RequestSpec) -> Answerer:
        async def answer(data: bytes, headers: Mapping[str, str]) -> bytes:
            try:
                body = decode_request(subject, data)
            except InvalidInput as error:
                self._metrics.refusals.inc()
                return encode_reply(refusal_of(error))
            why = self._closed or self._full(spec.changes) or (_TOO_MUCH if self._inbox.full else "")
            if why:
                self._metrics.refusals.inc()
                return encode_reply(_unavailable(why))
            return await self._wait(body, headers.get("traceparent", ""))

        return answer

    async def _wait(self, body: Struct, traceparent: str) -> bytes:
        self._request_count += 1
        request = f"{self._boot_id}-q{self._request_count}"
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
