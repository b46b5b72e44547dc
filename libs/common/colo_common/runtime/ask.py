"""Asks another service: takes a request struct, returns its reply struct or a Refusal."""

from msgspec import Struct

from colo_common.events.registry import request_subject
from colo_common.events.requests import Refusal
from colo_common.events.wire import decode_reply, encode_request
from colo_common.model.invalid import InvalidInput
from colo_common.ports import Bus, Refused, Unavailable

__all__ = ["NotNow", "ask"]


class NotNow(Unavailable):
    """The service answered that it cannot do this now; `refusal` is its answer, of code 503."""

    def __init__(self, subject: str, refusal: Refusal) -> None:
        super().__init__(f"ask {subject}: {refusal}")
        self.refusal = refusal


async def ask(bus: Bus, body: Struct, timeout_s: float = 5.0, *, traceparent: str = "") -> Struct:
    """The reply to a registered request, or the Refusal that its answerer gave.

    Raises Unavailable when nobody answers in time, NotNow for a Refusal of code 503, and Refused for an answer that cannot be
    read. KeyError when the request's type is not registered.
    """
    subject = request_subject(body)
    headers = {"traceparent": traceparent} if traceparent else None
    data = await bus.ask(subject, encode_request(body), timeout_s, headers)
    try:
        answer = decode_reply(type(body), data)
    except InvalidInput as error:
        raise Refused(str(error)) from error
    if isinstance(answer, Refusal) and answer.code == 503:
        raise NotNow(subject, answer)
    return answer
